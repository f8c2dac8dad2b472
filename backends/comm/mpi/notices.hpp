// SPDX-License-Identifier: Apache-2.0
// Notices: how a rank of a group notifies the others that it gives up, and learns it of them. Whoever has them has MPI work left
// when the communicator goes. Where MPI takes one thread only and another one destroys the communicator (a garbage
// collector's), that work is left for the next call over MPI.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/mpi/base.hpp"

namespace mp::comm {

struct MpiGroup {
    std::vector<int> members; // ranks in the base communicator, by rank in the group
    int32_t rank = 0;
    int32_t context = 0;
};

class Notices {
  public:
    Notices(std::shared_ptr<Base> base, MpiGroup group, int tag);
    // Says what is still to be said, and takes no more notices. On a thread that may call MPI.
    ~Notices();
    Notices(const Notices&) = delete;
    Notices& operator=(const Notices&) = delete;

    // The calling thread is the one that uses the communicator.
    void use_thread() noexcept { thread_.store(std::this_thread::get_id()); }
    [[nodiscard]] bool takes_any_thread() const noexcept { return level_ == MPI_THREAD_MULTIPLE; }
    [[nodiscard]] bool may_call_mpi() const noexcept {
        return takes_any_thread() || thread_.load() == std::this_thread::get_id();
    }

    // Before anything is asked of MPI: peer_lost if another rank has said that it gives up; bad_state after MPI_Finalize.
    Status check() noexcept;
    // From any thread, once: what notify_others() will send.
    void give_up(const Status& reason) noexcept;
    // Sends it, where this thread may: else at the end.
    void notify_others() noexcept;

    // Destroys them: now, or in the next call over MPI.
    static void end(std::unique_ptr<Notices> notices) noexcept;
    // Does what was left. On a thread that may call MPI.
    static void end_those_left() noexcept;

  private:
    struct Notice {
        int32_t rank = 0;
        char text[252] = {};
    };

    std::shared_ptr<Base> base_;
    MpiGroup group_;
    int tag_;
    int level_ = MPI_THREAD_SINGLE;
    std::atomic<std::thread::id> thread_;
    std::unique_ptr<Notice> notice_; // what another rank may send at any time
    MPI_Request request_ = MPI_REQUEST_NULL;
    Status lost_; // by a notice
    Notice own_;
    std::atomic<bool> has_notice_{false};
    bool has_notified_ = false;
};

} // namespace mp::comm
