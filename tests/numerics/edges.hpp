// SPDX-License-Identifier: Apache-2.0
// Numbers at the ends of fp32, and the neighbours of any.
#pragma once

#include <cmath>
#include <limits>

namespace mp::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kSubnormal = 0x1p-149F;

inline float after(float x) { return std::nextafter(x, kInf); }
inline float before(float x) { return std::nextafter(x, 0.0F); }

} // namespace mp::test
