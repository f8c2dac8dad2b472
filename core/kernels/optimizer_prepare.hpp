// SPDX-License-Identifier: Apache-2.0
// optimizer_prepare as Kokkos kernels: the decision by one thread, then each group's scalars.
#pragma once

#include "kernels/exec.hpp"

namespace mp::kernels {

struct PrepareStep {
    OptimizerPrepareDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t) const {
        numerics::prepare_step(*op.state, op.scaler, op.rule);
    }
};

struct PrepareScalars {
    OptimizerPrepareDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t group) const {
        numerics::prepare_group(*op.state, op.hyper[group], op.group_steps[group],
                                op.scalars[group]);
    }
};

template <class Exec> void optimizer_prepare(const Exec& exec, const OptimizerPrepareDesc& op) {
    for_each(exec, "mp::prepare_step", 1, PrepareStep{op});
    for_each(exec, "mp::prepare_scalars", op.group_count, PrepareScalars{op});
}

} // namespace mp::kernels
