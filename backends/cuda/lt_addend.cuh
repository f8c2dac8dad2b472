// SPDX-License-Identifier: Apache-2.0
// What one thread does: four elements of a row, written at once. Also compiled for the host, by tests.
#pragma once

#include "cuda/group.cuh"
#include "cuda/lt_addend.hpp"

namespace mp::backends::cuda {

inline constexpr int kAddends = 4; // of one store

MP_HD_INLINE int64_t addend_units(const AddendWork& work) {
    return work.rows * (work.padded_columns / kAddends);
}

MP_HD_INLINE void addend_thread(const AddendWork& work, int64_t thread, int64_t threads) {
    const int64_t units = addend_units(work);
    const int64_t row_units = work.padded_columns / kAddends;
    for (int64_t unit = thread; unit < units; unit += threads) {
        const int64_t row = unit / row_units;
        const int64_t column = unit % row_units * kAddends;
        auto sums = *reinterpret_cast<const detail::Word16*>(work.bias + column);
        MP_HD_UNROLL
        for (int i = 0; i < kAddends; ++i) {
            if (work.beta != 0.0F && column + i < work.columns) {
                const float old = work.beta * work.c[row * work.c_stride + column + i];
                sums.v[i] = numerics::bits_from_float(old + numerics::float_from_bits(sums.v[i]));
            }
        }
        *reinterpret_cast<detail::Word16*>(work.d + row * work.d_stride + column) = sums;
    }
}

} // namespace mp::backends::cuda
