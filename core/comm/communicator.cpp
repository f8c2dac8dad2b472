// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "status/guarded.hpp"

namespace mp::comm {

// What a request holds on to. `over`: nothing of the caller's is touched any more, and `status` is how it ended.
struct Flight {
    Communicator* communicator = nullptr;
    Collective collective;
    std::vector<int64_t> numbers; // the collective's arrays
    std::unique_ptr<TransportRequest> request;
    int64_t deadline_ms = 0;
    int64_t deadline_ns = 0;
    const char* site = nullptr;
    bool over = false;
    Status status;
};

namespace {

constexpr int64_t kNsPerMs = 1000000;
constexpr int64_t kMaxDeadlineMs = int64_t{1} << 40; // 35 years: no sum of times overflows
constexpr int64_t kLongestPauseNs = kNsPerMs;
constexpr int32_t kNamedRanks = 16; // more would not fit a line

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
void own_arrays(Flight& flight, int32_t size) {
    Collective& what = flight.collective;
    const bool is_exchange = what.kind == CollectiveKind::all_to_all;
    struct Row {
        const int64_t** array;
        int32_t count;
    };
    const std::array<Row, 4> rows = {
        Row{&what.send_bytes, is_exchange ? size : 1}, Row{&what.send_offsets, size},
        Row{&what.receive_bytes, what.kind == CollectiveKind::broadcast ? 1 : size},
        Row{&what.receive_offsets, size}};
    flight.numbers.reserve(static_cast<std::size_t>(size) * 4);
    for (const Row& row : rows) {
        append_array(flight.numbers, *row.array, row.count);
    }
    const int64_t* next = flight.numbers.data();
    for (const Row& row : rows) {
        if (*row.array != nullptr) {
            *row.array = next;
            next += row.count;
        }
    }
}

} // namespace

// ---- requests

CommRequest::CommRequest() noexcept = default;
CommRequest::CommRequest(CommRequest&& other) noexcept : flight_(std::move(other.flight_)) {}

CommRequest& CommRequest::operator=(CommRequest&& other) noexcept {
    if (this != &other) {
        CommRequest dropped;
        dropped.flight_ = std::move(flight_);
        flight_ = std::move(other.flight_);
    }
    return *this;
}

CommRequest::~CommRequest() {
    if (flight_ != nullptr && !flight_->over) {
        (void)flight_->communicator->poison(flight_->communicator->named(
            *flight_, Status::error(Code::aborted, "its request was dropped before "
                                                   "it was done")));
    }
}

Status CommRequest::wait() noexcept {
    if (flight_ == nullptr) {
        return {};
    }
    const std::shared_ptr<Flight> flight = std::move(flight_);
    flight_ = nullptr;
    return flight->over ? flight->status : flight->communicator->wait(*flight);
}

int64_t CommRequest::moved_bytes() const noexcept {
    return flight_ != nullptr && flight_->request != nullptr ? flight_->request->moved_bytes() : 0;
}

Status CommRequest::test(bool* done) noexcept {
    *done = true;
    if (flight_ == nullptr) {
        return {};
    }
    if (!flight_->over) {
        Communicator& communicator = *flight_->communicator;
        communicator.progress();
        if (!flight_->over && communicator.transport_->now_ns() >= flight_->deadline_ns) {
            (void)communicator.poison(communicator.timeout_of(*flight_));
        }
    }
    if (!flight_->over) {
        *done = false;
        return {};
    }
    const Status status = flight_->status;
    flight_ = nullptr;
    return status;
}

// ---- communicator

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
    if (!flights_.empty()) {
        (void)poison(Status::error(Code::aborted,
                                   "the communicator of rank %d was destroyed with "
                                   "%zu collective(s) in flight",
                                   rank_, flights_.size()));
    }
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
    is_poisoned_.store(true);
    transport_->abort(reason);
}

Status Communicator::poison(const Status& reason) noexcept {
    abort(reason);
    const Status first = status();
    close_flights(first);
    return first;
}

void Communicator::close_flights(const Status& reason) noexcept {
    for (const auto& flight : flights_) {
        flight->request.reset();
        flight->status = reason;
        flight->over = true;
    }
    flights_.clear();
}

Status Communicator::named(const Flight& flight, const Status& reason) const noexcept {
    return Status::error(
        reason.code(), "%s #%llu%s%s%s on rank %d of %d over %s: %s",
        collective_name(flight.collective.kind),
        static_cast<unsigned long long>(flight.collective.sequence),
        flight.site != nullptr ? " (" : "", flight.site != nullptr ? flight.site : "",
        flight.site != nullptr ? ")" : "", rank_, size_, transport_->name(), reason.text());
}

Status Communicator::timeout_of(const Flight& flight) const noexcept {
    std::array<int32_t, kNamedRanks> ranks{};
    const int32_t count = flight.request->missing(ranks.data(), kNamedRanks);
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
    return named(flight, Status::error(Code::timeout, "not done after %lld ms%s",
                                       static_cast<long long>(flight.deadline_ms), who.c_str()));
}

void Communicator::progress() noexcept {
    for (std::size_t i = 0; i < flights_.size();) {
        if (is_poisoned_.load()) {
            close_flights(status());
            return;
        }
        const std::shared_ptr<Flight> flight = flights_[i];
        bool done = false;
        const Status status = flight->request->poll(&done);
        if (!status.ok()) {
            (void)poison(named(*flight, status));
            return;
        }
        if (done) {
            flight->request.reset();
            flight->over = true;
            flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
}

Status Communicator::wait(Flight& flight) noexcept {
    for (int64_t attempt = 0;; ++attempt) {
        progress();
        if (flight.over) {
            return flight.status;
        }
        const int64_t left = flight.deadline_ns - transport_->now_ns();
        if (left <= 0) {
            return poison(timeout_of(flight));
        }
        transport_->pause(attempt, std::min(left, kLongestPauseNs));
    }
}

Status Communicator::open(const Collective& collective, const CallOptions& options,
                          CommRequest* out) {
    auto flight = std::make_shared<Flight>();
    flight->communicator = this;
    flight->collective = collective;
    flight->collective.sequence = sequence_;
    flight->collective.stream = options.stream;
    flight->site = options.site;
    flight->deadline_ms = options.deadline_ms != 0 ? options.deadline_ms : deadline_ms_;
    flight->deadline_ns = transport_->now_ns() + flight->deadline_ms * kNsPerMs;
    own_arrays(*flight, size_);
    flights_.reserve(flights_.size() + 1); // nothing fails after begin
    TransportRequest* request = nullptr;
    const Status status = transport_->begin(flight->collective, &request);
    ++sequence_;
    if (!status.ok()) {
        return poison(named(*flight, status));
    }
    flight->request.reset(request);
    count_traffic(flight->collective);
    flights_.push_back(flight);
    out->flight_ = std::move(flight);
    return {};
}

Status Communicator::begin(Collective collective, const CallOptions& options,
                           CommRequest* out) noexcept {
    if (is_poisoned_.load()) {
        close_flights(status());
        return status();
    }
    if (out->is_open()) {
        return Status::error(Code::bad_state, "request is in use; wait for it first");
    }
    Status status = check_deadline(options.deadline_ms);
    if (status.ok()) {
        status = check_arguments(collective);
    }
    return status.ok() ? guarded("the bookkeeping of a collective",
                                 [&] { return open(collective, options, out); })
                       : status;
}

Status Communicator::run(const Collective& collective, const CallOptions& options) noexcept {
    CommRequest request;
    const Status status = begin(collective, options, &request);
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
