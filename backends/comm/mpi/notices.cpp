// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/notices.hpp"

#include <cstdio>
#include <mutex>
#include <new>

namespace mp::comm {
namespace {

// What communicators have left to do that were destroyed by a thread that must not call MPI.
struct Left {
    std::mutex mutex;
    std::vector<std::unique_ptr<Notices>> notices;
    std::atomic<bool> is_any{false};
};

Left& left() {
    static auto* all = new Left; // used at exit
    return *all;
}

} // namespace

Notices::Notices(std::shared_ptr<Base> base, MpiGroup group, int tag)
    : base_(std::move(base)), group_(std::move(group)), tag_(tag),
      thread_(std::this_thread::get_id()), notice_(std::make_unique<Notice>()) {
    (void)MPI_Query_thread(&level_);
    if (group_.members.size() > 1) {
        (void)MPI_Irecv(notice_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, tag_,
                        base_->comm(), &request_);
    }
}

Notices::~Notices() {
    use_thread();
    notify_others();
    if (base_->is_broken() || !mpi_is_alive()) {
        (void)notice_.release(); // MPI may still write it: never freed
        return;
    }
    if (request_ != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&request_);
        (void)MPI_Wait(&request_, MPI_STATUS_IGNORE); // of a canceled receive: at once
    }
}

Status Notices::check() noexcept {
    if (const Status status = check_not_finalized(); !status.ok()) {
        return status;
    }
    if (!lost_.ok() || request_ == MPI_REQUEST_NULL) {
        return lost_;
    }
    int flag = 0;
    const Status status = mpi_status(MPI_Test(&request_, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!status.ok()) {
        return status;
    }
    if (flag != 0) {
        notice_->text[sizeof notice_->text - 1] = '\0';
        lost_ = Status::error(Code::peer_lost, "rank %d gave up: %s", notice_->rank, notice_->text);
    }
    return lost_;
}

void Notices::give_up(const Status& reason) noexcept {
    own_.rank = group_.rank;
    (void)std::snprintf(own_.text, sizeof own_.text, "%.251s", reason.text());
    has_notice_.store(true);
}

// A notice for each other rank, which need not be received.
void Notices::notify_others() noexcept {
    if (!has_notice_.load() || has_notified_ || !may_call_mpi() || !mpi_is_alive()) {
        return;
    }
    has_notified_ = true;
    base_->set_broken();
    if (!lost_.ok()) {
        return; // everyone knows already
    }
    // MPI may read it for ever: never freed.
    auto* text = new (std::nothrow) Notice(own_);
    for (std::size_t rank = 0; rank < group_.members.size() && text != nullptr; ++rank) {
        if (static_cast<int32_t>(rank) != group_.rank) {
            MPI_Request request = MPI_REQUEST_NULL;
            if (MPI_Isend(text, sizeof *text, MPI_BYTE, group_.members[rank], tag_, base_->comm(),
                          &request) == MPI_SUCCESS) {
                int flag = 0;
                (void)MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            }
        }
    }
} // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): see above

void Notices::end(std::unique_ptr<Notices> notices) noexcept {
    if (notices->may_call_mpi()) {
        return; // they go here
    }
    try {
        const std::lock_guard lock(left().mutex);
        left().notices.push_back(std::move(notices));
        left().is_any.store(true);
    } catch (const std::exception&) {
        (void)notices.release(); // no memory for the list: MPI keeps what it has
    }
}

void Notices::end_those_left() noexcept {
    if (!left().is_any.exchange(false)) {
        return;
    }
    std::vector<std::unique_ptr<Notices>> gone;
    const std::lock_guard lock(left().mutex);
    gone.swap(left().notices);
} // MPI is called after the lock: `gone` was made before it

} // namespace mp::comm
