// SPDX-License-Identifier: Apache-2.0
// The scales of an AdamW step with scaled states: from the maxima of its new values to what they
// are stored with. No Kokkos here: the reference uses the same rule.
#pragma once

#include "interface/ops.hpp"
#include "numerics/codec.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

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
MP_HD_INLINE void renew_scales(const AdamwSegment& s, AdamwScaling& scaling) {
    float weight = numerics::float_from_bits(scaling.weight_amax);
    if (s.master_scale_inv != nullptr) {
        scaling.master = renew_scale(weight, s.master_dtype, s.master_scale_inv);
        using Fp16 = numerics::Codec<DType::fp16>;
        weight =
            Fp16::load(Fp16::store(weight * scaling.master.multiply)) * scaling.master.scale_inv;
    }
    if (s.param_scale_inv != nullptr) {
        scaling.param = renew_scale(weight, s.param_dtype, s.param_scale_inv);
    }
    if (s.exp_avg_scale() != nullptr) {
        scaling.exp_avg = renew_scale(numerics::float_from_bits(scaling.exp_avg_amax),
                                      s.exp_avg_dtype, s.exp_avg_scale());
    }
    if (s.exp_avg_sq_scale() != nullptr) {
        scaling.exp_avg_sq = renew_scale(numerics::float_from_bits(scaling.exp_avg_sq_amax),
                                         s.exp_avg_sq_dtype, s.exp_avg_sq_scale());
    }
}

// After all codes are stored: until then the old scales are read.
MP_HD_INLINE void store_scales(const AdamwSegment& s, const AdamwScaling& scaling) {
    if (s.master_scale_inv != nullptr) {
        *s.master_scale_inv = scaling.master.scale_inv;
    }
    if (s.param_scale_inv != nullptr) {
        *s.param_scale_inv = scaling.param.scale_inv;
    }
    if (s.exp_avg_scale() != nullptr) {
        *s.exp_avg_scale() = scaling.exp_avg.scale_inv;
    }
    if (s.exp_avg_sq_scale() != nullptr) {
        *s.exp_avg_sq_scale() = scaling.exp_avg_sq.scale_inv;
    }
}

} // namespace mp::kernels
