// SPDX-License-Identifier: Apache-2.0
// What the calls of linear.h and saved.h have in common.
#pragma once

#include "linear/linear.hpp"
#include "mixedprec/linear.h"

namespace mp::capi {

linear::LinearOptions options_of(const mp_linear_desc* desc);
// Throws for a number that is none of MP_OPERAND_*.
recipe::Operand operand_of(int32_t number);
// MP_STATUS_WARNING with the reason where the layer is not what its recipe says, once.
mp_status told_fallback(const linear::Linear& layer);
// MP_STATUS_WARNING where the end of a step was forgotten, once.
mp_status told_end_step(linear::Linear& layer);
// Throws where a backward is to compute nothing, or a bias gradient alone.
void check_wanted(const Tensor* dx, const Tensor* dw, const Tensor* dbias);

} // namespace mp::capi
