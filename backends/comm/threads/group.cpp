// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/group.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace mp::comm {
namespace {

constexpr auto kAllToAll = CollectiveKind::all_to_all;
constexpr auto kAllGather = CollectiveKind::all_gather;
constexpr auto kBroadcast = CollectiveKind::broadcast;
constexpr auto kMaxU32 = CollectiveKind::max_u32;

std::size_t index(int32_t rank) { return static_cast<std::size_t>(rank); }

// Whether `rank` reads memory of `source` in this collective.
bool reads_from(const Collective& what, int32_t rank, int32_t source) {
    switch (what.kind) {
    case kAllToAll:
    case kAllGather:
        return true;
    case kBroadcast:
        return source == what.root && source != rank;
    default:
        return false;
    }
}

bool moves_bytes(CollectiveKind kind) {
    return kind == kAllToAll || kind == kAllGather || kind == kBroadcast;
}

struct Piece {
    const char* from = nullptr;
    char* to = nullptr;
    int64_t sent = 0;
    int64_t expected = 0;
};

// What `rank` gets from `source`.
Piece slice_of(const Collective& own, int32_t rank, const Collective& theirs, int32_t source) {
    Piece piece;
    piece.to = static_cast<char*>(own.receive);
    if (own.kind == kBroadcast) {
        piece.from = static_cast<const char*>(theirs.receive);
        piece.sent = theirs.receive_bytes[0];
        piece.expected = own.receive_bytes[0];
        return piece;
    }
    const bool is_exchange = own.kind == kAllToAll;
    piece.sent = theirs.send_bytes[is_exchange ? rank : 0];
    piece.expected = own.receive_bytes[source];
    if (own.reader != nullptr) {
        return piece; // which reads it where it is
    }
    if (piece.sent > 0) {
        piece.from =
            static_cast<const char*>(theirs.send) + (is_exchange ? theirs.send_offsets[rank] : 0);
    }
    if (piece.expected > 0) {
        piece.to += own.receive_offsets[source];
    }
    return piece;
}

Status copy_piece(const Piece& piece, int32_t rank, int32_t source) noexcept {
    if (piece.sent != piece.expected) {
        return Status::error(Code::rank_mismatch,
                             "rank %d sends %lld bytes, but rank %d expects %lld from it", source,
                             static_cast<long long>(piece.sent), rank,
                             static_cast<long long>(piece.expected));
    }
    if (piece.sent > 0 && piece.from != piece.to) {
        std::memmove(piece.to, piece.from, static_cast<std::size_t>(piece.sent));
    }
    return {};
}

} // namespace

ThreadGroup::ThreadGroup(int32_t size, std::vector<int32_t> nodes)
    : size_(size), nodes_(std::move(nodes)), is_gone_(index(size)), reasons_(index(size)) {}

void ThreadGroup::changed() noexcept {
    ++version_;
    changes_.notify_all();
}

// The first rank to come says what is done; a rank that wants something else fails it for all.
void ThreadGroup::compare(Rendezvous& rendezvous, int32_t rank, const Collective& what) {
    if (rendezvous.first < 0) {
        rendezvous.first = rank;
        return;
    }
    const Collective& first = rendezvous.showings[index(rendezvous.first)].what;
    if (!rendezvous.error.ok()) {
        return;
    }
    if (first.kind != what.kind) {
        rendezvous.error = Status::error(
            Code::rank_mismatch, "rank %d calls %s, but rank %d calls %s", rendezvous.first,
            collective_name(first.kind), rank, collective_name(what.kind));
    } else if (first.root != what.root) {
        rendezvous.error =
            Status::error(Code::rank_mismatch, "root is %d on rank %d, but %d on rank %d",
                          first.root, rendezvous.first, what.root, rank);
    } else if (first.count != what.count) {
        rendezvous.error =
            Status::error(Code::rank_mismatch, "count is %lld on rank %d, but %lld on rank %d",
                          static_cast<long long>(first.count), rendezvous.first,
                          static_cast<long long>(what.count), rank);
    } else if ((first.reader == nullptr) != (what.reader == nullptr)) {
        rendezvous.error = Status::error(Code::rank_mismatch,
                                         "rank %d lends its memory, but rank %d has it copied",
                                         first.reader != nullptr ? rendezvous.first : rank,
                                         first.reader != nullptr ? rank : rendezvous.first);
    }
}

void ThreadGroup::show(int32_t rank, const Collective& what) {
    const Lock lock(mutex_);
    Rendezvous& rendezvous = in_flight_.try_emplace(what.sequence, size_).first->second;
    if (what.kind == kMaxU32 && rendezvous.first < 0) {
        rendezvous.maxima.resize(
            static_cast<std::size_t>(what.count)); // or throws, before anything is said
    }
    compare(rendezvous, rank, what);
    if (what.kind == kMaxU32 && rendezvous.error.ok()) {
        const auto* values = static_cast<const uint32_t*>(what.receive);
        for (std::size_t i = 0; i < rendezvous.maxima.size(); ++i) {
            rendezvous.maxima[i] = std::max(rendezvous.maxima[i], values[i]);
        }
    }
    Showing& own = rendezvous.showings[index(rank)];
    own.what = what;
    own.has_come = true;
    rendezvous.sends[index(rank)] = what.send;
    if (++rendezvous.come == size_ || !rendezvous.error.ok()) {
        changed();
    }
}

Status ThreadGroup::lost_status(const Rendezvous& rendezvous) const noexcept {
    for (int32_t rank = 0; rank < size_; ++rank) {
        if (is_gone_[index(rank)] && !rendezvous.showings[index(rank)].has_come) {
            return Status::error(Code::peer_lost, "rank %d is gone: %s", rank,
                                 reasons_[index(rank)].text());
        }
    }
    return {};
}

Status ThreadGroup::start_reading(Rendezvous& rendezvous, int32_t rank) noexcept {
    const Collective& what = rendezvous.showings[index(rank)].what;
    for (int32_t source = 0; source < size_; ++source) {
        const Showing& theirs = rendezvous.showings[index(source)];
        if (theirs.is_withdrawn && (!theirs.is_finished || reads_from(what, rank, source))) {
            return Status::error(Code::peer_lost, "rank %d gave up before all were done: %s",
                                 source, reasons_[index(source)].text());
        }
    }
    for (int32_t source = 0; source < size_; ++source) {
        rendezvous.showings[index(source)].readers += reads_from(what, rank, source) ? 1 : 0;
    }
    return {};
}

Status ThreadGroup::fetch(const Rendezvous& rendezvous, int32_t rank,
                          bool* finished) const noexcept {
    const Collective& own = rendezvous.showings[index(rank)].what;
    // From the next rank on, so that not all read the same memory at once.
    for (int32_t step = 1; step <= size_; ++step) {
        const int32_t source = (rank + step) % size_;
        if (reads_from(own, rank, source)) {
            const Collective& theirs = rendezvous.showings[index(source)].what;
            const Status status = copy_piece(slice_of(own, rank, theirs, source), rank, source);
            if (!status.ok()) {
                return status;
            }
        }
    }
    *finished = true;
    return own.reader != nullptr ? own.reader->read(rendezvous.sends.data(), finished) : Status();
}

Status ThreadGroup::read(Lock& lock, Rendezvous& rendezvous, int32_t rank) noexcept {
    Showing& own = rendezvous.showings[index(rank)];
    Status status = start_reading(rendezvous, rank);
    if (!status.ok()) {
        return status;
    }
    bool finished = true;
    if (moves_bytes(own.what.kind)) {
        lock.unlock();
        status = fetch(rendezvous, rank, &finished);
        lock.lock();
        for (int32_t source = 0; source < size_; ++source) {
            rendezvous.showings[index(source)].readers -=
                reads_from(own.what, rank, source) ? 1 : 0;
        }
    } else if (own.what.kind == kMaxU32 && own.what.count > 0) {
        std::memcpy(own.what.receive, rendezvous.maxima.data(),
                    rendezvous.maxima.size() * sizeof(uint32_t));
    }
    own.is_finished = finished || !status.ok();
    if (!status.ok() && rendezvous.error.ok()) {
        rendezvous.error = status;
    }
    changed();
    return status;
}

bool ThreadGroup::is_read_by_all(const Rendezvous& rendezvous) const noexcept {
    for (int32_t rank = 0; rank < size_; ++rank) {
        const Showing& theirs = rendezvous.showings[index(rank)];
        if (!theirs.is_finished && !theirs.is_withdrawn) {
            return false;
        }
    }
    return true;
}

Status ThreadGroup::poll(int32_t rank, uint64_t sequence, bool* done) noexcept {
    *done = false;
    Lock lock(mutex_);
    Rendezvous& rendezvous = in_flight_.at(sequence);
    if (!rendezvous.error.ok()) {
        return rendezvous.error;
    }
    if (rendezvous.come < size_) {
        return lost_status(rendezvous);
    }
    Showing& own = rendezvous.showings[index(rank)];
    if (!own.is_finished) {
        const Status status = read(lock, rendezvous, rank);
        if (!status.ok()) {
            return status;
        }
    }
    if (!rendezvous.error.ok()) { // of a rank that read meanwhile
        return rendezvous.error;
    }
    *done = !moves_bytes(own.what.kind) || is_read_by_all(rendezvous);
    return {};
}

void ThreadGroup::release(int32_t rank, uint64_t sequence) noexcept {
    Lock lock(mutex_);
    Rendezvous& rendezvous = in_flight_.at(sequence);
    Showing& own = rendezvous.showings[index(rank)];
    own.is_withdrawn = true;
    changed();
    changes_.wait(lock, [&] { return own.readers == 0; });
    if (++rendezvous.released == size_) {
        in_flight_.erase(sequence);
    }
}

int32_t ThreadGroup::missing(uint64_t sequence, int32_t* ranks, int32_t capacity) noexcept {
    const Lock lock(mutex_);
    const Rendezvous& rendezvous = in_flight_.at(sequence);
    const bool all_came = rendezvous.come == size_;
    int32_t count = 0;
    for (int32_t rank = 0; rank < size_; ++rank) {
        const Showing& theirs = rendezvous.showings[index(rank)];
        if (all_came ? !theirs.is_finished : !theirs.has_come) {
            if (count < capacity) {
                ranks[count] = rank;
            }
            ++count;
        }
    }
    return count;
}

void ThreadGroup::leave(int32_t rank, const Status& reason) noexcept {
    const Lock lock(mutex_);
    if (!is_gone_[index(rank)]) {
        is_gone_[index(rank)] = true;
        reasons_[index(rank)] = reason;
        changed();
    }
}

void ThreadGroup::pause(uint64_t* seen, int64_t nanoseconds) noexcept {
    Lock lock(mutex_);
    // system_clock: sanitizers do not know the wait on the steady one, and this only bounds a pause.
    const auto until = std::chrono::system_clock::now() + std::chrono::nanoseconds(nanoseconds);
    (void)changes_.wait_until(lock, until, [&] { return version_ != *seen; });
    *seen = version_;
}

std::shared_ptr<ThreadGroup> ThreadGroup::subgroup(const GroupDesc& desc) {
    std::vector<int32_t> nodes;
    nodes.reserve(index(desc.count));
    for (int32_t i = 0; i < desc.count; ++i) {
        nodes.push_back(node(desc.members[i]));
    }
    const Lock lock(mutex_);
    Sub& sub = subgroups_[desc.context];
    if (sub.group == nullptr) {
        sub.group = std::make_shared<ThreadGroup>(desc.count, std::move(nodes));
    }
    std::shared_ptr<ThreadGroup> group = sub.group;
    if (++sub.fetched == desc.count) {
        subgroups_.erase(desc.context);
    }
    return group;
}

} // namespace mp::comm
