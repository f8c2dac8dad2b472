// SPDX-License-Identifier: Apache-2.0
// The loop of the fused AdamW step on fp32 streams: the arithmetic of numerics/adamw_update.hpp. A
// stream is either the caller's array itself or a tile that was widened to fp32 before and is
// rounded after.
#pragma once

#include "interface/ops.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The n elements at hand. `weight` is the master weight where there is one and the parameter
// otherwise. The bits are those for rounding the parameter, where that is stochastic.
struct AdamwStreams {
    FloatInMemory* weight;
    const FloatInMemory* grad;
    FloatInMemory* exp_avg;
    FloatInMemory* exp_avg_sq;
    FloatInMemory* compensation;
    const TileBits* param_bits;
};

// Which rule moves the parameter: numerics::adamw_delta or adam_delta.
enum class Decay { decoupled, l2 };

template <Decay kDecay>
MP_CHUNK_INLINE float delta_by(const numerics::AdamwScalars& k, float w, float g, float& m,
                               float& v) {
    if constexpr (kDecay == Decay::l2) {
        return numerics::adam_delta(k, w, g, m, v);
    } else {
        return numerics::adamw_delta(k, w, g, m, v);
    }
}

// The streams are different arrays, so no element depends on another.
template <Decay kDecay>
MP_CHUNK_INLINE void update_plain(const AdamwStreams& s, const numerics::AdamwScalars& scalars,
                                  int n) {
    const numerics::AdamwScalars k = scalars;
    FloatInMemory* weight = s.weight;
    const FloatInMemory* grad = s.grad;
    FloatInMemory* exp_avg = s.exp_avg;
    FloatInMemory* exp_avg_sq = s.exp_avg_sq;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float m = exp_avg[i];
        float v = exp_avg_sq[i];
        const float w = weight[i];
        weight[i] = w + delta_by<kDecay>(k, w, grad[i], m, v);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
    }
}

// With Kahan's compensation. kParam is the parameter's type, to which the sum is rounded here; what
// is written to `weight` is then representable, so rounding it once more changes nothing.
template <Decay kDecay, DType kParam, Rounding kRounding>
MP_CHUNK_INLINE void update_compensated(const AdamwStreams& s,
                                        const numerics::AdamwScalars& scalars, int n) {
    using Codec = numerics::Codec<kParam>;
    const numerics::AdamwScalars k = scalars;
    FloatInMemory* weight = s.weight;
    const FloatInMemory* grad = s.grad;
    FloatInMemory* exp_avg = s.exp_avg;
    FloatInMemory* exp_avg_sq = s.exp_avg_sq;
    FloatInMemory* compensation = s.compensation;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float m = exp_avg[i];
        float v = exp_avg_sq[i];
        const float w = weight[i];
        const float delta = delta_by<kDecay>(k, w, grad[i], m, v);
        uint32_t random = 0;
        if constexpr (kRounding == Rounding::stochastic) {
            random = random_of<kParam>(*s.param_bits, i);
        }
        float carry = compensation[i];
        weight[i] = numerics::compensated_add(w, delta, carry, [random](float x) {
            return Codec::load(round_one<Codec, kRounding>(x, random));
        });
        compensation[i] = carry;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
    }
}

// A whole tile has a constant count, for which the compiler makes a loop without remainder.
MP_CHUNK_FUNCTION inline void update_plain_tile(const AdamwStreams& s,
                                                const numerics::AdamwScalars& scalars, int n) {
    if (n == kTile) {
        update_plain<Decay::decoupled>(s, scalars, kTile);
    } else {
        update_plain<Decay::decoupled>(s, scalars, n);
    }
}

MP_CHUNK_FUNCTION inline void update_plain_l2_tile(const AdamwStreams& s,
                                                   const numerics::AdamwScalars& scalars, int n) {
    update_plain<Decay::l2>(s, scalars, n);
}

template <DType kParam, Rounding kRounding>
MP_CHUNK_FUNCTION void update_compensated_tile(const AdamwStreams& s,
                                               const numerics::AdamwScalars& scalars, int n) {
    update_compensated<Decay::decoupled, kParam, kRounding>(s, scalars, n);
}

template <DType kParam, Rounding kRounding>
MP_CHUNK_FUNCTION void update_compensated_l2_tile(const AdamwStreams& s,
                                                  const numerics::AdamwScalars& scalars, int n) {
    update_compensated<Decay::l2, kParam, kRounding>(s, scalars, n);
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
