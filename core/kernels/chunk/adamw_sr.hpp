// SPDX-License-Identifier: Apache-2.0
// Which roundings of an AdamW step are stochastic, and the random bits for a tile of it.
#pragma once

#include "interface/ops.hpp"
#include "kernels/chunk/random_bits.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

enum AdamwSr : uint32_t { kSrNone = 0, kSrParam = 1, kSrExpAvg = 2, kSrExpAvgSq = 4 };

// Nothing is rounded into fp32.
MP_CHUNK_INLINE uint32_t stochastic_flags(const AdamwDesc& op, const AdamwSegment& s) {
    return (op.stochastic_param && s.param_dtype != DType::fp32 ? kSrParam : 0U) |
           (op.stochastic_exp_avg && s.exp_avg_dtype != DType::fp32 ? kSrExpAvg : 0U) |
           (op.stochastic_exp_avg_sq && s.exp_avg_sq_dtype != DType::fp32 ? kSrExpAvgSq : 0U);
}

// What all tiles of one job have in common.
struct AdamwContext {
    const AdamwSegment* segment;
    const numerics::AdamwScalars* scalars;
    numerics::SrKey key;
    uint32_t stochastic;
    bool stream_param;
    const AdamwScaling* scaling; // never null; read for arrays with a scale only
};

// One set for each kind of rounding; only those in use are filled.
struct AdamwBits {
    TileBits param;
    TileBits exp_avg;
    TileBits exp_avg_sq;
};

MP_CHUNK_INLINE void fill_bits(const AdamwContext& c, int64_t index, int n, AdamwBits& bits) {
    const AdamwSegment& s = *c.segment;
    const int64_t element = s.first + index;
    if ((c.stochastic & kSrParam) != 0) {
        random_tile(s.param_dtype, c.key, numerics::Purpose::param, element, n, bits.param);
    }
    if ((c.stochastic & kSrExpAvg) != 0) {
        random_tile(s.exp_avg_dtype, c.key, numerics::Purpose::exp_avg, element, n, bits.exp_avg);
    }
    if ((c.stochastic & kSrExpAvgSq) != 0) {
        random_tile(s.exp_avg_sq_dtype, c.key, numerics::Purpose::exp_avg_sq, element, n,
                    bits.exp_avg_sq);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
