// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/request.hpp"

#include <algorithm>
#include <cstring>

namespace mp::comm {
namespace {

constexpr int64_t kBarrierBytes = 4;

// How much memory the parts of one side span.
int64_t extent(const int64_t* bytes, const int64_t* offsets, int32_t count) {
    int64_t end = 0;
    for (int32_t i = 0; i < count; ++i) {
        end = std::max(end, bytes[i] == 0 ? 0 : (offsets == nullptr ? 0 : offsets[i]) + bytes[i]);
    }
    return end;
}

} // namespace

NcclRequest::NcclRequest(NcclTransport& transport, const Collective& what)
    : transport_(transport), api_(*transport.parts().api), device_(*transport.parts().device),
      what_(what) {
    const int32_t size = transport.size();
    try {
        switch (what.kind) {
        case CollectiveKind::all_to_all:
            stage(what.send, extent(what.send_bytes, what.send_offsets, size), send_);
            stage(what.receive, extent(what.receive_bytes, what.receive_offsets, size), receive_);
            break;
        case CollectiveKind::all_gather:
            stage(what.send, what.send_bytes[0], send_);
            stage(what.receive, extent(what.receive_bytes, what.receive_offsets, size), receive_);
            break;
        case CollectiveKind::broadcast:
            stage(what.receive, what.receive_bytes[0], receive_);
            break;
        case CollectiveKind::barrier:
            check(device_.allocate(kBarrierBytes, reinterpret_cast<void**>(&receive_.device),
                                   reinterpret_cast<void**>(&receive_.pinned)));
            std::memset(receive_.pinned, 0, kBarrierBytes);
            receive_.bytes = kBarrierBytes;
            break;
        case CollectiveKind::max_u32:
        case CollectiveKind::sum_f32:
            stage(what.receive, what.count * 4, receive_);
            break;
        }
    } catch (...) {
        unstage();
        throw;
    }
}

NcclRequest::~NcclRequest() {
    transport_.forget(*this);
    if (transport_.is_aborted() || (is_issued_ && !is_over_)) {
        return; // the device may still use it: never freed
    }
    const DeviceScope scope(device_);
    unstage();
    for (void* event : {before_, event_}) {
        if (event != nullptr) {
            device_.drop_mark(event);
        }
    }
}

Status NcclRequest::mark_caller() noexcept {
    return what_.stream == nullptr ? Status() : device_.mark_other(what_.stream, &before_);
}

void NcclRequest::stage(const void* memory, int64_t bytes, Staged& out) {
    out.bytes = bytes;
    if (bytes == 0) {
        return;
    }
    if (device_.is_device_memory(memory)) {
        out.device = const_cast<unsigned char*>(static_cast<const unsigned char*>(memory));
        return;
    }
    check(device_.allocate(bytes, reinterpret_cast<void**>(&out.device),
                           reinterpret_cast<void**>(&out.pinned)));
    // All of it, also what is only received: gaps between parts come back as they were.
    std::memcpy(out.pinned, memory, static_cast<std::size_t>(bytes));
}

void NcclRequest::unstage() noexcept {
    for (Staged* staged : {&send_, &receive_}) {
        if (staged->pinned != nullptr) {
            device_.release(staged->device, staged->pinned);
        }
        *staged = {};
    }
}

Status NcclRequest::result(NcclResult result, const char* what) const noexcept {
    return nccl_status(api_, result, what, transport_.parts().comm);
}

Status NcclRequest::exchange() noexcept {
    const bool is_gather = what_.kind == CollectiveKind::all_gather;
    const NcclTransport::Parts& parts = transport_.parts();
    Status status;
    for (int32_t step = 0; step < parts.size && status.ok(); ++step) {
        const int32_t to = (parts.rank + step) % parts.size;
        const int32_t from = (parts.rank + parts.size - step) % parts.size;
        const int64_t sent = what_.send_bytes[is_gather ? 0 : to];
        const int64_t received = what_.receive_bytes[from];
        if (sent > 0) {
            status = result(api_.Send(send_.device + (is_gather ? 0 : what_.send_offsets[to]),
                                      static_cast<std::size_t>(sent), kNcclUint8, to, parts.comm,
                                      device_.stream()),
                            "ncclSend");
        }
        if (status.ok() && received > 0) {
            status = result(api_.Recv(receive_.device + what_.receive_offsets[from],
                                      static_cast<std::size_t>(received), kNcclUint8, from,
                                      parts.comm, device_.stream()),
                            "ncclRecv");
        }
    }
    return status;
}

Status NcclRequest::reduce(int type, int operation) noexcept {
    return receive_.bytes == 0
               ? Status()
               : result(api_.AllReduce(receive_.device, receive_.device,
                                       static_cast<std::size_t>(receive_.bytes / 4), type,
                                       operation, transport_.parts().comm, device_.stream()),
                        "ncclAllReduce");
}

Status NcclRequest::call() noexcept {
    switch (what_.kind) {
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_gather:
        return exchange();
    case CollectiveKind::broadcast:
        return receive_.bytes == 0
                   ? Status()
                   : result(api_.Broadcast(receive_.device, receive_.device,
                                           static_cast<std::size_t>(receive_.bytes), kNcclUint8,
                                           what_.root, transport_.parts().comm, device_.stream()),
                            "ncclBroadcast");
    case CollectiveKind::barrier:
    case CollectiveKind::max_u32:
        return reduce(kNcclUint32, kNcclMax);
    case CollectiveKind::sum_f32:
        return reduce(kNcclFloat32, kNcclSum);
    }
    return Status::error(Code::internal, "collective kind %d", static_cast<int>(what_.kind));
}

Status NcclRequest::issue(const NcclRequest* before) noexcept {
    const DeviceScope scope(device_);
    is_issued_ = true;
    Status status;
    if (before != nullptr && &before->transport_ != &transport_) {
        status = device_.wait_for_mark(before->event_); // the kernels too, one after another
    }
    if (status.ok() && before_ != nullptr) {
        status = device_.wait_for_mark(before_);
    }
    for (const Staged* staged : {&send_, &receive_}) {
        if (status.ok() && staged->pinned != nullptr) {
            status = device_.copy(staged->device, staged->pinned, staged->bytes);
        }
    }
    status = status.ok() ? result(api_.GroupStart(), "ncclGroupStart") : status;
    if (!status.ok()) {
        return status;
    }
    status = call();
    const Status ended = result(api_.GroupEnd(), "ncclGroupEnd"); // also after a failure inside
    return status.ok() ? ended : status;
}

Status NcclRequest::conclude() noexcept {
    const DeviceScope scope(device_);
    Status status;
    if (receive_.pinned != nullptr) {
        status = device_.copy(receive_.pinned, receive_.device, receive_.bytes);
    }
    status = status.ok() ? device_.mark(&event_) : status;
    is_concluded_ = status.ok();
    return status;
}

// From the moment that NCCL has put it into its stream. What comes back to host memory does so in poll().
Status NcclRequest::follow(void* stream, bool* follows) noexcept {
    *follows = false;
    const Status status = transport_.advance();
    if (!status.ok() || !is_concluded_ || receive_.pinned != nullptr) {
        return status;
    }
    const DeviceScope scope(device_);
    const Status put = device_.make_wait(stream, event_);
    *follows = put.ok();
    return put;
}

Status NcclRequest::poll(bool* done) noexcept {
    *done = false;
    Status status = transport_.advance();
    bool is_reached = false;
    if (status.ok() && is_concluded_) {
        const DeviceScope scope(device_);
        status = device_.reached(event_, &is_reached);
    }
    if (!status.ok() || !is_reached) {
        return status;
    }
    if (receive_.pinned != nullptr && what_.kind != CollectiveKind::barrier) {
        std::memcpy(what_.receive, receive_.pinned, static_cast<std::size_t>(receive_.bytes));
    }
    is_over_ = true;
    *done = true;
    return {};
}

} // namespace mp::comm
