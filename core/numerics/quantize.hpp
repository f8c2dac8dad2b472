// SPDX-License-Identifier: Apache-2.0
// One element to its code: multiplied, rounded once, saturated. Also what the statistics count.
#pragma once

#include <cstdint>

#include "numerics/codec.hpp"
#include "numerics/quant_stats.hpp"

namespace mp::numerics {

// The smallest |x * multiply| that rounds (to nearest even) beyond the largest code: half a unit in
// the last place above it, where a tie goes to the largest code if that is even (E4M3's 448).
MP_HD_INLINE constexpr float saturation_threshold(DType dtype) {
    switch (dtype) {
    case DType::fp8_e4m3:
        return float_from_bits(bits_from_float(464.0F) + 1);
    case DType::fp8_e5m2:
        return 61440.0F;
    case DType::fp16:
        return 65520.0F;
    case DType::fp4_e2m1:
        return 7.0F;
    default:
        return float_from_bits(kFloatInfinity);
    }
}

// A finite x saturates, also where the product overflows. What is not finite is coded as itself,
// not as the product: E4M3 has only its NaN for infinity too. A block whose scale is NaN is NaN.
template <class C> MP_HD_INLINE typename C::storage quantize_element(float x, float multiply) {
    if (!is_finite(x)) {
        return C::store_nonsat(x);
    }
    return C::store_sat(is_nan(multiply) ? float_from_bits(kFloatQuietNan) : x * multiply);
}

// The same with stochastic rounding. fp16's own would step to infinity above its largest value.
template <DType kDType>
MP_HD_INLINE typename Codec<kDType>::storage quantize_element_sr(float x, float multiply,
                                                                 uint32_t r32) {
    using C = Codec<kDType>;
    const float product = x * multiply;
    if (!is_finite(x) || is_nan(product)) {
        return quantize_element<C>(x, multiply);
    }
    const float limit = max_finite(kDType);
    const float below = product > limit ? limit : product;
    return C::store_sr(below < -limit ? -limit : below, r32);
}

// By a type known at run time: fp8_e4m3, fp8_e5m2, fp16 or fp4_e2m1. The code is in the low bits.
MP_HD_INLINE uint32_t quantize_code(DType dtype, float x, float multiply) {
    switch (dtype) {
    case DType::fp8_e4m3:
        return quantize_element<Codec<DType::fp8_e4m3>>(x, multiply);
    case DType::fp8_e5m2:
        return quantize_element<Codec<DType::fp8_e5m2>>(x, multiply);
    case DType::fp16:
        return quantize_element<Codec<DType::fp16>>(x, multiply);
    default:
        return quantize_element<Codec<DType::fp4_e2m1>>(x, multiply);
    }
}

MP_HD_INLINE uint32_t quantize_code_sr(DType dtype, float x, float multiply, uint32_t r32) {
    switch (dtype) {
    case DType::fp8_e4m3:
        return quantize_element_sr<DType::fp8_e4m3>(x, multiply, r32);
    case DType::fp8_e5m2:
        return quantize_element_sr<DType::fp8_e5m2>(x, multiply, r32);
    case DType::fp16:
        return quantize_element_sr<DType::fp16>(x, multiply, r32);
    default:
        return quantize_element_sr<DType::fp4_e2m1>(x, multiply, r32);
    }
}

MP_HD_INLINE void store_quantized(DType dtype, void* data, int64_t i, uint32_t code) {
    switch (dtype) {
    case DType::fp16:
        return detail::store_code<DType::fp16>(data, i, static_cast<uint16_t>(code));
    case DType::fp4_e2m1:
        return detail::store_code<DType::fp4_e2m1>(data, i, static_cast<uint8_t>(code));
    default:
        return detail::store_code<DType::fp8_e4m3>(data, i, static_cast<uint8_t>(code));
    }
}

// All bits of a code but its sign.
MP_HD_INLINE constexpr uint32_t code_magnitude_mask(DType dtype) {
    switch (dtype) {
    case DType::fp16:
        return 0x7fffu;
    case DType::fp4_e2m1:
        return 0x7u;
    default:
        return 0x7fu;
    }
}

// +0 or -0.
MP_HD_INLINE constexpr bool is_zero_code(DType dtype, uint32_t code) {
    return (code & code_magnitude_mask(dtype)) == 0;
}

// What one element adds to the statistics; `code` is its code. amax_bits apart.
MP_HD_INLINE void count_element(QuantStats& stats, DType dtype, float x, float multiply,
                                uint32_t code) {
    const uint32_t magnitude = bits_from_float(x) & kFloatMagnitudeMask;
    const uint32_t product = bits_from_float(x * multiply) & kFloatMagnitudeMask;
    const uint32_t threshold = bits_from_float(saturation_threshold(dtype));
    const bool is_number = magnitude < kFloatInfinity;
    stats.elements += 1;
    stats.non_finite += is_number ? 0 : 1;
    stats.saturated += is_number && product >= threshold && product <= kFloatInfinity ? 1 : 0;
    stats.underflowed += is_number && magnitude != 0 && is_zero_code(dtype, code) ? 1 : 0;
    stats.amax_bits = magnitude > stats.amax_bits ? magnitude : stats.amax_bits;
}

// A code's value. A NaN is always the same one, whichever operand it came from.
MP_HD_INLINE constexpr float dequantize_element(float code, float scale) {
    const float value = code * scale;
    return is_nan(value) ? float_from_bits(kFloatQuietNan) : value;
}

} // namespace mp::numerics
