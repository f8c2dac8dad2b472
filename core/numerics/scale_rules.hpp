// SPDX-License-Identifier: Apache-2.0
// From the largest |x| of a block to the factor its elements are multiplied by before they are
// rounded to codes, and to the scale_inv that is stored. Each rule is one system's, to the bit.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/host_device.hpp"

namespace mp::numerics {

enum class ScaleRule : int32_t {
    current = 0, // Transformer Engine: multiply = RN(max_code / amax), scale_inv = RN(1 / multiply)
    float64 = 1, // torchao: multiply = RN(max_code / max(amax, 1e-12) in double)
    msamp = 2,   // MS-AMP: the largest power of two with amax * multiply <= max_code
    deepseek = 3, // DeepSeek-V3: scale_inv = max(amax, 1e-4) / max_code
    mx_rceil = 4, // OCP MX, exponent rounded up from amax / max_code (no element saturates)
    mx_floor = 5, // OCP MX's own text: floor(log2 amax) - floor(log2 max_code)
    mx_ceil = 6,
    mx_even = 7,
    nvfp4 = 8, // NVFP4's E4M3 block scale under an fp32 scale of the tensor
};

struct ScalePolicy {
    ScaleRule rule = ScaleRule::current;
    bool power_of_two = false; // multiply becomes the next power of two towards zero
    float max_code = 448.0F;   // largest finite code, times 2^-margin
    float epsilon = 0.0F;      // amax is at least this
    // What multiply becomes where max_code / amax overflows.
    float largest_multiply = 0x1.fffffep+127F;

    constexpr bool operator==(const ScalePolicy&) const = default;
};

// What one block is quantized with.
struct BlockScale {
    float multiply = 1.0F;  // code = round(x * multiply)
    float scale_inv = 1.0F; // what is stored, as fp32; exact in the grid's dtype
};

} // namespace mp::numerics
