// SPDX-License-Identifier: Apache-2.0
// What the thread ranks of a group share: one rendezvous for each collective in flight, where every rank shows what it
// sends, and everyone reads when all have come.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace mp::comm {

// A rank's part of one collective.
struct Showing {
    Collective what;
    bool has_come = false;
    bool is_finished = false;  // has read all it needs
    bool is_withdrawn = false; // gave up: its memory is not to be read any more
    int32_t readers = 0;       // threads that are reading it now
};

struct Rendezvous {
    explicit Rendezvous(int32_t size)
        : showings(static_cast<std::size_t>(size)), sends(static_cast<std::size_t>(size)) {}

    std::vector<Showing> showings;
    std::vector<const void*> sends; // of the showings, for readers
    std::vector<uint32_t> maxima;
    int32_t first = -1; // the rank whose collective the others' must equal
    int32_t come = 0;
    int32_t released = 0;
    Status error;
};

class ThreadGroup {
  public:
    ThreadGroup(int32_t size, std::vector<int32_t> nodes);

    [[nodiscard]] int32_t size() const noexcept { return size_; }
    [[nodiscard]] int32_t node(int32_t rank) const noexcept {
        return nodes_[static_cast<std::size_t>(rank)];
    }

    void show(int32_t rank, const Collective& what);
    Status poll(int32_t rank, uint64_t sequence, bool* done) noexcept;
    void release(int32_t rank, uint64_t sequence) noexcept;
    int32_t missing(uint64_t sequence, int32_t* ranks, int32_t capacity) noexcept;
    // The rank takes part no more.
    void leave(int32_t rank, const Status& reason) noexcept;
    // Until something has changed since `seen`, which is brought up to date.
    void pause(uint64_t* seen, int64_t nanoseconds) noexcept;
    std::shared_ptr<ThreadGroup> subgroup(const GroupDesc& desc);

  private:
    using Lock = std::unique_lock<std::mutex>;

    void changed() noexcept;
    static void compare(Rendezvous& rendezvous, int32_t rank, const Collective& what);
    Status lost_status(const Rendezvous& rendezvous) const noexcept;
    // Copies what the rank receives, or lets its reader read, without the lock.
    Status read(Lock& lock, Rendezvous& rendezvous, int32_t rank) noexcept;
    Status fetch(const Rendezvous& rendezvous, int32_t rank, bool* finished) const noexcept;
    Status start_reading(Rendezvous& rendezvous, int32_t rank) noexcept;
    [[nodiscard]] bool is_read_by_all(const Rendezvous& rendezvous) const noexcept;

    struct Sub {
        std::shared_ptr<ThreadGroup> group;
        int32_t fetched = 0;
    };

    const int32_t size_;
    const std::vector<int32_t> nodes_;
    std::mutex mutex_;
    std::condition_variable changes_;
    uint64_t version_ = 0;
    std::vector<bool> is_gone_;
    std::vector<Status> reasons_;
    std::map<uint64_t, Rendezvous> in_flight_; // by sequence; nodes do not move
    std::map<int32_t, Sub> subgroups_;         // by context
};

} // namespace mp::comm
