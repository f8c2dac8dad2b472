// SPDX-License-Identifier: Apache-2.0
// A product of fp8 codes by an implementation for bf16: whole operands are decoded first. For libraries that
// multiply bf16 so fast (matrix units) that this pays. Scales along k must be powers of two in range, which are
// multiplied into the codes; where they are not, the blocked product computes instead.
#pragma once

#include <memory>

#include "host/gemm/blocked_gemm.hpp"
#include "host/gemm/host_gemm.hpp"
#include "host/gemm/line_scales.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host {

class DecodedGemm final : public HostGemm {
  public:
    using Make = Status (*)(const GemmDesc& op, int32_t threads, std::unique_ptr<HostGemm>& out);

    static bool takes(const GemmDesc& desc, Reason& reason) noexcept;
    // `make`: of products of dense bf16 operands into dense fp32.
    static Status make(const GemmDesc& desc, int32_t threads, Make make,
                       std::unique_ptr<HostGemm>& out) noexcept;

    Status run(const Resources& with, const GemmBuffers& buffers) const noexcept override;

  private:
    struct DecodedOperand {
        DType dtype;
        int64_t rows, columns; // as stored
        int64_t stride;
        bool lines_are_rows; // rows of op(A), columns of op(B)
        LineScales scales;
    };

    explicit DecodedGemm(const GemmDesc& desc) noexcept;
    void fill(const LineScales& scales, const void* from, float* values,
              LineScales::Range& range) const noexcept;
    void decode(ThreadPool& threads, const DecodedOperand& operand, const void* codes,
                const float* factors, void* out) const noexcept;
    void decode_row(const DecodedOperand& operand, const void* codes, const float* factors,
                    int64_t row, void* out) const noexcept;
    void finish(ThreadPool& threads, const GemmBuffers& buffers, const float* sums,
                const float* scales_a, const float* scales_b) const noexcept;

    GemmDesc desc_;
    int64_t block_k_;
    DecodedOperand a_, b_;
    const PanelTable& table_;
    std::unique_ptr<HostGemm> product_;
    std::unique_ptr<BlockedGemm> fallback_; // where scales change along k
};

} // namespace mp::backends::host
