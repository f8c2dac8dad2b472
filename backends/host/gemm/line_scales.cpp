// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/line_scales.hpp"

#include <algorithm>

#include "numerics/bits.hpp"

namespace mp::backends::host {

namespace {

void add_to(LineScales::Range& range, float scale) {
    const uint32_t bits = numerics::bits_from_float(scale);
    if ((bits & numerics::kFloatMagnitudeMask) > numerics::kFloatInfinity) {
        return; // NaN makes NaN, either way
    }
    const auto exponent = static_cast<int32_t>(bits >> 23); // beyond 254: negative, or infinity
    const bool is_power = (bits & 0x007fffffU) == 0 && exponent > 0 && exponent < 255;
    range.power_of_two = range.power_of_two && is_power;
    range.lowest = std::min(range.lowest, exponent - 127);
    range.highest = std::max(range.highest, exponent - 127);
}

float load_scale(DType dtype, const void* scales, int64_t i) {
    return dtype == DType::e8m0 ? numerics::e8m0_to_float(static_cast<const uint8_t*>(scales)[i])
                                : numerics::detail::load_element<float>(scales, i);
}

} // namespace

void LineScales::Range::add(const Range& other) noexcept {
    power_of_two = power_of_two && other.power_of_two;
    lowest = std::min(lowest, other.lowest);
    highest = std::max(highest, other.highest);
}

LineScales::LineScales(const ScaleGrid& grid, int64_t lines, int64_t own_block, int64_t line_extent,
                       const GemmDesc& op, int64_t block_k) noexcept
    : grid_(grid), lines_(lines), blocks_(block_k == 0 ? 1 : (op.k + block_k - 1) / block_k),
      stride_((lines + 15) / 16 * 16 + kLineSlack),
      own_ratio_(block_k == 0 ? 0 : own_block / block_k),
      line_extent_(line_extent == 0 ? std::max<int64_t>(lines, 1) : line_extent) {}

LineScales LineScales::of_a(const GemmDesc& op, int64_t block_k) noexcept {
    const ScaleGrid& grid = op.scale_a;
    LineScales made(grid, op.m, block_k_of_a(op), op.trans_a ? grid.block_columns : grid.block_rows,
                    op, block_k);
    const int64_t columns = grid.columns(op.trans_a ? op.m : op.k);
    made.line_step_ = op.trans_a ? 1 : columns;
    made.block_step_ = op.trans_a ? columns : 1;
    return made;
}

LineScales LineScales::of_b(const GemmDesc& op, int64_t block_k) noexcept {
    const ScaleGrid& grid = op.scale_b;
    LineScales made(grid, op.n, block_k_of_b(op), op.trans_b ? grid.block_rows : grid.block_columns,
                    op, block_k);
    const int64_t columns = grid.columns(op.trans_b ? op.k : op.n);
    made.line_step_ = op.trans_b ? columns : 1;
    made.block_step_ = op.trans_b ? 1 : columns;
    return made;
}

void LineScales::fill(const void* scales, int64_t block, float* row, Range& range) const noexcept {
    std::fill(row + lines_, row + stride_, 1.0F);
    if (!grid_.exists()) {
        std::fill(row, row + lines_, 1.0F);
        add_to(range, 1.0F);
        return;
    }
    const int64_t first = own_ratio_ == 0 ? 0 : block / own_ratio_ * block_step_;
    for (int64_t line = 0, i = first; line < lines_; line += line_extent_, i += line_step_) {
        const float scale = load_scale(grid_.dtype, scales, i);
        add_to(range, scale);
        std::fill(row + line, row + std::min(line + line_extent_, lines_), scale);
    }
}

bool may_fold(const GemmDesc& op, const LineScales::Range& a, const LineScales::Range& b) noexcept {
    // Codes other than 0 are at least 2^low and less than 2^high.
    const auto low = [](DType dtype) { return dtype == DType::fp8_e4m3 ? -9 : -16; };
    const auto high = [](DType dtype) { return dtype == DType::fp8_e4m3 ? 9 : 16; };
    if (!is_fp8(op.dtype_a) || !is_fp8(op.dtype_b) || !a.power_of_two || !b.power_of_two) {
        return false;
    }
    int32_t log2_k = 0;
    while (log2_k < 62 && (int64_t{1} << log2_k) < op.k) {
        ++log2_k;
    }
    const int32_t least = low(op.dtype_a) + low(op.dtype_b);
    const int32_t most = high(op.dtype_a) + high(op.dtype_b) + log2_k;
    return low(op.dtype_a) + a.lowest >= -126 && low(op.dtype_b) + b.lowest >= -126 &&
           high(op.dtype_a) + a.highest <= 127 && high(op.dtype_b) + b.highest <= 127 &&
           least + a.lowest >= -126 && least + a.lowest + b.lowest >= -126 &&
           most + a.highest <= 127 && most + a.highest + b.highest <= 127;
}

} // namespace mp::backends::host
