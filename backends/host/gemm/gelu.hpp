// SPDX-License-Identifier: Apache-2.0
// GELU in its tanh form (D. Hendrycks, K. Gimpel: "Gaussian error linear units"), in fp32, without a
// branch or a library call, so that the compiler vectorizes it; the same bits for every vector width.
#pragma once

#include "host/kernels/base.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// e^x to about one unit in the last place for x in [-87, 88]; infinity above. x = n ln 2 + r with ln 2 in
// two parts (W. J. Cody, W. Waite: "Software manual for the elementary functions", chapter 6), and the
// Taylor series of e^r to r^7, whose rest is below 2^-27 for |r| <= ln(2) / 2.
MP_ISA_INLINE float exp_fp32(float x) {
    constexpr float kLog2E = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;
    constexpr float kLn2Low = -2.12194440e-4F;
    constexpr float kRound = 12582912.0F; // 1.5 * 2^23: adding it rounds to an integer
    float bounded = x < -87.0F ? -87.0F : x;
    bounded = bounded > 89.0F ? 89.0F : bounded;
    const float shifted = bounded * kLog2E + kRound;
    const float n = shifted - kRound;
    float r = bounded - n * kLn2High;
    r = r - n * kLn2Low;
    float sum = 1.0F / 5040.0F;
    sum = sum * r + 1.0F / 720.0F;
    sum = sum * r + 1.0F / 120.0F;
    sum = sum * r + 1.0F / 24.0F;
    sum = sum * r + 1.0F / 6.0F;
    sum = sum * r + 0.5F;
    sum = sum * r * r + r + 1.0F;
    // 2^n: the low bits of `shifted` are n. n is 128 at most, whose power is infinity.
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits + 127U) << 23;
    float power = 0.0F;
    __builtin_memcpy(&power, &bits, sizeof(power));
    return sum * power;
}

// 0.5 z (1 + tanh(u)) = z / (1 + e^(-2u)) with u = sqrt(2 / pi) (z + 0.044715 z^3).
MP_ISA_INLINE float gelu_fp32(float z) {
    constexpr float kMinusTwoSqrtTwoOverPi = -1.5957691216057308F;
    const float t = kMinusTwoSqrtTwoOverPi * z * (1.0F + 0.044715F * (z * z));
    return z * (1.0F / (1.0F + exp_fp32(t)));
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
