// SPDX-License-Identifier: Apache-2.0
// Streams that are captured into a graph, as strictly as CUDA's documentation has it: what may not be done in a capture makes
// it invalid, and its end then fails.
#include <algorithm>
#include <thread>

#include "state.hpp"

namespace mp::simulated {

struct Capture {
    unsigned long long number = 0; // no other capture of the process has it
    CUstream_st* origin = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread; // that began it
    bool is_invalid = false;
    bool is_over = false;
    std::vector<CUstream_st*> streams; // in it now
    std::vector<Work> work;            // in an order that keeps all that was asked for
    Clock counts;                      // of its work, by stream
};

namespace {

std::vector<std::shared_ptr<Capture>>& captures() noexcept {
    static std::vector<std::shared_ptr<Capture>> going_on;
    return going_on;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t invalidate(Capture& capture, cudaError_t error) noexcept {
    ++control().misuse;
    capture.is_invalid = true;
    return fail(error);
}

bool forbids_unsafe_calls(const Capture& capture) noexcept {
    if (thread_mode == cudaStreamCaptureModeRelaxed) {
        return false;
    }
    if (capture.thread == std::this_thread::get_id()) {
        return capture.mode != cudaStreamCaptureModeRelaxed;
    }
    return thread_mode == cudaStreamCaptureModeGlobal &&
           capture.mode == cudaStreamCaptureModeGlobal;
}

template <class Condition>
cudaError_t refuse_where(cudaError_t error, const Condition& condition) noexcept {
    cudaError_t result = cudaSuccess;
    for (const std::shared_ptr<Capture>& capture : captures()) {
        if (condition(*capture)) {
            result = invalidate(*capture, error);
        }
    }
    return result;
}

void merge(Clock& clock, const Clock& other) {
    for (const auto& [stream, count] : other) {
        uint64_t& own = clock[stream];
        own = std::max(own, count);
    }
}

void end(Capture& capture) {
    capture.is_over = true;
    for (CUstream_st* stream : capture.streams) {
        stream->clock.clear();
        stream->capture = nullptr; // the caller has another reference
    }
    capture.streams.clear();
    std::erase_if(captures(), [&](const auto& other) { return other.get() == &capture; });
}

cudaError_t end_capture(CUstream_st& stream, CUgraph_st& graph) {
    graph.work.clear();
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture == nullptr) {
        return fail(cudaErrorIllegalState);
    }
    if (capture->origin != &stream) {
        return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
        return fail(cudaErrorStreamCaptureWrongThread);
    }
    Clock clock = stream.clock;
    end(*capture);
    if (capture->is_invalid) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    for (const auto& [forked, count] : capture->counts) {
        if (clock[forked] < count) {
            return invalidate(*capture, cudaErrorStreamCaptureUnjoined);
        }
    }
    graph.work = std::move(capture->work);
    return cudaSuccess;
}

// One piece of work, which outlives the graph. Launches of one graph follow each other. The calls are of the host program, whose
// context is its own business.
cudaError_t launch(CUgraphExec_st& graph, CUstream_st& stream) {
    Work behind = graph.last != nullptr ? graph.last->waiting() : [] {};
    const bool is_added = push(stream, [work = graph.work, behind = std::move(behind)] {
        behind();
        for (const Work& node : *work) {
            node();
        }
    });
    if (!is_added) {
        return cudaPeekAtLastError();
    }
    graph.last = stream.capture == nullptr ? stream.queue->mark() : nullptr;
    return cudaSuccess;
}

CUgraphExec_st instantiate(CUgraph_st graph) {
    return {std::make_shared<const std::vector<Work>>(std::move(graph.work)), nullptr};
}

} // namespace

cudaError_t refuse_unsafe() noexcept {
    return refuse_where(cudaErrorStreamCaptureUnsupported, forbids_unsafe_calls);
}

cudaError_t refuse_implicit() noexcept {
    return refuse_where(cudaErrorStreamCaptureImplicit, [](const Capture&) { return true; });
}

cudaError_t refuse_in_capture(CUstream_st& stream) noexcept {
    return stream.capture == nullptr
               ? cudaSuccess
               : invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_captured(const CUevent_st& event) noexcept {
    return event.capture == nullptr ? cudaSuccess
                                    : invalidate(*event.capture, cudaErrorCapturedEvent);
}

cudaError_t add_captured(CUstream_st& stream, Work work) {
    Capture& capture = *stream.capture;
    if (capture.is_invalid) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    capture.work.push_back(std::move(work));
    stream.clock[&stream] = ++capture.counts[&stream];
    return cudaSuccess;
}

cudaError_t record_captured(const CUstream_st& stream, CUevent_st& event) {
    if (stream.capture->is_invalid) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    event.mark = nullptr;
    event.capture = stream.capture;
    event.clock = stream.clock;
    return cudaSuccess;
}

cudaError_t wait_captured(CUstream_st& stream, const CUevent_st& event) {
    Capture* const own = stream.capture.get();
    Capture* const other = event.capture.get();
    if ((own != nullptr && own->is_invalid) || (other != nullptr && other->is_invalid)) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    if (other == nullptr) { // an event that was never recorded stands for nothing
        return event.mark == nullptr ? cudaSuccess
                                     : invalidate(*own, cudaErrorStreamCaptureIsolation);
    }
    if (other->is_over) {
        return invalidate(own != nullptr ? *own : *other, cudaErrorCapturedEvent);
    }
    if (own != nullptr && own != other) {
        (void)invalidate(*other, cudaErrorStreamCaptureMerge);
        return invalidate(*own, cudaErrorStreamCaptureMerge);
    }
    if (own == nullptr) {
        stream.capture = event.capture;
        other->streams.push_back(&stream);
    }
    merge(stream.clock, event.clock);
    return cudaSuccess;
}

void forget_captured(CUstream_st& stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture == nullptr) {
        return;
    }
    (void)invalidate(*capture, cudaErrorStreamCaptureUnsupported);
    if (capture->origin == &stream) {
        end(*capture);
    } else {
        std::erase(capture->streams, &stream);
    }
}

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    const std::lock_guard lock(mutex());
    if (is_legacy(stream)) {
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->capture != nullptr) {
        return fail(cudaErrorIllegalState);
    }
    static unsigned long long begun = 0;
    const auto capture = std::make_shared<Capture>();
    capture->number = ++begun;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.push_back(stream);
    stream->capture = capture;
    captures().push_back(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::lock_guard lock(mutex());
    *graph = nullptr;
    CUgraph_st made;
    const cudaError_t error = end_capture(*stream, made);
    if (error == cudaSuccess) {
        *graph = new CUgraph_st(std::move(made));
    }
    return error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const std::lock_guard lock(mutex());
    *status = cudaStreamCaptureStatusNone; // the legacy one cannot be captured
    if (is_legacy(stream)) {
        return begin();
    }
    if (stream->capture != nullptr) {
        *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                              : cudaStreamCaptureStatusActive;
    }
    return begin(stream);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* number, cudaGraph_t*,
                                        const cudaGraphNode_t**, std::size_t*) {
#endif
    const std::lock_guard lock(mutex());
    const cudaError_t error = cudaStreamIsCapturing(stream, status);
    if (number != nullptr) {
        *number = *status == cudaStreamCaptureStatusNone ? 0 : stream->capture->number;
    }
    return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
    *out = new CUgraphExec_st(instantiate(*graph));
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    const std::lock_guard lock(mutex());
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    return launch(*graph, *stream_of(stream));
}

cudaError_t mp_simulated_begin_capture(cudaStream_t stream) {
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
}

cudaError_t mp_simulated_end_capture(cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    CUgraph_st made;
    const cudaError_t error = end_capture(*stream, made);
    stream->graph = instantiate(std::move(made));
    return error;
}

cudaError_t mp_simulated_replay(cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    return launch(stream->graph, *stream);
}

} // extern "C"
#pragma GCC visibility pop
