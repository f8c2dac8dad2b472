// SPDX-License-Identifier: Apache-2.0
// Streams and events of the simulated device.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "state.hpp"

namespace mp::simulated {

namespace {

// The work of a stream that was destroyed is still done.
struct Streams {
    std::vector<std::pair<CUctx_st*, std::shared_ptr<WorkQueue>>> of_destroyed;
    std::map<CUctx_st*, std::shared_ptr<WorkQueue>> one_of; // where a device has but one
    CUstream_st legacy{nullptr, make_work_queue(), nullptr, {}, {}};
};
Streams& streams() {
    static Streams all;
    return all;
}
std::set<CUstream_st*>& made_streams() { return of_driver<std::set<CUstream_st*>>(); }
std::set<CUevent_st*>& events() { return of_driver<std::set<CUevent_st*>>(); }

// With MP_SIMULATED_ONE_QUEUE a device does the work of all its streams in the order in which it was given, as a GPU may that is
// full, or that has one connection (CUDA_DEVICE_MAX_CONNECTIONS).
std::shared_ptr<WorkQueue> queue_of_new_stream(CUctx_st* context) {
    static const bool is_one = std::getenv("MP_SIMULATED_ONE_QUEUE") != nullptr;
    if (!is_one) {
        return make_work_queue();
    }
    std::shared_ptr<WorkQueue>& queue = streams().one_of[context];
    if (queue == nullptr) {
        queue = make_work_queue();
    }
    return queue;
}

// Errors of earlier work come out where somebody looks.
cudaError_t query(Mark& mark) noexcept {
    if (control().broken != cudaSuccess) {
        return outcome();
    }
    return mark.is_reached() ? cudaSuccess : fail(cudaErrorNotReady);
}

} // namespace

bool is_legacy(cudaStream_t stream) noexcept { return stream == cudaStreamLegacy; }

// Who uses the legacy stream beside the module makes no context current: the runtime takes the primary.
CUstream_st* stream_of(cudaStream_t handle) noexcept {
    if (!is_legacy(handle)) {
        return handle;
    }
    CUstream_st& legacy = streams().legacy;
    legacy.context = current_context();
    return &legacy;
}

bool add(CUstream_st* stream, Work work) noexcept {
    if (stream == &streams().legacy) {
        if (refuse_implicit() != cudaSuccess) {
            return false;
        }
    } else if (begin(stream) != cudaSuccess) {
        return false;
    }
    return push(*stream, std::move(work));
}

bool push(CUstream_st& stream, Work work) noexcept {
    if (stream.capture != nullptr) {
        return add_captured(stream, std::move(work)) == cudaSuccess;
    }
    stream.queue->add(std::move(work));
    return true;
}

void wait_for(const std::vector<std::shared_ptr<Mark>>& marks) {
    bool is_pending = false;
    for (const std::shared_ptr<Mark>& mark : marks) {
        is_pending = !mark->is_reached() || is_pending;
    }
    if (!is_pending) {
        return;
    }
    ++control().waits;
    if (has_threads()) {
        mutex().unlock();
    }
    {
        const OpenMemory open;
        for (const std::shared_ptr<Mark>& mark : marks) {
            mark->wait();
        }
    }
    if (has_threads()) {
        mutex().lock();
    }
}

void wait_for_device() {
    Streams& all = streams();
    std::vector<std::shared_ptr<Mark>> marks = {all.legacy.queue->mark()};
    for (const CUstream_st* stream : made_streams()) {
        if (stream->context == current_context()) {
            marks.push_back(stream->queue->mark());
        }
    }
    const auto is_here = [](const auto& each) { return each.first == current_context(); };
    for (const auto& destroyed : all.of_destroyed) {
        if (is_here(destroyed)) {
            marks.push_back(destroyed.second->mark());
        }
    }
    const auto here = std::stable_partition(all.of_destroyed.begin(), all.of_destroyed.end(),
                                            std::not_fn(is_here));
    const std::vector<std::pair<CUctx_st*, std::shared_ptr<WorkQueue>>> done(
        here, all.of_destroyed.end());
    all.of_destroyed.erase(here, all.of_destroyed.end());
    wait_for(marks);
}

bool enqueue(cudaStream_t stream, Work work) noexcept {
    const std::lock_guard lock(mutex());
    ++control().launches;
    return add(stream_of(stream), std::move(work));
}

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (flags != cudaStreamNonBlocking) {
        return fail(cudaErrorInvalidValue);
    }
    *stream =
        new CUstream_st{current_context(), queue_of_new_stream(current_context()), nullptr, {}, {}};
    made_streams().insert(*stream);
    ++control().streams;
    return cudaSuccess;
}

// Returns at once: what is pending is still done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    forget_captured(*stream);
    made_streams().erase(stream);
    streams().of_destroyed.emplace_back(stream->context, stream->queue);
    delete stream;
    --control().streams;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    const std::lock_guard lock(mutex());
    CUstream_st* const stream = stream_of(handle);
    ++control().syncs;
    control().legacy_syncs += is_legacy(handle) ? 1 : 0;
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    const cudaError_t refused = is_legacy(handle) ? refuse_implicit() : refuse_in_capture(*stream);
    if (refused != cudaSuccess) {
        return refused;
    }
    wait_for({stream->queue->mark()});
    return outcome();
}

cudaError_t cudaDeviceSynchronize() {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    ++control().syncs;
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    wait_for_device();
    return outcome();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    const std::lock_guard lock(mutex());
    CUstream_st* const stream = stream_of(handle);
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    const cudaError_t refused = is_legacy(handle) ? refuse_implicit() : refuse_in_capture(*stream);
    return refused != cudaSuccess ? refused : query(*stream->queue->mark());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    *event = *events().insert(new CUevent_st).first;
    ++control().events;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::lock_guard lock(mutex());
    (void)begin();
    events().erase(event);
    delete event;
    --control().events;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    const std::lock_guard lock(mutex());
    CUstream_st* const stream = stream_of(handle);
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->capture != nullptr) {
        return record_captured(*stream, *event);
    }
    event->mark = stream->queue->mark();
    event->capture = nullptr;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    ++control().syncs;
    if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    if (event->mark != nullptr) {
        wait_for({event->mark});
    }
    return outcome();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    return event->mark == nullptr ? outcome() : query(*event->mark);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int) {
    const std::lock_guard lock(mutex());
    CUstream_st* const stream = stream_of(handle);
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->capture != nullptr || event->capture != nullptr) {
        return wait_captured(*stream, *event);
    }
    if (event->mark != nullptr) {
        stream->queue->add(event->mark->waiting());
    }
    return cudaSuccess;
}

} // extern "C"
#pragma GCC visibility pop
