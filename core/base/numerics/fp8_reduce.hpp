// SPDX-License-Identifier: Apache-2.0
// The scale that ranks share for E4M3 gradients, and MS-AMP's factor mu that keeps their sum inside the format. FP8-LM,
// equations 1 to 6, with three repairs: mu is applied after the scale has been found, its effect is rounded down to a power of
// two so that it costs no exactness, and what counts are elements that had to be clipped, not those that are the largest
// code, of which one in a small tensor is forgiven.
#pragma once

#include <cstdint>

#include "numerics/fp8.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::numerics {

inline constexpr float kLargestMu = 2.0F;
inline constexpr float kSmallestMu = 0x1p-16F;
inline constexpr double kClippedShare = 1e-5;
inline constexpr double kMuGrowth = 1.0006933874625807; // 2^(1/1000): mu doubles in 1000 steps

MP_HD_INLINE bool is_mu(float mu) { return mu >= kSmallestMu && mu <= kLargestMu; }

// Whether so many clipped elements among `count` reduced ones are too many.
MP_HD_INLINE bool mu_trips(int64_t clipped, int64_t count) {
    const double share = kClippedShare * static_cast<double>(count);
    return static_cast<double>(clipped) > (share > 1.0 ? share : 1.0);
}

// mu for the next step. A tensor whose amax was not finite keeps its mu: do not call.
MP_HD_INLINE float next_mu(float mu, int64_t clipped, int64_t count) {
    const auto grown = static_cast<float>(static_cast<double>(mu) * kMuGrowth);
    const float next = mu_trips(clipped, count) ? 0.5F * mu : grown;
    return next > kLargestMu ? kLargestMu : (next < kSmallestMu ? kSmallestMu : next);
}

// What all ranks quantize a gradient with: MS-AMP's rule, with room for the sum by mu rounded down to a power of two.
MP_HD_INLINE ScalePolicy shared_gradient_policy(float mu) {
    ScalePolicy policy = scale_policy(ScaleRule::msamp, DType::fp8_e4m3);
    policy.max_code *= float_from_bits(bits_from_float(mu) & kFloatInfinity);
    return policy;
}

// Its scale for the largest amax of all ranks (the same as the smallest of their scales). `previous`, a scale_inv, is kept where
// that amax is 0 or not finite.
MP_HD_INLINE BlockScale shared_gradient_scale(float amax_over_ranks, float mu, float previous) {
    return block_scale(shared_gradient_policy(mu), amax_over_ranks, previous, 0.0F);
}

} // namespace mp::numerics
