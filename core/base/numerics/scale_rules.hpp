// SPDX-License-Identifier: Apache-2.0
// From the largest |x| of a block to the factor its elements are multiplied by before they are
// rounded to codes, and to the scale_inv that is stored. Each rule is one system's, to the bit,
// except where that system would give an infinite, zero or negative scale.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"
#include "dtype/host_device.hpp"
#include "numerics/bits.hpp"
#include "numerics/e8m0.hpp"
#include "numerics/fp8.hpp"

namespace mp::numerics {

enum class ScaleRule : int32_t {
    current = 0, // Transformer Engine: multiply = RN(max_code / amax), scale_inv = RN(1 / multiply)
    float64 = 1, // torchao: multiply = RN(max_code / max(amax, 1e-12) in double)
    msamp = 2,   // MS-AMP: the largest power of two with amax * multiply <= max_code
    deepseek = 3, // DeepSeek-V3: scale_inv = max(amax, 1e-4) / max_code
    mx_rceil = 4, // OCP MX, exponent rounded up from amax / max_code (no element saturates)
    mx_floor = 5, // OCP MX's own text: floor(log2 amax) - floor(log2 max_code)
    mx_ceil = 6,  // ceil(log2 amax) - floor(log2 max_code)
    mx_even = 7,  // floor, after amax was rounded (halves up) to the codes' mantissa bits
    nvfp4 = 8,    // NVFP4's E4M3 block scale under an fp32 scale of the tensor
};

struct ScalePolicy {
    ScaleRule rule = ScaleRule::current;
    bool power_of_two = false; // multiply becomes the next power of two towards zero
    float max_code = 448.0F;   // largest finite code, times 2^-margin
    float epsilon = 0.0F;      // amax is at least this
    // What multiply becomes where max_code / amax overflows.
    float largest_multiply = 0x1.fffffep+127F;
    int32_t mantissa_bits = 3; // of the codes; mx_even alone asks

    constexpr bool operator==(const ScalePolicy&) const = default;
};

// The policy of a rule for codes of a type.
MP_HD_INLINE constexpr ScalePolicy scale_policy(ScaleRule rule, DType codes, int32_t margin = 0) {
    ScalePolicy policy;
    policy.rule = rule;
    policy.max_code = max_finite(codes) * exp2_int(-margin);
    policy.mantissa_bits = codes == DType::fp16       ? 10
                           : codes == DType::fp8_e4m3 ? 3
                           : codes == DType::fp8_e5m2 ? 2
                                                      : 1;
    return policy;
}

MP_HD_INLINE constexpr bool is_mx(ScaleRule rule) {
    return rule == ScaleRule::mx_rceil || rule == ScaleRule::mx_floor ||
           rule == ScaleRule::mx_ceil || rule == ScaleRule::mx_even;
}

// What one block is quantized with.
struct BlockScale {
    float multiply = 1.0F;  // code = round(x * multiply)
    float scale_inv = 1.0F; // what is stored, as fp32; exact in the grid's dtype
};

namespace detail {

inline constexpr uint32_t kFloatExponentMask = 0x7f800000u;
inline constexpr uint32_t kFloatMantissaMask = 0x007fffffu;
// Beyond these the reciprocal is no normal number.
inline constexpr float kSmallestMultiply = 0x1p-126F;

// A NaN stays one.
MP_HD_INLINE constexpr float at_least(float x, float limit) { return x < limit ? limit : x; }
MP_HD_INLINE constexpr float at_most(float x, float limit) { return x > limit ? limit : x; }

MP_HD_INLINE constexpr float toward_power_of_two(float x) {
    return float_from_bits(bits_from_float(x) & kFloatExponentMask);
}

MP_HD_INLINE constexpr BlockScale with_reciprocal(float multiply) {
    return {multiply, 1.0F / multiply};
}

// An amax of zero, infinity or NaN gives 1. A margin of 7 and more could push the quotient below
// the normal numbers, hence the lower bound.
MP_HD_INLINE constexpr BlockScale scale_current(const ScalePolicy& policy, float amax) {
    const float quotient = policy.max_code / amax;
    float multiply = is_finite(quotient) ? quotient : policy.largest_multiply;
    multiply = at_least(multiply, kSmallestMultiply);
    multiply = policy.power_of_two ? toward_power_of_two(multiply) : multiply;
    return with_reciprocal(is_finite(amax) && amax > 0.0F ? multiply : 1.0F);
}

// torchao's own scale is 0 where amax is infinite and NaN where it is NaN; here both give 1.
MP_HD_INLINE constexpr BlockScale scale_float64(const ScalePolicy& policy, float amax) {
    const auto wide = static_cast<double>(amax);
    const double divisor = wide < 1e-12 ? 1e-12 : wide;
    auto multiply = static_cast<float>(static_cast<double>(policy.max_code) / divisor);
    multiply = at_least(multiply, kSmallestMultiply);
    multiply = policy.power_of_two ? toward_power_of_two(multiply) : multiply;
    return with_reciprocal(is_finite(amax) ? multiply : 1.0F);
}

// The quotient's exponent is exact: for max_code = m 2^k, 1 < m < 2, a quotient below a power of two
// is at least 2 / m > 1 units in the last place below it, so it does not round to it. Without an
// amax, or a finite one, the previous scale stays. (MS-AMP's own code inverts it where amax is
// infinite, and gives an infinite scale below 1.3e-36.)
MP_HD_INLINE constexpr BlockScale scale_msamp(const ScalePolicy& policy, float amax,
                                              float previous_inv) {
    const float quotient = at_most(policy.max_code / amax, 0x1p+126F);
    const float multiply = toward_power_of_two(at_least(quotient, kSmallestMultiply));
    if (is_finite(amax) && amax > 0.0F) {
        return with_reciprocal(multiply);
    }
    const bool is_usable = previous_inv >= 0x1p-126F && previous_inv <= 0x1p+126F;
    return is_usable ? BlockScale{1.0F / previous_inv, previous_inv} : BlockScale{};
}

// With power_of_two (UE8M0) the exponent is rounded up, so that no element overflows.
MP_HD_INLINE constexpr BlockScale scale_deepseek(const ScalePolicy& policy, float amax) {
    float inverse = at_most(at_least(amax, 1e-4F) / policy.max_code, 0x1p+126F);
    if (policy.power_of_two) {
        const uint32_t bits = bits_from_float(inverse) + kFloatMantissaMask;
        inverse = float_from_bits(bits & kFloatExponentMask);
    }
    return is_finite(amax) ? BlockScale{1.0F / inverse, inverse} : BlockScale{};
}

// The unbiased exponent and the mantissa of a positive fp32 number, subnormal ones normalized, by
// way of double, where all are normal.
struct Exponent {
    int32_t exponent;
    uint32_t mantissa; // 23 bits
};
MP_HD_INLINE constexpr Exponent exponent_of(float x) {
    const uint64_t bits = bits_from_double(static_cast<double>(x));
    return {static_cast<int32_t>(bits >> 52) - 1023,
            static_cast<uint32_t>(bits >> 29) & kFloatMantissaMask};
}

MP_HD_INLINE constexpr int32_t mx_exponent(const ScalePolicy& policy, float amax) {
    Exponent a = exponent_of(amax);
    const Exponent limit = exponent_of(policy.max_code);
    int32_t up = 0;
    if (policy.rule == ScaleRule::mx_rceil) {
        up = a.mantissa > limit.mantissa ? 1 : 0; // the smallest e with max_code * 2^e >= amax
    } else if (policy.rule == ScaleRule::mx_ceil) {
        up = a.mantissa != 0 ? 1 : 0;
    } else if (policy.rule == ScaleRule::mx_even) {
        up = a.mantissa + (1u << (22 - policy.mantissa_bits)) > kFloatMantissaMask ? 1 : 0;
    }
    return a.exponent + up - limit.exponent;
}

// The E8M0 code of a block: exponents below its range give the smallest, an amax of NaN gives NaN.
// An infinite amax gives the largest exponent by mx_rceil (Transformer Engine), NaN by the others, so that it is seen; torchao
// saturates there.
MP_HD_INLINE constexpr uint8_t mx_code(const ScalePolicy& policy, float amax) {
    const int32_t biased = mx_exponent(policy, amax) + 127;
    const int32_t code = biased < 0 ? 0 : (biased > 254 ? 254 : biased);
    const bool takes_infinity = policy.rule == ScaleRule::mx_rceil && !is_nan(amax);
    return static_cast<uint8_t>(is_finite(amax) ? code : (takes_infinity ? 254 : kE8m0Nan));
}

// multiply = 2^(127 - code), of which code 254's is subnormal and NaN's is NaN.
MP_HD_INLINE constexpr BlockScale scale_mx(const ScalePolicy& policy, float amax) {
    const uint8_t code = mx_code(policy, amax);
    const auto mirrored = static_cast<uint8_t>(code == kE8m0Nan ? kE8m0Nan : 254 - code);
    return {e8m0_to_float(mirrored), e8m0_to_float(code)};
}

// NVFP4's scale of the tensor: its largest element gets the largest scale and the largest code.
MP_HD_INLINE constexpr float nvfp4_encode(float tensor_amax, float max_code) {
    const float quotient = at_most(kE4m3Max * max_code / tensor_amax, 0x1.fffffep+127F);
    return is_finite(tensor_amax) && tensor_amax > 0.0F ? quotient : 1.0F;
}

// The block's scale before it is rounded to E4M3, maybe down, so that the largest element saturates; and what follows from it.
// Blocks that are not finite get the scale NaN: E2M1 has neither NaN nor infinity.
MP_HD_INLINE constexpr float nvfp4_exact(const ScalePolicy& policy, float encode, float amax) {
    return amax * (encode * (1.0F / policy.max_code));
}
MP_HD_INLINE constexpr BlockScale nvfp4_of(float scale, float encode, float amax) {
    const float multiply = at_most(1.0F / (scale * (1.0F / encode)), 0x1.fffffep+127F);
    const float nan = float_from_bits(kFloatQuietNan);
    return is_finite(amax) ? BlockScale{multiply, scale} : BlockScale{nan, nan};
}
MP_HD_INLINE constexpr BlockScale scale_nvfp4(const ScalePolicy& policy, float amax,
                                              float tensor_amax) {
    const float encode = nvfp4_encode(tensor_amax, policy.max_code);
    const uint8_t code = float_to_e4m3_sat(nvfp4_exact(policy, encode, amax));
    return nvfp4_of(e4m3_to_float(code), encode, amax);
}

} // namespace detail

// amax: of the block, not negative. previous_inv: the scale_inv it had, for rules that keep it.
// tensor_amax: nvfp4's.
MP_HD_INLINE constexpr BlockScale block_scale(const ScalePolicy& policy, float amax,
                                              float previous_inv, float tensor_amax) {
    amax = detail::at_least(amax, policy.epsilon);
    switch (policy.rule) {
    case ScaleRule::current:
        break;
    case ScaleRule::float64:
        return detail::scale_float64(policy, amax);
    case ScaleRule::msamp:
        return detail::scale_msamp(policy, amax, previous_inv);
    case ScaleRule::deepseek:
        return detail::scale_deepseek(policy, amax);
    case ScaleRule::mx_rceil:
    case ScaleRule::mx_floor:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_even:
        return detail::scale_mx(policy, amax);
    case ScaleRule::nvfp4:
        return detail::scale_nvfp4(policy, amax, tensor_amax);
    }
    return detail::scale_current(policy, amax);
}

// The bits of an amax that more numbers are to enter; a negative one is the mark of none.
MP_HD_INLINE uint32_t amax_so_far(float amax) {
    const uint32_t bits = bits_from_float(amax);
    return bits > kFloatMagnitudeMask ? 0 : bits;
}

// A given amax as a rule takes it: not negative.
MP_HD_INLINE float given_magnitude(const float* amax) {
    return float_from_bits(bits_from_float(*amax) & kFloatMagnitudeMask);
}

// What NVFP4's block scales are multiplied by besides: value = code * (scale * nvfp4_decode(amax)).
MP_HD_INLINE constexpr float nvfp4_decode(float tensor_amax) {
    return 1.0F / detail::nvfp4_encode(tensor_amax, 6.0F);
}

} // namespace mp::numerics
