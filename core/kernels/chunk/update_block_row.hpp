// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step where all states are in blocks of one coding and the parameter has neither a master nor a
// compensation: block by block, so that the update, which waits for square roots and divisions, also widens, narrows
// and takes the maxima. Same bits as the generic kernel.
#pragma once

#include "kernels/chunk/update_scaled.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The largest magnitudes of a block's new states, as patterns.
struct BlockMaxima {
    int32_t states[numerics::kMaxStates];
};

template <class Rule, DType kDType> struct BlockRow {
    using Memory = typename InMemory<kDType>::type;

    static MP_CHUNK_INLINE float load(const Memory& from) {
        return numerics::Codec<kDType>::load(from);
    }

    static MP_CHUNK_INLINE void store(float x, Memory& to) {
        if constexpr (kDType == DType::bf16) {
            to = static_cast<uint16_t>(bf16_pattern(x) >> 16);
        } else {
            to = x;
        }
    }

    static MP_CHUNK_INLINE void raise(int32_t& largest, float x) {
        const auto bits =
            static_cast<int32_t>(numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
        largest = bits > largest ? bits : largest;
    }

    static MP_CHUNK_INLINE BlockMaxima update(const numerics::GroupScalars& group, Memory* param,
                                              const Memory* grad, float* state0, float* state1,
                                              int n) {
        const typename Rule::Scalars k = group.as<Rule>();
        const float grad_mul = group.grad_mul;
        int32_t largest0 = 0;
        int32_t largest1 = 0;
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            float x[numerics::kMaxStates];
            x[0] = state0[i];
            if constexpr (Rule::kStateCount > 1) {
                x[1] = state1[i];
            }
            const float w = load(param[i]);
            store(w + Rule::delta(k, w, load(grad[i]) * grad_mul, x), param[i]);
            state0[i] = x[0];
            raise(largest0, x[0]);
            if constexpr (Rule::kStateCount > 1) {
                state1[i] = x[1];
                raise(largest1, x[1]);
            }
        }
        return {{largest0, largest1}};
    }

    // Whole blocks have a constant count, for which the compiler makes a loop without remainder.
    static MP_CHUNK_FUNCTION BlockMaxima update_block(const numerics::GroupScalars& group,
                                                      void* param, const void* grad, float* state0,
                                                      float* state1, int n) {
        Memory* p = static_cast<Memory*>(param);
        const Memory* g = static_cast<const Memory*>(grad);
        return n == kTile ? update(group, p, g, state0, state1, kTile)
                          : update(group, p, g, state0, state1, n);
    }

    static MP_CHUNK_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        alignas(64) float states[numerics::kMaxStates][kTile];
        const auto size = static_cast<int>(block_size(s.states[0].coding));
        for (int first = 0; first < n; first += size) {
            const int count = min_int(n - first, size);
            const int64_t at = element + first;
            for (int k = 0; k < Rule::kStateCount; ++k) {
                load_blocks(state_of<Rule>(s, k), at, states[k], count);
            }
            const BlockMaxima maxima =
                update_block(*c.scalars, element_address(s.param.data, kDType, at),
                             element_address(static_cast<const void*>(s.grad.data), kDType, at),
                             states[0], states[1], count);
            for (int k = 0; k < Rule::kStateCount; ++k) {
                store(state_of<Rule>(s, k), at, states[k], count, maxima.states[k]);
            }
        }
    }

    static MP_CHUNK_INLINE void store(const StateArray& a, int64_t at, float* values, int n,
                                      int32_t amax) {
        for_each_block(a, at, n, [&](int, int count, uint8_t* codes, float* scale) {
            store_block(a, values, static_cast<uint32_t>(amax), codes, scale, count, nullptr);
        });
    }
};

// Arrays of this type with states in blocks of one coding, and nothing beside.
template <class Rule> MP_CHUNK_INLINE bool is_block_row(const UpdateContext& c, DType dtype) {
    const UpdateSegment& s = *c.segment;
    bool is_one = has_blocks(s.states[0].coding);
    for (int k = 1; k < Rule::kStateCount; ++k) {
        is_one = is_one && s.states[k].coding == s.states[0].coding;
    }
    return is_one && s.param.dtype == dtype && s.grad.dtype == dtype && !s.master.exists() &&
           !s.compensation.exists() && s.param.scale_inv == nullptr &&
           s.grad.scale_inv == nullptr && c.stochastic == kSrNone;
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
