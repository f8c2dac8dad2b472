// SPDX-License-Identifier: Apache-2.0
// A product of few rows of A by B in blocks, whose rows run along k: each row of B is decoded once, in registers and the
// first-level cache, and multiplied by all rows of A: nothing but codes comes from memory.
#pragma once

#include <memory>

#include "host/gemm/host_gemm.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host {

class FewRowsGemm final : public HostGemm {
  public:
    static bool takes(const GemmDesc& desc, Reason& reason) noexcept;
    static Status make(const GemmDesc& desc, int32_t threads,
                       std::unique_ptr<HostGemm>& out) noexcept;

    Status run(const Resources& with, const GemmBuffers& buffers) const noexcept override;

  private:
    explicit FewRowsGemm(const GemmDesc& desc) noexcept
        : desc_(desc), table_(active_panel_table()) {}
    void widen(const void* a, float* rows) const noexcept;
    void multiply(const GemmBuffers& buffers, const float* rows, int64_t column) const noexcept;

    GemmDesc desc_;
    const PanelTable& table_;
};

} // namespace mp::backends::host
