// SPDX-License-Identifier: Apache-2.0
// quantize: a block after another, an element after another.
#include "numerics/quantize.hpp"
#include "device/supports.hpp"
#include "numerics/philox.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

using numerics::BlockScale;
using numerics::QuantStats;

// Rows first_row ... and columns first_column ... up to the ends, which are not included.
struct BlockExtent {
    int64_t first_row, end_row, first_column, end_column;
};

BlockExtent block_at(const QuantizeOne& op, int64_t block_row, int64_t block_column) {
    const auto end = [](int64_t first, int64_t extent, int64_t size) {
        return extent == 0 || first + extent > size ? size : first + extent;
    };
    const int64_t row = block_row * op.grid().block_rows;
    const int64_t column = block_column * op.grid().block_columns;
    return {row, end(row, op.grid().block_rows, op.source.rows), column,
            end(column, op.grid().block_columns, op.source.columns)};
}

float amax_of(const QuantizeOne& op, const BlockExtent& block) {
    uint32_t largest = 0;
    for (int64_t row = block.first_row; row < block.end_row; ++row) {
        for (int64_t column = block.first_column; column < block.end_column; ++column) {
            const float x = numerics::load_as_float(op.source.dtype(), op.source.data,
                                                    row * op.source.columns + column);
            const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    return numerics::float_from_bits(largest);
}

// By the delayed scale once its warm-up is over, else by the block's amax.
BlockScale scale_of(const QuantizeOne& op, const BlockExtent& block, int64_t index,
                    float tensor_amax) {
    if (op.sink.tracking.delayed != nullptr &&
        op.sink.tracking.delayed->updates >= op.sink.tracking.warm_up) {
        return {op.sink.tracking.delayed->multiply, 1.0F / op.sink.tracking.delayed->multiply};
    }
    const float previous = op.sink.tracking.delayed != nullptr
                               ? 1.0F / op.sink.tracking.delayed->multiply
                               : numerics::previous_scale(op.policy().rule, op.grid().dtype,
                                                          op.sink.codes.scale_inv, index);
    const float amax = op.sink.given_amax != nullptr && op.grid().is_one()
                           ? numerics::given_magnitude(op.sink.given_amax)
                           : amax_of(op, block);
    return numerics::block_scale(op.policy(), amax, previous, tensor_amax);
}

void quantize_at(const QuantizeOne& op, const numerics::SrKey& key, int64_t row, int64_t column,
                 float multiply, QuantStats& stats) {
    const int64_t i = row * op.source.columns + column;
    const float x = numerics::load_as_float(op.source.dtype(), op.source.data, i);
    uint32_t code = 0;
    if (op.sink.rounding.stochastic) {
        const uint32_t bits =
            numerics::sr_bits32_at(key, numerics::Purpose::cast,
                                   static_cast<uint64_t>(op.sink.rounding.first_element + i));
        code = numerics::quantize_code_sr(op.code_type(), x, multiply, bits);
    } else {
        code = numerics::quantize_code(op.code_type(), x, multiply);
    }
    if (op.sink.codes.data != nullptr) {
        numerics::store_quantized(op.code_type(), op.sink.codes.data, i, code);
    }
    if (op.sink.transposed != nullptr) {
        numerics::store_quantized(op.code_type(), op.sink.transposed, column * op.source.rows + row,
                                  code);
    }
    numerics::count_element(stats, op.code_type(), x, multiply, code);
}

void quantize_block(const QuantizeOne& op, const BlockExtent& block, float multiply,
                    QuantStats& stats) {
    const numerics::SrKey key = op.sink.rounding.key();
    for (int64_t row = block.first_row; row < block.end_row; ++row) {
        for (int64_t column = block.first_column; column < block.end_column; ++column) {
            quantize_at(op, key, row, column, multiply, stats);
        }
    }
}

void add(const QuantStats& from, QuantStats& to) {
    to.elements += from.elements;
    to.saturated += from.saturated;
    to.underflowed += from.underflowed;
    to.non_finite += from.non_finite;
    to.amax_bits = from.amax_bits > to.amax_bits ? from.amax_bits : to.amax_bits;
}

void quantize_one(const QuantizeOne& op) {
    const bool is_relative =
        op.policy().rule == numerics::ScaleRule::nvfp4 && op.sink.given_amax != nullptr;
    const float found = amax_of(op, {0, op.source.rows, 0, op.source.columns});
    const float tensor_amax = is_relative ? numerics::given_magnitude(op.sink.given_amax) : found;
    QuantStats stats;
    int64_t index = 0;
    for (int64_t block_row = 0; block_row < op.grid().rows(op.source.rows); ++block_row) {
        for (int64_t column = 0; column < op.grid().columns(op.source.columns); ++column, ++index) {
            const BlockExtent block = block_at(op, block_row, column);
            const BlockScale scale = scale_of(op, block, index, tensor_amax);
            numerics::store_from_float(op.grid().dtype, op.sink.codes.scale_inv, index,
                                       scale.scale_inv, true);
            quantize_block(op, block, scale.multiply, stats);
        }
    }
    if (op.sink.codes.amax != nullptr) {
        *op.sink.codes.amax = tensor_amax;
    }
    if (op.sink.tracking.amax != nullptr) {
        *op.sink.tracking.amax = numerics::detail::larger_amax(*op.sink.tracking.amax, found);
    }
    if (op.sink.tracking.stats != nullptr) {
        add(stats, *op.sink.tracking.stats);
    }
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const QuantizeDesc&>(desc);
    quantize_one(op.first());
    if (op.has_second()) {
        quantize_one(op.second());
    }
    return {};
}

} // namespace

const Candidate kQuantize = {kName, takes_all<QuantizeDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
