// SPDX-License-Identifier: Apache-2.0
// cast as a Kokkos kernel.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

struct CastElements {
    CastDesc op;
    numerics::SrKey key;

    // Saturation before stochastic rounding; NaN passes, and fp32 has no limit.
    KOKKOS_INLINE_FUNCTION float clamped(float x) const {
        const DType to = op.destination.dtype;
        const float limit = max_finite(to);
        if (!op.stochastic || !op.saturate || to == DType::fp32) {
            return x;
        }
        return x > limit ? limit : (x < -limit ? -limit : x);
    }

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const DType to = op.destination.dtype;
        const float x = load_element(op.source.dtype, op.source.data, i);
        ElementRounding rounding =
            element_rounding(to, op.stochastic, key, numerics::Purpose::cast, op.first_element + i);
        rounding.saturate = op.saturate;
        rounding.overflows = !op.saturate;
        store_element(to, op.destination.data, i, clamped(x), rounding);
    }
};

template <class Exec> void cast(const Exec& exec, const CastDesc& op) {
    for_each(exec, "mp::cast", op.destination.count,
             CastElements{op, numerics::make_sr_key(op.seed, op.uid, op.step)});
}

} // namespace mp::kernels
