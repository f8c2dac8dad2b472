// SPDX-License-Identifier: Apache-2.0
// gemm by cuBLASLt. What it does not take, the candidate "kokkos" does.
#include "cuda/candidates.hpp"
#include "cuda/gemm_plan.hpp"

namespace mp::backends::cuda {

namespace {

// Asks the heuristics too, whatever gemm_caps.def says: only they know the shape and the strides.
bool supports(const Device& device, const OpDesc& op, Reason& reason) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    const auto& desc = static_cast<const GemmDesc&>(op);
    explain_gemm(cuda_device, desc, reason);
    if (!reason.empty()) {
        return false;
    }
    const ContextGuard guard(cuda_device.context());
    CublasLtPlan* plan = nullptr;
    const Status status = CublasLtPlan::make(cuda_device, desc, &plan);
    if (!status.ok()) {
        reason.set("%.200s", status.text());
    }
    delete plan;
    return status.ok();
}

Status prepare(Device& device, const GemmDesc& op, Plan** out) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    const ContextGuard guard(cuda_device.context());
    CublasLtPlan* plan = nullptr;
    const Status status = CublasLtPlan::make(cuda_device, op, &plan);
    *out = plan;
    return status;
}

Status run_plan(Device& device, Queue& queue, Plan& plan, const GemmBuffers& buffers) noexcept {
    const ContextGuard guard(static_cast<const CudaDevice&>(device).context());
    return static_cast<CublasLtPlan&>(plan).run(static_cast<CudaQueue&>(queue), buffers);
}

} // namespace

const Candidate kGemmCublasLt = {"cublaslt", supports, nullptr, prepare, run_plan};

} // namespace mp::backends::cuda
