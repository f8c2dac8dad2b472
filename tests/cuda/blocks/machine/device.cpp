// SPDX-License-Identifier: Apache-2.0
// The device of language/cuda/device.hpp, and what of CUDA's run time the files of kernels call. Its candidates are those
// files'; before they run, kernels may touch an operation's arrays and nothing beside them, and what it writes is unwritten.
#include "cuda/device.hpp"

#include <cstring>
#include <new>

#include "cuda/candidates.hpp"
#include "cuda/queue.hpp"
#include "device.hpp"
#include "machine.hpp"

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
                                                  : "cudaErrorLaunchFailure";
}
const char* cudaGetErrorString(cudaError_t /*error*/) { return "the machine's report says why"; }
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t /*stream*/) {
    std::memset(to, value, bytes);
    mp::blocks::device_memory().mark_written(to, bytes);
    return cudaSuccess;
}

namespace mp::backends::cuda {

Status CudaDevice::open(const DeviceConfig& /*config*/, Device** out) noexcept {
    *out = new (std::nothrow) CudaDevice;
    return *out != nullptr ? Status() : Status::error(Code::out_of_memory, "no memory");
}

void CudaDevice::describe(Properties& to) const noexcept { to.text("backend", "blocks"); }

Status CudaDevice::allocate(std::size_t bytes, void** out) noexcept {
    *out = bytes == 0 ? nullptr : blocks::device_memory().allocate(bytes);
    return {};
}

void CudaDevice::release(void* pointer, std::size_t /*bytes*/) noexcept {
    blocks::device_memory().release(pointer);
}

Status CudaDevice::create_queue(void* /*native*/, Queue** out) noexcept {
    *out = new (std::nothrow) CudaQueue;
    return *out != nullptr ? Status() : Status::error(Code::out_of_memory, "no memory");
}

Status CudaDevice::copy(Queue& /*queue*/, void* destination, const void* source, std::size_t bytes,
                        CopyKind kind) noexcept {
    if (kind == CopyKind::device_to_host) {
        const std::size_t unwritten = blocks::device_memory().unwritten(source, bytes);
        if (unwritten != 0) {
            return Status::error(Code::internal,
                                 "%zu of %zu bytes that are copied to the host were "
                                 "never written",
                                 unwritten, bytes);
        }
    } else {
        blocks::device_memory().mark_written(destination, bytes);
    }
    std::memcpy(destination, source, bytes);
    return {};
}

Status CudaDevice::zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept {
    (void)cudaMemsetAsync(destination, 0, bytes, nullptr);
    return {};
}

namespace {

using blocks::Use;

void use(const char* name, const TensorRef& array, Use how) {
    blocks::use_array(name, array.data,
                      static_cast<std::size_t>(array.count * dtype_size(array.dtype)), how);
}

Status run_cast(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& cast = static_cast<const CastDesc&>(op);
    use("source", cast.source, Use::read);
    use("destination", cast.destination, Use::write);
    return kCast.run(device, queue, op);
}

Status run_amax(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& amax = static_cast<const AmaxDesc&>(op);
    use("source", amax.source, Use::read);
    blocks::use_array("result", amax.result, sizeof *amax.result, Use::write);
    return kAmax.run(device, queue, op);
}

// All of its arrays are read; a parameter beside a master weight is not, but skipped steps leave it.
Status run_update(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& update = static_cast<const OptimizerUpdateDesc&>(op);
    const SegmentTable& table = update.table;
    const auto count = static_cast<std::size_t>(table.segment_count);
    blocks::use_array("segments", table.segments, count * sizeof *table.segments, Use::read);
    blocks::use_array("chunks", table.chunks,
                      static_cast<std::size_t>(table.chunk_count) * sizeof *table.chunks,
                      Use::read);
    blocks::use_array("state", update.state, sizeof *update.state, Use::read);
    for (std::size_t i = 0; i < count; ++i) {
        const UpdateSegment& s = table.host_segments[i];
        const auto use_role = [&](const char* name, const StepArray& array) {
            if (array.exists()) {
                use(name, {array.data, s.count, array.dtype}, Use::read);
            }
        };
        use_role("param", s.param);
        use_role("grad", s.grad);
        use_role("master", s.master);
        use_role("compensation", s.compensation);
        use_role("state 0", s.states[0]);
        use_role("state 1", s.states[1]);
    }
    return kOptimizerUpdate.run(device, queue, op);
}

} // namespace

CandidateList CudaDevice::candidates(OpKind kind) const noexcept {
    static const Candidate cast = {kName, kCast.supports, run_cast, nullptr, nullptr};
    static const Candidate amax = {kName, kAmax.supports, run_amax, nullptr, nullptr};
    static const Candidate update = {kName, kOptimizerUpdate.supports, run_update, nullptr,
                                     nullptr};
    switch (kind) {
    case OpKind::cast:
        return {&cast, 1};
    case OpKind::amax:
        return {&amax, 1};
    case OpKind::optimizer_update:
        return {&update, 1};
    default:
        return {};
    }
}

} // namespace mp::backends::cuda

namespace mp::blocks {

void use_array(const char* name, const void* data, std::size_t bytes, Use how) {
    if (bytes == 0) {
        return;
    }
    device_memory().narrow(data, bytes, name);
    if (how == Use::write) {
        device_memory().forget(const_cast<void*>(data), bytes);
    }
}

const Backend& backend() {
    static const Backend instance = [] {
        Backend made;
        made.name = "blocks";
        made.kind = DeviceKind::cuda;
        made.open = backends::cuda::CudaDevice::open;
        return made;
    }();
    return instance;
}

} // namespace mp::blocks
