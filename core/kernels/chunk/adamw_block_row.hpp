// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step where both moments are in blocks of one coding and the parameter has neither a master nor a
// compensation: block by block, so that the update, which waits for square roots and divisions, also widens, narrows
// and takes the maxima. Same bits as the generic kernel.
#pragma once

#include "kernels/chunk/adamw_scaled.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The largest magnitudes of a block's new moments, as patterns.
struct BlockMaxima {
    int32_t exp_avg;
    int32_t exp_avg_sq;
};

template <DType kDType> struct AdamwBlockRow {
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

    static MP_CHUNK_INLINE BlockMaxima update(const numerics::AdamwScalars& scalars, Memory* param,
                                              const Memory* grad, float* exp_avg, float* exp_avg_sq,
                                              int n) {
        const numerics::AdamwScalars k = scalars;
        BlockMaxima maxima = {0, 0};
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            float m = exp_avg[i];
            float v = exp_avg_sq[i];
            const float w = load(param[i]);
            store(w + numerics::adamw_delta(k, w, load(grad[i]), m, v), param[i]);
            exp_avg[i] = m;
            exp_avg_sq[i] = v;
            const auto m_bits =
                static_cast<int32_t>(numerics::bits_from_float(m) & numerics::kFloatMagnitudeMask);
            const auto v_bits =
                static_cast<int32_t>(numerics::bits_from_float(v) & numerics::kFloatMagnitudeMask);
            maxima.exp_avg = m_bits > maxima.exp_avg ? m_bits : maxima.exp_avg;
            maxima.exp_avg_sq = v_bits > maxima.exp_avg_sq ? v_bits : maxima.exp_avg_sq;
        }
        return maxima;
    }

    // Whole blocks have a constant count, for which the compiler makes a loop without remainder.
    static MP_CHUNK_FUNCTION BlockMaxima update_block(const numerics::AdamwScalars& scalars,
                                                      void* param, const void* grad, float* exp_avg,
                                                      float* exp_avg_sq, int n) {
        Memory* p = static_cast<Memory*>(param);
        const Memory* g = static_cast<const Memory*>(grad);
        return n == kTile ? update(scalars, p, g, exp_avg, exp_avg_sq, kTile)
                          : update(scalars, p, g, exp_avg, exp_avg_sq, n);
    }

    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        const AdamwSegment& s = *c.segment;
        const MomentArray m = exp_avg_of(s);
        const MomentArray v = exp_avg_sq_of(s);
        alignas(64) float exp_avg[kTile];
        alignas(64) float exp_avg_sq[kTile];
        const auto size = static_cast<int>(block_size(m.coding));
        for (int first = 0; first < n; first += size) {
            const int count = min_int(n - first, size);
            const int64_t at = element + first;
            load_blocks(m, at, exp_avg, count);
            load_blocks(v, at, exp_avg_sq, count);
            const BlockMaxima maxima =
                update_block(*c.scalars, element_address(s.param, kDType, at),
                             element_address(static_cast<const void*>(s.grad), kDType, at), exp_avg,
                             exp_avg_sq, count);
            store(m, at, exp_avg, count, maxima.exp_avg);
            store(v, at, exp_avg_sq, count, maxima.exp_avg_sq);
        }
    }

    static MP_CHUNK_INLINE void store(const MomentArray& a, int64_t at, float* values, int n,
                                      int32_t amax) {
        for_each_block(a, at, n, [&](int, int count, uint8_t* codes, float* scale) {
            store_block(a, values, static_cast<uint32_t>(amax), codes, scale, count, nullptr);
        });
    }
};

// Arrays of this type with moments in blocks of one coding, and nothing beside.
MP_CHUNK_INLINE bool is_block_row(const AdamwContext& c, DType dtype) {
    const AdamwSegment& s = *c.segment;
    return s.param_dtype == dtype && s.grad_dtype == dtype && has_blocks(s.exp_avg_coding) &&
           s.exp_avg_coding == s.exp_avg_sq_coding && s.master_dtype == DType::none &&
           s.compensation_dtype == DType::none && s.param_scale_inv == nullptr &&
           s.grad_scale_inv == nullptr && c.stochastic == kSrNone && c.scalars->l2 == 0.0F;
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
