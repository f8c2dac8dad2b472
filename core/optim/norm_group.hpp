// SPDX-License-Identifier: Apache-2.0
// NormGroup: ranks that hold other parameters of the same model (tensor or pipeline parallel). The norm that they clip by, and
// whether a step is skipped, are those of all their gradients.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "optim/parameters.hpp"

namespace mp::optim {

class NormGroup {
  public:
    NormGroup() = default;
    explicit NormGroup(std::shared_ptr<comm::Communicator> comm) : comm_(std::move(comm)) {}
    [[nodiscard]] bool exists() const noexcept { return comm_ != nullptr; }
    // Throws where a parameter counts elsewhere, and there is nowhere else.
    void check_counted(const Parameters& parameters) const;

    struct Message {
        double sum; // negative: the rank declines
        uint64_t guard;
    };
    // Of the sums of squares of this rank's chunks, which are added one after another; those of parameters that count elsewhere
    // are only looked at for what is not finite. `guard`: StepGuard::hash(). Waits.
    [[nodiscard]] static Message message(Stream& stream, const PlacedSums& own,
                                         const std::vector<bool>& counts_elsewhere, uint64_t guard);
    // Collective: each rank's sum in the order of ranks. rank_mismatch on all where their guards differ; peer_error where one
    // of them declines. Waits.
    [[nodiscard]] PlacedSums sums(Stream& stream, const Message& mine) const;
    // In place of sums(): this rank cannot go on.
    void decline() const;

  private:
    [[nodiscard]] std::vector<Message> exchange(const Message& own) const;

    std::shared_ptr<comm::Communicator> comm_;
};

// Of each chunk of the parameters that take part, in their order.
std::vector<bool> chunks_counted_elsewhere(const Parameters& parameters,
                                           const std::vector<int32_t>& enabled);

} // namespace mp::optim
