// SPDX-License-Identifier: Apache-2.0
// The bytes of a recipe's layout before anything is allocated: those that are held, and those that ranks send.
#pragma once

#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "optim/options.hpp"

namespace mp::optim {

// Bytes by class of tensor; the fields of mp_memory_report. Scales are counted with the class they belong to.
struct MemoryReport {
    int64_t parameter_count = 0;
    int64_t weight = 0;
    int64_t master = 0;
    int64_t grad = 0;
    int64_t states[numerics::kStateIdCount] = {}; // by StateId
    int64_t compensation = 0;
    int64_t reduced_grad = 0; // sums over ranks
    int64_t offload = 0; // on the host: what the device's weights follow, and arrays on their way
    int64_t host = 0;    // of all these, those in host memory beside a device's

    // Memory in which arrays travel.
    void add_staging(int64_t bytes) noexcept {
        offload += bytes;
        host += bytes;
    }
    void add_host_grad(int64_t bytes) noexcept {
        grad += bytes;
        host += bytes;
    }
    [[nodiscard]] int64_t& of(numerics::StateId state) noexcept {
        return states[static_cast<std::size_t>(state)];
    }
    [[nodiscard]] int64_t of(numerics::StateId state) const noexcept {
        return states[static_cast<std::size_t>(state)];
    }
    [[nodiscard]] int64_t of_states() const noexcept {
        return std::accumulate(std::begin(states), std::end(states), int64_t{0});
    }
    [[nodiscard]] int64_t total() const noexcept {
        return weight + master + grad + of_states() + compensation + reduced_grad + offload;
    }
};

// A parameter before there is one.
struct PlannedTensor {
    int64_t count = 0;
    DType weight =
        DType::none; // none: the recipe's; fp32; or fp8 codes that ranks gather, or that are frozen
    bool is_vector = false;  // of one dimension
    bool is_frozen = false;  // no gradient, no states
    bool grad_stays = false; // as LayoutTensor's
    // Of codes in blocks, which a frozen one may be: how they lie on a matrix of so many columns. Else none.
    ScaleGrid blocks = {};
    int64_t columns = 0;
    numerics::RuleId rule = numerics::RuleId::adamw;
    FormatsOfGroup formats; // of its group
    std::string name;       // for the recipe's rules; empty: none fits
};
std::vector<PlannedTensor> planned_tensors(std::span<const int64_t> counts, numerics::RuleId rule);

// What a recipe needs for tensors of its weight format with so many elements each, exactly.
MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const int64_t> counts,
                            numerics::RuleId rule = numerics::RuleId::adamw);

// What one rank holds of these tensors, by the stages of ZeRO (Rajbhandari et al.): 0 everything; 1 states of its own
// elements only; from 2 on gradients, from 3 on weights, have memory while they are in use only. Beside them are the sums of
// the gradients of its own elements, in fp32 or as codes under a shared scale (stage 0: of all, too), and where a weight is
// not in its own memory, or is gathered in a narrower type, its owner's copy. The one scale of a weight or gradient is on
// every rank. A rank alone has everything.
inline constexpr int32_t kLargestRank =
    -1; // the one that holds most on its device, the first of equal ones
struct RankOf {
    int32_t rank = 0;
    int32_t ranks = 1;
};
// Where states are the host's, the buckets by which a step over all tensors moves gradients and weights are counted; without
// ranks, too.
MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                            const OptimizerOptions& options, const RankOf& rank);

// Bytes that a rank sends in a step, the mean over the ranks, without the few of the step's agreement. Weights of stage 3 are
// gathered twice in a step: for forward and for backward.
struct PlannedTraffic {
    double gradients = 0.0;
    double weights = 0.0; // stage 0: sums of gradients
};
PlannedTraffic planned_traffic(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                               const shard::ShardingOptions& sharding, int32_t ranks);

} // namespace mp::optim
