// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_tensor.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/tensor_to_file.hpp"
#include "numerics/bits.hpp"
#include "numerics/block_quantize.hpp"
#include "quant/quantize.hpp"
#include "quant/read_floats.hpp"
#include "status/status.hpp"
#include "system/name.hpp"

namespace mp::checkpoint {
namespace {

class Load {
  public:
    Load(Stream& stream, const model::TensorSource& source, std::size_t index, int64_t first_row,
         Tensor& tensor)
        : stream_(stream), source_(source), index_(index), from_(source.facts(index)),
          name_(from_.name), tensor_(tensor) {
        check_rows(first_row);
        first_ = first_row * row_elements();
    }

    void run() {
        if (!is_quantized() && tensor_.dtype() == model::dtype_of(from_.type)) {
            check_blocks();
            copy_bytes();
            return;
        }
        if (!is_quantized() && !numerics::stores_floats(tensor_.dtype())) {
            fail(Code::invalid_dtype,
                 "model file: '%.200s' is %s, but the tensor is %s; numbers become fp32, fp16, "
                 "bf16, q8_0, q4_0, or codes of a tensor that was made with "
                 "mp_tensor_create_quantized",
                 name_.c_str(), model::file_type_name(from_.type), dtype_name(tensor_.dtype()));
        }
        source_.check_floats(index_);
        if (is_quantized()) {
            quantize();
        } else {
            store();
        }
    }

  private:
    [[nodiscard]] bool is_quantized() const noexcept { return tensor_.scales() != nullptr; }
    [[nodiscard]] int64_t row_elements() const noexcept {
        int64_t count = 1;
        for (std::size_t i = 1; i < from_.shape.size(); ++i) {
            count *= from_.shape[i];
        }
        return count;
    }

    void check_rows(int64_t first_row) const {
        const Shape& shape = tensor_.shape();
        const std::span<const int64_t> sizes(shape.sizes.data(),
                                             static_cast<std::size_t>(shape.ndim));
        const std::span<const int64_t> wanted(from_.shape);
        const bool has_rows = !wanted.empty();
        if (sizes.size() != wanted.size() ||
            (has_rows && !std::ranges::equal(sizes.subspan(1), wanted.subspan(1)))) {
            fail(Code::invalid_shape,
                 "model file: '%.200s' is %s, but the tensor is %s; all dimensions but the first "
                 "must be equal",
                 name_.c_str(), shape_text(wanted).c_str(), shape.text().c_str());
        }
        const int64_t rows = has_rows ? wanted[0] : 1;
        const int64_t own = has_rows ? sizes[0] : 1;
        if (first_row < 0 || first_row > rows || own > rows - first_row) {
            fail(Code::invalid_argument,
                 "model file: %lld rows from row %lld on were asked for; '%.200s' has %lld",
                 static_cast<long long>(own), static_cast<long long>(first_row), name_.c_str(),
                 static_cast<long long>(rows));
        }
    }
    void check_blocks() const {
        const int64_t block = model::block_elements(from_.type);
        if (first_ % block != 0 || tensor_.count() % block != 0) {
            fail(Code::invalid_shape,
                 "model file: a row of '%.200s', which is %s, is no whole block of %lld elements",
                 name_.c_str(), model::file_type_name(from_.type), static_cast<long long>(block));
        }
    }

    void copy_bytes() {
        constexpr std::size_t kMost = std::size_t{1} << 20;
        const auto begin = static_cast<int64_t>(bytes_of(tensor_.dtype(), first_));
        std::vector<unsigned char> piece(std::min(tensor_.bytes(), kMost));
        for (std::size_t done = 0; done < tensor_.bytes(); done += piece.size()) {
            piece.resize(std::min(kMost, tensor_.bytes() - done));
            source_.read(index_, begin + static_cast<int64_t>(done), piece.data(), piece.size());
            upload(static_cast<unsigned char*>(tensor_.data()) + done, piece.data(), piece.size());
        }
    }

    void store() {
        for (int64_t done = 0; done < tensor_.count(); done += kFilePieceElements) {
            const int64_t n = read(done, kFilePieceElements);
            const int64_t wrong = numerics::unstorable(tensor_.dtype(), values_.data(), n);
            if (wrong >= 0) {
                fail(Code::invalid_argument,
                     "model file: the block of '%.200s' that begins at element %lld cannot be %s: "
                     "its numbers must be finite, and their scale fit fp16",
                     name_.c_str(), static_cast<long long>(first_ + done + wrong),
                     dtype_name(tensor_.dtype()));
            }
            quant::write_floats(stream_, tensor_.array(), done, values_);
        }
    }

    // Scales of blocks are made piece by piece. One scale for all, or NVFP4's scales, which are relative to the tensor's amax,
    // want that first: all is read twice.
    void quantize() {
        const Format format = tensor_.format();
        const int64_t unit =
            slice_unit(format.dtype, format.grid, tensor_.rows(), tensor_.columns());
        const int64_t piece = std::max<int64_t>(1, kFilePieceElements / unit) * unit;
        const bool is_shared =
            format.grid.is_one() || format.policy.rule == numerics::ScaleRule::nvfp4;
        const Buffer amax = stream_.allocate(sizeof(float));
        const Buffer numbers = stream_.allocate(
            static_cast<std::size_t>(std::min(piece, tensor_.count())) * sizeof(float));
        uint32_t largest = 0;
        const auto see = [&](int64_t n) {
            largest = std::max(largest, numerics::amax_bits(values_.data(), n));
        };
        for (int64_t done = 0; is_shared && done < tensor_.count(); done += piece) {
            see(read(done, piece));
        }
        upload(amax.data(), &largest, sizeof largest);
        for (int64_t done = 0; done < tensor_.count(); done += piece) {
            const int64_t n = read(done, piece);
            see(n);
            upload(numbers.data(), values_.data(), static_cast<std::size_t>(n) * sizeof(float));
            const ArrayRef to = slice_of(tensor_, done, n);
            quant::convert(stream_,
                           plain_array({numbers.data(), n, DType::fp32}, to.rows, to.columns), to,
                           is_shared ? static_cast<const float*>(amax.data()) : nullptr);
            stream_.sync(); // before the numbers change
        }
        if (tensor_.count() > 0) {
            upload(tensor_.scales()->amax->data(), &largest, sizeof largest);
        }
    }

    // Elements of the tensor's from `done` on, at most so many; says how many.
    int64_t read(int64_t done, int64_t most) {
        const int64_t n = std::min(most, tensor_.count() - done);
        values_.resize(static_cast<std::size_t>(n));
        source_.read_floats(index_, first_ + done, values_);
        return n;
    }
    void upload(void* to, const void* from, std::size_t bytes) {
        stream_.copy(to, from, bytes, CopyKind::host_to_device);
        stream_.sync();
    }

    Stream& stream_;
    const model::TensorSource& source_;
    std::size_t index_;
    model::TensorFacts from_;
    std::string name_;
    Tensor& tensor_;
    int64_t first_ = 0; // element of the file's
    std::vector<float> values_;
};

} // namespace

void load_tensor(Stream& stream, const model::TensorSource& source, std::size_t index,
                 int64_t first_row, Tensor& tensor) {
    stream.refuse_capture("model file: a tensor is to be loaded");
    Load(stream, source, index, first_row, tensor).run();
}

} // namespace mp::checkpoint
