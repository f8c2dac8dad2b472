// SPDX-License-Identifier: Apache-2.0
// Which roundings of a step are stochastic, and the random bits for a tile of it.
#pragma once

#include "device/ops.hpp"
#include "host/kernels/random_bits.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// A bit for the parameter and one for each state.
enum StochasticFlags : uint32_t {
    kSrNone = 0,
    kSrParam = 1,
    kSrState0 = 2,
    kSrState1 = 4 /* and so on */
};
MP_ISA_INLINE constexpr uint32_t state_flag(int k) { return uint32_t{kSrState0} << k; }

// Nothing is rounded into fp32.
MP_ISA_INLINE uint32_t stochastic_flags(const OptimizerUpdateDesc& op, const UpdateSegment& s) {
    uint32_t flags = op.stochastic_param && s.param.dtype != DType::fp32 ? kSrParam : kSrNone;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if (op.stochastic_states[k] && s.states[k].exists() && s.states[k].dtype != DType::fp32) {
            flags |= state_flag(k);
        }
    }
    return flags;
}

// What all tiles of one job have in common.
struct UpdateContext {
    const UpdateSegment* segment;
    const numerics::GroupScalars* scalars;
    numerics::SrKey key;
    uint32_t stochastic;
    bool stream_param;
    const UpdateScaling* scaling; // never null; read for arrays with a scale only
};

// One set for each kind of rounding; only those in use are filled.
struct UpdateBits {
    TileBits param;
    TileBits states[numerics::kMaxStates];
};

template <class Rule>
MP_ISA_INLINE void fill_bits(const UpdateContext& c, int64_t index, int n, UpdateBits& bits) {
    const UpdateSegment& s = *c.segment;
    const int64_t element = s.first + index;
    if ((c.stochastic & kSrParam) != 0) {
        random_tile(s.param.dtype, c.key, numerics::Purpose::param, element, n, bits.param);
    }
    for (int k = 0; k < Rule::kStateCount; ++k) {
        if ((c.stochastic & state_flag(k)) != 0) {
            random_tile(s.states[k].dtype, c.key, numerics::state_purpose(k), element, n,
                        bits.states[k]);
        }
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
