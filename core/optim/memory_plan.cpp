// SPDX-License-Identifier: Apache-2.0
#include "optim/memory_plan.hpp"

#include "status/status.hpp"

namespace mp {
namespace {

// What is kept in high precision has gradients and moments without scales.
StateFormat unscaled(StateFormat format) {
    return format.is_scaled() ? StateFormat(DType::fp32) : format;
}

// Elements of one parameter that a rank holds of each class.
struct Held {
    int64_t weight;
    int64_t grad;
    int64_t states;
    bool has_states; // also without elements: those of an empty tensor have scales
};

int64_t state_bytes(StateFormat format, const Held& held) {
    return held.has_states ? format_bytes(format, held.states) : 0;
}

// A parameter of `count` elements. The one scale of a weight or gradient is on every rank.
void add_parameter(MemoryReport& report, const Recipe& recipe, int64_t count, const Held& held) {
    const StateFormats formats = state_formats(recipe, recipe.weight, count);
    report.parameter_count += count;
    report.weight += format_bytes(recipe.weight, held.weight);
    report.grad += format_bytes(formats.grad, held.grad);
    report.master += state_bytes(formats.master, held);
    report.exp_avg += state_bytes(formats.exp_avg, held);
    report.exp_avg_sq += state_bytes(formats.exp_avg_sq, held);
    report.compensation += state_bytes(formats.compensation, held);
}

} // namespace

StateFormats state_formats(const Recipe& recipe, StateFormat weight, int64_t count) {
    const bool narrow = weight.dtype != DType::fp32; // an fp32 parameter is its own master
    const auto choose = [&](StateFormat format) { return narrow ? format : unscaled(format); };
    StateFormats formats;
    formats.grad = choose(recipe.grad);
    formats.exp_avg = moment_format(choose(recipe.exp_avg), count);
    formats.exp_avg_sq = moment_format(choose(recipe.exp_avg_sq), count);
    if (narrow) {
        formats.compensation = recipe.compensation;
        formats.master = recipe.master;
    }
    return formats;
}

MemoryReport planned_memory(const Recipe& recipe, std::span<const int64_t> counts) {
    MemoryReport report;
    for (const int64_t count : counts) {
        add_parameter(report, recipe, count, {count, count, count, true});
    }
    return report;
}

MemoryReport planned_memory(const Recipe& recipe, std::span<const int64_t> counts,
                            const ShardedMemory& sharding) {
    const int32_t stage = sharding.zero_stage;
    if (sharding.rank < 0 || sharding.rank >= sharding.options.ranks || stage < 0 || stage > 3) {
        fail(Code::invalid_argument,
             "sharding: rank is %d of %d and zero_stage is %d; ranks count from 0, stages are 0 to "
             "3",
             sharding.rank, sharding.options.ranks, stage);
    }
    const ShardPlan plan(sharding.options, counts);
    MemoryReport report;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        int64_t own = 0;
        for (const ShardPiece& piece : plan.pieces_of(static_cast<int32_t>(i))) {
            own += piece.rank == sharding.rank ? piece.count : 0;
        }
        const int64_t all = counts[i];
        add_parameter(report, recipe, all,
                      {stage >= 3 ? own : all, stage >= 2 ? own : all, stage >= 1 ? own : all,
                       stage == 0 || own > 0});
    }
    return report;
}

} // namespace mp
