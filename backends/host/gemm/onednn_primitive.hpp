// SPDX-License-Identifier: Apache-2.0
// One matmul primitive of oneDNN, on the calling thread alone, and what its calls have in common.
#pragma once

#include <exception>

#include <oneapi/dnnl/dnnl.hpp>

#include "host/gemm/host_gemm.hpp"

namespace mp::backends::host {

Status onednn_status(const dnnl::error& error) noexcept;

// Calls body(), which may throw what oneDNN throws.
template <class Body> Status onednn_guarded(const Body& body) noexcept {
    try {
        return body();
    } catch (const dnnl::error& error) {
        return onednn_status(error);
    } catch (const std::exception& error) {
        return Status::error(Code::out_of_memory, "oneDNN: %s", error.what());
    }
}

// A product of rows x columns of D. Where parts are alike they share one.
class OnednnPrimitive {
  public:
    [[nodiscard]] std::size_t scratch_bytes() const { return (scratch_.get_size() + 63) / 64 * 64; }
    // `stride_d`: of what is written. `with_bias`: a bias of fp32 is added.
    void make(const GemmDesc& d, int64_t rows, int64_t columns, int64_t stride_d, float alpha,
              bool with_bias);
    void execute(const void* a, const void* b, const float* bias, float* result,
                 void* scratch) const;

  private:
    dnnl::memory::desc a_, b_, d_, bias_, scratch_;
    dnnl::matmul primitive_;
};

// Whether oneDNN has a kernel for this type here, other than its reference one.
bool has_onednn_kernel(dnnl::memory::data_type type) noexcept;

} // namespace mp::backends::host
