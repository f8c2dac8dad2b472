// SPDX-License-Identifier: Apache-2.0
// Numbers of parameters in host memory, some elements at a time: as the model computes with them, or with all the bits that
// their optimizer has.
#pragma once

#include <span>

#include "optim/parameters.hpp"

namespace mp::optim {

// From `first` on of the elements that are here. Exact: the master weight, the parameter and its remainder, or the sum of
// parameter and compensation, where there is one. Waits.
void read_exact_weight(Stream& stream, const ParamStates& states, const ArrayRef& param,
                       int64_t first, std::span<float> values);
void read_param(Stream& stream, const Parameters& parameters, int32_t index, bool is_exact,
                int64_t first, std::span<float> values);

} // namespace mp::optim
