// SPDX-License-Identifier: Apache-2.0
// The scales of one operand as the packed product reads them: fp32, for each block of k one value for each
// line (a row of op(A), a column of op(B)), whatever the grid and the storage order are.
#pragma once

#include <cstdint>

#include "device/gemm_scales.hpp"

namespace mp::backends::host {

// Floats behind the last line that may be read: whole tiles are.
inline constexpr int64_t kLineSlack = 64;

class LineScales {
  public:
    // What can be said of some of the scales: exponents of those that are numbers.
    struct Range {
        bool power_of_two = true;
        int32_t lowest = 1024;
        int32_t highest = -1024;

        void add(const Range& other) noexcept;
    };

    LineScales() = default;
    // `block_k`: scale_block_k() of the product; each of its blocks gets a row here.
    static LineScales of_a(const GemmDesc& op, int64_t block_k) noexcept;
    static LineScales of_b(const GemmDesc& op, int64_t block_k) noexcept;

    [[nodiscard]] int64_t blocks() const noexcept { return blocks_; }
    // Floats from block to block, and of all together.
    [[nodiscard]] int64_t stride() const noexcept { return stride_; }
    [[nodiscard]] int64_t size() const noexcept { return blocks_ * stride_; }

    // Writes the row of one block and adds to the range; `scales` is not read where there are none.
    void fill(const void* scales, int64_t block, float* row, Range& range) const noexcept;

  private:
    LineScales(const ScaleGrid& grid, int64_t lines, int64_t own_block, int64_t line_extent,
               const GemmDesc& op, int64_t block_k) noexcept;

    ScaleGrid grid_;
    int64_t lines_ = 0;
    int64_t blocks_ = 0; // rows here; 1 where nothing changes along k
    int64_t stride_ = 0;
    int64_t own_ratio_ = 0;   // rows here for each block of k of the grid; 0: it has one
    int64_t line_extent_ = 0; // lines that share a scale
    int64_t line_step_ = 0;   // from scale to scale in the grid
    int64_t block_step_ = 0;
};

// Whether codes of these types may be multiplied by the scales before they are multiplied with each other:
// with every number normal and every product and sum in range, both ways lose nothing.
bool may_fold(const GemmDesc& op, const LineScales::Range& a, const LineScales::Range& b) noexcept;

} // namespace mp::backends::host
