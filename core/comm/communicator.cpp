// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <algorithm>
#include <utility>

#include "comm/capture.hpp"
#include "comm/pending_collective.hpp"
#include "status/guarded.hpp"

namespace mp::comm {

namespace {

constexpr int64_t kNsPerMs = 1000000;
constexpr int64_t kMaxDeadlineMs = int64_t{1} << 40; // 35 years: no sum of times overflows
constexpr int64_t kLongestPauseNs = kNsPerMs;

Status check_deadline(int64_t deadline_ms) noexcept {
    if (deadline_ms < 0 || deadline_ms > kMaxDeadlineMs) {
        return Status::error(Code::invalid_argument,
                             "deadline_ms is %lld; it must be 0 (default) or positive, and at most "
                             "2^40",
                             static_cast<long long>(deadline_ms));
    }
    return {};
}

void append_array(std::vector<int64_t>& numbers, const int64_t* array, int32_t count) {
    if (array != nullptr) {
        numbers.insert(numbers.end(), array, array + count);
    }
}

// Copies the arrays, so that the caller's may be freed, and points the collective at the copies.
void own_arrays(PendingCollective& pending, int32_t size) {
    Collective& what = pending.collective;
    const bool is_exchange = what.kind == CollectiveKind::all_to_all;
    struct Row {
        const int64_t** array;
        int32_t count;
    };
    const std::array<Row, 4> rows = {
        Row{&what.send_bytes, is_exchange ? size : 1}, Row{&what.send_offsets, size},
        Row{&what.receive_bytes, what.kind == CollectiveKind::broadcast ? 1 : size},
        Row{&what.receive_offsets, size}};
    pending.numbers.reserve(static_cast<std::size_t>(size) * 4);
    for (const Row& row : rows) {
        append_array(pending.numbers, *row.array, row.count);
    }
    const int64_t* next = pending.numbers.data();
    for (const Row& row : rows) {
        if (*row.array != nullptr) {
            *row.array = next;
            next += row.count;
        }
    }
}

} // namespace

Communicator::Lock::~Lock() {
    std::vector<std::shared_ptr<const void>> kept;
    kept.swap(comm_.kept_);
    comm_.holder_.store({});
    comm_.transport_mutex_.unlock();
} // what was kept goes now: its requests lock for themselves

Communicator::Communicator(std::unique_ptr<Transport> transport, int64_t deadline_ms)
    : transport_(std::move(transport)), rank_(transport_->rank()), size_(transport_->size()),
      deadline_ms_(kDefaultDeadlineMs) {
    check(set_deadline_ms(deadline_ms));
    nodes_.reserve(static_cast<std::size_t>(size_));
    for (int32_t rank = 0; rank < size_; ++rank) {
        nodes_.push_back(transport_->node(rank));
    }
}

Communicator::~Communicator() {
    for (;;) {
        std::shared_ptr<PendingCollective> first;
        {
            const Lock lock(*this);
            first = in_flight_.empty() ? nullptr : in_flight_.front();
        }
        if (first == nullptr || !first->is_followed) {
            break;
        }
        (void)wait(*first, nullptr);
    }
    {
        const Lock lock(*this);
        if (!in_flight_.empty()) {
            (void)fail_all(Status::error(Code::aborted,
                                         "the communicator of rank %d was destroyed with "
                                         "%zu collective(s) in flight",
                                         rank_, in_flight_.size()));
        }
    }
    const std::unique_lock last(*life_); // all is over, so whoever uses it is about to leave
}

Status Communicator::set_deadline_ms(int64_t deadline_ms) noexcept {
    const Status status = check_deadline(deadline_ms);
    if (status.ok()) {
        deadline_ms_ = deadline_ms == 0 ? kDefaultDeadlineMs : deadline_ms;
    }
    return status;
}

Status Communicator::status() const noexcept {
    const std::lock_guard lock(mutex_);
    return first_error_;
}

void Communicator::abort(const Status& reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (first_error_.ok()) {
            first_error_ = reason;
        }
    }
    has_failed_.store(true);
    transport_->abort(reason);
}

Status Communicator::fail_all(const Status& reason) noexcept {
    abort(reason);
    const Status first = status();
    close_in_flight(first);
    return first;
}

void Communicator::close_in_flight(const Status& reason) noexcept {
    for (const auto& pending : in_flight_) {
        pending->request.reset();
        pending->status = reason;
        pending->over = true;
    }
    in_flight_.clear();
}

void Communicator::progress() noexcept {
    for (std::size_t i = 0; i < in_flight_.size();) {
        if (has_failed_.load()) {
            close_in_flight(status());
            return;
        }
        const std::shared_ptr<PendingCollective> pending = in_flight_[i];
        bool done = false;
        const Status status = pending->request->poll(&done);
        if (!status.ok()) {
            (void)fail_all(pending->named(status));
            return;
        }
        if (done) {
            pending->request.reset();
            pending->over = true;
            in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
}

Status Communicator::wait(PendingCollective& pending, Queue* follower) noexcept {
    for (int64_t attempt = 0;; ++attempt) {
        bool done = false;
        const Status status = test(pending, &done, follower);
        if (done) {
            return status;
        }
        const int64_t left = pending.deadline_ns - transport_->now_ns();
        transport_->pause(attempt, std::clamp(left, int64_t{0}, kLongestPauseNs));
    }
}

Status Communicator::test(PendingCollective& pending, bool* done, Queue* follower) noexcept {
    const Lock lock(*this);
    progress();
    if (!pending.over && follower != nullptr) {
        bool follows = false;
        const Status status = pending.request->follow(follower->native(), &follows);
        pending.is_followed = pending.is_followed || follows;
        if (!status.ok()) {
            (void)fail_all(pending.named(status));
        }
    }
    if (!pending.over && transport_->now_ns() >= pending.deadline_ns) {
        (void)fail_all(pending.timed_out());
    }
    *done = pending.over || (follower != nullptr && pending.is_followed);
    return pending.status;
}

void Communicator::drop(const PendingCollective& pending) noexcept {
    const Status reason =
        pending.named(Status::error(Code::aborted, "its request was dropped before it was done"));
    if (holds_lock()) {
        abort(reason); // the next look at what is in flight ends it
        return;
    }
    const Lock lock(*this);
    if (!pending.over) {
        (void)fail_all(reason);
    }
}

Status Communicator::open(const Collective& collective, const CallOptions& options,
                          CommRequest* out) {
    auto pending = std::make_shared<PendingCollective>();
    pending->communicator = this;
    pending->life = life_;
    pending->collective = collective;
    pending->collective.sequence = sequence_;
    pending->collective.stream = options.queue != nullptr ? options.queue->native() : nullptr;
    pending->site = options.site != nullptr ? options.site : "";
    pending->deadline_ms = options.deadline_ms != 0 ? options.deadline_ms : deadline_ms_;
    pending->deadline_ns = transport_->now_ns() + pending->deadline_ms * kNsPerMs;
    own_arrays(*pending, size_);
    in_flight_.reserve(in_flight_.size() + 1); // nothing fails after begin
    TransportRequest* request = nullptr;
    const Status status = transport_->begin(pending->collective, &request);
    ++sequence_;
    if (!status.ok()) {
        return fail_all(pending->named(status));
    }
    pending->request.reset(request);
    traffic_.count(pending->collective, rank_, size_);
    in_flight_.push_back(pending);
    out->pending_ = std::move(pending);
    return {};
}

Status Communicator::begin(const AnyCollective& what, const CallOptions& options,
                           CommRequest* out) noexcept {
    if (holds_lock()) {
        return nested();
    }
    const Lock lock(*this);
    if (has_failed_.load()) {
        close_in_flight(status());
        return status();
    }
    if (out->is_open()) {
        return Status::error(Code::bad_state, "request is in use; wait for it first");
    }
    const Collective collective = collective_of(what);
    Status status = check_deadline(options.deadline_ms);
    if (status.ok()) {
        status = check_collective(collective, *transport_);
    }
    if (status.ok()) {
        status = refuse_capture(options.queue);
    }
    return status.ok() ? guarded("the bookkeeping of a collective",
                                 [&] { return open(collective, options, out); })
                       : status;
}

Status Communicator::reserve(int64_t bytes) noexcept {
    if (holds_lock()) {
        return nested();
    }
    const Lock lock(*this);
    return has_failed_.load() ? status() : transport_->reserve(bytes);
}

Status Communicator::run(const AnyCollective& what, const CallOptions& options) noexcept {
    CommRequest request;
    const Status status = begin(what, options, &request);
    return status.ok() ? request.wait() : status;
}

std::string Communicator::describe() const {
    const std::string details = transport_->details();
    std::string text = "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + " over " +
                       transport_->name() + (details.empty() ? "" : " (" + details + ")") +
                       ", node " + std::to_string(node(rank_)) + ", deadline " +
                       std::to_string(deadline_ms_) + " ms, " + std::to_string(sequence_) +
                       " collectives, " + std::to_string(traffic_.total_bytes()) + " bytes sent";
    const Status first = status();
    return first.ok() ? text : text + "; ended by: " + first.text();
}

} // namespace mp::comm
