// SPDX-License-Identifier: Apache-2.0
// scaler_update as a Kokkos kernel of one thread.
#pragma once

#include "kernels/exec.hpp"

namespace mp::kernels {

struct UpdateLossScale {
    ScalerUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t) const {
        numerics::update_loss_scale(*op.state, op.rule);
    }
};

template <class Exec> void scaler_update(const Exec& exec, const ScalerUpdateDesc& op) {
    for_each(exec, "mp::scaler_update", 1, UpdateLossScale{op});
}

} // namespace mp::kernels
