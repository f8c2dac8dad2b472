// SPDX-License-Identifier: Apache-2.0
// The loop of the fused AdamW step: the arithmetic of numerics/adamw_update.hpp on typed streams. A
// stream is either the caller's array itself or a tile that was widened to fp32 before and is
// rounded after.
#pragma once

#include "interface/ops.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

enum AdamwSr : uint32_t { kSrNone = 0, kSrParam = 1, kSrExpAvg = 2, kSrExpAvgSq = 4 };

// Where the n elements at hand are. Not all are set: param is not read beside a master weight.
struct AdamwStreams {
    void* param = nullptr;
    void* grad = nullptr;
    void* exp_avg = nullptr;
    void* exp_avg_sq = nullptr;
    void* compensation = nullptr;
    void* master = nullptr;
    const uint16_t* param_bits =
        nullptr; // the random bits' upper halves, where rounding is stochastic
    const uint16_t* param_low_bits = nullptr; // and the lower ones, only for an fp16 parameter
    const uint16_t* exp_avg_bits = nullptr;
    const uint16_t* exp_avg_sq_bits = nullptr;
};

// The types of the streams as the loop sees them; fp32 for a tile. kRounded is the parameter's own
// type, to which the compensated sum rounds even where the stream is a tile; kSr the roundings done
// in the loop.
template <DType kP, DType kG, DType kM, DType kV, DType kC, DType kW, DType kR, uint32_t kS>
struct AdamwLayout {
    static constexpr DType kParam = kP;
    static constexpr DType kGrad = kG;
    static constexpr DType kExpAvg = kM;
    static constexpr DType kExpAvgSq = kV;
    static constexpr DType kCompensation = kC;
    static constexpr DType kMaster = kW;
    static constexpr DType kRounded = kR;
    static constexpr uint32_t kSr = kS;
};

template <DType kDType> MP_CHUNK_INLINE float load_value(const void* data, int i) {
    return numerics::Codec<kDType>::load(
        static_cast<const typename InMemory<kDType>::type*>(data)[i]);
}

template <DType kDType, bool kStochastic>
MP_CHUNK_INLINE typename numerics::Codec<kDType>::storage round_value(float x, uint32_t bits) {
    return round_one < numerics::Codec<kDType>,
           kStochastic ? Rounding::stochastic : Rounding::nearest > (x, bits);
}

template <DType kDType, bool kStochastic>
MP_CHUNK_INLINE void store_value(void* data, int i, float x, const uint16_t* bits) {
    uint32_t random = 0;
    if constexpr (kStochastic) {
        random = static_cast<uint32_t>(bits[i]) << 16;
    }
    static_cast<typename InMemory<kDType>::type*>(data)[i] =
        round_value<kDType, kStochastic>(x, random);
}

// One element. Ends with the parameter stored as Layout::kParam.
template <class Layout>
MP_CHUNK_INLINE void update_value(const AdamwStreams& s, const numerics::AdamwScalars& scalars,
                                  int i) {
    constexpr bool kHasMaster = Layout::kMaster != DType::none;
    constexpr bool kHasCompensation = Layout::kCompensation != DType::none;
    constexpr bool kSrParamHere = (Layout::kSr & kSrParam) != 0;

    float weight = 0.0F;
    if constexpr (kHasMaster) {
        weight = load_value<Layout::kMaster>(s.master, i);
    } else {
        weight = load_value<Layout::kParam>(s.param, i);
    }
    float m = load_value<Layout::kExpAvg>(s.exp_avg, i);
    float v = load_value<Layout::kExpAvgSq>(s.exp_avg_sq, i);
    const float grad = load_value<Layout::kGrad>(s.grad, i);
    const float delta = numerics::adamw_delta(scalars, weight, grad, m, v);

    if constexpr (kHasCompensation) {
        uint32_t random = 0;
        if constexpr (kSrParamHere) {
            random = static_cast<uint32_t>(s.param_bits[i]) << 16;
            if constexpr (Layout::kRounded == DType::fp16) {
                random |= s.param_low_bits[i];
            }
        }
        float carry = load_value<Layout::kCompensation>(s.compensation, i);
        const float updated = numerics::compensated_add(weight, delta, carry, [random](float x) {
            return numerics::Codec<Layout::kRounded>::load(
                round_value<Layout::kRounded, kSrParamHere>(x, random));
        });
        // Representable, so this store rounds nothing.
        store_value<Layout::kParam, false>(s.param, i, updated, nullptr);
        store_value<Layout::kCompensation, false>(s.compensation, i, carry, nullptr);
    } else {
        const float updated = weight + delta;
        if constexpr (kHasMaster) {
            store_value<Layout::kMaster, false>(s.master, i, updated, nullptr);
        }
        store_value<Layout::kParam, kSrParamHere>(s.param, i, updated, s.param_bits);
    }
    store_value<Layout::kExpAvg, (Layout::kSr & kSrExpAvg) != 0>(s.exp_avg, i, m, s.exp_avg_bits);
    store_value<Layout::kExpAvgSq, (Layout::kSr & kSrExpAvgSq) != 0>(s.exp_avg_sq, i, v,
                                                                     s.exp_avg_sq_bits);
}

// The streams are different arrays, so no element depends on another.
template <class Layout>
MP_CHUNK_INLINE void update_values(const AdamwStreams& streams,
                                   const numerics::AdamwScalars& scalars, int n) {
    const AdamwStreams s = streams;
    const numerics::AdamwScalars k = scalars;
#pragma GCC ivdep
    for (int i = 0; i < n; ++i) {
        update_value<Layout>(s, k, i);
    }
}

// A whole tile has a constant count, for which the compiler makes a loop without remainder.
template <class Layout>
MP_CHUNK_FUNCTION void update_tile(const AdamwStreams& streams,
                                   const numerics::AdamwScalars& scalars, int n) {
    if (n == kTile) {
        update_values<Layout>(streams, scalars, kTile);
    } else {
        update_values<Layout>(streams, scalars, n);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
