// SPDX-License-Identifier: Apache-2.0
// The inner loop: a group of rows times a panel of columns, sums in registers.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "host/gemm/lanes.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

typedef float Sums __attribute__((vector_size(4 * kLanes)));

// Registers: kTileRows x 2 vectors of sums, two of B, one of A.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileColumns = 2 * kLanes;
static_assert(kGroupRows % kTileRows == 0 && kPanelColumns % kTileColumns == 0);

// Words are fp32: one fused multiply-add.
struct MultiplyFp32 {
    static MP_ISA_INLINE Sums step(uint32_t a, const Words& b, const Sums& sum) {
        float value = 0.0F;
        Sums right;
        __builtin_memcpy(&value, &a, sizeof(value));
        __builtin_memcpy(&right, &b, sizeof(right));
        const Sums left = value - Sums{};
#if defined(__AVX512F__)
        return _mm512_fmadd_ps(left, right, sum);
#elif defined(__FMA__)
        return _mm256_fmadd_ps(left, right, sum);
#else
        return left * right + sum;
#endif
    }
};

#if defined(__AVX512BF16__)
// Words are pairs of bf16: the dot instruction, which counts subnormal operands and results as 0.
struct MultiplyPairs {
    static MP_ISA_INLINE Sums step(uint32_t a, const Words& b, const Sums& sum) {
        __m512i right;
        __builtin_memcpy(&right, &b, sizeof(right));
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)),
                                (__m512bh)right);
    }
};
#endif

struct Tile {
    const uint32_t* a; // words kGroupRows apart
    const uint32_t* b; // words kPanelColumns apart
    int64_t words;
    float* d;
    int64_t stride_d;
    bool accumulate;
    float alpha;
    const float* bias;    // kTileColumns elements, or null
    const float* scale_a; // kTileRows elements, or null
    const float* scale_b; // kTileColumns elements
    bool is_block;        // `d` is added after the scales
};

template <int kRows, int kVectors>
MP_ISA_INLINE void scale_sums(const Tile& tile, Sums (&sums)[kRows][kVectors]) {
    Sums right[kVectors];
    __builtin_memcpy(right, tile.scale_b, sizeof(right));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
            sums[r][v] = sums[r][v] * tile.scale_a[r] * right[v];
        }
    }
    if (!tile.is_block) {
        return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
            Sums total = {};
            if (tile.accumulate) {
                __builtin_memcpy(&total, tile.d + r * tile.stride_d + v * kLanes, sizeof(Sums));
            }
            sums[r][v] = total + sums[r][v];
        }
    }
}

// kRows x (kVectors * kLanes) elements.
template <class Multiply, int kRows, int kVectors>
MP_ISA_FUNCTION void multiply_tile(const Tile& tile) {
    Sums sums[kRows][kVectors] = {};
    if (tile.accumulate && !tile.is_block) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
                __builtin_memcpy(&sums[r][v], tile.d + r * tile.stride_d + v * kLanes,
                                 sizeof(Sums));
            }
        }
    }
    const uint32_t* a = tile.a;
    const uint32_t* b = tile.b;
    for (int64_t word = 0; word < tile.words; ++word) {
        Words right[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
            __builtin_memcpy(&right[v], b + v * kLanes, sizeof(Words));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
                sums[r][v] = Multiply::step(a[r], right[v], sums[r][v]);
            }
        }
        a += kGroupRows;
        b += kPanelColumns;
    }
    if (tile.scale_a != nullptr) {
        scale_sums(tile, sums);
    }
    Sums bias[kVectors] = {};
    if (tile.bias != nullptr) {
        __builtin_memcpy(bias, tile.bias, sizeof(bias));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
            const Sums value = tile.alpha * sums[r][v] + bias[v];
            __builtin_memcpy(tile.d + r * tile.stride_d + v * kLanes, &value, sizeof(Sums));
        }
    }
}

// At least `rows` rows, in steps of a third: what the last group lacks is not computed.
template <class Multiply, int kVectors>
MP_ISA_INLINE void multiply_rows(const Tile& tile, int rows) {
    constexpr int kThird = kTileRows / 3;
    if (rows > 2 * kThird) {
        multiply_tile<Multiply, kTileRows, kVectors>(tile);
    } else if (rows > kThird) {
        multiply_tile<Multiply, 2 * kThird, kVectors>(tile);
    } else {
        multiply_tile<Multiply, kThird, kVectors>(tile);
    }
}

// A tile at the edge of D is computed whole in a buffer.
template <class Multiply>
MP_ISA_FUNCTION void multiply_edge(const Tile& tile, int rows, int columns) {
    float buffer[kTileRows * kTileColumns] = {};
    float bias[kTileColumns] = {};
    Tile inner = tile;
    inner.d = buffer;
    inner.stride_d = kTileColumns;
    const auto bytes = static_cast<std::size_t>(columns) * sizeof(float);
    if (tile.bias != nullptr) {
        __builtin_memcpy(bias, tile.bias, bytes);
        inner.bias = bias;
    }
    for (int r = 0; tile.accumulate && r < rows; ++r) {
        __builtin_memcpy(buffer + r * kTileColumns, tile.d + r * tile.stride_d, bytes);
    }
    if (columns > kLanes) {
        multiply_rows<Multiply, 2>(inner, rows);
    } else {
        multiply_rows<Multiply, 1>(inner, rows);
    }
    for (int r = 0; r < rows; ++r) {
        __builtin_memcpy(tile.d + r * tile.stride_d, buffer + r * kTileColumns, bytes);
    }
}

template <class Multiply> MP_ISA_INLINE void multiply_any(const Tile& tile, int rows, int columns) {
    if (rows == kTileRows && columns == kTileColumns) {
        multiply_tile<Multiply, kTileRows, 2>(tile);
    } else {
        multiply_edge<Multiply>(tile, rows, columns);
    }
}

// One tile, block after block of what shares scales; its results stay in the first-level cache.
template <class Multiply>
MP_ISA_FUNCTION void multiply_blocks(const MultiplyJob& job, Tile tile, int rows, int columns) {
    const float* bias = tile.bias;
    tile.is_block = true;
    tile.bias = nullptr;
    tile.alpha = 1.0F;
    for (int64_t word = 0; word < job.words; word += job.block_words) {
        const int64_t left = job.words - word;
        tile.words = left < job.block_words ? left : job.block_words;
        if (left <= job.block_words) {
            tile.bias = bias;
            tile.alpha = job.alpha;
        }
        multiply_any<Multiply>(tile, rows, columns);
        tile.a += tile.words * kGroupRows;
        tile.b += tile.words * kPanelColumns;
        tile.scale_a += job.scale_stride_a;
        tile.scale_b += job.scale_stride_b;
        tile.accumulate = true;
    }
}

// Panel by panel: one panel's words stay in the first-level cache while the groups pass by.
template <class Multiply> MP_ISA_INLINE void multiply(const MultiplyJob& job) {
    for (int64_t column = 0; column < job.columns; column += kTileColumns) {
        const uint32_t* b =
            job.b + column / kPanelColumns * job.panel_stride + column % kPanelColumns;
        const int columns = min_int(job.columns - column, kTileColumns);
        for (int64_t row = 0; row < job.rows; row += kTileRows) {
            const uint32_t* a = job.a + row / kGroupRows * job.group_stride + row % kGroupRows;
            const int rows = min_int(job.rows - row, kTileRows);
            const bool is_scaled = job.scale_a != nullptr;
            const Tile tile = {a,
                               b,
                               job.words,
                               job.d + row * job.stride_d + column,
                               job.stride_d,
                               job.accumulate,
                               job.alpha,
                               job.bias == nullptr ? nullptr : job.bias + column,
                               is_scaled ? job.scale_a + row : nullptr,
                               is_scaled ? job.scale_b + column : nullptr,
                               false};
            if (is_scaled && job.block_words != 0) {
                multiply_blocks<Multiply>(job, tile, rows, columns);
            } else {
                multiply_any<Multiply>(tile, rows, columns);
            }
        }
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
