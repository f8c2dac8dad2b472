// SPDX-License-Identifier: Apache-2.0
// cast as a Kokkos kernel.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// From this many bytes on the output is written around the caches: it would not fit anyway.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

struct CastChunks {
    CastDesc op;
    TableOps ops;
    bool stream;

    void operator()(int64_t chunk) const {
        const int64_t start = chunk * kChunkElements;
        const int64_t left = op.destination.count - start;
        ops.table->cast({&op, start, left < kChunkElements ? left : kChunkElements, stream});
    }
};

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

template <class Exec, class Ops> void cast(const Exec& exec, const Ops& ops, const CastDesc& op) {
    const int64_t count = op.destination.count;
    if constexpr (kIsHost<Exec>) {
        const bool stream = count * dtype_size(op.destination.dtype) >= kStreamBytes;
        for_each(exec, "mp::cast", divide_up(count, kChunkElements), CastChunks{op, ops, stream});
    } else {
        const CastElements elements{op, numerics::make_sr_key(op.seed, op.uid, op.step)};
        for_each(exec, "mp::cast", count, elements);
    }
}

} // namespace mp::kernels
