// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/threads.hpp"

#include <sched.h>

#include "comm/threads/group.hpp"
#include "status/guarded.hpp"

namespace mp::comm {
namespace {

constexpr int64_t kYields =
    64; // polls before a thread sleeps: what a rank on a core of its own needs

class ThreadRequest final : public TransportRequest {
  public:
    ThreadRequest(ThreadGroup& group, int32_t rank) noexcept : group_(group), rank_(rank) {}
    ~ThreadRequest() override {
        if (is_open_) {
            group_.release(rank_, sequence_);
        }
    }
    void open(uint64_t sequence) noexcept {
        sequence_ = sequence;
        is_open_ = true;
    }
    Status poll(bool* done) noexcept override { return group_.poll(rank_, sequence_, done); }
    int32_t missing(int32_t* ranks, int32_t capacity) const noexcept override {
        return group_.missing(sequence_, ranks, capacity);
    }

  private:
    ThreadGroup& group_;
    int32_t rank_;
    uint64_t sequence_ = 0;
    bool is_open_ = false;
};

class ThreadTransport final : public Transport {
  public:
    ThreadTransport(std::shared_ptr<ThreadGroup> group, int32_t rank) noexcept
        : group_(std::move(group)), rank_(rank) {}
    ~ThreadTransport() override {
        group_->leave(rank_, Status::error(Code::aborted, "its communicator was destroyed"));
    }

    [[nodiscard]] int32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] int32_t size() const noexcept override { return group_->size(); }
    [[nodiscard]] const char* name() const noexcept override { return "threads"; }
    [[nodiscard]] TransportCaps caps() const noexcept override { return {false, false, true}; }
    [[nodiscard]] const char* why_one_thread() const noexcept override { return nullptr; }
    [[nodiscard]] int32_t node(int32_t rank) const noexcept override { return group_->node(rank); }
    [[nodiscard]] int32_t next_context() const noexcept override { return next_context_; }
    void abort(const Status& reason) noexcept override { group_->leave(rank_, reason); }
    void pause(int64_t attempt, int64_t nanoseconds) noexcept override {
        if (attempt < kYields) {
            (void)sched_yield();
        } else {
            group_->pause(&seen_, nanoseconds);
        }
    }

    Status begin(const Collective& what, TransportRequest** out) noexcept override {
        return guarded("a collective of thread ranks", [&] {
            auto request = std::make_unique<ThreadRequest>(*group_, rank_);
            group_->show(rank_, what);
            request->open(what.sequence);
            *out = request.release();
            return Status();
        });
    }

    Status make_group(const GroupDesc& desc, Transport** out) noexcept override {
        *out = nullptr;
        next_context_ = desc.next_context;
        if (desc.color < 0) {
            return {};
        }
        return guarded("a group of thread ranks", [&] {
            *out = std::make_unique<ThreadTransport>(group_->subgroup(desc), desc.rank).release();
            return Status();
        });
    }

  private:
    std::shared_ptr<ThreadGroup> group_;
    int32_t rank_;
    int32_t next_context_ = 1;
    uint64_t seen_ = 0;
};

} // namespace

std::vector<std::unique_ptr<Transport>> make_thread_transports(const ThreadRanks& ranks) {
    if (ranks.count < 1) {
        fail(Code::invalid_argument, "count is %d; there must be a rank", ranks.count);
    }
    std::vector<int32_t> nodes;
    nodes.reserve(static_cast<std::size_t>(ranks.count));
    for (int32_t rank = 0; rank < ranks.count; ++rank) {
        nodes.push_back(ranks.ranks_per_node > 0 ? rank / ranks.ranks_per_node : 0);
    }
    const auto group = std::make_shared<ThreadGroup>(ranks.count, std::move(nodes));
    std::vector<std::unique_ptr<Transport>> transports;
    transports.reserve(static_cast<std::size_t>(ranks.count));
    for (int32_t rank = 0; rank < ranks.count; ++rank) {
        transports.push_back(std::make_unique<ThreadTransport>(group, rank));
    }
    return transports;
}

} // namespace mp::comm
