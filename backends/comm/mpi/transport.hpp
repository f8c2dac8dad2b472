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
#include "comm/mpi/notices.hpp"
#include "transport/transport.hpp"

namespace mp::comm {

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
    [[nodiscard]] ChannelEnd channel_end(int32_t rank, uint64_t sequence) const noexcept;
    [[nodiscard]] Base& base() const noexcept { return *base_; }
    [[nodiscard]] Notices& notices() const noexcept { return *notices_; }
    // Names the dead ranks where MPI knows them.
    Status with_failed_ranks(const Status& status) const noexcept;

  private:
    [[nodiscard]] int tag(int32_t offset) const noexcept;

    std::shared_ptr<Base> base_;
    MpiGroup group_;
    std::shared_ptr<int32_t> next_context_; // of the process, for all groups over the base
    std::string details_;
    std::unique_ptr<Notices> notices_;
    std::atomic<bool> is_aborted_{false};
};

} // namespace mp::comm
