// SPDX-License-Identifier: Apache-2.0
// The entry of the reference backend: always one device, which works with one thread.
#include "reference/backend.hpp"

#include "device/plain_device.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

CandidateList candidates(OpKind kind) noexcept {
    switch (kind) {
    case OpKind::cast:
        return {&kCast, 1};
    case OpKind::amax:
        return {&kAmax, 1};
    case OpKind::column_sum:
        return {&kColumnSum, 1};
    case OpKind::gemm:
        return {&kGemm, 1};
    case OpKind::grad_stats:
        return {&kGradStats, 1};
    case OpKind::optimizer_prepare:
        return {&kOptimizerPrepare, 1};
    case OpKind::optimizer_update:
        return {&kOptimizerUpdate, 1};
    case OpKind::scaler_update:
        return {&kScalerUpdate, 1};
    case OpKind::quantize:
        return {&kQuantize, 1};
    case OpKind::dequantize:
        return {&kDequantize, 1};
    case OpKind::delayed_update:
        return {&kDelayedUpdate, 1};
    case OpKind::sum_parts:
        return {&kSumParts, 1};
    }
    return {};
}

Status open(const DeviceConfig& config, Device** out) noexcept {
    return PlainDevice::open(config, kName, "scalar", 1, candidates, out);
}

constexpr Backend kBackend = {
    kInterfaceVersion, kName, DeviceKind::host, count_one_device, summarize_host, open, nullptr,
};

} // namespace

const Backend* backend() noexcept { return &kBackend; }

} // namespace mp::backends::reference
