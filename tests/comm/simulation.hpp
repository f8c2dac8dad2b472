// SPDX-License-Identifier: Apache-2.0
// A simulated network of ranks: one seed decides who runs when, how long each message takes, and what goes wrong. Ranks
// are threads, but only one runs at a time, and time is counted, not measured: the same seed gives the same run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "comm/communicator.hpp"
#include "hash.hpp"

namespace mp::test {

struct SimFaults {
    int32_t dropped = -1; // this rank ends, somewhere in the run ...
    bool is_drop_seen =
        true; // ... and the others are told; or else they only see that it does not come
    int32_t stopped = -1; // this rank is not scheduled any more, until all others are through
    int32_t corrupt_message = -1; // one byte of the so-manieth message with bytes is flipped
    int64_t after_turns = 0;      // when the rank is dropped or stopped
};

class SimWorld {
  public:
    SimWorld(int32_t size, uint64_t seed, const SimFaults& faults);

    using Body = std::function<void(int32_t rank, comm::Communicator& comm)>;
    // Runs the body as every rank.
    void run(int64_t deadline_ms, const Body& body);

    [[nodiscard]] bool was_corrupted() const { return was_corrupted_; }
    // Over everything that happened: who ran when, and what arrived when.
    [[nodiscard]] uint64_t trace() const { return trace_.value(); }
    [[nodiscard]] int64_t turns() const { return turns_; }
    void note(uint64_t value);
    // The rank computes for a while: hands the turn on, and waits for the next one.
    void yield(int32_t rank);

  private:
    friend class SimTransport;
    friend class SimRequest;

    // What one rank has sent in one collective, and when each other rank gets it.
    struct Sent {
        Collective what;
        std::vector<std::vector<unsigned char>> parts; // by receiver
        std::vector<int64_t> ready_ns;
    };
    using Key = std::pair<uint64_t, int32_t>; // sequence, rank

    Status begin(int32_t rank, const Collective& what);
    Status poll(int32_t rank, const Collective& what, bool* done);
    Status receive(int32_t rank, const Collective& what) const;
    int32_t missing(int32_t rank, uint64_t sequence, int32_t* ranks, int32_t capacity) const;
    void finish(int32_t rank);
    void pass_turn();
    [[nodiscard]] bool is_dropped(int32_t rank) const;
    uint64_t below(uint64_t bound) { return random_() % bound; }

    const int32_t size_;
    const SimFaults faults_;
    std::mt19937_64 random_;
    std::mutex mutex_;
    std::vector<std::condition_variable> turn_changes_;
    int32_t turn_ = -1;
    std::vector<bool> is_finished_;
    std::vector<bool> has_left_;
    int64_t now_ns_ = 0;
    int64_t turns_ = 0;
    Fnv1a trace_;
    int32_t messages_ = 0;
    bool was_corrupted_ = false;
    std::map<Key, Sent> sent_;
};

} // namespace mp::test
