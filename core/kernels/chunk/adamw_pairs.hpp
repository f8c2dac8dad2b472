// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step where everything is bf16: the rows of adamw_rows.def. Same bits as the
// generic kernel, in a good half of its instructions; with 14 or 18 bytes an element the step is
// bound by these and not by memory.
#pragma once

#include "interface/ops.hpp"
#include "kernels/chunk/adamw_sr.hpp"
#include "kernels/chunk/bf16_pair.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The n elements at hand, and pairs of random bits where rounding is stochastic.
struct AdamwPairs {
    void* param;
    const void* grad;
    void* exp_avg;
    void* exp_avg_sq;
    void* compensation;
    const uint16_t* param_bits;
    const uint16_t* exp_avg_bits;
    const uint16_t* exp_avg_sq_bits;
};

template <bool kStochastic> MP_CHUNK_INLINE uint32_t round_bf16(float x, uint32_t r16) {
    return kStochastic ? bf16_pattern_sr(x, r16) : bf16_pattern(x);
}

// One element of a pair: values in fp32, of which p, m, v and c become patterns.
struct AdamwBf16 {
    float p, g, m, v, c;
    uint32_t p_pattern, m_pattern, v_pattern, c_pattern;
};

template <bool kCompensated, uint32_t kSr>
MP_CHUNK_INLINE void update_bf16(const numerics::AdamwScalars& k, AdamwBf16& e, uint32_t p_bits,
                                 uint32_t m_bits, uint32_t v_bits) {
    constexpr bool kSrP = (kSr & kSrParam) != 0;
    const float delta = numerics::adamw_delta(k, e.p, e.g, e.m, e.v);
    if constexpr (kCompensated) {
        uint32_t pattern = 0;
        numerics::compensated_add(e.p, delta, e.c, [&pattern, p_bits](float x) {
            pattern = round_bf16<kSrP>(x, p_bits);
            return odd_of(pattern);
        });
        e.p_pattern = pattern;
        e.c_pattern = bf16_pattern(e.c);
    } else {
        e.p_pattern = round_bf16<kSrP>(e.p + delta, p_bits);
        e.c_pattern = 0;
    }
    e.m_pattern = round_bf16<(kSr & kSrExpAvg) != 0>(e.m, m_bits);
    e.v_pattern = round_bf16<(kSr & kSrExpAvgSq) != 0>(e.v, v_bits);
}

MP_CHUNK_INLINE uint32_t even_bits(uint32_t pair) { return pair & 0xffffU; }
MP_CHUNK_INLINE uint32_t odd_bits(uint32_t pair) { return pair >> 16; }

template <bool kCompensated, uint32_t kSr>
MP_CHUNK_INLINE void update_pairs(const AdamwPairs& s, const numerics::AdamwScalars& scalars,
                                  int pairs) {
    const numerics::AdamwScalars k = scalars;
    Bf16Pair* param = static_cast<Bf16Pair*>(s.param);
    const Bf16Pair* grad = static_cast<const Bf16Pair*>(s.grad);
    Bf16Pair* exp_avg = static_cast<Bf16Pair*>(s.exp_avg);
    Bf16Pair* exp_avg_sq = static_cast<Bf16Pair*>(s.exp_avg_sq);
    Bf16Pair* compensation = static_cast<Bf16Pair*>(s.compensation);
    const Bf16Pair* param_bits = reinterpret_cast<const Bf16Pair*>(s.param_bits);
    const Bf16Pair* exp_avg_bits = reinterpret_cast<const Bf16Pair*>(s.exp_avg_bits);
    const Bf16Pair* exp_avg_sq_bits = reinterpret_cast<const Bf16Pair*>(s.exp_avg_sq_bits);
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < pairs; ++i) {
        const uint32_t p = param[i];
        const uint32_t g = grad[i];
        const uint32_t m = exp_avg[i];
        const uint32_t v = exp_avg_sq[i];
        const uint32_t c = kCompensated ? compensation[i] : 0U;
        const uint32_t rp = (kSr & kSrParam) != 0 ? param_bits[i] : 0U;
        const uint32_t rm = (kSr & kSrExpAvg) != 0 ? exp_avg_bits[i] : 0U;
        const uint32_t rv = (kSr & kSrExpAvgSq) != 0 ? exp_avg_sq_bits[i] : 0U;
        AdamwBf16 even = {even_of(p), even_of(g), even_of(m), even_of(v), even_of(c), 0, 0, 0, 0};
        AdamwBf16 odd = {odd_of(p), odd_of(g), odd_of(m), odd_of(v), odd_of(c), 0, 0, 0, 0};
        update_bf16<kCompensated, kSr>(k, even, even_bits(rp), even_bits(rm), even_bits(rv));
        update_bf16<kCompensated, kSr>(k, odd, odd_bits(rp), odd_bits(rm), odd_bits(rv));
        param[i] = join(even.p_pattern, odd.p_pattern);
        exp_avg[i] = join(even.m_pattern, odd.m_pattern);
        exp_avg_sq[i] = join(even.v_pattern, odd.v_pattern);
        if constexpr (kCompensated) {
            compensation[i] = join(even.c_pattern, odd.c_pattern);
        }
    }
}

// The element after the last pair.
template <bool kCompensated, uint32_t kSr>
MP_CHUNK_INLINE void update_last(const AdamwPairs& s, const numerics::AdamwScalars& scalars,
                                 int i) {
    using Memory = InMemory<DType::bf16>::type;
    const auto pattern = [i](const void* data) {
        return static_cast<uint32_t>(static_cast<const Memory*>(data)[i]) << 16;
    };
    const auto store = [i](void* data, uint32_t value) {
        static_cast<Memory*>(data)[i] = static_cast<uint16_t>(value >> 16);
    };
    const auto bits = [i](const uint16_t* all) { return all != nullptr ? all[i] : 0U; };
    AdamwBf16 e = {odd_of(pattern(s.param)),
                   odd_of(pattern(s.grad)),
                   odd_of(pattern(s.exp_avg)),
                   odd_of(pattern(s.exp_avg_sq)),
                   kCompensated ? odd_of(pattern(s.compensation)) : 0.0F,
                   0,
                   0,
                   0,
                   0};
    update_bf16<kCompensated, kSr>(scalars, e, bits(s.param_bits), bits(s.exp_avg_bits),
                                   bits(s.exp_avg_sq_bits));
    store(s.param, e.p_pattern);
    store(s.exp_avg, e.m_pattern);
    store(s.exp_avg_sq, e.v_pattern);
    if constexpr (kCompensated) {
        store(s.compensation, e.c_pattern);
    }
}

template <bool kCompensated, uint32_t kSr>
MP_CHUNK_FUNCTION void update_pairs_tile(const AdamwPairs& s, const numerics::AdamwScalars& scalars,
                                         int n) {
    if (n == kTile) {
        update_pairs<kCompensated, kSr>(s, scalars, kTile / 2);
        return;
    }
    update_pairs<kCompensated, kSr>(s, scalars, n / 2);
    if (n % 2 != 0) {
        update_last<kCompensated, kSr>(s, scalars, n - 1);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
