// SPDX-License-Identifier: Apache-2.0
// One tile of a matrix product: operands widened to fp32 and packed, sums in fp32 registers. The
// product for machines and types that no vendor library serves; it is not meant to beat one.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "device/gemm_scales.hpp"
#include "device/ops.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The register tile: kMicroRows x 2 vectors of sums.
#if defined(__AVX512F__)
inline constexpr int kVector = 16;
inline constexpr int kMicroRows = 12;
#elif defined(__AVX2__)
inline constexpr int kVector = 8;
inline constexpr int kMicroRows = 6;
#else
inline constexpr int kVector = 4;
inline constexpr int kMicroRows = 6;
#endif
inline constexpr int kMicroColumns = 2 * kVector;
inline constexpr int kPackedDepth = 128;
inline constexpr int kTileRows = static_cast<int>(kGemmTileRows);
inline constexpr int kTileColumns = static_cast<int>(kGemmTileColumns);
static_assert(kTileRows % kMicroRows == 0 && kTileColumns % kMicroColumns == 0 &&
              kTileColumns <= kTile);

typedef float Vector __attribute__((vector_size(4 * kVector)));

MP_ISA_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, sum);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, sum);
#else
    return a * b + sum;
#endif
}

struct GemmTile {
    // [panel of kMicroRows][k][row] and [panel of kMicroColumns][k][column]; absent ones are 0.
    alignas(64) float a[kTileRows * kPackedDepth];
    alignas(64) float b[kTileColumns * kPackedDepth];
    alignas(64) float sums[kTileRows * kTileColumns];
    alignas(64) float totals[kTileRows * kTileColumns]; // where scales change along k
};
static_assert(sizeof(GemmTile) <= kGemmScratch);

// Reads `lines` runs of `length` elements and writes element (line, i) of them where Place says.
template <class Place>
MP_ISA_INLINE void pack(const void* data, DType dtype, int64_t first, int64_t stride, int lines,
                        int length, float* packed, Place place) {
    float values[kTile];
    for (int line = 0; line < lines; ++line) {
        widen_tile(dtype, element_address(data, dtype, first + line * stride), values, length);
        for (int i = 0; i < length; ++i) {
            packed[place(line, i)] = values[i];
        }
    }
}

template <int kMicro> MP_ISA_INLINE int packed_index(int index, int k) {
    return (index / kMicro * kPackedDepth + k) * kMicro + index % kMicro;
}

// The operand's elements [first, first + count) x [first_k, first_k + depth), whichever way it is
// stored.
template <int kMicro>
MP_ISA_INLINE void pack_operand(const void* data, DType dtype, int64_t base, int64_t stride,
                                bool k_is_contiguous, int64_t first, int count, int64_t first_k,
                                int depth, float* packed) {
    const int padded = (count + kMicro - 1) / kMicro * kMicro;
    for (int index = count; index < padded; ++index) {
        for (int k = 0; k < depth; ++k) {
            packed[packed_index<kMicro>(index, k)] = 0.0F;
        }
    }
    if (k_is_contiguous) {
        pack(data, dtype, base + first * stride + first_k, stride, count, depth, packed,
             [](int line, int i) { return packed_index<kMicro>(line, i); });
    } else {
        pack(data, dtype, base + first_k * stride + first, stride, depth, count, packed,
             [](int line, int i) { return packed_index<kMicro>(i, line); });
    }
}

// sums[kMicroRows x kMicroColumns] += a panel x b panel.
MP_ISA_FUNCTION inline void multiply_panels(const float* a, const float* b, int depth,
                                            float* sums) {
    Vector left[kMicroRows];
    Vector right[kMicroRows];
#pragma GCC unroll 16
    for (int r = 0; r < kMicroRows; ++r) {
        __builtin_memcpy(&left[r], sums + r * kTileColumns, sizeof(Vector));
        __builtin_memcpy(&right[r], sums + r * kTileColumns + kVector, sizeof(Vector));
    }
    for (int k = 0; k < depth; ++k) {
        Vector b_left;
        Vector b_right;
        __builtin_memcpy(&b_left, b + k * kMicroColumns, sizeof(Vector));
        __builtin_memcpy(&b_right, b + k * kMicroColumns + kVector, sizeof(Vector));
#pragma GCC unroll 16
        for (int r = 0; r < kMicroRows; ++r) {
            const Vector value = a[k * kMicroRows + r] - Vector{};
            left[r] = multiply_add(value, b_left, left[r]);
            right[r] = multiply_add(value, b_right, right[r]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kMicroRows; ++r) {
        __builtin_memcpy(sums + r * kTileColumns, &left[r], sizeof(Vector));
        __builtin_memcpy(sums + r * kTileColumns + kVector, &right[r], sizeof(Vector));
    }
}

// D. Hendrycks, K. Gimpel: "Gaussian error linear units", the tanh form; in double, rounded once.
MP_ISA_INLINE float gelu(float z) {
    constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
    const auto x = static_cast<double>(z);
    return static_cast<float>(0.5 * x *
                              (1.0 + __builtin_tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x))));
}

// The scales of the tile's rows or columns at one k, and what they do to the sums.
struct TileScales {
    float rows[kTileRows];
    float columns[kTileColumns];
};

MP_ISA_FUNCTION inline void load_scales(const GemmJob& job, int64_t k, TileScales& scales) {
    for (int64_t row = 0; row < job.rows; ++row) {
        scales.rows[row] = scale_of_a(*job.op, job.buffers->scale_a, job.first_row + row, k);
    }
    for (int64_t column = 0; column < job.columns; ++column) {
        scales.columns[column] =
            scale_of_b(*job.op, job.buffers->scale_b, k, job.first_column + column);
    }
}

MP_ISA_FUNCTION inline void scale_sums(const GemmJob& job, GemmTile& tile, int64_t k,
                                       bool is_block) {
    TileScales scales;
    load_scales(job, k, scales);
    for (int64_t row = 0; row < job.rows; ++row) {
        float* sums = tile.sums + row * kTileColumns;
        float* totals = tile.totals + row * kTileColumns;
        for (int64_t i = 0; i < job.columns; ++i) {
            const float scaled = sums[i] * scales.rows[row] * scales.columns[i];
            if (is_block) {
                totals[i] += scaled;
                sums[i] = 0.0F;
            } else {
                sums[i] = scaled;
            }
        }
    }
}

// The largest |d| of a row, and what is left to round.
MP_ISA_FUNCTION inline void prepare_fp8(const GemmJob& job, float* values, int n) {
    const DType dtype = job.op->dtype_d;
    const float multiply = job.buffers->multiply_d == nullptr ? 1.0F : *job.buffers->multiply_d;
    uint32_t largest = 0;
    for (int i = 0; i < n; ++i) {
        const uint32_t magnitude =
            numerics::bits_from_float(values[i]) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
        values[i] = before_fp8(values[i], multiply, dtype);
    }
    typedef uint32_t Pattern __attribute__((may_alias));
    Pattern* amax = reinterpret_cast<Pattern*>(job.buffers->amax_d);
    if (amax != nullptr) {
        uint32_t known = __atomic_load_n(amax, __ATOMIC_RELAXED);
        while (known < largest &&
               !__atomic_compare_exchange_n(amax, &known, largest, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
        }
    }
}

// One row of the tile: alpha, beta, bias, GELU, rounding.
MP_ISA_FUNCTION inline void finish_row(const GemmJob& job, int64_t row, float* sums, int n) {
    const GemmDesc& op = *job.op;
    float values[kTile];
    for (int i = 0; i < n; ++i) {
        sums[i] *= op.alpha;
    }
    if (op.beta != 0.0F) {
        const int64_t at = job.batch * op.batch_stride_c + row * op.ldc + job.first_column;
        widen_tile(op.dtype_d, element_address(job.buffers->c, op.dtype_d, at), values, n);
        for (int i = 0; i < n; ++i) {
            sums[i] += op.beta * values[i];
        }
    }
    if (op.dtype_bias != DType::none) {
        widen_tile(op.dtype_bias,
                   element_address(job.buffers->bias, op.dtype_bias, job.first_column), values, n);
        for (int i = 0; i < n; ++i) {
            sums[i] += values[i];
        }
    }
    if (op.gelu) {
        for (int i = 0; i < n; ++i) {
            sums[i] = gelu(sums[i]);
        }
    }
    if (is_fp8(op.dtype_d)) {
        prepare_fp8(job, sums, n);
    }
    const int64_t at = job.batch * op.batch_stride_d + row * op.ldd + job.first_column;
    narrow_tile<numerics::Narrowing::nearest>(
        op.dtype_d, sums, element_address(job.buffers->d, op.dtype_d, at), n, nullptr);
}

inline void gemm_tile(const GemmJob& job) {
    const GemmDesc& op = *job.op;
    const auto rows = static_cast<int>(job.rows);
    const auto columns = static_cast<int>(job.columns);
    GemmTile& tile = *static_cast<GemmTile*>(job.scratch);
    __builtin_memset(tile.sums, 0, sizeof(tile.sums));
    const int64_t block = scale_block_k(op);
    if (block != 0) {
        __builtin_memset(tile.totals, 0, sizeof(tile.totals));
    }
    int64_t first_k = 0;
    while (first_k < op.k) {
        const int64_t block_end = block == 0 ? op.k : (first_k / block + 1) * block;
        const int64_t end = block_end < op.k ? block_end : op.k;
        const int depth = min_int(end - first_k, kPackedDepth);
        pack_operand<kMicroRows>(job.buffers->a, op.dtype_a, job.batch * op.batch_stride_a, op.lda,
                                 !op.trans_a, job.first_row, rows, first_k, depth, tile.a);
        pack_operand<kMicroColumns>(job.buffers->b, op.dtype_b, job.batch * op.batch_stride_b,
                                    op.ldb, op.trans_b, job.first_column, columns, first_k, depth,
                                    tile.b);
        for (int column = 0; column < columns; column += kMicroColumns) {
            for (int row = 0; row < rows; row += kMicroRows) {
                multiply_panels(tile.a + row * kPackedDepth, tile.b + column * kPackedDepth, depth,
                                tile.sums + row * kTileColumns + column);
            }
        }
        if (block != 0 && first_k + depth == end) {
            scale_sums(job, tile, first_k, true);
        }
        first_k += depth;
    }
    if (block == 0 && has_scales(op)) {
        scale_sums(job, tile, 0, false);
    }
    float* results = block == 0 ? tile.sums : tile.totals;
    for (int row = 0; row < rows; ++row) {
        finish_row(job, job.first_row + row, results + row * kTileColumns, columns);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
