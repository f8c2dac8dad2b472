// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step where everything is bf16, or all but gradients in fp32, as ranks' sums are: the rows of
// update_rows.def. Same bits as the generic kernel, in a good half of its instructions; with 14 to 20 bytes an element the
// step is bound by these and not by memory.
#pragma once

#include "device/ops.hpp"
#include "host/kernels/bf16_pair.hpp"
#include "host/kernels/update_loop.hpp"
#include "host/kernels/update_rounding.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The n elements at hand, and pairs of random bits where rounding is stochastic.
struct UpdatePairs {
    void* param;
    const void* grad;
    void* states[numerics::kMaxStates];
    void* compensation;
    const uint16_t* param_bits;
    const uint16_t* state_bits[numerics::kMaxStates];
};

template <bool kStochastic> MP_ISA_INLINE uint32_t round_bf16(float x, uint32_t r16) {
    return kStochastic ? bf16_pattern_sr(x, r16) : bf16_pattern(x);
}

// One element of a pair: values in fp32, and the patterns that they become.
struct Bf16Element {
    float p, g, c;
    float x[numerics::kMaxStates];
    uint32_t p_pattern, c_pattern;
    uint32_t x_pattern[numerics::kMaxStates];
};

template <class Rule, bool kCompensated, uint32_t kSr>
MP_ISA_INLINE void update_bf16(const typename Rule::Scalars& k, float grad_mul, Bf16Element& e,
                               uint32_t p_bits, const uint32_t (&x_bits)[numerics::kMaxStates]) {
    constexpr bool kSrP = (kSr & kSrParam) != 0;
    const float delta = Rule::delta(k, e.p, e.g * grad_mul, e.x);
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
    }
    numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
        constexpr int kState = decltype(state)::kIndex;
        e.x_pattern[kState] =
            round_bf16<(kSr & state_flag(kState)) != 0>(e.x[kState], x_bits[kState]);
    });
}

MP_ISA_INLINE uint32_t even_bits(uint32_t pair) { return pair & 0xffffU; }
MP_ISA_INLINE uint32_t odd_bits(uint32_t pair) { return pair >> 16; }

struct GradPair {
    float even, odd;
};
template <DType kGrad> MP_ISA_INLINE GradPair grad_pair(const void* grad, int i) {
    if constexpr (kGrad == DType::fp32) {
        const FloatInMemory* from = static_cast<const FloatInMemory*>(grad);
        return {from[2 * i], from[2 * i + 1]};
    } else {
        const uint32_t pair = static_cast<const Bf16Pair*>(grad)[i];
        return {even_of(pair), odd_of(pair)};
    }
}

template <class Rule, bool kCompensated, uint32_t kSr, DType kGrad>
MP_ISA_INLINE void update_pairs(const UpdatePairs& s, const numerics::GroupScalars& group,
                                int pairs) {
    const typename Rule::Scalars k = group.as<Rule>();
    const float grad_mul = group.grad_mul;
    Bf16Pair* param = static_cast<Bf16Pair*>(s.param);
    Bf16Pair* compensation = static_cast<Bf16Pair*>(s.compensation);
    const Bf16Pair* param_bits = reinterpret_cast<const Bf16Pair*>(s.param_bits);
    const UpdatePairs at = s;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < pairs; ++i) {
        const uint32_t p = param[i];
        const GradPair g = grad_pair<kGrad>(at.grad, i);
        const uint32_t c = kCompensated ? compensation[i] : 0U;
        const uint32_t rp = (kSr & kSrParam) != 0 ? param_bits[i] : 0U;
        Bf16Element even = {even_of(p), g.even, even_of(c), {}, 0, 0, {}};
        Bf16Element odd = {odd_of(p), g.odd, odd_of(c), {}, 0, 0, {}};
        uint32_t even_random[numerics::kMaxStates] = {};
        uint32_t odd_random[numerics::kMaxStates] = {};
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            constexpr int kState = decltype(state)::kIndex;
            const uint32_t x = static_cast<const Bf16Pair*>(at.states[kState])[i];
            even.x[kState] = even_of(x);
            odd.x[kState] = odd_of(x);
            if constexpr ((kSr & state_flag(kState)) != 0) {
                const uint32_t r = reinterpret_cast<const Bf16Pair*>(at.state_bits[kState])[i];
                even_random[kState] = even_bits(r);
                odd_random[kState] = odd_bits(r);
            }
        });
        update_bf16<Rule, kCompensated, kSr>(k, grad_mul, even, even_bits(rp), even_random);
        update_bf16<Rule, kCompensated, kSr>(k, grad_mul, odd, odd_bits(rp), odd_random);
        param[i] = join(even.p_pattern, odd.p_pattern);
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            constexpr int kState = decltype(state)::kIndex;
            static_cast<Bf16Pair*>(at.states[kState])[i] =
                join(even.x_pattern[kState], odd.x_pattern[kState]);
        });
        if constexpr (kCompensated) {
            compensation[i] = join(even.c_pattern, odd.c_pattern);
        }
    }
}

// The element after the last pair.
template <class Rule, bool kCompensated, uint32_t kSr, DType kGrad>
MP_ISA_INLINE void update_last(const UpdatePairs& s, const numerics::GroupScalars& group, int i) {
    using Memory = InMemory<DType::bf16>::type;
    const auto value = [i](const void* data) {
        return odd_of(static_cast<uint32_t>(static_cast<const Memory*>(data)[i]) << 16);
    };
    const auto store = [i](void* data, uint32_t pattern) {
        static_cast<Memory*>(data)[i] = static_cast<uint16_t>(pattern >> 16);
    };
    const auto bits = [i](const uint16_t* all) { return all != nullptr ? all[i] : 0U; };
    Bf16Element e = {};
    e.p = value(s.param);
    e.g = kGrad == DType::fp32 ? static_cast<const FloatInMemory*>(s.grad)[i] : value(s.grad);
    e.c = kCompensated ? value(s.compensation) : 0.0F;
    load_states<Rule>([&](int j) { return value(s.states[j]); }, e.x);
    uint32_t random[numerics::kMaxStates];
    for (int j = 0; j < numerics::kMaxStates; ++j) {
        random[j] = bits(s.state_bits[j]);
    }
    update_bf16<Rule, kCompensated, kSr>(group.as<Rule>(), group.grad_mul, e, bits(s.param_bits),
                                         random);
    store(s.param, e.p_pattern);
    for (int j = 0; j < Rule::kStateCount; ++j) {
        store(s.states[j], e.x_pattern[j]);
    }
    if constexpr (kCompensated) {
        store(s.compensation, e.c_pattern);
    }
}

template <class Rule, bool kCompensated, uint32_t kSr, DType kGrad>
MP_ISA_FUNCTION void update_pairs_tile(const UpdatePairs& s, const numerics::GroupScalars& group,
                                       int n) {
    if (n == kTile) {
        update_pairs<Rule, kCompensated, kSr, kGrad>(s, group, kTile / 2);
        return;
    }
    update_pairs<Rule, kCompensated, kSr, kGrad>(s, group, n / 2);
    if (n % 2 != 0) {
        update_last<Rule, kCompensated, kSr, kGrad>(s, group, n - 1);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
