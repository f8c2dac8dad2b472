// SPDX-License-Identifier: Apache-2.0
// What the parts of the simulated runtime share. All of it is under one lock.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime.hpp"
#include "work_queue.hpp"

namespace mp::simulated {

struct Capture; // from cudaStreamBeginCapture to cudaStreamEndCapture

// How much of each stream's work in a capture comes before some point of it.
using Clock = std::map<const CUstream_st*, uint64_t>;

} // namespace mp::simulated

// What the opaque handles of CUDA point to here.
struct CUctx_st {
    int device;
};
struct CUgraph_st {
    std::vector<mp::simulated::Work> work; // in an order that keeps all that was asked for
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<mp::simulated::Work>> work;
    std::shared_ptr<mp::simulated::Mark> last; // of its last launch, for which the next one waits
};
struct CUstream_st {
    CUctx_st* context = nullptr;
    std::shared_ptr<mp::simulated::WorkQueue> queue;
    std::shared_ptr<mp::simulated::Capture> capture; // the one that it is in
    mp::simulated::Clock clock;                      // there
    CUgraphExec_st graph;                            // of mp_simulated_end_capture()
};
struct CUevent_st {
    std::shared_ptr<mp::simulated::Mark> mark; // none: never recorded, or in a capture
    std::shared_ptr<mp::simulated::Capture> capture;
    mp::simulated::Clock clock; // there
};

namespace mp::simulated {

std::recursive_mutex& mutex() noexcept;

// A driver's, until the end of the process: what a broken communicator leaves on purpose is no leak.
template <typename Objects> Objects& of_driver() {
    static Objects& all = *new Objects;
    return all;
}

// ---- calls ---------------------------------------------------------------------------------------

inline constexpr int kDevices = 8;
CUctx_st* primary_context(int device) noexcept;
CUcontext current_context() noexcept;

// Leaves an error for cudaGetLastError.
cudaError_t fail(cudaError_t error) noexcept;
// What holds for every call that can fail; success, or the error the call returns.
cudaError_t begin(const CUstream_st* stream = nullptr) noexcept;
// Of all work so far.
cudaError_t outcome() noexcept;

// ---- streams --------------------------------------------------------------------------------------

bool is_legacy(cudaStream_t stream) noexcept;
// The one stream that nobody makes is an object here too.
CUstream_st* stream_of(cudaStream_t handle) noexcept;
// False, with an error left behind, where it may not be added.
bool add(CUstream_st* stream, Work work) noexcept;
// The same without the checks of a call.
bool push(CUstream_st& stream, Work work) noexcept;
// Waits with the lock released where streams are threads: they may need what another host thread is yet to add.
void wait_for(const std::vector<std::shared_ptr<Mark>>& marks);
// Of all streams of the current device, also of those that are gone.
void wait_for_device();

// ---- memory ---------------------------------------------------------------------------------------

// The host may touch device memory while it lives.
class OpenMemory {
  public:
    OpenMemory() noexcept;
    ~OpenMemory();
    OpenMemory(const OpenMemory&) = delete;
    OpenMemory& operator=(const OpenMemory&) = delete;
};

// ---- captures -------------------------------------------------------------------------------------

// What a thread may not do during captures, by their modes and its own: success, or the error. Those that forbid it are
// invalid from then on.
cudaError_t refuse_unsafe() noexcept;
// Use of the legacy stream during any capture: its stream may be one that waits for that one.
cudaError_t refuse_implicit() noexcept;
// What no stream may do that is captured.
cudaError_t refuse_in_capture(CUstream_st& stream) noexcept;
// What no host thread may do with an event that was last recorded in a capture.
cudaError_t refuse_captured(const CUevent_st& event) noexcept;
// Into the capture that the stream is in; success, or the error of an invalid one.
cudaError_t add_captured(CUstream_st& stream, Work work);
cudaError_t record_captured(const CUstream_st& stream, CUevent_st& event);
// One of the two is in a capture, or the event was: the stream may join it.
cudaError_t wait_captured(CUstream_st& stream, const CUevent_st& event);
// The stream goes.
void forget_captured(CUstream_st& stream);

} // namespace mp::simulated
