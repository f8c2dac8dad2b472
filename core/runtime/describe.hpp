// SPDX-License-Identifier: Apache-2.0
// What a device is and what it would choose, in one shape for devices of every kind.
#pragma once

#include <string>

#include "device/backend.hpp"
#include "system/json_writer.hpp"

namespace mp {

// An object: kind, index, threads, what the device says of itself, and of each operation the candidates, best first.
// Text that is not UTF-8 becomes "?".
void describe(const Device& device, system::JsonWriter& json);
std::string describe(const Device& device);

// What the bits of its products depend on, as one line: "host, avx512, oneDNN 2.6.3, 2 threads".
std::string products_text(const Device& device);

} // namespace mp
