// SPDX-License-Identifier: Apache-2.0
// First values of parameters: constant, uniform or normal. Each follows from (seed, uid, element) alone, by IEEE operations that
// round alike everywhere: the same bits on every processor, and for any cut between ranks.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/philox.hpp"

namespace mp::numerics {

// The numbers of MP_INIT_*.
enum class InitKind : int32_t { constant = 0, uniform = 1, normal = 2 };

struct InitRule {
    InitKind kind = InitKind::constant;
    double a = 0.0; // the constant, the lower bound, the mean
    double b = 0.0; // the upper bound, the standard deviation
};

namespace detail {

template <int Count> double polynomial(const double (&coefficients)[Count], double x) noexcept {
    double sum = coefficients[0];
    for (int i = 1; i < Count; ++i) {
        sum = sum * x + coefficients[i];
    }
    return sum;
}

// Of a positive normal number: 2 atanh((m - 1) / (m + 1)) as its series, for m in [sqrt(1/2), sqrt(2)). No C library's bits.
inline double natural_log(double x) noexcept {
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr double kSqrtHalf = 0.707106781186547524401;
    int exponent = 0;
    double m = std::frexp(x, &exponent);
    if (m < kSqrtHalf) {
        m *= 2.0;
        --exponent;
    }
    const double s = (m - 1.0) / (m + 1.0);
    constexpr double kSeries[] = {1.0 / 23.0, 1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0,
                                  1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0,
                                  1.0 / 7.0,  1.0 / 5.0,  1.0 / 3.0,  1.0}; // next: below 1e-20
    return 2.0 * s * polynomial(kSeries, s * s) + exponent * kLn2;
}

} // namespace detail

// z with P(normal < z) = p, for p in (0, 1): M. J. Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988). Relative
// error about 1e-15.
inline double normal_quantile(double p) noexcept {
    constexpr double kNear[2][8] = {
        {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
         13731.693765509461125, 1971.5909503065514427, 133.14166789178437745,
         3.3871328727963666080},
        {5226.4952788528545610, 28729.085735721942674, 39307.895800092710610, 21213.794301586595867,
         5394.1960214247511077, 687.18700749205790830, 42.313330701600911252, 1.0}};
    constexpr double kTail[2][8] = {
        {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
         1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
         4.63033784615654529590, 1.42343711074968357734},
        {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
         1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
         2.05319162663775882187, 1.0}};
    const double q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * detail::polynomial(kNear[0], r) / detail::polynomial(kNear[1], r);
    }
    // 5 ends the range of these coefficients: p is 2^-33 at least, where this is 4.8.
    const double r = std::sqrt(-detail::natural_log(q < 0.0 ? p : 1.0 - p)) - 1.6;
    const double z = detail::polynomial(kTail[0], r) / detail::polynomial(kTail[1], r);
    return q < 0.0 ? -z : z;
}

// From 32 random bits, whose middle of an interval is u in (0, 1). Rounded once, to nearest.
inline float first_value(const InitRule& rule, uint32_t bits) noexcept {
    const double u = (static_cast<double>(bits) + 0.5) * 0x1p-32;
    switch (rule.kind) {
    case InitKind::uniform:
        return static_cast<float>(rule.a + (rule.b - rule.a) * u);
    case InitKind::normal:
        return static_cast<float>(rule.a + rule.b * normal_quantile(u));
    case InitKind::constant:
        break;
    }
    return static_cast<float>(rule.a);
}

// Elements [first, first + count) of the parameter `uid`.
inline void first_values(const InitRule& rule, uint64_t seed, uint64_t uid, int64_t first,
                         int64_t count, float* values) noexcept {
    const SrKey key = make_sr_key(seed, uid, 0);
    Philox4x32 high{};
    Philox4x32 low{};
    for (int64_t i = 0; i < count; ++i) {
        const auto element = static_cast<uint64_t>(first + i);
        const auto lane = static_cast<uint32_t>(element & 7U);
        if (rule.kind != InitKind::constant && (i == 0 || lane == 0)) {
            high = sr_block(key, Purpose::init, element >> 3U);
            low = sr_block_low(key, Purpose::init, element >> 3U);
        }
        values[i] = first_value(rule, sr_bits32(high, low, lane));
    }
}

} // namespace mp::numerics
