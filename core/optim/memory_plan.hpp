// SPDX-License-Identifier: Apache-2.0
// Which format each array of a parameter gets under a recipe, and so the bytes, before anything is allocated: those that are
// held, and those that ranks send.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "numerics/rules.hpp"
#include "recipe/recipe.hpp"
#include "shard/sharding.hpp"

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
        return weight + master + grad + of_states() + compensation + reduced_grad;
    }
};

// What one parameter is kept in beside its weight; `none` for what it does not have.
struct StateFormats {
    FormatId grad = FormatId::none;
    numerics::RuleId rule = numerics::RuleId::adamw;
    FormatId states[numerics::kMaxStates] = {}; // those of the rule, in its order
    FormatId compensation = FormatId::none;
    FormatId master = FormatId::none;
    bool half_away = false; // the weight is rounded from its fp32 master with halves away from zero
};

// For a parameter of `weight` format with so many elements, stepped by a rule: of the whole parameter, however it is cut
// between ranks, so that the cut does not decide the formats.
StateFormats state_formats(const recipe::Recipe& recipe, FormatId weight, int64_t count,
                           numerics::RuleId rule);

// What the states of a group of parameters are kept in, in its rule's order, as the recipe's keys say it; empty: what the
// recipe says.
using FormatsOfGroup = std::array<std::string, numerics::kMaxStates>;
// The recipe of such a group. A recipe's roundings are those of the whole step; where a group keeps fp32 nothing is rounded.
recipe::Recipe with_formats(const recipe::Recipe& recipe, const FormatsOfGroup& formats,
                            numerics::RuleId rule);

// What a weight of this format is gathered in: the recipe's gather type where that is smaller, for weights of the
// recipe's own type; else its own. Vectors (norms, biases), which no product takes, are never rounded for it.
DType gather_dtype(const recipe::Recipe& recipe, FormatId weight, bool is_vector);

// What a parameter's gradient is reduced in: `wire`, but in fp32 where that is fp8 and the recipe, whose gradients are
// codes, keeps this one in high precision (MS-AMP's biases and norms).
Format reduce_wire(const Format& wire, const recipe::Recipe& recipe, const StateFormats& formats);

// A parameter before there is one.
struct PlannedTensor {
    int64_t count = 0;
    DType weight = DType::none; // none: the recipe's; fp32; or fp8 codes that ranks gather
    bool is_vector = false;     // of one dimension
    numerics::RuleId rule = numerics::RuleId::adamw;
    FormatsOfGroup formats; // of its group
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
inline constexpr int32_t kLargestRank = -1; // the one that holds most, the first of equal ones
struct RankOf {
    int32_t rank = 0;
    int32_t ranks = 1;
};
MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                            const shard::ShardingOptions& sharding, const RankOf& rank);

// Bytes that a rank sends in a step, the mean over the ranks, without the few of the step's agreement. Weights of stage 3 are
// gathered twice in a step: for forward and for backward.
struct PlannedTraffic {
    double gradients = 0.0;
    double weights = 0.0; // stage 0: sums of gradients
};
PlannedTraffic planned_traffic(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                               const shard::ShardingOptions& sharding, int32_t ranks);

} // namespace mp::optim
