// SPDX-License-Identifier: Apache-2.0
// Core's MemoryReport in its public form.
#pragma once

#include <algorithm>
#include <iterator>

#include "mixedprec/recipe.h"
#include "optim/optimizer.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

inline void write_report(const optim::MemoryReport& report, mp_memory_report* destination) {
    mp_memory_report result{};
    result.parameter_count = report.parameter_count;
    result.weight_bytes = report.weight;
    result.master_bytes = report.master;
    result.grad_bytes = report.grad;
    static_assert(numerics::kStateIdCount <= MP_MAX_STATES);
    std::copy(std::begin(report.states), std::end(report.states), result.state_bytes);
    result.compensation_bytes = report.compensation;
    result.total_bytes = report.total();
    result.reduced_grad_bytes = report.reduced_grad;
    result.offload_bytes = report.offload;
    result.host_bytes = report.host;
    write_struct(destination, result, "report");
}

// What mp_recipe_plan_memory and its siblings have in common: the sum stays below 2^55 too.
inline std::span<const int64_t> checked_counts(const int64_t* counts, int64_t tensor_count) {
    constexpr int64_t kMaxCount = int64_t{1} << 55;
    if (tensor_count < 0) {
        fail(Code::invalid_argument, "tensor_count is %lld; it must be >= 0",
             static_cast<long long>(tensor_count));
    }
    if (tensor_count > 0 && counts == nullptr) {
        fail(Code::null_argument, "counts is NULL but tensor_count is %lld",
             static_cast<long long>(tensor_count));
    }
    const std::span<const int64_t> list(counts, static_cast<std::size_t>(tensor_count));
    int64_t total = 0;
    for (const int64_t count : list) {
        if (count < 0 || count > kMaxCount - total) {
            fail(Code::invalid_argument,
                 "parameter_count is %lld after %lld others; all must be in 0..2^55",
                 static_cast<long long>(count), static_cast<long long>(total));
        }
        total += count;
    }
    return list;
}

} // namespace mp::capi
