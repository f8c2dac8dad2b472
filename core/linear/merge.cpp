// SPDX-License-Identifier: Apache-2.0
#include "linear/merge.hpp"

#include <algorithm>
#include <cmath>

#include "linear/checks.hpp"
#include "numerics/block_quantize.hpp"
#include "quant/read_floats.hpp"
#include "runtime/select.hpp"

namespace mp::linear {
namespace {

constexpr int64_t kPiece = int64_t{1} << 16; // elements, that are compared at a time

// Of the adapter with a magnitude, of which there is one at most. Each row by itself: a merge is rare.
void scale_rows(Stream& stream, const Tensor& magnitude, int64_t first, const ArrayRef& numbers) {
    const Scratch memory(stream, static_cast<std::size_t>(numbers.rows) * sizeof(float));
    auto* const norms = static_cast<float*>(memory.data());
    row_norms(stream, static_cast<const float*>(numbers.data), numbers.rows, numbers.columns,
              norms);
    for (int64_t row = 0; row < numbers.rows; ++row) {
        ScaleColumnsDesc op{};
        op.kind = OpKind::scale_columns;
        op.source = {static_cast<float*>(numbers.data) + row * numbers.columns, numbers.columns,
                     DType::fp32};
        op.destination = op.source;
        op.magnitude = {static_cast<unsigned char*>(magnitude.data()) +
                            bytes_of(magnitude.dtype(), first + row),
                        1, magnitude.dtype()};
        op.norm = norms + row;
        op.rows = numbers.columns;
        op.columns = 1;
        run_op(stream, op);
    }
}

// The numbers of `count` elements from `first` on.
class Piece {
  public:
    void read(Stream& stream, const ArrayRef& array, int64_t first, int64_t count) {
        values_.resize(static_cast<std::size_t>(count));
        quant::read_floats(stream, array, first, values_);
    }
    [[nodiscard]] double at(std::size_t i) const { return static_cast<double>(values_[i]); }

  private:
    std::vector<float> values_;
};

struct Sums {
    double squares = 0.0;
    double largest = 0.0;

    void add(double difference) {
        squares += difference * difference;
        const double size = std::fabs(difference);
        largest = size > largest || std::isnan(size) ? size : largest; // a NaN stays
    }
    [[nodiscard]] double rms(int64_t count) const {
        return count == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(count));
    }
};

Sums distance(Stream& stream, const ArrayRef& one, const ArrayRef& other) {
    Sums sums;
    Piece a, b;
    const int64_t all = one.rows * one.columns;
    for (int64_t first = 0; first < all; first += kPiece) {
        const int64_t count = std::min(kPiece, all - first);
        a.read(stream, one, first, count);
        b.read(stream, other, first, count);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            sums.add(a.at(i) - b.at(i));
        }
    }
    return sums;
}

// Codes of blocks are made on the host, by the bits of gguf-py.
class Blocks {
  public:
    Blocks(Stream& stream, const ArrayRef& numbers, Tensor& target)
        : stream_(stream), numbers_(numbers), target_(target) {}

    // Before the first is written.
    void check() {
        for_each_piece([&](int64_t first, std::span<const float> values) {
            const int64_t wrong = numerics::unstorable(target_.dtype(), values.data(),
                                                       static_cast<int64_t>(values.size()));
            if (wrong >= 0) {
                fail(Code::invalid_argument,
                     "linear: the merged weight's block that begins at element %lld cannot be %s: "
                     "its numbers must be finite, and their scale fit fp16",
                     static_cast<long long>(first + wrong), dtype_name(target_.dtype()));
            }
        });
    }
    void write() {
        for_each_piece([&](int64_t first, std::span<const float> values) {
            quant::write_floats(stream_, target_.array(), first, values);
        });
    }

  private:
    template <typename Body> void for_each_piece(const Body& body) {
        const int64_t all = target_.count();
        std::vector<float> values;
        for (int64_t first = 0; first < all; first += kPiece) {
            values.resize(static_cast<std::size_t>(std::min(kPiece, all - first)));
            quant::read_floats(stream_, numbers_, first, values);
            body(first, values);
        }
    }

    Stream& stream_;
    const ArrayRef& numbers_;
    Tensor& target_;
};

void write_target(Stream& stream, const ArrayRef& numbers, Tensor& target) {
    if (is_in_blocks(target.dtype())) {
        Blocks blocks(stream, numbers, target);
        blocks.check();
        blocks.write();
    } else if (target.scales() != nullptr) {
        quant::quantize_matrix(stream, numbers, sink_of(target.array()));
    } else {
        cast_tensor(stream, numbers.elements(), target.ref());
    }
    target.touch();
}

void check_target(const Linear& base, int64_t first, const Tensor& target) {
    if (!is_in_blocks(target.dtype())) {
        check_dtype(target, "target", true);
    } else if (!numerics::stores_floats(target.dtype())) {
        fail(Code::invalid_dtype,
             "linear: target is %s, which nothing here makes of numbers; of types of blocks q8_0 "
             "and q4_0 are made",
             dtype_name(target.dtype()));
    }
    const int64_t rows = target.rows();
    check_shape_is(target, {{rows, base.options().in_features}, 2}, "target");
    if (&target.device() != &base.weight().tensor().device()) {
        fail(Code::invalid_argument, "linear: target is not on the layer's device");
    }
    const int64_t all = base.options().out_features;
    if (first < 0 || first > all || rows > all - first) {
        fail(Code::invalid_argument,
             "linear: rows %lld to %lld are asked for, but the weight has %lld",
             static_cast<long long>(first), static_cast<long long>(first + rows),
             static_cast<long long>(all));
    }
    base.weight().tensor().require_memory("linear: weight");
}

// The target may be the weight, and nothing else that is read.
void check_memory(const Stream& stream, const LayerPass& pass, const Tensor& target) {
    MemoryRanges ranges;
    ranges.add_workspace(stream);
    ranges.add("target", MemoryRanges::Use::written, &target);
    for (const AdapterPass& adapter : pass.adapters) {
        ranges.add("a", MemoryRanges::Use::read, &adapter.a->weight().tensor());
        ranges.add("b", MemoryRanges::Use::read, &adapter.b->weight().tensor());
        ranges.add("the magnitude", MemoryRanges::Use::read, adapter.magnitude.values);
    }
    ranges.check("linear");
    MemoryRanges room;
    room.add_workspace(stream);
    room.add("the weight", MemoryRanges::Use::read, &pass.base->weight().tensor());
    room.check("linear");
}

std::vector<MergedWeight::Factors> factors_of(const LayerPass& pass) {
    std::vector<MergedWeight::Factors> factors;
    for (const AdapterPass& adapter : pass.adapters) {
        factors.push_back({adapter.a, adapter.b});
    }
    return factors;
}

} // namespace

void measure(Stream& stream, const LayerPass& pass, Tensor& magnitude) {
    check_memory(stream, pass, magnitude);
    magnitude.require_memory("linear: the adapter's magnitude");
    const Scratch norms(stream, static_cast<std::size_t>(magnitude.count()) * sizeof(float));
    auto* const values = static_cast<float*>(norms.data());
    MergedWeight(stream, *pass.base, factors_of(pass)).norms(values);
    cast_tensor(stream, {values, magnitude.count(), DType::fp32}, magnitude.ref());
    magnitude.touch();
}

void merge(Stream& stream, const LayerPass& pass, int64_t first, Tensor& target,
           MergeReport* report) {
    const Linear& base = *pass.base;
    check_target(base, first, target);
    const AdapterPass* const scaling = scaling_adapter(pass);
    if (scaling != nullptr) {
        scaling->magnitude.values->require_memory("linear: the adapter's magnitude");
    }
    check_memory(stream, pass, target);
    const int64_t rows = target.rows();
    const auto bytes = static_cast<std::size_t>(target.count()) * sizeof(float);
    const Scratch merged(stream, bytes);
    auto* const values = static_cast<float*>(merged.data());
    const TensorRef numbers = {values, target.count(), DType::fp32};
    const ArrayRef result = plain_array(numbers, rows, target.columns());
    MergedWeight(stream, base, factors_of(pass)).read(first, rows, values);
    if (scaling != nullptr) {
        scale_rows(stream, *scaling->magnitude.values, first, result);
    }
    std::optional<Scratch> compared;
    if (report != nullptr) { // before the target is written, which may be the weight
        const ArrayRef before =
            plain_array({compared.emplace(stream, bytes).data(), target.count(), DType::fp32}, rows,
                        target.columns());
        widen(stream, base.weight().tensor(), first, rows, static_cast<float*>(before.data));
        report->elements = target.count();
        report->rms_change = distance(stream, result, before).rms(target.count());
    }
    write_target(stream, result, target);
    if (report != nullptr) {
        auto* const stored = static_cast<float*>(compared->data());
        widen(stream, target, 0, rows, stored);
        const ArrayRef after =
            plain_array({stored, target.count(), DType::fp32}, rows, target.columns());
        const Sums error = distance(stream, after, result);
        report->rms_error = error.rms(target.count());
        report->max_error = error.largest;
    }
}

} // namespace mp::linear
