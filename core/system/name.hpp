// SPDX-License-Identifier: Apache-2.0
// Names that callers give: of parameters, layers, data. They key files and stand in JSON.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace mp::system {

inline constexpr std::size_t kMostNameBytes = 255;

// Throws invalid_argument, beginning with `what`, unless it has 1 to 255 bytes of UTF-8 and is not the key that safetensors
// files keep for themselves.
void check_name(const char* what, std::string_view name);

// Bytes of a name from anywhere that a message shows, for %.*s.
inline int shown(std::string_view name, std::size_t most) {
    return static_cast<int>(std::min(name.size(), most));
}

} // namespace mp::system
