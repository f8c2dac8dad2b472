// SPDX-License-Identifier: Apache-2.0
// gemm by cuBLASLt, for wide operands and for fp8. What it does not take, the candidate "kokkos" does.
#include "cuda/candidates.hpp"
#include "cuda/fp8_caps.hpp"
#include "cuda/fp8_plan.hpp"
#include "cuda/gemm_plan.hpp"

namespace mp::backends::cuda {

namespace {

// The reasons that need no library come first. Then the heuristics are asked, whatever those say: only they know the
// shape and the strides.
template <class Made, auto kExplain>
bool supports(const Device& device, const OpDesc& op, Reason& reason) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    const auto& desc = static_cast<const GemmDesc&>(op);
    kExplain(cuda_device, desc, reason);
    if (!reason.empty()) {
        return false;
    }
    const ContextGuard guard(cuda_device.context());
    Made* plan = nullptr;
    const Status status = Made::make(cuda_device, desc, &plan);
    if (!status.ok()) {
        reason.set("%.200s", status.text());
    }
    delete plan;
    return status.ok();
}

template <class Made> Status prepare(Device& device, const GemmDesc& op, Plan** out) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    const ContextGuard guard(cuda_device.context());
    Made* plan = nullptr;
    const Status status = Made::make(cuda_device, op, &plan);
    *out = plan;
    return status;
}

Status run_plan(Device& device, Queue& queue, Plan& plan, const GemmBuffers& buffers) noexcept {
    const ContextGuard guard(static_cast<const CudaDevice&>(device).context());
    return static_cast<CublasLtPlan&>(plan).run(static_cast<CudaQueue&>(queue), buffers);
}

Status run_fp8_plan(Device& device, Queue& queue, Plan& plan, const GemmBuffers& buffers) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    const ContextGuard guard(cuda_device.context());
    return static_cast<Fp8Plan&>(plan).run(cuda_device, static_cast<CudaQueue&>(queue), buffers);
}

} // namespace

const Candidate kGemmCublasLt = {"cublaslt", supports<CublasLtPlan, explain_gemm>, nullptr,
                                 prepare<CublasLtPlan>, run_plan};
const Candidate kGemmCublasLtFp8 = {"cublaslt_fp8", supports<Fp8Plan, explain_fp8_gemm>, nullptr,
                                    prepare<Fp8Plan>, run_fp8_plan};

} // namespace mp::backends::cuda
