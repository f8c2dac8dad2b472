// SPDX-License-Identifier: Apache-2.0
// NcclOrder: the one order in which the collectives of all communicators of a GPU are given to NCCL, that of their begin. Where
// ranks differ in it, kernels may wait for each other for ever: each holds what the other one needs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace mp::comm {

class NcclRequest;
class NcclTransport;

class NcclOrder {
  public:
    // Of a GPU, by its number: one for all who hold it.
    static std::shared_ptr<NcclOrder> of(int32_t device);

    // Of all calls of NCCL for these communicators once they are made, and of what follows.
    [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

    void add(NcclRequest& request) {
        running_.reserve(running_.size() + waiting_.size() + 1);
        waiting_.push_back(&request);
    }
    void remove(const NcclRequest& request) noexcept;
    // No request of that one is given to NCCL any more.
    void remove(const NcclTransport& transport) noexcept;
    [[nodiscard]] bool has(const NcclTransport& transport) const noexcept;
    // Gives NCCL the next ones while it takes them, whoever began them. A communicator that has failed is aborted, so that its
    // kernels let those behind them begin.
    void advance() noexcept;

  private:
    // Aborts those that have failed since their kernels began.
    void look_at_running() noexcept;

    std::mutex mutex_;
    std::deque<NcclRequest*> waiting_;  // the first may have been given to NCCL
    std::vector<NcclRequest*> running_; // in their streams
    const NcclRequest* last_ = nullptr; // that is in its stream; none where it is over
};

} // namespace mp::comm
