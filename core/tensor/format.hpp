// SPDX-License-Identifier: Apache-2.0
// A Format in words, and which ones there are.
#pragma once

#include <string>

#include "array/format.hpp"

namespace mp {

// "bf16", "fp8_e4m3 with one scale", "fp8_e4m3 with scales of 1x128".
std::string format_text(const Format& format);

// Throws where dtype, grid and rule do not belong together; `what` begins the message.
void check_format(const Format& format, const char* what);

} // namespace mp
