// SPDX-License-Identifier: Apache-2.0
// A planned matrix product on the host by the panels of panels.hpp:
//   0. where operands have scales, all threads together widen these;
//   1. where several blocks use the same columns of B, all threads together pack op(B);
//   2. for each block of D, one thread walks along k, packs its rows of op(A) (and columns of op(B), if
//      step 1 did not), multiplies, and finishes: alpha, beta C, bias, GELU and the rounding into D happen
//      while the block is in its cache, or in the product itself where D is fp32 and nothing else is asked.
// fp8 codes are widened where they are packed. Scales are applied to the sums, or, being powers of two in range,
// to the codes (LineScales). The bits are the same for every number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/backend.hpp"
#include "host/gemm/grid.hpp"
#include "host/gemm/host_gemm.hpp"
#include "host/gemm/line_scales.hpp"
#include "host/gemm/panels.hpp"
#include "host/resources/scratch_pool.hpp"

namespace mp::backends::host {

class BlockedGemm final : public HostGemm {
  public:
    // `pairs`: bf16 or fp8 operands by the dot instruction; otherwise fp32 products of any.
    static Status make(const GemmDesc& desc, bool pairs, int32_t threads,
                       std::unique_ptr<BlockedGemm>& out) noexcept;

    Status run(const Resources& with, const GemmBuffers& buffers) const noexcept override;

    [[nodiscard]] const Grid& grid() const noexcept { return grid_; }

    // Whether scales change along k in a way that this takes.
    static bool takes_scales(const GemmDesc& desc, Reason& reason) noexcept;

  private:
    struct Run; // what one run works with
    struct OutputBlock {
        int64_t batch, row, column, rows, columns;
    };

    BlockedGemm(const GemmDesc& desc, bool pairs, int32_t threads) noexcept;
    void plan_scratch() noexcept;
    [[nodiscard]] int64_t words(int64_t depth) const noexcept {
        return pairs_ ? (depth + 1) / 2 : depth;
    }
    [[nodiscard]] int64_t depth_from(int64_t k) const noexcept;
    [[nodiscard]] int64_t depth_steps() const noexcept;
    [[nodiscard]] OutputBlock block_at(int64_t index) const noexcept;
    void pack_a(const Run& run, int64_t batch, int64_t row, int64_t rows, int64_t k,
                uint32_t* packed) const noexcept;
    void pack_b(const Run& run, int64_t batch, int64_t column, int64_t k, uint32_t* packed,
                int64_t panel_stride) const noexcept;
    void pack_shared(const Run& run, int64_t unit) const noexcept;
    void widen_scales(const Run& run, int64_t unit) const noexcept;
    [[nodiscard]] bool folds_scales(const Run& run) const noexcept;
    void set_fold(PackJob& job, const LineScales& scales, const float* values, int64_t line,
                  int64_t k) const noexcept;
    void set_scales(const Run& run, const OutputBlock& block, int64_t k, bool is_last,
                    MultiplyJob& job) const noexcept;
    void compute_block(const Run& run, int64_t index, char* scratch) const noexcept;
    void finish(const Run& run, const OutputBlock& block, const float* sums) const noexcept;

    GemmDesc desc_;
    const PanelTable& table_;
    bool pairs_;
    bool is_direct_;        // the product writes D
    bool shares_b_ = false; // step 1 runs
    Grid grid_;
    int64_t shared_panel_ = 0;  // words from panel to panel
    int64_t shared_panels_ = 0; // of a column block
    int64_t block_k_ = 0;       // of the scales
    LineScales scales_a_, scales_b_;
    // Scratch, in bytes: one part for all threads (B, the bias, scales), and one for each (A, B, sums).
    std::size_t bias_at_ = 0, scales_at_ = 0, shared_bytes_ = 0;
    std::size_t b_at_ = 0, sums_at_ = 0, thread_bytes_ = 0;
};

} // namespace mp::backends::host
