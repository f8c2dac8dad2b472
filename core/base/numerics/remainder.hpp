// SPDX-License-Identifier: Apache-2.0
// An fp32 master weight as a bf16 parameter and the 16 bits that it lacks: 4 bytes instead of 6, and
// exact (apex and Transformer Engine: "store_param_remainders").
//   param = upper half of (bits + 0x8000), remainder = bits - (param << 16) as int16
// This is to nearest with halves away from zero. To nearest even cannot be had: both ties beside an
// even param, 0x8000 above it and below, would round to it, which makes 65537 masters for 65536
// remainders. It differs for one value in 2^17. A NaN becomes 0x7fc0 (with its sign) and 0: rounded
// like a number, the NaN 0x7fffffff would become the weight -0.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

struct SplitMaster {
    uint16_t param;
    int16_t remainder;
};

MP_HD_INLINE constexpr SplitMaster split_master(float master) {
    const uint32_t u = bits_from_float(master);
    const uint32_t nan = (u & kFloatSignMask) | kFloatQuietNan;
    const uint32_t bits = select_u32(is_nan_bits(u), nan, u);
    const uint32_t param = (bits + 0x8000U) >> 16;
    return {static_cast<uint16_t>(param), static_cast<int16_t>(static_cast<uint16_t>(bits))};
}

// The param alone, of a master that is kept whole: what makes both forms of a master train alike.
MP_HD_INLINE constexpr uint16_t bf16_half_away(float master) { return split_master(master).param; }

MP_HD_INLINE constexpr float join_master(uint16_t param, int16_t remainder) {
    const uint32_t upper = static_cast<uint32_t>(param) << 16;
    return float_from_bits(upper + static_cast<uint32_t>(static_cast<int32_t>(remainder)));
}

} // namespace mp::numerics
