// SPDX-License-Identifier: Apache-2.0
// Every operation of a communicator as one Collective, to wait for or to begin.
#include "comm/communicator.hpp"

namespace mp::comm {

namespace {

Collective collective_of(const AllToAll& what) {
    Collective collective;
    collective.kind = CollectiveKind::all_to_all;
    collective.send = what.send;
    collective.send_bytes = what.send_bytes;
    collective.send_offsets = what.send_offsets;
    collective.receive = what.receive;
    collective.receive_bytes = what.receive_bytes;
    collective.receive_offsets = what.receive_offsets;
    return collective;
}

Collective collective_of(const AllGather& what) { // send_bytes is the caller's, for the call
    Collective collective;
    collective.kind = CollectiveKind::all_gather;
    collective.send = what.send;
    collective.send_bytes = &what.send_bytes;
    collective.receive = what.receive;
    collective.receive_bytes = what.receive_bytes;
    collective.receive_offsets = what.receive_offsets;
    return collective;
}

Collective broadcast_of(void* data, const int64_t* bytes, int32_t root) {
    Collective collective;
    collective.kind = CollectiveKind::broadcast;
    collective.receive = data;
    collective.receive_bytes = bytes;
    collective.root = root;
    return collective;
}

Collective vector_of(CollectiveKind kind, void* values, int64_t count) {
    Collective collective;
    collective.kind = kind;
    collective.receive = values;
    collective.count = count;
    return collective;
}

} // namespace

Status Communicator::all_to_all(const AllToAll& what, const CallOptions& options) noexcept {
    return run(collective_of(what), options);
}

Status Communicator::all_gather(const AllGather& what, const CallOptions& options) noexcept {
    return run(collective_of(what), options);
}

Status Communicator::broadcast(void* data, int64_t bytes, int32_t root,
                               const CallOptions& options) noexcept {
    return run(broadcast_of(data, &bytes, root), options);
}

Status Communicator::barrier(const CallOptions& options) noexcept { return run({}, options); }

Status Communicator::max_u32(uint32_t* values, int64_t count, const CallOptions& options) noexcept {
    return run(vector_of(CollectiveKind::max_u32, values, count), options);
}

Status Communicator::sum_f32(float* values, int64_t count, const CallOptions& options) noexcept {
    return run(vector_of(CollectiveKind::sum_f32, values, count), options);
}

Status Communicator::begin_all_to_all(const AllToAll& what, const CallOptions& options,
                                      CommRequest* out) noexcept {
    return begin(collective_of(what), options, out);
}

Status Communicator::begin_all_gather(const AllGather& what, const CallOptions& options,
                                      CommRequest* out) noexcept {
    return begin(collective_of(what), options, out);
}

Status Communicator::begin_broadcast(void* data, int64_t bytes, int32_t root,
                                     const CallOptions& options, CommRequest* out) noexcept {
    return begin(broadcast_of(data, &bytes, root), options, out);
}

Status Communicator::begin_barrier(const CallOptions& options, CommRequest* out) noexcept {
    return begin({}, options, out);
}

Status Communicator::begin_max_u32(uint32_t* values, int64_t count, const CallOptions& options,
                                   CommRequest* out) noexcept {
    return begin(vector_of(CollectiveKind::max_u32, values, count), options, out);
}

Status Communicator::begin_sum_f32(float* values, int64_t count, const CallOptions& options,
                                   CommRequest* out) noexcept {
    return begin(vector_of(CollectiveKind::sum_f32, values, count), options, out);
}

} // namespace mp::comm
