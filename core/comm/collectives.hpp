// SPDX-License-Identifier: Apache-2.0
// The collectives that a Communicator runs, as their callers describe them. Memory that a description points to may be freed when
// the call returns, but for what is sent and received.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "transport/transport.hpp"

namespace mp::comm {

// Who sends how much to whom; arrays of size() elements.
struct AllToAll {
    const void* send = nullptr;
    const int64_t* send_bytes = nullptr;
    const int64_t* send_offsets = nullptr;
    void* receive = nullptr;
    const int64_t* receive_bytes = nullptr;
    const int64_t* receive_offsets = nullptr;
    PeerReader* reader = nullptr; // as that of Collective; then no offsets, and nothing is received
};

struct AllGather {
    const void* send = nullptr; // may be where this rank receives its own part
    int64_t send_bytes = 0;
    void* receive = nullptr;
    const int64_t* receive_bytes = nullptr;
    const int64_t* receive_offsets = nullptr;
    PeerReader* reader = nullptr; // as of AllToAll
};

struct Broadcast {
    void* data = nullptr;
    int64_t bytes = 0;
    int32_t root = 0;
};

struct Barrier {};

// Over the ranks, in place: the largest, and the sum where the transport has one.
struct MaxU32 {
    uint32_t* values = nullptr;
    int64_t count = 0;
};
struct SumF32 {
    float* values = nullptr;
    int64_t count = 0;
};

using AnyCollective = std::variant<AllToAll, AllGather, Broadcast, Barrier, MaxU32, SumF32>;

// As transports take it; it points into `what`.
Collective collective_of(const AnyCollective& what) noexcept;
// What a transport of `size` ranks cannot do.
Status check_collective(const Collective& what, const Transport& transport) noexcept;

// What this rank has put on the wire for other ranks: payload, whatever route the transport takes. all_to_all: the
// bytes for others; all_gather, broadcast's root: its bytes times the other ranks; max_u32: its 4 * count;
// sum_f32: 2 * 4 * count * (size - 1) / size, as a ring.
struct Traffic {
    std::array<int64_t, kCollectiveKindCount> calls{};
    std::array<int64_t, kCollectiveKindCount> bytes{};
    [[nodiscard]] int64_t total_bytes() const noexcept;
    void count(const Collective& what, int32_t rank, int32_t size) noexcept;
};

} // namespace mp::comm
