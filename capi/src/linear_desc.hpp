// SPDX-License-Identifier: Apache-2.0
// What the calls of linear.h and saved.h have in common.
#pragma once

#include <memory>
#include <string>

#include "objects.hpp"

namespace mp::capi {

linear::LinearOptions options_of(const mp_linear_desc* desc);
// Throws for a number that is none of MP_OPERAND_*.
recipe::Operand operand_of(int32_t number);
// A handle on the layer; where that is not what its recipe says `note` says why.
mp_linear* made_layer(const std::shared_ptr<LinearObject>& object, std::string& note);
// MP_STATUS_WARNING, once each, where the end of a step was forgotten, or a micro-batch was added into codes.
mp_status warn_of_backward(linear::Linear& layer);
// Throws where a backward is to compute nothing, or a bias gradient alone.
void check_wanted(const Tensor* dx, const Tensor* dw, const Tensor* dbias);

} // namespace mp::capi
