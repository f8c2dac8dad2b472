// SPDX-License-Identifier: Apache-2.0
// A group of ranks of an MPI communicator. Everything but fast sums is point-to-point messages with tags of the
// group's own, so that groups of some ranks need no MPI communicator, whose making would wait.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/base.hpp"
#include "comm/mpi/channel.hpp"
#include "interface/transport.hpp"

namespace mp::comm {

struct MpiGroup {
    std::vector<int> members; // ranks in the base communicator, by rank in the group
    int32_t rank = 0;
    int32_t context = 0;
};

class MpiTransport final : public Transport {
  public:
    MpiTransport(std::shared_ptr<Base> base, MpiGroup group);
    ~MpiTransport() override;

    [[nodiscard]] int32_t rank() const noexcept override { return group_.rank; }
    [[nodiscard]] int32_t size() const noexcept override {
        return static_cast<int32_t>(group_.members.size());
    }
    [[nodiscard]] const char* name() const noexcept override { return "mpi"; }
    // A group of some ranks has no MPI communicator to sum over.
    [[nodiscard]] TransportCaps caps() const noexcept override {
        return {group_.context == 0, false};
    }
    [[nodiscard]] const char* why_one_thread() const noexcept override;
    [[nodiscard]] const char* details() const noexcept override { return details_.c_str(); }
    [[nodiscard]] int32_t next_context() const noexcept override { return *next_context_; }
    Status begin(const Collective& what, TransportRequest** out) noexcept override;
    void abort(const Status& reason) noexcept override;
    Status make_group(const GroupDesc& group, Transport** out) noexcept override;
    void pause(int64_t attempt, int64_t nanoseconds) noexcept override;

    // Where a channel to or from a rank of the group goes.
    [[nodiscard]] LaneEnd lane_end(int32_t rank, uint64_t sequence) const noexcept;
    [[nodiscard]] Base& base() const noexcept { return *base_; }
    // peer_lost if another rank has said that it gives up.
    Status check_notice() noexcept;
    // Sends what abort() has to say; on the thread that uses the communicator.
    void tell_others() noexcept;
    // Names the dead ranks where MPI knows them.
    Status with_failed_ranks(const Status& status) const noexcept;

  private:
    [[nodiscard]] int tag(int32_t slot) const noexcept;
    void post_notice() noexcept;

    std::shared_ptr<Base> base_;
    MpiGroup group_;
    std::shared_ptr<int32_t> next_context_; // of the process, for all groups over the base
    std::string details_;

    struct Notice {
        int32_t rank = 0;
        char text[252] = {};
    };
    std::unique_ptr<Notice> notice_; // what another rank may send at any time
    MPI_Request notice_request_ = MPI_REQUEST_NULL;
    Status lost_; // by a notice
    Notice own_;
    std::atomic<bool> is_aborted_{false};
    std::atomic<bool> has_notice_{false};
    bool has_told_ = false;
};

} // namespace mp::comm
