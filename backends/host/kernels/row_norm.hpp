// SPDX-License-Identifier: Apache-2.0
// row_norm of some rows, in the lanes and the tree of RowNormDesc.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/magnitude.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The lanes in registers.
#if defined(__AVX512F__)
struct NormLanes {
    static constexpr int kWidth = 16;
    __m512 sums[numerics::kNormLanes / kWidth] = {};

    MP_ISA_INLINE void add(const FloatInMemory* x) {
#pragma GCC unroll 4
        for (int v = 0; v < numerics::kNormLanes / kWidth; ++v) {
            const __m512 values = _mm512_loadu_ps(x + v * kWidth);
            sums[v] = _mm512_fmadd_ps(values, values, sums[v]);
        }
    }
};
#elif defined(__AVX2__) && defined(__FMA__)
struct NormLanes {
    static constexpr int kWidth = 8;
    __m256 sums[numerics::kNormLanes / kWidth] = {};

    MP_ISA_INLINE void add(const FloatInMemory* x) {
#pragma GCC unroll 4
        for (int v = 0; v < numerics::kNormLanes / kWidth; ++v) {
            const __m256 values = load_eight(x + v * kWidth);
            sums[v] = _mm256_fmadd_ps(values, values, sums[v]);
        }
    }
};
#else
struct NormLanes {
    float sums[numerics::kNormLanes] = {};

    MP_ISA_INLINE void add(const FloatInMemory* x) {
        for (int l = 0; l < numerics::kNormLanes; ++l) {
            sums[l] = numerics::plus_square(sums[l], x[l]);
        }
    }
};
#endif

MP_ISA_INLINE float norm_of_row(const FloatInMemory* x, int64_t columns) {
    NormLanes in_registers;
    int64_t column = 0;
    for (; column + numerics::kNormLanes <= columns; column += numerics::kNormLanes) {
        in_registers.add(x + column);
    }
    float lanes[numerics::kNormLanes];
    __builtin_memcpy(lanes, in_registers.sums, sizeof(lanes));
    for (int l = 0; column < columns; ++column, ++l) {
        lanes[l] = numerics::plus_square(lanes[l], x[column]);
    }
    for (int leaves = numerics::kNormLanes; leaves > 1; leaves /= 2) {
        for (int i = 0; i < leaves / 2; ++i) {
            lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
        }
    }
    return __builtin_sqrtf(lanes[0]);
}

inline void row_norms(const RowNormDesc& op, int64_t first_row, int64_t rows) {
    const FloatInMemory* source = op.source;
    FloatInMemory* result = op.result;
    for (int64_t row = first_row; row < first_row + rows; ++row) {
        result[row] = norm_of_row(source + row * op.columns, op.columns);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
