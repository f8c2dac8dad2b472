// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives.hpp"

#include <numeric>

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
    collective.reader = what.reader;
    return collective;
}

Collective collective_of(const AllGather& what) {
    Collective collective;
    collective.kind = CollectiveKind::all_gather;
    collective.send = what.send;
    collective.send_bytes = &what.send_bytes;
    collective.receive = what.receive;
    collective.receive_bytes = what.receive_bytes;
    collective.receive_offsets = what.receive_offsets;
    collective.reader = what.reader;
    return collective;
}

Collective collective_of(const Broadcast& what) {
    Collective collective;
    collective.kind = CollectiveKind::broadcast;
    collective.receive = what.data;
    collective.receive_bytes = &what.bytes;
    collective.root = what.root;
    return collective;
}

Collective vector_of(CollectiveKind kind, void* values, int64_t count) {
    Collective collective;
    collective.kind = kind;
    collective.receive = values;
    collective.count = count;
    return collective;
}

Collective collective_of(const MaxU32& what) {
    return vector_of(CollectiveKind::max_u32, what.values, what.count);
}

Collective collective_of(const SumF32& what) {
    return vector_of(CollectiveKind::sum_f32, what.values, what.count);
}

// One side of an exchange: no negative size, and a pointer where there are bytes.
Status check_side(const char* name, const void* pointer, const int64_t* bytes, int32_t count) {
    if (bytes == nullptr) {
        return Status::error(Code::null_argument, "%s_bytes is NULL", name);
    }
    for (int32_t i = 0; i < count; ++i) {
        if (bytes[i] < 0) {
            return Status::error(Code::invalid_argument, "%s_bytes[%d] is %lld", name, i,
                                 static_cast<long long>(bytes[i]));
        }
        if (bytes[i] > 0 && pointer == nullptr) {
            return Status::error(Code::null_argument, "%s is NULL, but %s_bytes[%d] is %lld", name,
                                 name, i, static_cast<long long>(bytes[i]));
        }
    }
    return {};
}

// Offsets may be null where there is nothing.
Status check_offsets(const char* name, const int64_t* offsets) {
    return offsets != nullptr ? Status()
                              : Status::error(Code::null_argument, "%s_offsets is NULL", name);
}

Status check_exchange(const Collective& what, int32_t rank, int32_t size, bool lends_memory) {
    if (what.reader != nullptr && !lends_memory) {
        return Status::error(Code::internal,
                             "the transport's ranks cannot read in each other's memory");
    }
    const bool is_exchange = what.kind == CollectiveKind::all_to_all;
    const void* receiver = what.reader != nullptr ? what.reader : what.receive;
    Status status = check_side("send", what.send, what.send_bytes, is_exchange ? size : 1);
    if (status.ok()) {
        status = check_side("receive", receiver, what.receive_bytes, size);
    }
    if (status.ok() && is_exchange && what.reader == nullptr) {
        status = check_offsets("send", what.send_offsets);
    }
    if (status.ok() && what.reader == nullptr) {
        status = check_offsets("receive", what.receive_offsets);
    }
    const int64_t own = status.ok() ? what.send_bytes[is_exchange ? rank : 0] : 0;
    if (status.ok() && own != what.receive_bytes[rank]) {
        status = Status::error(
            Code::invalid_argument,
            "this rank sends %lld bytes to itself, but receives %lld from itself",
            static_cast<long long>(own), static_cast<long long>(what.receive_bytes[rank]));
    }
    return status;
}

int64_t sum_for_others(const int64_t* bytes, int32_t size, int32_t own) {
    return std::accumulate(bytes, bytes + size, int64_t{0}) - bytes[own];
}

} // namespace

Collective collective_of(const AnyCollective& what) noexcept {
    Collective collective;
    const auto take = [&](const auto* one) { // where `what` is of that kind
        if (one != nullptr) {
            collective = collective_of(*one);
        }
    };
    take(std::get_if<AllToAll>(&what));
    take(std::get_if<AllGather>(&what));
    take(std::get_if<Broadcast>(&what));
    take(std::get_if<MaxU32>(&what));
    take(std::get_if<SumF32>(&what));
    return collective; // a barrier
}

Status check_collective(const Collective& what, const Transport& transport) noexcept {
    const TransportCaps caps = transport.caps();
    const int32_t size = transport.size();
    switch (what.kind) {
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_gather:
        return check_exchange(what, transport.rank(), size, caps.lends_memory);
    case CollectiveKind::broadcast:
        if (what.root < 0 || what.root >= size) {
            return Status::error(Code::invalid_argument,
                                 "root is %d; the ranks are numbered from 0 to %d", what.root,
                                 size - 1);
        }
        return check_side("receive", what.receive, what.receive_bytes, 1);
    case CollectiveKind::barrier:
        return {};
    case CollectiveKind::sum_f32:
        if (!caps.sum_f32) {
            return Status::error(Code::unsupported, "the transport %s has no sums of its own",
                                 transport.name());
        }
        [[fallthrough]];
    case CollectiveKind::max_u32:
        if (what.count < 0 || what.count > INT64_MAX / 8) {
            return Status::error(Code::invalid_argument, "count is %lld",
                                 static_cast<long long>(what.count));
        }
        return what.count == 0 || what.receive != nullptr
                   ? Status()
                   : Status::error(Code::null_argument, "values is NULL");
    }
    return Status::error(Code::internal, "collective kind %d", static_cast<int>(what.kind));
}

void Traffic::count(const Collective& what, int32_t rank, int32_t size) noexcept {
    const auto kind = static_cast<std::size_t>(what.kind);
    int64_t sent = 0;
    switch (what.kind) {
    case CollectiveKind::all_to_all:
        sent = sum_for_others(what.send_bytes, size, rank);
        break;
    case CollectiveKind::all_gather:
        sent = what.send_bytes[0] * (size - 1);
        break;
    case CollectiveKind::broadcast:
        sent = what.root == rank ? what.receive_bytes[0] * (size - 1) : 0;
        break;
    case CollectiveKind::barrier:
        break;
    case CollectiveKind::max_u32:
        sent = size > 1 ? 4 * what.count : 0;
        break;
    case CollectiveKind::sum_f32:
        sent = 8 * what.count * (size - 1) / size;
        break;
    }
    ++calls.at(kind);
    bytes.at(kind) += sent;
}

int64_t Traffic::total_bytes() const noexcept {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

} // namespace mp::comm
