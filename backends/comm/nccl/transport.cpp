// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/transport.hpp"

#include <algorithm>

#include "comm/nccl/request.hpp"
#include "process/own_thread.hpp"
#include "status/guarded.hpp"

namespace mp::comm {
namespace {

constexpr int64_t kNsPerMs = 1000000;
constexpr int64_t kPollIntervalNs = 50000;
constexpr int64_t kEndMs = 5000;  // for last goodbyes, at most; then it is aborted
constexpr int64_t kAbortMs = 500; // of one that waits for nobody

std::string version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

void sleep_between_polls() noexcept {
    const timespec time = {0, kPollIntervalNs};
    (void)nanosleep(&time, nullptr);
}

Status not_done(const char* what, int64_t deadline_ms) noexcept {
    return Status::error(Code::timeout, "%s: not done after %lld ms", what,
                         static_cast<long long>(deadline_ms));
}

// Polls a communicator until NCCL is through with it, or the time is.
Status settle(const NcclApi& api, NcclComm comm, const char* what, int64_t deadline_ms) noexcept {
    const int64_t until = monotonic_ns() + deadline_ms * kNsPerMs;
    for (;;) {
        NcclResult state = kNcclSuccess;
        Status status = nccl_status(api, api.CommGetAsyncError(comm, &state), what, comm);
        status = status.ok() ? nccl_status(api, state, what, comm) : status;
        if (!status.ok() || state == kNcclSuccess) {
            return status;
        }
        if (monotonic_ns() >= until) {
            return not_done(what, deadline_ms);
        }
        sleep_between_polls();
    }
}

} // namespace

NcclTransport::NcclTransport(Parts parts)
    : parts_(std::move(parts)), name_(std::string("nccl") + parts_.api->label),
      details_("NCCL " + version_text(parts_.api->version) + ", device " +
               std::to_string(parts_.device->index())),
      order_(NcclOrder::of(parts_.device->index())),
      abort_(std::make_shared<NcclAbort>(*parts_.api, parts_.device, parts_.comm)) {
    if (parts_.goodbye_ms == nullptr) {
        parts_.goodbye_ms = std::make_shared<std::atomic<int64_t>>(kEndMs);
    }
}

NcclTransport::~NcclTransport() {
    const DeviceScope scope(*parts_.device);
    if (!is_aborted_.load() && parts_.is_owned) {
        end();
    }
    if (is_aborted_) {
        { const std::lock_guard lock(order_->mutex()); } // whoever gave it up has begun the abort
        abort_->leave();
    }
}

// Finalize asks all ranks to come to an end; it is given some time, since others may be gone. Who did not come to one group's end
// will hardly come to the next one's.
void NcclTransport::end() noexcept {
    const NcclApi& api = *parts_.api;
    Status status =
        nccl_status(api, api.CommFinalize(parts_.comm), "ncclCommFinalize", parts_.comm);
    const int64_t begin = monotonic_ns();
    status = status.ok() ? settle(api, parts_.comm, "ncclCommFinalize", parts_.goodbye_ms->load())
                         : status;
    *parts_.goodbye_ms -= (monotonic_ns() - begin) / kNsPerMs;
    if (status.ok()) {
        (void)api.CommDestroy(parts_.comm);
    } else {
        abort(status);
    }
}

void NcclAbort::run() noexcept {
    const DeviceScope scope(*device_);
    // NCCL joins the thread that makes a group, which has then written the handle.
    (void)api_.CommAbort(comm_);
    if (NcclComm child = take_child(); child != nullptr) {
        (void)api_.CommAbort(child);
    }
    is_done_ = true;
}

void NcclAbort::begin(std::shared_ptr<NcclAbort> self) noexcept {
    NcclAbort& abort = *self;
    try {
        abort.thread_ =
            process::start_thread("mixedprec-abort", [self = std::move(self)] { self->run(); });
    } catch (const std::exception&) { // no thread is to be had
        abort.run();
    }
}

void NcclAbort::await() noexcept {
    const int64_t until = monotonic_ns() + kAbortMs * kNsPerMs;
    while (!is_done_ && monotonic_ns() < until) {
        sleep_between_polls();
    }
}

void NcclAbort::leave() noexcept {
    await();
    if (!thread_.joinable()) {
        return;
    }
    if (is_done_) {
        thread_.join();
    } else {
        thread_.detach();
    }
}

void NcclTransport::give_up(const Status& reason) noexcept {
    failure_ = failure_.ok() ? reason : failure_;
    order_->remove(*this);
    if (!is_aborted_.exchange(true)) {
        parts_.device->set_broken();
        NcclAbort::begin(abort_);
    }
}

// The lock is free: whoever else uses the GPU goes on.
void NcclTransport::await_abort() noexcept {
    if (is_aborted_) {
        abort_->await();
    }
}

void NcclTransport::abort(const Status& reason) noexcept {
    {
        const std::lock_guard lock(order_->mutex());
        give_up(reason);
    }
    await_abort();
}

Status NcclTransport::check_async(bool* is_ready) noexcept {
    NcclResult state = kNcclSuccess;
    Status status = nccl_status(*parts_.api, parts_.api->CommGetAsyncError(parts_.comm, &state),
                                "ncclCommGetAsyncError", parts_.comm);
    status = status.ok() ? nccl_status(*parts_.api, state, "NCCL", parts_.comm) : status;
    *is_ready = status.ok() && state == kNcclSuccess;
    return status;
}

Status NcclTransport::advance() noexcept {
    const std::lock_guard lock(order_->mutex());
    const DeviceScope scope(*parts_.device);
    order_->advance();
    bool is_ready = false;
    if (failure_.ok()) {
        if (const Status status = check_async(&is_ready); !status.ok()) {
            give_up(status);
        }
    }
    return failure_;
}

void NcclTransport::forget(const NcclRequest& request) noexcept {
    const std::lock_guard lock(order_->mutex());
    order_->remove(request);
}

// It stays in the pool.
Status NcclTransport::reserve(int64_t bytes) noexcept {
    if (bytes == 0) {
        return {};
    }
    const DeviceScope scope(*parts_.device);
    void* device = nullptr;
    void* pinned = nullptr;
    const Status status = parts_.device->allocate(bytes, &device, &pinned);
    if (status.ok()) {
        parts_.device->release(device, pinned);
    }
    return status;
}

Status NcclTransport::begin(const Collective& what, TransportRequest** out) noexcept {
    Status status = guarded("a collective over NCCL", [&] {
        const DeviceScope scope(*parts_.device);
        auto request = std::make_unique<NcclRequest>(*this, what);
        if (const Status marked = request->mark_caller(); !marked.ok()) {
            return marked;
        }
        {
            const std::lock_guard lock(order_->mutex());
            if (!failure_.ok()) {
                return failure_;
            }
            order_->add(*request);
        }
        *out = request.release();
        return Status();
    });
    if (!status.ok()) {
        return status;
    }
    status = advance(); // so that work overlaps with the caller's
    if (!status.ok()) {
        delete *out;
        *out = nullptr;
    }
    return status;
}

Status NcclTransport::split_step(const GroupDesc& group, bool* is_begun, bool* is_done) noexcept {
    order_->advance();
    bool is_ready = false;
    Status status = failure_.ok() ? check_async(&is_ready) : failure_;
    // NCCL takes it from a communicator that is through with everything before.
    if (status.ok() && is_ready && !*is_begun && !order_->has(*this)) {
        *is_begun = true;
        NcclConfig config;
        status = nccl_status(*parts_.api,
                             parts_.api->CommSplit(parts_.comm,
                                                   group.color < 0 ? kNcclNoColor : group.color,
                                                   group.key, abort_->child(), &config),
                             "ncclCommSplit", parts_.comm);
        status = status.ok() ? check_async(&is_ready) : status;
    }
    *is_done = status.ok() && is_ready && *is_begun && (group.color < 0 || abort_->has_child());
    return status;
}

// The lock is free between two looks: others may abort meanwhile. What fails leaves no communicator behind to which NCCL may
// still write.
Status NcclTransport::split(const GroupDesc& group, NcclComm* out) noexcept {
    const DeviceScope scope(*parts_.device);
    const int64_t until = monotonic_ns() + group.deadline_ms * kNsPerMs;
    bool is_begun = false;
    for (;;) {
        {
            const std::lock_guard lock(order_->mutex());
            bool is_done = false;
            Status status = split_step(group, &is_begun, &is_done);
            if (status.ok() && is_done) {
                *out = abort_->take_child();
                return {};
            }
            if (status.ok() && monotonic_ns() >= until) {
                status = not_done("ncclCommSplit", group.deadline_ms);
            }
            if (!status.ok()) {
                give_up(status);
            }
        }
        if (is_aborted_) { // also by another thread
            await_abort();
            return failure_;
        }
        sleep_between_polls();
    }
}

Status NcclTransport::make_group(const GroupDesc& group, Transport** out) noexcept {
    *out = nullptr;
    Parts part = parts_;
    part.comm = nullptr;
    part.is_owned = true;
    part.rank = group.rank;
    part.size = group.count;
    Status status = parts_.device->make_another(&part.device);
    status = status.ok() ? split(group, &part.comm) : status;
    if (!status.ok() || group.color < 0) {
        return status;
    }
    status = guarded("a transport", [&] {
        *out = std::make_unique<NcclTransport>(part).release();
        return Status();
    });
    if (!status.ok()) {
        (void)parts_.api->CommAbort(part.comm);
    }
    return status;
}

Status make_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device,
                           const NcclUniqueId& id, int32_t rank, int32_t size, int64_t deadline_ms,
                           Transport** out) {
    NcclTransport::Parts parts;
    parts.api = &api;
    parts.device = std::move(device);
    parts.is_owned = true;
    parts.rank = rank;
    parts.size = size;
    parts.goodbye_ms = std::make_shared<std::atomic<int64_t>>(std::min(kEndMs, deadline_ms));
    NcclConfig config;
    const std::shared_ptr<NcclDevice> gpu = parts.device;
    const DeviceScope scope(*gpu);
    Status status = nccl_status(api, api.CommInitRankConfig(&parts.comm, size, id, rank, &config),
                                "ncclCommInitRankConfig", parts.comm);
    if (status.ok()) {
        status = settle(api, parts.comm, "ncclCommInitRankConfig", deadline_ms);
    }
    if (!status.ok() && parts.comm != nullptr) {
        (void)api.CommAbort(parts.comm);
    }
    if (status.ok()) {
        *out = new NcclTransport(std::move(parts));
    }
    return status;
}

Status wrap_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device, NcclComm comm,
                           Transport** out) {
    NcclTransport::Parts parts;
    parts.api = &api;
    parts.comm = comm;
    int on = 0;
    if (comm == nullptr) {
        return Status::error(Code::invalid_argument, "the NCCL communicator is null");
    }
    check(nccl_status(api, api.CommCount(comm, &parts.size), "ncclCommCount", comm));
    check(nccl_status(api, api.CommUserRank(comm, &parts.rank), "ncclCommUserRank", comm));
    check(nccl_status(api, api.CommCuDevice(comm, &on), "ncclCommCuDevice", comm));
    if (on != device->index()) {
        return Status::error(Code::invalid_argument,
                             "the NCCL communicator is on device %d, the context on %d", on,
                             device->index());
    }
    parts.device = std::move(device);
    *out = new NcclTransport(std::move(parts));
    return {};
}

} // namespace mp::comm
