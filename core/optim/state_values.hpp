// SPDX-License-Identifier: Apache-2.0
// The values of a parameter's states in a plain type, whatever they are stored as: reading them out, and storing
// values that came from elsewhere. For checkpoints and imports, not for every step: blocks and remainders go
// through host memory.
#pragma once

#include <string>

#include "optim/param_states.hpp"

namespace mp::optim {

// The rule's states by their names ("exp_avg" and "exp_avg_sq"); "compensation"; "fp32_param": the weight that the optimizer
// updates, with all the bits it has: the master weight, the parameter and its remainder, or the sum of parameter and
// compensation. `destination` is fp32, fp16 or bf16 and has the states' count. Throws unknown_name where there is no such
// state; `owner` is the parameter's name for that. Waits.
void read_values(Stream& stream, const ParamStates& states, const ArrayRef& param,
                 const std::string& name, const TensorRef& destination, const std::string& owner);

// The inverse: rounds once into the stored form, with new scales where it has some. Writing "fp32_param" writes the
// parameter too, and what its rounding loses into master weight, remainder or compensation. Waits.
void write_values(Stream& stream, const ParamStates& states, const ArrayRef& param,
                  const std::string& name, const TensorRef& source, const std::string& owner);

} // namespace mp::optim
