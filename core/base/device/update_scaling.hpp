// SPDX-License-Identifier: Apache-2.0
// The scales of a step with scaled states: from the maxima of its new values to what they
// are stored with. No Kokkos here: the reference uses the same rule.
#pragma once

#include "device/ops.hpp"
#include "numerics/codec.hpp"
#include "numerics/scale_rules.hpp"

namespace mp {

// What is rounded to a code. E4M3 has no infinity and its stochastic rounding saturates, which
// would turn an infinity into a finite number unseen: it becomes the NaN instead.
MP_HD_INLINE float code_value(DType dtype, float x, float multiply) {
    const uint32_t u = numerics::bits_from_float(x * multiply);
    const bool is_lost =
        dtype == DType::fp8_e4m3 && (u & numerics::kFloatMagnitudeMask) == numerics::kFloatInfinity;
    return numerics::float_from_bits(
        numerics::select_u32(is_lost, u | numerics::kFloatQuietNan, u));
}

// A null scale_inv means that the array is not scaled.
MP_HD_INLINE float decoded(float code, const float* scale_inv) {
    return scale_inv != nullptr ? code * *scale_inv : code;
}

MP_HD_INLINE numerics::BlockScale renew_scale(float amax, DType dtype, const float* scale_inv) {
    return numerics::block_scale(numerics::scale_policy(numerics::ScaleRule::msamp, dtype), amax,
                                 *scale_inv, 0.0F);
}

// After the maxima are known. Rounding is monotone, so the largest stored master weight is the
// stored largest: the parameter's scale is that of an amax taken anew over the master weight.
MP_HD_INLINE void renew_scales(const UpdateSegment& s, UpdateScaling& scaling) {
    float weight = numerics::float_from_bits(scaling.weight_amax);
    if (s.master.scale_inv != nullptr) {
        scaling.master = renew_scale(weight, s.master.dtype, s.master.tensor_scale());
        using Fp16 = numerics::Codec<DType::fp16>;
        weight =
            Fp16::load(Fp16::store(weight * scaling.master.multiply)) * scaling.master.scale_inv;
    }
    if (s.param.scale_inv != nullptr) {
        scaling.param = renew_scale(weight, s.param.dtype, s.param.tensor_scale());
    }
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if (s.states[k].tensor_scale() != nullptr) {
            scaling.states[k] = renew_scale(numerics::float_from_bits(scaling.state_amax[k]),
                                            s.states[k].dtype, s.states[k].tensor_scale());
        }
    }
}

// After all codes are stored: until then the old scales are read.
MP_HD_INLINE void store_scales(const UpdateSegment& s, const UpdateScaling& scaling) {
    if (s.master.scale_inv != nullptr) {
        *s.master.tensor_scale() = scaling.master.scale_inv;
    }
    if (s.param.scale_inv != nullptr) {
        *s.param.tensor_scale() = scaling.param.scale_inv;
    }
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if (s.states[k].tensor_scale() != nullptr) {
            *s.states[k].tensor_scale() = scaling.states[k].scale_inv;
        }
    }
}

} // namespace mp
