// SPDX-License-Identifier: Apache-2.0
// Memory, queues and copies of the reference device.
#include "reference/device.hpp"

#include <cstdio>
#include <cstring>
#include <new>

#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

constexpr std::size_t kAlignment = 64;

} // namespace

void ReferenceDevice::describe(char* buffer, std::size_t capacity) const noexcept {
    (void)std::snprintf(buffer, capacity,
                        "{\"backend\":\"%s\",\"kind\":\"host\",\"index\":0,\"threads\":1,"
                        "\"instruction_set\":\"scalar\"}",
                        kName);
}

// Nothing is asked of the caller's hooks for zero bytes: what they would return is not defined.
Status ReferenceDevice::allocate(std::size_t bytes, void** out) noexcept {
    *out = nullptr;
    if (bytes == 0) {
        return {};
    }
    *out = memory_.allocate(bytes, kAlignment, memory_.payload);
    if (*out == nullptr) {
        return Status::error(Code::out_of_memory, "reference: the allocator gave no %zu bytes",
                             bytes);
    }
    return {};
}

void ReferenceDevice::release(void* pointer, std::size_t bytes) noexcept {
    if (pointer != nullptr) {
        memory_.release(pointer, bytes, kAlignment, memory_.payload);
    }
}

Status ReferenceDevice::create_queue(void* native, Queue** out) noexcept {
    *out = nullptr;
    if (native != nullptr) {
        return Status::error(Code::invalid_argument,
                             "reference: a host device has no stream of the caller's to use; pass "
                             "a null native handle");
    }
    *out = new (std::nothrow) ReferenceQueue;
    if (*out == nullptr) {
        return Status::error(Code::out_of_memory, "reference: no memory for a queue");
    }
    return {};
}

Status ReferenceDevice::copy(Queue& /*queue*/, void* destination, const void* source,
                             std::size_t bytes, CopyKind /*kind*/) noexcept {
    if (bytes != 0) {
        std::memcpy(destination, source, bytes);
    }
    return {};
}

Status ReferenceDevice::zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept {
    if (bytes != 0) {
        std::memset(destination, 0, bytes);
    }
    return {};
}

CandidateList ReferenceDevice::candidates(OpKind kind) const noexcept {
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

} // namespace mp::backends::reference
