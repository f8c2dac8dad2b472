// SPDX-License-Identifier: Apache-2.0
// Two neighbouring bf16 elements in one 32-bit word, each as an fp32 pattern. A loop over words has
// only one width of lane, so it vectorizes without the packing that 16-bit loads and stores cost.
#pragma once

#include "host/kernels/base.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Little-endian: the element with the even index is the lower half.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
typedef uint32_t Bf16Pair __attribute__((aligned(1), may_alias));

inline constexpr uint32_t kUpperHalf = 0xffff0000U;

MP_ISA_INLINE float even_of(uint32_t pair) { return numerics::float_from_bits(pair << 16); }
MP_ISA_INLINE float odd_of(uint32_t pair) { return numerics::float_from_bits(pair & kUpperHalf); }

// The fp32 pattern whose upper half is numerics::float_to_bf16(x); the lower half is garbage. Here
// the upper half need not be shifted down, and the test for NaN is one instruction.
MP_ISA_INLINE uint32_t bf16_pattern(float x) {
    const uint32_t u = numerics::bits_from_float(x);
    const uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
    const uint32_t nan = u | numerics::kFloatQuietBit;
    return x != x ? nan : rounded;
}

// Likewise for numerics::float_to_bf16_sr(x, r16); r16 has no upper half.
MP_ISA_INLINE uint32_t bf16_pattern_sr(float x, uint32_t r16) {
    const uint32_t u = numerics::bits_from_float(x);
    const uint32_t nan = u | numerics::kFloatQuietBit;
    return x != x ? nan : u + r16;
}

MP_ISA_INLINE uint32_t join(uint32_t even_pattern, uint32_t odd_pattern) {
    return (even_pattern >> 16) | (odd_pattern & kUpperHalf);
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
