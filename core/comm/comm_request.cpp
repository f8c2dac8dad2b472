// SPDX-License-Identifier: Apache-2.0
// Requests, and what is said of one that has failed.
#include <algorithm>
#include <array>
#include <cstdio>
#include <shared_mutex>
#include <utility>

#include "comm/pending_collective.hpp"

namespace mp::comm {
namespace {

constexpr int32_t kNamedRanks = 16; // more would not fit a line

// What `body` says while the communicator lives and is not in a function of its transport; else how the collective has ended.
template <typename Body>
Status unless_over(PendingCollective& pending, bool* is_over, const Body& body) noexcept {
    const std::shared_lock living(*pending.life);
    Status status;
    if (!pending.over) {
        status = pending.communicator->holds_lock() ? nested() : body(*pending.communicator);
    }
    *is_over = pending.over; // looked at once: another thread may end it now
    return *is_over ? pending.status : status;
}

} // namespace

Status nested() noexcept {
    return Status::error(Code::bad_state,
                         "a function of the transport called the communicator that called it");
}

Status PendingCollective::named(const Status& reason) const noexcept {
    const Communicator& comm = *communicator;
    return Status::error(reason.code(), "%s #%llu%s%s%s on rank %d of %d over %s: %s",
                         collective_name(collective.kind),
                         static_cast<unsigned long long>(collective.sequence),
                         site.empty() ? "" : " (", site.c_str(), site.empty() ? "" : ")",
                         comm.rank_, comm.size_, comm.transport_->name(), reason.text());
}

Status PendingCollective::timed_out() const noexcept {
    std::array<int32_t, kNamedRanks> ranks{};
    const int32_t count = request->missing(ranks.data(), kNamedRanks);
    TextLine<256> who;
    if (count > 0) {
        std::array<char, 200> list{};
        std::size_t length = 0;
        for (int32_t i = 0; i < std::min(count, kNamedRanks); ++i) {
            const int written =
                std::snprintf(list.data() + length, list.size() - length, "%s%d",
                              i == 0 ? "" : ", ", ranks.at(static_cast<std::size_t>(i)));
            length = std::min(list.size() - 1, length + static_cast<std::size_t>(written));
        }
        who.set("; ranks not seen: %s%s", list.data(), count > kNamedRanks ? ", ..." : "");
    }
    return named(Status::error(Code::timeout, "not done after %lld ms%s",
                               static_cast<long long>(deadline_ms), who.c_str()));
}

CommRequest::CommRequest() noexcept = default;
CommRequest::CommRequest(CommRequest&& other) noexcept : pending_(std::move(other.pending_)) {}

CommRequest& CommRequest::operator=(CommRequest&& other) noexcept {
    if (this != &other) {
        CommRequest dropped;
        dropped.pending_ = std::move(pending_);
        pending_ = std::move(other.pending_);
    }
    return *this;
}

CommRequest::~CommRequest() {
    if (pending_ != nullptr && !pending_->over) {
        pending_->communicator->drop(*pending_);
    }
}

Status CommRequest::wait(Queue* follower) noexcept {
    if (pending_ == nullptr) {
        return {};
    }
    // Where it is over this request is not touched again: a function of the transport may have dropped it.
    const std::shared_ptr<PendingCollective> pending = std::move(pending_);
    pending_ = nullptr;
    bool is_over = false;
    const Status status = unless_over(
        *pending, &is_over, [&](Communicator& comm) { return comm.wait(*pending, follower); });
    if (!is_over) { // a follower does not wait for the end
        pending_ = pending;
    }
    return status;
}

int64_t CommRequest::moved_bytes() const noexcept {
    if (pending_ == nullptr || pending_->over) {
        return 0;
    }
    const Communicator::Lock lock(*pending_->communicator);
    return pending_->request != nullptr ? pending_->request->moved_bytes() : 0;
}

Status CommRequest::test(bool* done, Queue* follower) noexcept {
    *done = true;
    if (pending_ == nullptr) {
        return {};
    }
    const std::shared_ptr<PendingCollective> pending = pending_;
    bool is_over = false;
    const Status status = unless_over(*pending, &is_over, [&](Communicator& comm) {
        return comm.test(*pending, done, follower);
    });
    if (is_over) {
        *done = true;
        pending_ = nullptr;
    }
    return status;
}

} // namespace mp::comm
