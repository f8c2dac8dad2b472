// SPDX-License-Identifier: Apache-2.0
// Transport: how ranks exchange bytes. It moves bytes and takes integer maxima; the floating-point sums whose
// bits are promised are core's. Nothing here waits: every collective is begun, and polled until it is done.
//
// These types cross between binaries (modules), so: no standard-library type in a signature, nothing throws, and
// kTransportVersion changes with any change of this file. core/comm/communicator.hpp is what callers use: it has
// the deadlines, the order numbers, the words of errors, and it never calls a transport again that has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

#include "status/status.hpp"

namespace mp {

inline constexpr uint32_t kTransportVersion = 6;

enum class CollectiveKind : int32_t {
    all_to_all, // rank r sends send_bytes[i] from send + send_offsets[i] to rank i, and receives likewise
    all_gather, // every rank receives every rank's bytes at receive + receive_offsets[i]
    broadcast,  // receive_bytes[0] bytes at receive, from the rank `root` to all
    barrier,
    max_u32, // uint32_t receive[count] becomes the maximum over the ranks
    sum_f32, // float receive[count] becomes the sum, in an order of the transport's own; only where caps say so
};
inline constexpr int32_t kCollectiveKindCount = 6;

[[nodiscard]] inline const char* collective_name(CollectiveKind kind) noexcept {
    constexpr const char* kNames[] = {"all_to_all", "all_gather", "broadcast",
                                      "barrier",    "max_u32",    "sum_f32"};
    return kNames[static_cast<int32_t>(kind)];
}

// Reads what other ranks lend, where that lies. Called by poll, so by whichever thread polls.
class PeerReader {
  public:
    PeerReader() = default;
    PeerReader(const PeerReader&) = delete;
    PeerReader& operator=(const PeerReader&) = delete;
    // All ranks have come: lent[r] is the `send` of rank r. What it leads to stays until the call is over, so one call
    // reads no more than a rank that gives up may wait for. *finished: nothing is left to read.
    virtual Status read(const void* const* lent, bool* finished) noexcept = 0;

  protected:
    ~PeerReader() = default;
};

// One collective of one rank. What it points to, the arrays too, stays until the request is done or deleted.
// No bytes are ordinary, and then the pointer may be null. all_gather may have `send` where it receives its own
// part.
struct Collective {
    CollectiveKind kind = CollectiveKind::barrier;
    uint64_t sequence = 0; // 0, 1, 2, ... in the order of begin, the same on every rank
    const void* send = nullptr;
    const int64_t* send_bytes = nullptr; // all_to_all: size() of them; all_gather: one
    const int64_t* send_offsets = nullptr;
    void* receive = nullptr;
    const int64_t* receive_bytes =
        nullptr; // all_to_all, all_gather: size() of them; broadcast: one
    const int64_t* receive_offsets = nullptr;
    int64_t count = 0;
    int32_t root = 0;
    void* stream =
        nullptr; // where the caps say device_memory: the native stream whose work comes first
    // all_to_all or all_gather where the caps say lends_memory, of all ranks or none: reads in place of a copy. `send` then leads
    // to what the readers know of, the bytes say how much that is, and nothing is received.
    PeerReader* reader = nullptr;
};

struct TransportCaps {
    bool sum_f32 = false;
    bool device_memory =
        false;                 // takes pointers to device memory as they are, and streams follow it
    bool lends_memory = false; // ranks share an address space, and take readers
};

// A collective that was begun. Deleting one that is not done gives it up: the transport touches the caller's
// memory no more, and the deletion never waits for another rank.
class TransportRequest {
  public:
    TransportRequest() = default;
    TransportRequest(const TransportRequest&) = delete;
    TransportRequest& operator=(const TransportRequest&) = delete;
    virtual ~TransportRequest() = default;

    // Moves it on without waiting. Done: all is received, and what was sent may be reused. After a failure it is
    // not polled again. peer_lost and rank_mismatch name the ranks where they are known.
    virtual Status poll(bool* done) noexcept = 0;
    // Where the caps say device_memory: what the native `stream` is given from now on comes after this collective, by the
    // device's own order. *follows stays false where that cannot be said yet. It is polled until it is done all the same.
    virtual Status follow(void* stream, bool* follows) noexcept {
        (void)stream;
        *follows = false;
        return {};
    }
    // Grows while bytes come and go, so that whoever polls now and then polls again at once. 0 where nobody counts.
    [[nodiscard]] virtual int64_t moved_bytes() const noexcept { return 0; }
    // The ranks that have not been seen in it, as many as fit; how many there are, or -1 where nobody knows.
    virtual int32_t missing(int32_t* ranks, int32_t capacity) const noexcept {
        (void)ranks;
        (void)capacity;
        return -1;
    }
};

class Transport;

// A part of a transport's ranks. Made from what all ranks have agreed on, so that making it need not wait.
struct GroupDesc {
    int32_t color = -1; // below zero: this rank is in no group
    int32_t key = 0;
    const int32_t* members = nullptr; // the parent's ranks in the order of their new ranks
    int32_t count = 0;
    int32_t rank = 0;         // this rank's new number
    int32_t context = 0;      // a number that no other group of these ranks has or had
    int32_t next_context = 0; // the next free one
    int64_t deadline_ms = 0;  // of making it, where that waits for the other ranks
};

// The clock of deadlines.
[[nodiscard]] inline int64_t monotonic_ns() noexcept {
    timespec time = {};
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

class Transport {
  public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    // Leaves the group: ranks that still wait for this one get peer_lost where the transport can tell. All
    // requests are deleted before. Waits for no other rank longer than it takes to copy what is being read.
    virtual ~Transport() = default;

    [[nodiscard]] virtual int32_t rank() const noexcept = 0;
    [[nodiscard]] virtual int32_t size() const noexcept = 0;
    [[nodiscard]] virtual const char* name() const noexcept = 0;
    [[nodiscard]] virtual TransportCaps caps() const noexcept { return {}; }
    // What it found (versions, levels), for people; may be empty.
    [[nodiscard]] virtual const char* details() const noexcept { return ""; }
    // Calls may come from any thread, one at a time, while the program uses other communicators, and whatever the
    // transport is made of, on threads of its own: null. Else why not, for people.
    [[nodiscard]] virtual const char* why_one_thread() const noexcept {
        return "the transport does not take calls from another thread";
    }
    // Ranks with equal numbers share a machine.
    [[nodiscard]] virtual int32_t node(int32_t rank) const noexcept {
        (void)rank;
        return 0;
    }

    // Memory of the transport's own for one message of so many bytes of the host: where none is under way that one does not fail
    // for want of it. Of this rank alone.
    virtual Status reserve(int64_t bytes) noexcept {
        (void)bytes;
        return {};
    }
    // Several may be in flight; all ranks begin the same ones in the same order.
    virtual Status begin(const Collective& collective, TransportRequest** out) noexcept = 0;

    // Gives up: other ranks learn it where the transport can notify them. After it requests are only deleted. From
    // any thread, any number of times.
    virtual void abort(const Status& reason) noexcept = 0;

    // Every rank of this transport calls it; *out is null for a rank in no group. The group outlives the parent.
    [[nodiscard]] virtual int32_t next_context() const noexcept { return 1; }
    virtual Status make_group(const GroupDesc& group, Transport** out) noexcept = 0;

    // Between two polls: until something may have changed, or the time is over. `attempt` counts from 0 in one
    // wait.
    virtual void pause(int64_t attempt, int64_t nanoseconds) noexcept {
        (void)attempt;
        const timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
        (void)nanosleep(&time, nullptr);
    }
    // A simulated transport has a clock of its own.
    [[nodiscard]] virtual int64_t now_ns() const noexcept { return monotonic_ns(); }
};

// Requests that need no waiting.
class DoneRequest final : public TransportRequest {
  public:
    Status poll(bool* done) noexcept override {
        *done = true;
        return {};
    }
    int32_t missing(int32_t* /*ranks*/, int32_t /*capacity*/) const noexcept override { return 0; }
};

} // namespace mp
