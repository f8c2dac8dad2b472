// SPDX-License-Identifier: Apache-2.0
#include "optim/memory_plan.hpp"

#include "shard/shard_groups.hpp"
#include "status/status.hpp"

namespace mp::optim {
namespace {

// What is kept in high precision has gradients and moments without scales.
StateFormat unscaled(StateFormat format) {
    return format.is_scaled() ? StateFormat(DType::fp32) : format;
}

void add_states(MemoryReport& report, const StateFormats& formats, int64_t count) {
    report.master += format_bytes(formats.master, count);
    const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        report.of_state(rule.states[k].is_signed) += format_bytes(formats.states[k], count);
    }
    report.compensation += format_bytes(formats.compensation, count);
}

} // namespace

StateFormats state_formats(const recipe::Recipe& recipe, StateFormat weight, int64_t count,
                           numerics::RuleId rule) {
    const bool narrow = weight.dtype != DType::fp32; // an fp32 parameter is its own master
    const auto choose = [&](StateFormat format) { return narrow ? format : unscaled(format); };
    StateFormats formats;
    formats.grad = choose(recipe.grad);
    formats.rule = rule;
    const numerics::RuleInfo info = numerics::rule_info(rule);
    for (int k = 0; k < info.state_count; ++k) {
        const StateFormat asked = info.states[k].is_signed ? recipe.exp_avg : recipe.exp_avg_sq;
        formats.states[k] = state_format(choose(asked), count, recipe.block_min_elements);
    }
    if (narrow) {
        formats.compensation = state_format(recipe.compensation, count, recipe.block_min_elements);
        formats.master = recipe.master;
        formats.half_away = recipe.master == DType::fp32 &&
                            recipe.weight_rounding == recipe::Rounding::nearest_away;
    }
    return formats;
}

DType gather_dtype(const recipe::Recipe& recipe, StateFormat weight) {
    const bool is_narrower = dtype_size(recipe.weight_gather) < dtype_size(weight.dtype);
    return is_narrower && weight == recipe.weight && !weight.is_scaled() ? recipe.weight_gather
                                                                         : weight.dtype;
}

comm::WireFormat reduce_wire(const comm::WireFormat& wire, const recipe::Recipe& recipe,
                             const StateFormats& formats) {
    const bool is_kept = recipe.grad.is_scaled() && !formats.grad.is_scaled();
    return is_fp8(wire.dtype) && is_kept ? comm::WireFormat{DType::fp32, comm::WireScale::none}
                                         : wire;
}

MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const int64_t> counts,
                            numerics::RuleId rule) {
    MemoryReport report;
    for (const int64_t count : counts) {
        const StateFormats formats = state_formats(recipe, recipe.weight, count, rule);
        report.parameter_count += count;
        report.weight += format_bytes(recipe.weight, count);
        report.grad += format_bytes(formats.grad, count);
        add_states(report, formats, count);
    }
    return report;
}

MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const int64_t> counts,
                            const shard::ShardingOptions& sharding, const RankOf& rank,
                            numerics::RuleId rule) {
    if (rank.rank < 0 || rank.rank >= rank.ranks) {
        fail(Code::invalid_argument, "rank is %d of %d; ranks count from 0", rank.rank, rank.ranks);
    }
    shard::check_sharding(sharding, rank.ranks);
    if (rank.ranks == 1) {
        return planned_memory(recipe, counts, rule); // nobody shares it
    }
    const int32_t stage = sharding.stage;
    const int32_t sharers = sharding.shard_ranks > 0 ? sharding.shard_ranks : rank.ranks;
    const bool is_rounded = gather_dtype(recipe, recipe.weight) != recipe.weight.dtype;
    const bool has_copy = stage == 3 || (stage > 0 && is_rounded);
    const shard::ShardPlan plan({sharding.kind, sharers, sharding.bucket_elements}, counts);
    const int32_t shard = rank.rank % sharers;
    MemoryReport report;
    bool any_shared = false;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const int64_t all = counts[i];
        const int64_t own = plan.slice_on(static_cast<int32_t>(i), shard).count;
        const StateFormats formats = state_formats(recipe, recipe.weight, all, rule);
        report.parameter_count += all;
        report.weight += format_bytes(recipe.weight, stage == 3 ? 0 : all);
        report.weight += has_copy && own > 0 ? format_bytes(recipe.weight, own) : 0;
        report.grad += format_bytes(formats.grad, stage >= 2 ? 0 : all);
        const bool is_shared =
            reduce_wire(sharding.wire, recipe, formats).scale == comm::WireScale::shared;
        report.reduced_grad += bytes_of(is_shared ? sharding.wire.dtype : DType::fp32,
                                        shard::with_gap(own) + (stage == 0 ? all : 0));
        any_shared = any_shared || is_shared;
        if (stage == 0 || own > 0) {
            add_states(report, formats, stage == 0 ? all : own);
        }
    }
    if (any_shared) { // a scale for each
        report.reduced_grad += bytes_of(DType::fp32, static_cast<int64_t>(counts.size()));
    }
    return report;
}

} // namespace mp::optim
