// SPDX-License-Identifier: Apache-2.0
#include "device/select.hpp"

namespace mp {

const char* op_kind_name(OpKind kind) noexcept {
    switch (kind) {
    case OpKind::cast:
        return "cast";
    case OpKind::amax:
        return "amax";
    case OpKind::column_sum:
        return "column_sum";
    case OpKind::gemm:
        return "gemm";
    case OpKind::grad_stats:
        return "grad_stats";
    case OpKind::optimizer_prepare:
        return "optimizer_prepare";
    case OpKind::adamw:
        return "adamw";
    case OpKind::scaler_update:
        return "scaler_update";
    case OpKind::quantize:
        return "quantize";
    case OpKind::dequantize:
        return "dequantize";
    case OpKind::delayed_update:
        return "delayed_update";
    case OpKind::sum_parts:
        return "sum_parts";
    }
    return "unknown operation";
}

Choice select(const Device& device, const OpDesc& op) {
    const CandidateList list = device.candidates(op.kind);
    Choice choice;
    for (int32_t i = 0; i < list.count; ++i) {
        const Candidate& candidate = list.items[i];
        Reason reason;
        if (candidate.supports(device, op, reason)) {
            choice.candidate = &candidate;
            return choice;
        }
        choice.passed_over += choice.passed_over.empty() ? "" : "; ";
        choice.passed_over += std::string(candidate.name) + ": " + reason.c_str();
    }
    if (choice.passed_over.empty()) {
        choice.passed_over = "the device has no implementation of it";
    }
    fail(Code::unsupported, "%s is not supported here: %s", op_kind_name(op.kind),
         choice.passed_over.c_str());
}

void run_op(Stream& stream, const OpDesc& op) {
    // The common case costs no string: reasons are built only when a candidate declines.
    const Choice choice = select(stream.device(), op);
    check(choice.candidate->run(stream.device(), stream.queue(), op));
}

} // namespace mp
