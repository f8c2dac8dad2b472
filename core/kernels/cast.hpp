// SPDX-License-Identifier: Apache-2.0
// cast as a Kokkos kernel.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

struct CastElements {
    CastDesc op;
    numerics::SrKey key;

    // fp32 has no limit.
    KOKKOS_INLINE_FUNCTION float clamped(float x, DType to) const {
        if (!op.rounding.stochastic || !op.saturate || to == DType::fp32) {
            return x;
        }
        return numerics::clamp_to_finite(x, max_finite(to));
    }

    KOKKOS_INLINE_FUNCTION void tile(const RangeTile& tile) const {
        float x[kEachOfRange];
        load_tile(op.source, tile, x);
        const TileRounding<kEachOfRange> roundings(op.destination.dtype, op.rounding.stochastic,
                                                   key, numerics::Purpose::cast,
                                                   op.rounding.first_element, tile);
        store_tile(op.destination, tile, [&](const auto& to, int j, int64_t i) {
            ElementRounding rounding = roundings.of(j);
            rounding.saturate = op.saturate;
            rounding.overflows = !op.saturate;
            to.store(i, clamped(x[j], to.kDType), rounding);
        });
    }
};

template <class Exec> void cast(const Exec& exec, const CastDesc& op) {
    for_each_tile(exec, "mp::cast", op.destination.count, CastElements{op, op.rounding.key()});
}

} // namespace mp::kernels
