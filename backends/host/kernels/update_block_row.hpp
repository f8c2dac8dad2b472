// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step where all states are in blocks of one coding and the parameter has neither a master nor a
// compensation: block by block, so that the update, which waits for square roots and divisions, also widens, narrows
// and takes the maxima. Same bits as the generic kernel.
#pragma once

#include "host/kernels/update_formats.hpp"
#include "host/kernels/update_loop.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The codings with such a loop; in smaller blocks it would not pay.
using RowCodings =
    FormatSet<FormatId::block, FormatId::dynamic8, FormatId::dynamic4, FormatId::block128>;

// The largest magnitudes of a block's new states, as patterns.
struct BlockMaxima {
    int32_t states[numerics::kMaxStates];
};

template <class Rule, DType kDType> struct BlockRow {
    using Memory = typename InMemory<kDType>::type;
    using StateTiles = float[numerics::kMaxStates][kTile];

    explicit MP_ISA_INLINE BlockRow(const UpdateContext& /*c*/) {}

    static MP_ISA_INLINE float load(const Memory& from) {
        return numerics::Codec<kDType>::load(from);
    }

    static MP_ISA_INLINE void store(float x, Memory& to) {
        if constexpr (kDType == DType::bf16) {
            to = static_cast<uint16_t>(bf16_pattern(x) >> 16);
        } else {
            to = x;
        }
    }

    static MP_ISA_INLINE void raise(int32_t& largest, float x) {
        const auto bits =
            static_cast<int32_t>(numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
        largest = bits > largest ? bits : largest;
    }

    static MP_ISA_INLINE BlockMaxima update(const numerics::GroupScalars& group, Memory* param,
                                            const Memory* grad, StateTiles& states, int n) {
        const typename Rule::Scalars k = group.as<Rule>();
        const float grad_mul = group.grad_mul;
        BlockMaxima largest = {};
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            float x[numerics::kMaxStates];
            load_states<Rule>([&](int j) MP_INLINED { return states[j][i]; }, x);
            const float w = load(param[i]);
            store(w + Rule::delta(k, w, load(grad[i]) * grad_mul, x), param[i]);
            store_states<Rule>(
                [&](int j, float v) MP_INLINED {
                    states[j][i] = v;
                    raise(largest.states[j], v);
                },
                x);
        }
        return largest;
    }

    // Whole blocks have a constant count, for which the compiler makes a loop without remainder.
    static MP_ISA_FUNCTION BlockMaxima update_block(const numerics::GroupScalars& group,
                                                    void* param, const void* grad,
                                                    StateTiles& states, int n) {
        Memory* p = static_cast<Memory*>(param);
        const Memory* g = static_cast<const Memory*>(grad);
        return n == kTile ? update(group, p, g, states, kTile) : update(group, p, g, states, n);
    }

    template <Coding kCoding>
    static MP_ISA_INLINE void blocks(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        alignas(64) StateTiles states;
        constexpr auto kSize = static_cast<int>(block_size(kCoding));
        for (int first = 0; first < n; first += kSize) {
            const int count = min_int(n - first, kSize);
            const int64_t at = element + first;
            numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
                constexpr int kState = decltype(state)::kIndex;
                BlockTile<kCoding, numerics::is_signed_state<Rule>(kState)>::load(
                    s.states[kState], at, states[kState], count);
            });
            const BlockMaxima maxima = update_block(
                *c.scalars, element_address(s.param.data, kDType, at),
                element_address(static_cast<const void*>(s.grad.data), kDType, at), states, count);
            numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
                constexpr int kState = decltype(state)::kIndex;
                BlockTile<kCoding, numerics::is_signed_state<Rule>(kState)>::store_one(
                    s.states[kState], at, states[kState], count,
                    static_cast<uint32_t>(maxima.states[kState]));
            });
        }
    }

    static MP_ISA_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        RowCodings::visit(c.segment->states[0].format(), [&](auto format) MP_INLINED {
            blocks<decltype(format)::kCoding>(c, element, n);
        });
    }
};

// Arrays of this type with states in blocks of one coding, and nothing beside.
template <class Rule> MP_ISA_INLINE bool is_block_row(const UpdateContext& c, DType dtype) {
    const UpdateSegment& s = *c.segment;
    bool is_one = RowCodings::contains(s.states[0].format());
    for (int k = 1; k < Rule::kStateCount; ++k) {
        is_one = is_one && s.states[k].coding == s.states[0].coding;
    }
    return is_one && s.param.format() == format_id(dtype) && s.grad.format() == format_id(dtype) &&
           !s.master.exists() && !s.compensation.exists() && c.stochastic == kSrNone;
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
