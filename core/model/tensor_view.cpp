// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_view.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "status/status.hpp"

namespace mp::model {
namespace {

// Bytes of a transposed view's that are read at a time.
constexpr int64_t kMostBuffered = int64_t{1} << 20;
// Rows whose elements become neighbours, so that whole lines of the cache are written.
constexpr int64_t kTileRows = 64;

std::string text_of(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t size : shape) {
        text += (text.empty() ? "" : "x") + std::to_string(size);
    }
    return text.empty() ? "one number" : text;
}

// Nothing where they overflow, even as bits and with sizes of 0 left out, or fill no whole blocks.
std::optional<int64_t> bytes_of(FileType type, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    int64_t bits = 0;
    bool is_empty = false;
    for (const int64_t size : shape) {
        is_empty = is_empty || size == 0;
        if (size != 0 && __builtin_mul_overflow(count, size, &count)) {
            return std::nullopt;
        }
    }
    if (__builtin_mul_overflow(count, 8 * block_bytes(type), &bits)) {
        return std::nullopt;
    }
    return model::bytes_of(type, is_empty ? 0 : count);
}

// A row that ends inside a block has no bytes of its own.
void require_rows(const TensorView& view, const char* operation) {
    if (view.shape().empty()) {
        fail(Code::invalid_shape, "%s takes rows; a single number has none", operation);
    }
    const std::vector<int64_t> row(view.shape().begin() + 1, view.shape().end());
    if (!bytes_of(view.type(), row).has_value()) {
        fail(Code::invalid_shape,
             "%s takes rows of whole blocks, which of %s are %lld elements; "
             "the shape is %.200s",
             operation, file_type_name(view.type()),
             static_cast<long long>(block_elements(view.type())), text_of(view.shape()).c_str());
    }
}

class SourceView final : public TensorView {
  public:
    SourceView(const TensorSource& source, std::size_t index, const TensorFacts& facts)
        : TensorView(facts.type, facts.shape), source_(source), index_(index) {}

    void read(int64_t offset, unsigned char* to, int64_t bytes) const override {
        source_.read(index_, offset, to, static_cast<std::size_t>(bytes));
    }
    [[nodiscard]] std::size_t first_source() const noexcept override { return index_; }

  private:
    const TensorSource& source_;
    std::size_t index_;
};

class JoinedView final : public TensorView {
  public:
    JoinedView(std::vector<TensorViewPtr> parts, std::vector<int64_t> shape)
        : TensorView(parts.front()->type(), std::move(shape)), parts_(std::move(parts)) {
        int64_t end = 0;
        for (const TensorViewPtr& part : parts_) {
            end += part->bytes();
            ends_.push_back(end);
        }
    }

    void read(int64_t offset, unsigned char* to, int64_t bytes) const override {
        auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) -
                                             ends_.begin());
        for (; bytes > 0; ++part) {
            const int64_t n = std::min(bytes, ends_[part] - offset);
            if (n > 0) {
                parts_[part]->read(offset - (ends_[part] - parts_[part]->bytes()), to, n);
            }
            offset += n;
            to += n;
            bytes -= n;
        }
    }
    [[nodiscard]] std::size_t first_source() const noexcept override {
        return parts_.front()->first_source();
    }

  private:
    std::vector<TensorViewPtr> parts_;
    std::vector<int64_t> ends_; // bytes up to each one's end
};

class RowsView final : public TensorView {
  public:
    RowsView(TensorViewPtr of, int64_t first, std::vector<int64_t> shape)
        : TensorView(of->type(), std::move(shape)), begin_(first * of->row_bytes()),
          of_(std::move(of)) {}

    void read(int64_t offset, unsigned char* to, int64_t bytes) const override {
        of_->read(begin_ + offset, to, bytes);
    }
    [[nodiscard]] std::size_t first_source() const noexcept override { return of_->first_source(); }

  private:
    int64_t begin_;
    TensorViewPtr of_;
};

// The rows of each head in another order.
class HeadRowsView final : public TensorView {
  public:
    HeadRowsView(TensorViewPtr of, int64_t heads, bool to_pairs)
        : TensorView(of->type(), of->shape()), of_(std::move(of)), half_(shape()[0] / heads / 2),
          to_pairs_(to_pairs) {}

    void read(int64_t offset, unsigned char* to, int64_t bytes) const override {
        const int64_t row = row_bytes(); // 0: there are no bytes
        while (bytes > 0 && row > 0) {
            const int64_t in_row = offset % row;
            const int64_t n = std::min(bytes, row - in_row);
            of_->read(source_row(offset / row) * row + in_row, to, n);
            offset += n;
            to += n;
            bytes -= n;
        }
    }
    [[nodiscard]] std::size_t first_source() const noexcept override { return of_->first_source(); }

  private:
    [[nodiscard]] int64_t source_row(int64_t row) const noexcept {
        const int64_t in_head = row % (2 * half_);
        const int64_t from =
            to_pairs_ ? in_head % 2 * half_ + in_head / 2 : in_head % half_ * 2 + in_head / half_;
        return row - in_head + from;
    }

    TensorViewPtr of_;
    int64_t half_; // rows of half a head
    bool to_pairs_;
};

// Elements are whole bytes. A row of it is a column of the origin's, so many rows are read together: a run of each of the
// origin's rows at a time, into a buffer.
class TransposedView final : public TensorView {
  public:
    explicit TransposedView(TensorViewPtr of)
        : TensorView(of->type(), {of->shape()[1], of->shape()[0]}),
          element_(block_bytes(of->type())), of_(std::move(of)) {}

    void read(int64_t offset, unsigned char* to, int64_t bytes) const override {
        const int64_t skipped = offset % element_;
        if (skipped != 0 || bytes < element_) { // a part of an element
            const int64_t n = std::min(bytes, element_ - skipped);
            std::array<unsigned char, 16> one{};
            if (n > 0) {
                read_elements(offset / element_, 1, one.data());
                std::memcpy(to, one.data() + skipped, static_cast<std::size_t>(n));
                read(offset + n, to + n, bytes - n);
            }
            return;
        }
        const int64_t count = bytes / element_;
        read_elements(offset / element_, count, to);
        read(offset + count * element_, to + count * element_, bytes % element_);
    }
    [[nodiscard]] std::size_t first_source() const noexcept override { return of_->first_source(); }

  private:
    void read_elements(int64_t first, int64_t count, unsigned char* to) const {
        const int64_t row = shape()[1];
        while (count > 0) {
            const int64_t in_row = first % row;
            const int64_t rows = std::min(count / row, kMostBuffered / kTileRows / element_);
            const bool is_part = in_row != 0 || rows == 0;
            const int64_t n = is_part ? std::min(count, row - in_row) : row;
            read_columns({first / row, is_part ? 1 : rows, in_row, n}, to);
            const int64_t done = is_part ? n : rows * row;
            first += done;
            to += done * element_;
            count -= done;
        }
    }

    struct Columns { // of the origin, which become rows; and which of the origin's rows
        int64_t first, count;
        int64_t begin, rows;
    };
    // Where all columns are wanted, many of the origin's rows are one run; else they are read one by one, as many as are written
    // together.
    void read_columns(const Columns& c, unsigned char* to) const {
        const int64_t width = shape()[0];
        const int64_t run = c.count * element_;
        const bool is_whole = c.count == width;
        const int64_t fit = std::max<int64_t>(1, kMostBuffered / run);
        const int64_t together = is_whole ? fit : std::min(fit, kTileRows);
        std::vector<unsigned char> buffer(
            static_cast<std::size_t>(std::min(together, c.rows) * run));
        for (int64_t j = 0; j < c.rows; j += together) {
            const int64_t rows = std::min(together, c.rows - j);
            const int64_t at_once = is_whole ? rows : 1;
            for (int64_t k = 0; k < rows; k += at_once) {
                of_->read(((c.begin + j + k) * width + c.first) * element_, buffer.data() + k * run,
                          at_once * run);
            }
            for (int64_t k = 0; k < rows; k += kTileRows) {
                scatter({buffer.data() + k * run, c.count, std::min(kTileRows, rows - k)},
                        to + (j + k) * element_, c.rows * element_);
            }
        }
    }

    struct Tile {
        const unsigned char* data;
        int64_t columns, rows;
    };
    void scatter(const Tile& tile, unsigned char* to, int64_t stride) const noexcept {
        switch (element_) {
        case 1:
            return scatter_of<1>(tile, to, stride);
        case 2:
            return scatter_of<2>(tile, to, stride);
        case 4:
            return scatter_of<4>(tile, to, stride);
        default:
            return scatter_of<8>(tile, to, stride);
        }
    }
    template <int64_t kBytes>
    static void scatter_of(const Tile& tile, unsigned char* to, int64_t stride) noexcept {
        for (int64_t i = 0; i < tile.columns; ++i) {
            for (int64_t k = 0; k < tile.rows; ++k) {
                std::memcpy(to + i * stride + k * kBytes,
                            tile.data + (k * tile.columns + i) * kBytes,
                            static_cast<std::size_t>(kBytes));
            }
        }
    }

    int64_t element_; // bytes of one: 1, 2, 4 or 8
    TensorViewPtr of_;
};

TensorViewPtr head_rows(TensorViewPtr view, int64_t heads, bool to_pairs) {
    const char* name = to_pairs ? "half_to_pairs" : "pairs_to_half";
    require_rows(*view, name);
    const int64_t rows = view->shape()[0];
    if (rows % heads != 0 || rows / heads % 2 != 0) {
        fail(Code::invalid_shape,
             "%s takes an even number of rows for each head; there are %lld rows and %lld heads",
             name, static_cast<long long>(rows), static_cast<long long>(heads));
    }
    return std::make_unique<HeadRowsView>(std::move(view), heads, to_pairs);
}

} // namespace

TensorView::TensorView(FileType type, std::vector<int64_t> shape)
    : type_(type), shape_(std::move(shape)) {
    const auto bytes = bytes_of(type_, shape_);
    if (!bytes.has_value()) {
        fail(Code::invalid_shape, "%.200s elements of %s are too many, or no whole blocks",
             text_of(shape_).c_str(), file_type_name(type_));
    }
    bytes_ = *bytes;
}

TensorViewPtr view_of(const TensorSource& source, std::size_t index) {
    return std::make_unique<SourceView>(source, index, source.facts(index));
}

TensorViewPtr join_views(std::vector<TensorViewPtr> parts) {
    const TensorView& first = *parts.front();
    std::vector<int64_t> shape = first.shape();
    for (const TensorViewPtr& part : parts) {
        require_rows(*part, "join");
        if (part->type() != first.type()) {
            fail(Code::invalid_dtype, "join takes tensors of one type; these are %s and %s",
                 file_type_name(first.type()), file_type_name(part->type()));
        }
        if (!std::equal(shape.begin() + 1, shape.end(), part->shape().begin() + 1,
                        part->shape().end())) {
            fail(Code::invalid_shape,
                 "join takes tensors that are equal in all dimensions but the first; these are "
                 "%.200s and %.200s",
                 text_of(first.shape()).c_str(), text_of(part->shape()).c_str());
        }
        if (part != parts.front() &&
            __builtin_add_overflow(shape[0], part->shape()[0], shape.data())) {
            fail(Code::invalid_shape, "join makes too many rows");
        }
    }
    return std::make_unique<JoinedView>(std::move(parts), std::move(shape));
}

TensorViewPtr rows_of(TensorViewPtr view, int64_t first, int64_t end) {
    require_rows(*view, "rows");
    std::vector<int64_t> shape = view->shape();
    if (end > shape[0] || first > end) {
        fail(Code::invalid_shape, "rows %lld to %lld were asked for; there are %lld",
             static_cast<long long>(first), static_cast<long long>(end),
             static_cast<long long>(shape[0]));
    }
    shape[0] = end - first;
    return std::make_unique<RowsView>(std::move(view), first, std::move(shape));
}

TensorViewPtr part_of(TensorViewPtr view, int64_t part, int64_t parts) {
    require_rows(*view, "rows");
    const int64_t rows = view->shape()[0];
    if (rows % parts != 0) {
        fail(Code::invalid_shape,
             "%lld rows do not make %lld equal parts; say which rows, FIRST:END",
             static_cast<long long>(rows), static_cast<long long>(parts));
    }
    return rows_of(std::move(view), part * (rows / parts), (part + 1) * (rows / parts));
}

TensorViewPtr transposed(TensorViewPtr view) {
    if (view->shape().size() != 2) {
        fail(Code::invalid_shape, "transpose takes two dimensions; there are %zu",
             view->shape().size());
    }
    if (block_elements(view->type()) != 1) {
        fail(Code::invalid_dtype,
             "transpose takes elements of whole bytes; %s has blocks of %lld, which lie along rows",
             file_type_name(view->type()), static_cast<long long>(block_elements(view->type())));
    }
    return std::make_unique<TransposedView>(std::move(view));
}

TensorViewPtr half_to_pairs(TensorViewPtr view, int64_t heads) {
    return head_rows(std::move(view), heads, true);
}

TensorViewPtr pairs_to_half(TensorViewPtr view, int64_t heads) {
    return head_rows(std::move(view), heads, false);
}

} // namespace mp::model
