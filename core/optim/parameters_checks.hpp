// SPDX-License-Identifier: Apache-2.0
// What of parameters and their values is refused, before anything changes.
#pragma once

#include "optim/parameters.hpp"

namespace mp::optim {

// A name, shapes and formats that cannot be.
void check_new(const Device& device, const recipe::Recipe& recipe, const LayoutOptions& layout,
               const NewParameter& parameter);
// A weight whose format no rule trains under this recipe.
void check_trained(const recipe::Recipe& recipe, const LayoutOptions& layout,
                   const std::string& name, const Tensor& param);
// A gradient that one step is given for a parameter.
void check_given(const Parameters& parameters, const Parameter& parameter, const Tensor& grad);
// A step writes all parameters and states and may zero all gradients, in any order.
void check_apart(const ClaimedMemory& memory, const NewParameter& parameter, const Layout& layout);
// What read_state() and write_state() copy.
void check_values(const Parameters& parameters, int32_t index, const Tensor& values);

} // namespace mp::optim
