// SPDX-License-Identifier: Apache-2.0
// The blocked product as implementations.
#include "host/gemm/host_gemm.hpp"

#include "device/gemm_scales.hpp"
#include "host/gemm/blocked_gemm.hpp"

namespace mp::backends::host {

namespace {

bool has_operands(const GemmDesc& op, DType wanted, Reason& reason) {
    if (op.dtype_a != wanted || op.dtype_b != wanted) {
        const bool is_a = op.dtype_a != wanted;
        reason.set("%s is %s; this multiplies %s only", is_a ? "A" : "B",
                   dtype_name(is_a ? op.dtype_a : op.dtype_b), dtype_name(wanted));
        return false;
    }
    return has_common_results(op, reason);
}

template <bool kPairs>
Status make(const GemmDesc& op, int32_t threads, std::unique_ptr<HostGemm>& out) noexcept {
    std::unique_ptr<BlockedGemm> plan;
    const Status status = BlockedGemm::make(op, kPairs, threads, plan);
    out = std::move(plan);
    return status;
}

bool supports_fp32(const GemmDesc& op, Reason& reason) noexcept {
    return has_operands(op, DType::fp32, reason);
}

bool are_codes(const GemmDesc& op) { return is_fp8(op.dtype_a) && is_fp8(op.dtype_b); }

bool supports_narrow(const GemmDesc& op, Reason& reason) noexcept {
    const bool is_narrow =
        op.dtype_a == op.dtype_b && (op.dtype_a == DType::fp16 || op.dtype_a == DType::bf16);
    if (!is_narrow && !are_codes(op)) {
        reason.set("A is %s and B is %s; this widens fp16, bf16 or fp8", dtype_name(op.dtype_a),
                   dtype_name(op.dtype_b));
        return false;
    }
    return has_common_results(op, reason) && BlockedGemm::takes_scales(op, reason);
}

bool supports_bf16(const GemmDesc& op, Reason& reason) noexcept {
    if (are_codes(op) ? !has_common_results(op, reason) || !BlockedGemm::takes_scales(op, reason)
                      : !has_operands(op, DType::bf16, reason)) {
        return false;
    }
    if (active_panel_table().multiply_pairs == nullptr) {
        reason.set("the instruction set in use, %s, has no bf16 dot instruction",
                   active_panel_table().name);
        return false;
    }
    return true;
}

} // namespace

bool has_common_results(const GemmDesc& op, Reason& reason) noexcept {
    if (!is_high_precision(op.dtype_d) && !is_fp8(op.dtype_d)) {
        reason.set("D is %s; this writes fp32, fp16, bf16 or fp8", dtype_name(op.dtype_d));
        return false;
    }
    if (op.dtype_bias != DType::none && !is_high_precision(op.dtype_bias)) {
        reason.set("the bias is %s; this adds fp32, fp16 or bf16", dtype_name(op.dtype_bias));
        return false;
    }
    return true;
}

const GemmImplementation kBlockedFp32 = {"blocked_fp32", supports_fp32, make<false>};
const GemmImplementation kWidenFp32 = {"widen_fp32", supports_narrow, make<false>};
const GemmImplementation kBlockedBf16 = {"blocked_bf16", supports_bf16, make<true>};

} // namespace mp::backends::host
