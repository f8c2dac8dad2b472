// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/transport.hpp"

#include <algorithm>
#include <sched.h>

#include "comm/mpi/request.hpp"
#include "comm/mpi/ulfm.hpp"
#include "status/guarded.hpp"

namespace mp::comm {
namespace {

constexpr int32_t kCollectiveTags = 256;       // tags for collectives, used round-robin
constexpr int32_t kTags = kCollectiveTags + 1; // and one for notices
constexpr int64_t kYields = 2000;              // polls before it sleeps
constexpr int64_t kLongestPauseNs = 20000;     // MPI moves only while it is polled

const char* level_name(int level) {
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "single";
    case MPI_THREAD_FUNNELED:
        return "funneled";
    case MPI_THREAD_SERIALIZED:
        return "serialized";
    default:
        return "multiple";
    }
}

std::string describe_library() {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    int level = MPI_THREAD_SINGLE;
    (void)MPI_Get_library_version(text.data(), &length);
    (void)MPI_Query_thread(&level);
    text.resize(std::min<std::size_t>(text.find_first_of(",\n"), 60));
    return text + ", thread level " + level_name(level) +
           (ulfm().is_there() ? ", fault tolerance functions found"
                              : ", no fault tolerance functions");
}

} // namespace

MpiTransport::MpiTransport(std::shared_ptr<Base> base, MpiGroup group)
    : base_(std::move(base)), group_(std::move(group)), next_context_(base_->next_context()),
      details_(describe_library()),
      notices_(std::make_unique<Notices>(base_, group_, tag(kCollectiveTags))) {}

MpiTransport::~MpiTransport() {
    base_.reset(); // so that the notices have the last one, which frees a communicator of MPI's
    Notices::end(std::move(notices_));
}

const char* MpiTransport::why_one_thread() const noexcept {
    return notices_->takes_any_thread()
               ? nullptr
               : "MPI was initialized without MPI_THREAD_MULTIPLE, so two threads must not call it";
}

int MpiTransport::tag(int32_t offset) const noexcept { return group_.context * kTags + offset; }

ChannelEnd MpiTransport::channel_end(int32_t rank, uint64_t sequence) const noexcept {
    return {group_.members[static_cast<std::size_t>(rank)], rank,
            tag(static_cast<int32_t>(sequence % kCollectiveTags))};
}

void MpiTransport::abort(const Status& reason) noexcept {
    if (!is_aborted_.exchange(true)) {
        notices_->give_up(reason);
    }
}

Status MpiTransport::with_failed_ranks(const Status& status) const noexcept {
    if (status.code() != Code::peer_lost || !ulfm().is_there()) {
        return status;
    }
    try {
        std::string ranks;
        for (const int failed : failed_ranks(base_->comm())) {
            for (std::size_t rank = 0; rank < group_.members.size(); ++rank) {
                if (group_.members[rank] == failed) {
                    ranks += (ranks.empty() ? "; dead: rank " : ", ") + std::to_string(rank);
                }
            }
        }
        return Status::error(Code::peer_lost, "%s%.200s", status.text(), ranks.c_str());
    } catch (const std::exception&) {
        return status;
    }
}

Status MpiTransport::begin(const Collective& what, TransportRequest** out) noexcept {
    notices_->use_thread();
    Notices::end_those_left();
    if (const Status status = check_not_finalized(); !status.ok()) {
        return status;
    }
    return guarded("a collective over MPI", [&] {
        std::unique_ptr<TransportRequest> request(start_request(*this, what));
        bool done = false;
        const Status status = request->poll(&done); // the first messages are on their way now
        if (status.ok()) {
            *out = request.release();
        }
        return status;
    });
}

Status MpiTransport::make_group(const GroupDesc& group, Transport** out) noexcept {
    *out = nullptr;
    *next_context_ = group.next_context;
    if (group.color < 0) {
        return {};
    }
    if (const Status status = check_not_finalized(); !status.ok()) {
        return status;
    }
    if ((int64_t{group.context} + 1) * kTags > base_->highest_tag()) {
        return Status::error(Code::unsupported,
                             "this MPI has tags for %lld groups in its life, and they are used up",
                             static_cast<long long>(base_->highest_tag() / kTags));
    }
    try {
        MpiGroup part;
        part.rank = group.rank;
        part.context = group.context;
        for (int32_t i = 0; i < group.count; ++i) {
            part.members.push_back(group_.members[static_cast<std::size_t>(group.members[i])]);
        }
        *out = new MpiTransport(base_, std::move(part));
        return {};
    } catch (const std::exception&) {
        return Status::error(Code::out_of_memory, "no memory for a transport");
    }
}

void MpiTransport::pause(int64_t attempt, int64_t nanoseconds) noexcept {
    if (attempt < kYields) {
        (void)sched_yield();
    } else {
        Transport::pause(attempt, std::min(nanoseconds, kLongestPauseNs));
    }
}

} // namespace mp::comm
