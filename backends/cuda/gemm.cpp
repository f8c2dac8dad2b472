// SPDX-License-Identifier: Apache-2.0
// gemm by cuBLASLt: for wide operands, for fp8, and for what is dequantized first. What it does not take, the candidate
// "kokkos" does, as long as it is small.
#include "cuda/candidates.hpp"
#include "cuda/dequantized_plan.hpp"
#include "cuda/fp8_caps.hpp"
#include "cuda/fp8_plan.hpp"
#include "cuda/gemm_plan.hpp"

#include <memory>
#include <type_traits>
#include <utility>

namespace mp::backends::cuda {

namespace {

// The candidate with these plans, as an address that no other has.
template <class Made> inline constexpr char kMaker = 0;

// One that lies ready, or a new one.
template <class Made>
Status obtain(const CudaDevice& device, const GemmDesc& desc, std::unique_ptr<Plan>& out) noexcept {
    out = device.gemm_shelf().take(&kMaker<Made>, desc);
    if (out != nullptr) {
        return {};
    }
    const ContextGuard guard(device.context());
    Made* plan = nullptr;
    const Status status = Made::make(device, desc, &plan);
    out.reset(plan);
    return status;
}

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
    std::unique_ptr<Plan> plan;
    if (Status status = obtain<Made>(cuda_device, desc, plan); !status.ok()) {
        reason.set("%.200s", status.text());
        return false;
    }
    cuda_device.gemm_shelf().put(&kMaker<Made>, desc, std::move(plan));
    return true;
}

template <class Made> Status prepare(Device& device, const GemmDesc& op, Plan** out) noexcept {
    const auto& cuda_device = static_cast<const CudaDevice&>(device);
    std::unique_ptr<Plan> plan;
    const Status status = obtain<Made>(cuda_device, op, plan);
    *out = plan.release();
    if (status.ok() && std::is_same_v<Made, DequantizedPlan>) {
        constexpr int32_t kInfo = 3;
        TextLine<160> line;
        line.set(
            "cuda: a product of %s x %s (m %lld, n %lld, k %lld) dequantizes its operands first",
            dtype_name(op.dtype_a), dtype_name(op.dtype_b), static_cast<long long>(op.m),
            static_cast<long long>(op.n), static_cast<long long>(op.k));
        cuda_device.log(kInfo, line.c_str());
    }
    return status;
}

template <class Made>
Status run_plan(Device& device, Queue& queue, Plan& plan, const GemmBuffers& buffers) noexcept {
    auto& cuda_device = static_cast<CudaDevice&>(device);
    const ContextGuard guard(cuda_device.context());
    return static_cast<Made&>(plan).run(cuda_device, static_cast<CudaQueue&>(queue), buffers);
}

template <class Made, auto kExplain> constexpr Candidate made_by(const char* name) {
    return {name, supports<Made, kExplain>, nullptr, prepare<Made>, run_plan<Made>};
}

} // namespace

const Candidate kGemmCublasLt = made_by<CublasLtPlan, explain_gemm>("cublaslt");
const Candidate kGemmCublasLtFp8 = made_by<Fp8Plan, explain_fp8_gemm>("cublaslt_fp8");
const Candidate kGemmDequantized =
    made_by<DequantizedPlan, explain_dequantized>("dequantize_cublaslt");

// One output a thread, types looked up for each element: about a thousandth of what cuBLASLt does. As many
// multiplications as 256 x 512 x 512 take well under a millisecond; a layer's would take seconds without a word.
bool takes_naive_gemm(const GemmDesc& op, Reason& reason) noexcept {
    constexpr double kMost = 67108864.0; // 2^26
    const double wanted = static_cast<double>(op.m) * static_cast<double>(op.n) *
                          static_cast<double>(op.k) * static_cast<double>(op.batch_count);
    if (wanted <= kMost || op.is_chosen_by_name) {
        return true;
    }
    reason.set(
        "it is slow, so at most 2^26 multiplications, not %.3g, unless it is asked for by its name",
        wanted);
    return false;
}

} // namespace mp::backends::cuda
