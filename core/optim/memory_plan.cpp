// SPDX-License-Identifier: Apache-2.0
#include "optim/memory_plan.hpp"

namespace mp {
namespace {

// What is kept in high precision has gradients and moments without scales.
StateFormat unscaled(StateFormat format) {
    return format.is_scaled() ? StateFormat(DType::fp32) : format;
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
        const StateFormats formats = state_formats(recipe, recipe.weight, count);
        report.parameter_count += count;
        report.weight += format_bytes(recipe.weight, count);
        report.master += format_bytes(formats.master, count);
        report.grad += format_bytes(formats.grad, count);
        report.exp_avg += format_bytes(formats.exp_avg, count);
        report.exp_avg_sq += format_bytes(formats.exp_avg_sq, count);
        report.compensation += format_bytes(formats.compensation, count);
    }
    return report;
}

} // namespace mp
