// SPDX-License-Identifier: Apache-2.0
// What the calls of linear.h and saved.h have in common.
#pragma once

#include "linear/linear.hpp"
#include "mixedprec/linear.h"

namespace mp::capi {

linear::LinearOptions options_of(const mp_linear_desc* desc);
// Throws for a number that is none of MP_OPERAND_*.
recipe::Operand operand_of(int32_t number);
// Throws where a backward is to compute nothing, or a bias gradient alone.
void check_wanted(const Tensor* dx, const Tensor* dw, const Tensor* dbias);

} // namespace mp::capi
