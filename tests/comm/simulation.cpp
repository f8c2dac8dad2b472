// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

namespace mp::test {
namespace {

constexpr int64_t kLongestDelayNs = 3000000;
constexpr int64_t kLongestTurnNs = 200000;

std::size_t index(int32_t value) { return static_cast<std::size_t>(value); }

std::vector<unsigned char> copy_of(const void* data, int64_t offset, int64_t bytes) {
    if (bytes == 0) {
        return {};
    }
    const auto* first = static_cast<const unsigned char*>(data) + offset;
    return {first, first + bytes};
}

// What a rank sends to another one.
std::vector<unsigned char> part_for(const Collective& what, int32_t rank, int32_t to) {
    switch (what.kind) {
    case CollectiveKind::all_to_all:
        return copy_of(what.send, what.send_bytes[to] == 0 ? 0 : what.send_offsets[to],
                       what.send_bytes[to]);
    case CollectiveKind::all_gather:
        return copy_of(what.send, 0, what.send_bytes[0]);
    case CollectiveKind::broadcast:
        return rank == what.root ? copy_of(what.receive, 0, what.receive_bytes[0])
                                 : std::vector<unsigned char>();
    default:
        return copy_of(what.receive, 0, what.count * 4);
    }
}

} // namespace

class SimRequest final : public TransportRequest {
  public:
    SimRequest(SimWorld& world, int32_t rank, const Collective& what)
        : world_(world), rank_(rank), what_(what) {}
    Status poll(bool* done) noexcept override { return world_.poll(rank_, what_, done); }
    int32_t missing(int32_t* ranks, int32_t capacity) const noexcept override {
        return world_.missing(rank_, what_.sequence, ranks, capacity);
    }

  private:
    SimWorld& world_;
    int32_t rank_;
    Collective what_;
};

class SimTransport final : public Transport {
  public:
    SimTransport(SimWorld& world, int32_t rank) : world_(world), rank_(rank) {}
    ~SimTransport() override { world_.has_left_[index(rank_)] = true; }
    [[nodiscard]] int32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] int32_t size() const noexcept override { return world_.size_; }
    [[nodiscard]] const char* name() const noexcept override { return "simulation"; }
    [[nodiscard]] int64_t now_ns() const noexcept override { return world_.now_ns_; }
    void pause(int64_t /*attempt*/, int64_t /*nanoseconds*/) noexcept override {
        world_.yield(rank_);
    }
    void abort(const Status& /*reason*/) noexcept override {
        world_.has_left_[index(rank_)] = true;
    }
    Status begin(const Collective& what, TransportRequest** out) noexcept override {
        const Status status = world_.begin(rank_, what);
        if (status.ok()) {
            *out = new (std::nothrow) SimRequest(world_, rank_, what);
        }
        return status;
    }
    Status make_group(const GroupDesc& /*group*/, Transport** /*out*/) noexcept override {
        return Status::error(Code::unsupported, "the simulation has no groups");
    }

  private:
    SimWorld& world_;
    int32_t rank_;
};

SimWorld::SimWorld(int32_t size, uint64_t seed, const SimFaults& faults)
    : size_(size), faults_(faults), random_(seed), turn_changes_(index(size)),
      is_finished_(index(size)), has_left_(index(size)) {}

void SimWorld::note(uint64_t value) { trace_.add(value); }

bool SimWorld::is_dropped(int32_t rank) const {
    return rank == faults_.dropped && turns_ >= faults_.after_turns;
}

void SimWorld::pass_turn() {
    std::vector<int32_t> ready;
    for (int32_t rank = 0; rank < size_; ++rank) {
        if (!is_finished_[index(rank)] &&
            !(rank == faults_.stopped && turns_ >= faults_.after_turns)) {
            ready.push_back(rank);
        }
    }
    if (ready.empty()) { // the stopped one may end now
        turn_ =
            faults_.stopped >= 0 && !is_finished_[index(faults_.stopped)] ? faults_.stopped : -1;
    } else {
        turn_ = ready[below(ready.size())];
    }
    ++turns_;
    now_ns_ += 1 + static_cast<int64_t>(below(kLongestTurnNs));
    note(static_cast<uint64_t>(turn_ + 2));
    if (turn_ >= 0) {
        turn_changes_[index(turn_)].notify_one();
    }
}

void SimWorld::yield(int32_t rank) {
    std::unique_lock lock(mutex_);
    pass_turn();
    turn_changes_[index(rank)].wait(lock, [&] { return turn_ == rank; });
}

void SimWorld::finish(int32_t rank) {
    const std::lock_guard lock(mutex_);
    is_finished_[index(rank)] = true;
    pass_turn();
}

void SimWorld::run(int64_t deadline_ms, const Body& body) {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < size_; ++rank) {
        threads.emplace_back([this, rank, deadline_ms, &body] {
            {
                std::unique_lock lock(mutex_);
                turn_changes_[index(rank)].wait(lock, [&] { return turn_ == rank; });
            }
            {
                comm::Communicator comm(std::make_unique<SimTransport>(*this, rank), deadline_ms);
                body(rank, comm);
            }
            finish(rank);
        });
    }
    {
        const std::lock_guard lock(mutex_);
        pass_turn();
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

Status SimWorld::begin(int32_t rank, const Collective& what) {
    if (is_dropped(rank)) {
        return Status::error(Code::internal, "this rank was dropped by the simulation");
    }
    Sent& sent = sent_[{what.sequence, rank}];
    sent.what = what;
    for (int32_t to = 0; to < size_; ++to) {
        sent.parts.push_back(part_for(what, rank, to));
        sent.ready_ns.push_back(
            to == rank ? now_ns_ : now_ns_ + static_cast<int64_t>(below(kLongestDelayNs)));
        std::vector<unsigned char>& part = sent.parts.back();
        if (to != rank && !part.empty() && what.kind != CollectiveKind::max_u32 &&
            messages_++ == faults_.corrupt_message) {
            part[below(part.size())] ^= static_cast<unsigned char>(1U << below(8));
            was_corrupted_ = true;
        }
    }
    if (below(2) == 0) {
        yield(rank); // others may come between two calls, too
    }
    return {};
}

Status SimWorld::receive(int32_t rank, const Collective& what) const {
    for (int32_t from = 0; from < size_; ++from) {
        const Sent& sent = sent_.at({what.sequence, from});
        const std::vector<unsigned char>& part = sent.parts[index(rank)];
        if (sent.what.kind != what.kind) {
            return Status::error(Code::rank_mismatch, "rank %d calls %s", from,
                                 collective_name(sent.what.kind));
        }
        auto* to = static_cast<unsigned char*>(what.receive);
        if (what.kind == CollectiveKind::max_u32) {
            for (std::size_t i = 0; i < part.size(); i += 4) {
                uint32_t theirs = 0;
                uint32_t own = 0;
                std::memcpy(&theirs, part.data() + i, 4);
                std::memcpy(&own, to + i, 4);
                own = std::max(own, theirs);
                std::memcpy(to + i, &own, 4);
            }
        } else if (what.kind == CollectiveKind::broadcast ? from == what.root && from != rank
                                                          : !part.empty()) {
            const bool is_broadcast = what.kind == CollectiveKind::broadcast;
            const int64_t expected = what.receive_bytes[is_broadcast ? 0 : from];
            if (expected != static_cast<int64_t>(part.size())) {
                return Status::error(Code::rank_mismatch, "rank %d sends %zu bytes", from,
                                     part.size());
            }
            std::copy(part.begin(), part.end(),
                      to + (is_broadcast ? 0 : what.receive_offsets[from]));
        }
    }
    return {};
}

Status SimWorld::poll(int32_t rank, const Collective& what, bool* done) {
    *done = false;
    if (is_dropped(rank)) {
        return Status::error(Code::internal, "this rank was dropped by the simulation");
    }
    bool has_all = true;
    for (int32_t from = 0; from < size_; ++from) {
        const auto found = sent_.find({what.sequence, from});
        const bool has_come =
            found != sent_.end() && found->second.ready_ns[index(rank)] <= now_ns_;
        has_all = has_all && has_come;
        const bool is_silent = from == faults_.dropped && !faults_.is_drop_seen;
        if (found == sent_.end() && has_left_[index(from)] && !is_silent) {
            return Status::error(Code::peer_lost, "rank %d is gone", from);
        }
    }
    if (has_all) {
        note(what.sequence * 64 + static_cast<uint64_t>(rank));
        *done = true;
        return receive(rank, what);
    }
    return {};
}

int32_t SimWorld::missing(int32_t rank, uint64_t sequence, int32_t* ranks, int32_t capacity) const {
    int32_t count = 0;
    for (int32_t from = 0; from < size_; ++from) {
        const auto found = sent_.find({sequence, from});
        if (found == sent_.end() || found->second.ready_ns[index(rank)] > now_ns_) {
            if (count < capacity) {
                ranks[count] = from;
            }
            ++count;
        }
    }
    return count;
}

} // namespace mp::test
