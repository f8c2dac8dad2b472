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
// Logged too, where the layer is not what its recipe says; else empty.
std::string fallback_note(const linear::Linear& layer);
// A handle on the layer, and its fallback_note().
mp_linear* made_layer(const std::shared_ptr<LinearObject>& object, std::string& note);

} // namespace mp::capi
