// SPDX-License-Identifier: Apache-2.0
// Core's MemoryReport in its public form.
#pragma once

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
    result.exp_avg_bytes = report.exp_avg;
    result.exp_avg_sq_bytes = report.exp_avg_sq;
    result.compensation_bytes = report.compensation;
    result.total_bytes = report.total();
    result.reduced_grad_bytes = report.reduced_grad;
    write_struct(destination, result, "report");
}

} // namespace mp::capi
