// SPDX-License-Identifier: Apache-2.0
// scale_columns as a Kokkos kernel.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/magnitude.hpp"

namespace mp::kernels {

// A thread has kEach rows of one column, so that it divides once for them; its neighbours have the columns beside it.
struct ScaleColumns {
    static constexpr int kEach = 8;

    ScaleColumnsDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t item) const {
        const int64_t column = item % op.columns;
        const int64_t first = item / op.columns * kEach * op.columns + column;
        const Tile<kEach> tile{first, op.columns, op.rows * op.columns};
        float x[kEach];
        load_tile(op.source, tile, x);
        const float factor =
            numerics::quotient_or_zero(load_element(op.magnitude, column), op.norm[column]);
        tile.for_each([&](int j, int64_t /*i*/) { x[j] = x[j] * factor; });
        if (op.bias.dtype != DType::none) {
            const float bias = load_element(op.bias, column);
            tile.for_each([&](int j, int64_t /*i*/) { x[j] = x[j] + bias; });
        }
        store_tile(op.destination, tile,
                   [&](const auto& to, int j, int64_t i) { to.store(i, x[j]); });
    }
};

template <class Exec> void scale_columns(const Exec& exec, const ScaleColumnsDesc& op) {
    for_each(exec, "mp::scale_cols", divide_up(op.rows, ScaleColumns::kEach) * op.columns,
             ScaleColumns{op});
}

} // namespace mp::kernels
