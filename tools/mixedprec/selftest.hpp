// SPDX-License-Identifier: Apache-2.0
// A second's worth of checks that a device computes what it should: nothing here needs a tolerance.
#pragma once

#include <string>
#include <vector>

#include "support.hpp"

namespace command {

struct Check {
    std::string name;
    bool good;
    std::string why; // "" where it is good
};

std::vector<Check> self_test(const mixedprec::Context& device);

// How a product of operands of this type is computed: "native", "emulated" or "no", and by what or why.
struct Support {
    std::string how, why;
};
Support product_support(const mixedprec::Context& device, int32_t dtype, bool scaled);
Support cast_support(const mixedprec::Context& device, int32_t dtype);
Support quantize_support(const mixedprec::Context& device, int32_t dtype);
// A step of the optimizer under a preset.
Support step_support(const mixedprec::Context& device, const std::string& preset);

} // namespace command
