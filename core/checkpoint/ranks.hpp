// SPDX-License-Identifier: Apache-2.0
// What saving and loading need of other ranks: texts of any length to all. And how a step in which any rank may fail
// fails on every rank with the same words.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {

class Ranks {
  public:
    Ranks() = default;
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;
    virtual ~Ranks() = default;
    [[nodiscard]] virtual int32_t rank() const noexcept = 0;
    [[nodiscard]] virtual int32_t size() const noexcept = 0;
    // Everybody's text, in the order of ranks. Throws.
    virtual std::vector<std::string> gather(const std::string& mine) = 0;
    // The text of rank 0. Throws.
    virtual std::string broadcast(const std::string& text) = 0;
};

// Over a communicator that outlives it; null: one rank alone.
std::unique_ptr<Ranks> make_ranks(comm::Communicator* communicator);

// Runs `work` on every rank and gives all results to all; throws on every rank, with the first failing rank's words,
// where it threw on any. Only a failure of the transport itself may differ between ranks.
std::vector<std::string> together(Ranks& ranks, const std::function<std::string()>& work);
// Runs `work` on rank 0 alone, with the same promise.
std::string on_first(Ranks& ranks, const std::function<std::string()>& work);

} // namespace mp::checkpoint
