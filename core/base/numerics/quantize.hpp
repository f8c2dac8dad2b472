// SPDX-License-Identifier: Apache-2.0
// One element to its code: multiplied, rounded once, saturated. Also what the statistics count.
#pragma once

#include <cstdint>

#include "numerics/codec.hpp"
#include "numerics/quant_stats.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::numerics {

// The scale_inv that block i had, for the rule that keeps it. No other rule reads it: nobody may have written it yet.
MP_HD_INLINE float previous_scale(ScaleRule rule, DType dtype, const void* scale_inv, int64_t i) {
    return rule == ScaleRule::msamp ? load_as_float(dtype, scale_inv, i) : 1.0F;
}

// body(DTypeConstant<...>{}) for a type that tensors are quantized to: fp8, fp16 or fp4; not called for others.
template <class Body> MP_HD_INLINE constexpr void visit_codes(DType dtype, const Body& body) {
    visit_dtype(dtype, [&](auto type) MP_INLINED {
        if constexpr (is_code(type.value)) {
            body(type);
        }
    });
}

// The smallest |x * multiply| that rounds (to nearest even) beyond the largest code: half a unit in
// the last place above it, where a tie goes to the largest code if that is even (E4M3's 448).
template <DType kDType> MP_HD_INLINE constexpr float saturation_threshold_of() {
    using C = Codec<kDType>;
    constexpr float kLargest = max_finite(kDType);
    constexpr auto kCode = C::store_sat(kLargest);
    constexpr float kHalf = (kLargest - C::load(static_cast<typename C::storage>(kCode - 1))) / 2;
    constexpr uint32_t kBits = bits_from_float(kLargest + kHalf);
    return float_from_bits(kCode % 2 == 0 ? kBits + 1 : kBits);
}
MP_HD_INLINE constexpr float saturation_threshold(DType dtype) {
    float threshold = float_from_bits(kFloatInfinity);
    visit_codes(dtype,
                [&](auto type) MP_INLINED { threshold = saturation_threshold_of<type.value>(); });
    return threshold;
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

// By a type known at run time. The code is in the low bits.
MP_HD_INLINE uint32_t quantize_code(DType dtype, float x, float multiply) {
    uint32_t code = 0;
    visit_codes(dtype, [&](auto type)
                           MP_INLINED { code = quantize_element<Codec<type.value>>(x, multiply); });
    return code;
}

MP_HD_INLINE uint32_t quantize_code_sr(DType dtype, float x, float multiply, uint32_t r32) {
    uint32_t code = 0;
    visit_codes(dtype, [&](auto type) MP_INLINED {
        code = quantize_element_sr<type.value>(x, multiply, r32);
    });
    return code;
}

MP_HD_INLINE void store_quantized(DType dtype, void* data, int64_t i, uint32_t code) {
    visit_codes(dtype, [&](auto type) MP_INLINED {
        using Storage = typename Codec<type.value>::storage;
        detail::store_code<type.value>(data, i, static_cast<Storage>(code));
    });
}

// All bits of a code but its sign.
MP_HD_INLINE constexpr uint32_t code_magnitude_mask(DType dtype) {
    uint32_t mask = 0;
    visit_codes(dtype,
                [&](auto type) MP_INLINED { mask = (1U << (dtype_bits(type.value) - 1)) - 1; });
    return mask;
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
