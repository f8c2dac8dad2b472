// SPDX-License-Identifier: Apache-2.0
// mp_optimizer_desc, as core has it.
#pragma once

#include "objects.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

inline constexpr uint32_t kStepFlags =
    MP_OPTIMIZER_CHECK_FINITE | MP_OPTIMIZER_ZERO_GRAD | MP_OPTIMIZER_EAGER_COMPAT;

inline optim::OptimizerOptions options_of(const mp_optimizer_desc* desc) {
    const auto source = read_optional_struct(desc, "desc");
    check_flags(source.flags, kStepFlags | MP_OPTIMIZER_OFFLOAD, "desc.flags");
    optim::OptimizerOptions options;
    options.seed = source.seed;
    options.max_grad_norm = source.max_grad_norm;
    options.check_finite = (source.flags & MP_OPTIMIZER_CHECK_FINITE) != 0;
    options.zero_grad = (source.flags & MP_OPTIMIZER_ZERO_GRAD) != 0;
    options.eager_compat = (source.flags & MP_OPTIMIZER_EAGER_COMPAT) != 0;
    options.offload = (source.flags & MP_OPTIMIZER_OFFLOAD) != 0;
    return options;
}

} // namespace mp::capi
