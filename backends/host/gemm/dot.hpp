// SPDX-License-Identifier: Apache-2.0
// Rows of B in blocks times rows of A: decoded a tile at a time, rounded to A's type, summed in kChains chains.
#pragma once

#include "host/gemm/panels.hpp"
#include "host/kernels/blocks_vector.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Chains enough that no addition waits for the one before it. Every block has a multiple of so many elements.
inline constexpr int kChains = 32;
static_assert(kTile % kChains == 0);

// To the type's nearest numbers.
MP_ISA_INLINE void round_tile(DType dtype, float* values, int n) {
    if (dtype == DType::bf16) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = numerics::float_from_bits(bf16_pattern(values[i]) & 0xffff0000U);
        }
    } else if (dtype != DType::fp32) {
        alignas(64) uint16_t halves[kTile];
        narrow_tile<numerics::Narrowing::nearest>(dtype, values, halves, n, nullptr);
        widen_tile(dtype, halves, values, n);
    }
}

MP_ISA_INLINE void add_products(const float* values, const float* a, int n, float* chains) {
    for (int i = 0; i < n; i += kChains) {
        MP_ISA_INDEPENDENT
        for (int j = 0; j < kChains; ++j) {
#if defined(__FMA__)
            chains[j] = __builtin_fmaf(values[i + j], a[i + j], chains[j]);
#else
            chains[j] += values[i + j] * a[i + j];
#endif
        }
    }
}

// As a balanced tree.
MP_ISA_INLINE float sum_of(float* chains) {
    for (int half = kChains / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) {
            chains[j] += chains[j + half];
        }
    }
    return chains[0];
}

template <DType kDType>
MP_ISA_INLINE void dot_row(const DotJob& job, const uint8_t* from, float* out) {
    constexpr TypeBlock kBlock = type_block(kDType);
    alignas(64) float chains[kMostDotRows][kChains] = {};
    for (int64_t k = 0; k < job.k; k += kTile) {
        const int n = min_int(job.k - k, kTile);
        alignas(64) float values[kTile];
        for (int i = 0; i < n; i += static_cast<int>(kBlock.elements)) {
            widen_block<kDType>(from, values + i);
            from += kBlock.bytes;
        }
        round_tile(job.rounded_to, values, n);
        for (int64_t row = 0; row < job.rows_a; ++row) {
            add_products(values, job.a + row * job.k + k, n, chains[row]);
        }
    }
    for (int64_t row = 0; row < job.rows_a; ++row) {
        out[row * job.stride] = sum_of(chains[row]);
    }
}

MP_ISA_INLINE void dot_rows(const DotJob& job) {
    numerics::visit_block_type(job.dtype, [&](auto type) MP_INLINED {
        const auto* const blocks = static_cast<const uint8_t*>(job.blocks);
        for (int64_t i = 0; i < job.rows; ++i) {
            dot_row<type.value>(job, blocks + bytes_of(type.value, i * job.k), job.out + i);
        }
    });
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
