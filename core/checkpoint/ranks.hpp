// SPDX-License-Identifier: Apache-2.0
// What saving and loading need of other ranks: bytes of any length to all. And how a step in which any rank may fail
// fails on every rank with the same words.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"
#include "status/status.hpp"
#include "system/bytes.hpp"

namespace mp::checkpoint {

class Ranks {
  public:
    Ranks() = default;
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;
    virtual ~Ranks() = default;
    [[nodiscard]] virtual int32_t rank() const noexcept = 0;
    [[nodiscard]] virtual int32_t size() const noexcept = 0;
    // Everybody's bytes, in the order of ranks. Throws.
    virtual std::vector<std::string> gather(const std::string& mine) = 0;
    // Those of rank 0. Throws.
    virtual std::string broadcast(const std::string& mine) = 0;
};

// Over a communicator that outlives it; null: one rank alone.
std::unique_ptr<Ranks> make_ranks(comm::Communicator* communicator);

// Runs `work` on every rank and gives all results to all, a vector in the order of ranks; throws on every rank, with the
// first failing rank's words, where it threw on any. Only a failure of the transport itself may differ between ranks.
template <typename Work> auto together(Ranks& ranks, const Work& work);
// Runs `work` on rank 0 alone and gives its result to all, with the same promise.
template <typename Work> auto on_first(Ranks& ranks, const Work& work);

namespace detail {

using Bytes = std::string;
std::vector<Bytes> together(Ranks& ranks, const std::function<Bytes()>& work);
Bytes on_first(Ranks& ranks, const std::function<Bytes()>& work);

// Results are nothing, bytes as they are, or what system/bytes.hpp makes bytes of.
template <typename Work> Bytes bytes_of(const Work& work) {
    using Result = std::invoke_result_t<Work>;
    if constexpr (std::is_void_v<Result>) {
        work();
        return {};
    } else if constexpr (std::is_same_v<Result, Bytes>) {
        return work();
    } else {
        Result result = work();
        return system::to_bytes(result);
    }
}

} // namespace detail

template <typename Work> auto together(Ranks& ranks, const Work& work) {
    using Result = std::invoke_result_t<Work>;
    std::vector<std::string> all = detail::together(ranks, [&] { return detail::bytes_of(work); });
    if constexpr (std::is_same_v<Result, std::string>) {
        return all;
    } else if constexpr (!std::is_void_v<Result>) {
        std::vector<Result> results;
        results.reserve(all.size());
        for (const std::string& bytes : all) {
            results.push_back(system::from_bytes<Result>(bytes));
        }
        return results;
    }
}

template <typename Work> auto on_first(Ranks& ranks, const Work& work) {
    using Result = std::invoke_result_t<Work>;
    std::string bytes = detail::on_first(ranks, [&] { return detail::bytes_of(work); });
    if constexpr (std::is_same_v<Result, std::string>) {
        return bytes;
    } else if constexpr (!std::is_void_v<Result>) {
        return system::from_bytes<Result>(bytes);
    }
}

} // namespace mp::checkpoint
