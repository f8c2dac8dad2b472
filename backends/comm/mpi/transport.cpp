// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/transport.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <sched.h>

#include "comm/mpi/request.hpp"
#include "comm/mpi/ulfm.hpp"
#include "status/guarded.hpp"

namespace mp::comm {
namespace {

constexpr int32_t kSlots = 256;       // tags for collectives, used in turn
constexpr int32_t kTags = kSlots + 1; // and one for notices
constexpr int64_t kYields = 2000;     // polls before it sleeps
constexpr int64_t kNapNs = 20000;     // MPI moves only while it is polled

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
      details_(describe_library()), notice_(std::make_unique<Notice>()) {
    post_notice();
}

MpiTransport::~MpiTransport() {
    tell_others();
    if (base_->is_broken() || !mpi_is_alive()) {
        (void)notice_.release(); // MPI may still write it: never freed
        return;
    }
    if (notice_request_ != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&notice_request_);
        (void)MPI_Wait(&notice_request_, MPI_STATUS_IGNORE); // of a canceled receive: at once
    }
}

const char* MpiTransport::why_one_thread() const noexcept {
    int level = MPI_THREAD_SINGLE;
    (void)MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE
               ? nullptr
               : "MPI was initialized without MPI_THREAD_MULTIPLE, so two threads must not call it";
}

int MpiTransport::tag(int32_t slot) const noexcept { return group_.context * kTags + slot; }

LaneEnd MpiTransport::lane_end(int32_t rank, uint64_t sequence) const noexcept {
    return {group_.members[static_cast<std::size_t>(rank)], rank,
            tag(static_cast<int32_t>(sequence % kSlots))};
}

void MpiTransport::post_notice() noexcept {
    if (size() > 1) {
        (void)MPI_Irecv(notice_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, tag(kSlots),
                        base_->comm(), &notice_request_);
    }
}

Status MpiTransport::check_notice() noexcept {
    if (!lost_.ok() || notice_request_ == MPI_REQUEST_NULL) {
        return lost_;
    }
    int flag = 0;
    const Status status =
        mpi_status(MPI_Test(&notice_request_, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!status.ok()) {
        return status;
    }
    if (flag != 0) {
        notice_->text[sizeof notice_->text - 1] = '\0';
        lost_ = Status::error(Code::peer_lost, "rank %d gave up: %s", notice_->rank, notice_->text);
    }
    return lost_;
}

void MpiTransport::abort(const Status& reason) noexcept {
    if (!is_aborted_.exchange(true)) {
        own_.rank = group_.rank;
        (void)std::snprintf(own_.text, sizeof own_.text, "%.251s", reason.text());
        has_notice_.store(true);
    }
}

// A notice for each other rank, which need not be received. MPI is called by the thread that uses the communicator:
// when it gives up its requests, at the latest when it is destroyed.
void MpiTransport::tell_others() noexcept {
    if (!has_notice_.load() || has_told_ || !mpi_is_alive()) {
        return;
    }
    has_told_ = true;
    base_->set_broken();
    if (!lost_.ok()) {
        return; // everyone was told already
    }
    // MPI may read it for ever: never freed.
    auto* text = new (std::nothrow) Notice(own_);
    for (int32_t rank = 0; rank < size() && text != nullptr; ++rank) {
        if (rank != group_.rank) {
            MPI_Request request = MPI_REQUEST_NULL;
            if (MPI_Isend(text, sizeof *text, MPI_BYTE, lane_end(rank, 0).peer, tag(kSlots),
                          base_->comm(), &request) == MPI_SUCCESS) {
                int flag = 0;
                (void)MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            }
        }
    }
} // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): see above

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
        Transport::pause(attempt, std::min(nanoseconds, kNapNs));
    }
}

} // namespace mp::comm
