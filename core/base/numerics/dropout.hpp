// SPDX-License-Identifier: Apache-2.0
// Dropout of one element. The random bits are an argument, 16 of them; philox.hpp makes them (Purpose::dropout).
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

// A probability is so many of 2^16: below it an element's random bits drop the element.
inline constexpr uint32_t kDropoutUnit = 65536;

// What the kept ones are multiplied by, so that the mean stays: 1 / (1 - p), rounded once. drop_below < kDropoutUnit.
MP_HD_INLINE constexpr float dropout_scale(uint32_t drop_below) {
    return static_cast<float>(kDropoutUnit) / static_cast<float>(kDropoutUnit - drop_below);
}

// +0 for a dropped element, whatever x is. By masks, so that loops become vectors.
MP_HD_INLINE constexpr float dropout_value(float x, float scale, uint32_t bits16,
                                           uint32_t drop_below) {
    return float_from_bits(select_u32(bits16 >= drop_below, bits_from_float(x * scale), 0U));
}

} // namespace mp::numerics
