// SPDX-License-Identifier: Apache-2.0
// The loop of the fused optimizer step on fp32 streams: the arithmetic of a rule (numerics/rules.hpp). A stream is either
// the caller's array itself or a tile that was widened to fp32 before and is rounded after.
#pragma once

#include "device/ops.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The n elements at hand. `weight` is the master weight where there is one and the parameter
// otherwise. The bits are those for rounding the parameter, where that is stochastic.
struct UpdateStreams {
    FloatInMemory* weight;
    const FloatInMemory* grad;
    FloatInMemory* states[numerics::kMaxStates];
    FloatInMemory* compensation;
    const TileBits* param_bits;
};

// A rule's states of one element. Without a loop, which would have to go before the outer one becomes vectors.
template <class Rule, class From>
MP_ISA_INLINE void load_states(const From& load, float (&x)[numerics::kMaxStates]) {
    numerics::for_each_state<Rule>(
        [&](auto state) MP_INLINED { x[decltype(state)::kIndex] = load(decltype(state)::kIndex); });
}
template <class Rule, class To>
MP_ISA_INLINE void store_states(const To& store, const float (&x)[numerics::kMaxStates]) {
    numerics::for_each_state<Rule>(
        [&](auto state) MP_INLINED { store(decltype(state)::kIndex, x[decltype(state)::kIndex]); });
}

// The streams are different arrays, so no element depends on another.
template <class Rule>
MP_ISA_INLINE void update_plain(const UpdateStreams& s, const numerics::GroupScalars& group,
                                int n) {
    const typename Rule::Scalars k = group.as<Rule>();
    const float grad_mul = group.grad_mul;
    const UpdateStreams at = s;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float x[numerics::kMaxStates];
        load_states<Rule>([&](int j) MP_INLINED { return at.states[j][i]; }, x);
        const float w = at.weight[i];
        at.weight[i] = w + Rule::delta(k, w, at.grad[i] * grad_mul, x);
        store_states<Rule>([&](int j, float v) MP_INLINED { at.states[j][i] = v; }, x);
    }
}

// With Kahan's compensation. kParam is the parameter's type, to which the sum is rounded here; what
// is written to `weight` is then representable, so rounding it once more changes nothing.
template <class Rule, DType kParam, numerics::Narrowing kRounding>
MP_ISA_INLINE void update_compensated(const UpdateStreams& s, const numerics::GroupScalars& group,
                                      int n) {
    using Codec = numerics::Codec<kParam>;
    const typename Rule::Scalars k = group.as<Rule>();
    const float grad_mul = group.grad_mul;
    const UpdateStreams at = s;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float x[numerics::kMaxStates];
        load_states<Rule>([&](int j) MP_INLINED { return at.states[j][i]; }, x);
        const float w = at.weight[i];
        const float delta = Rule::delta(k, w, at.grad[i] * grad_mul, x);
        uint32_t random = 0;
        if constexpr (kRounding == numerics::Narrowing::stochastic) {
            random = random_of<kParam>(*at.param_bits, i);
        }
        float carry = at.compensation[i];
        at.weight[i] = numerics::compensated_add(w, delta, carry, [random](float sum) {
            return Codec::load(round_one<Codec, kRounding>(sum, random));
        });
        at.compensation[i] = carry;
        store_states<Rule>([&](int j, float v) MP_INLINED { at.states[j][i] = v; }, x);
    }
}

// A whole tile has a constant count, for which the compiler makes a loop without remainder.
template <class Rule>
MP_ISA_FUNCTION void update_plain_tile(const UpdateStreams& s, const numerics::GroupScalars& group,
                                       int n) {
    if (n == kTile) {
        update_plain<Rule>(s, group, kTile);
    } else {
        update_plain<Rule>(s, group, n);
    }
}

template <class Rule, DType kParam, numerics::Narrowing kRounding>
MP_ISA_FUNCTION void update_compensated_tile(const UpdateStreams& s,
                                             const numerics::GroupScalars& group, int n) {
    update_compensated<Rule, kParam, kRounding>(s, group, n);
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
