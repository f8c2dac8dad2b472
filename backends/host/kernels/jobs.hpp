// SPDX-License-Identifier: Apache-2.0
// What one call of a chunk body is asked to do, and the table of bodies for one instruction set.
// Nothing here depends on the instruction set, so this is what callers include.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/ops.hpp"

namespace mp::backends::host {

// Limits of one job, for those who cut the work.
inline constexpr int64_t kColumnStrip = 2048;
inline constexpr int64_t kGemmTileRows = 48;
inline constexpr int64_t kGemmTileColumns = 128;
// Rows that transposed codes are written for at once: two cache lines of bytes.
inline constexpr int64_t kQuantizePanel = 128;

// Scales are computed so many at a time, for a loop with codes of a byte in it has vectors of so many elements; only a few are
// computed one by one. Arrays of amaxes and factors have room for whole vectors.
inline constexpr int kScaleVector = 64;
constexpr int whole_scale_vectors(int n) {
    return n <= 8 ? n : (n + kScaleVector - 1) / kScaleVector * kScaleVector;
}

// What a job works in, aligned to 64 bytes: too much for a thread whose stack is small. Elsewhere a body may have some 20 KiB.
inline constexpr std::size_t kGemmScratch = std::size_t{136} << 10;
inline constexpr std::size_t kQuantizeScratch = std::size_t{608} << 10;

// Elements start ... start + count - 1 of one segment; start is a multiple of 8. `step` is
// state->step.
struct UpdateJob {
    const OptimizerUpdateDesc* op;
    const UpdateSegment* segment;
    int64_t start;
    int64_t count;
    uint64_t step;
    // The parameter will not be read soon: where the step only writes it, write around the caches.
    bool stream;
    // What the segment's scaled states are stored with; null where it has none.
    const UpdateScaling* scaling;
};

// Elements start ... start + count - 1; start is a multiple of 8.
struct CastJob {
    const CastDesc* op;
    int64_t start;
    int64_t count;
    // The destination will not be read soon: write around the caches.
    bool stream;
};

// Elements start ... start + count - 1. Else as CastJob.
struct DropoutJob {
    const DropoutDesc* op;
    int64_t start;
    int64_t count;
    bool stream;
};

// Columns first_column ... first_column + columns - 1, at most kColumnStrip, and all rows.
struct ColumnSumJob {
    const ColumnSumDesc* op;
    int64_t first_column;
    int64_t columns;
};

// Rows first_row ... first_row + rows - 1, with what column_factors() has made of the magnitudes.
struct ScaleColumnsJob {
    const ScaleColumnsDesc* op;
    const float* factors;
    const float* biases; // null: there are none
    int64_t first_row;
    int64_t rows;
    bool stream; // the destination will not be read soon: write around the caches
};

// Rows first_row ... and columns first_column ... of the product of one batch member.
struct GemmJob {
    const GemmDesc* op;
    const GemmBuffers* buffers;
    int64_t batch;
    int64_t first_row;
    int64_t rows;
    int64_t first_column;
    int64_t columns;
    void* scratch; // kGemmScratch bytes of the thread's
};

// Rows first_row ... first_row + rows - 1 and columns first_column ... of a matrix to be quantized, whole
// blocks of the grid or up to the matrix's end.
struct QuantizeJob {
    const QuantizeOne* op;
    int64_t first_row;
    int64_t rows;
    int64_t first_column;
    int64_t columns;
    // Where there is one, all elements are multiplied by it, and no scale is computed or stored.
    const float* multiply;
    float tensor_amax;
    bool is_finite; // the whole matrix is known to be
    bool counts;    // everything in the statistics, not the amax alone
    bool stream;    // the codes will not be read soon: write around the caches
    // kQuantizeScratch bytes of the thread's, with blocks or transposed codes; else null.
    void* scratch;
    // By column of the matrix, for an array that has a scale for each: raised by these elements; null: not asked for.
    uint32_t* column_amaxes;
    bool finds_columns_only; // nothing else: no scales, no codes
    // Those, where they are known and the grid has a scale for each column. The job with row 0 stores the scales.
    const uint32_t* known_amaxes;
};

// Rows first_row ... first_row + rows - 1 of a matrix to be dequantized.
// Rows and columns of the window.
struct DequantizeJob {
    const DequantizeDesc* op;
    int64_t first_row;
    int64_t rows;
    int64_t first_column;
    int64_t columns;
    bool stream;
};

// Elements start ... start + count - 1.
struct SumPartsJob {
    const SumPartsDesc* op;
    int64_t start;
    int64_t count;
    bool stream; // the sum will not be read soon: write around the caches
};

// One instruction set's compiled bodies. All bit-equal, except gemm, where the order of the sum is
// free.
struct IsaTable {
    const char* name;
    void (*update)(const UpdateJob& job) noexcept;
    // The first pass over a segment with scaled states: raises the maxima to those of the chunk's new
    // values, and writes nothing else.
    void (*measure_update)(const UpdateJob& job, UpdateScaling& maxima) noexcept;
    void (*cast)(const CastJob& job) noexcept;
    void (*dropout)(const DropoutJob& job) noexcept;
    // The largest bit pattern of |x| among `count` elements from `start` on.
    uint32_t (*amax)(const TensorRef& source, int64_t start, int64_t count) noexcept;
    // Sum of squares of one chunk, in the order of GradStatsDesc. A null scale_inv: no scale.
    double (*stats)(const void* grad, DType dtype, const float* scale_inv, int64_t start,
                    int64_t count) noexcept;
    void (*column_sum)(const ColumnSumJob& job) noexcept;
    // The sums of the block of rows from first_row on, all columns; and what adds them up.
    void (*column_sum_block)(const ColumnSumDesc& op, int64_t first_row, float* sums) noexcept;
    void (*column_sum_finish)(const ColumnSumDesc& op, const float* sums, int64_t blocks,
                              float* total, bool store) noexcept;
    void (*row_norm)(const RowNormDesc& op, int64_t first_row, int64_t rows) noexcept;
    // By column, in fp32. No biases are written where there are none.
    void (*column_factors)(const ScaleColumnsDesc& op, float* factors, float* biases) noexcept;
    void (*scale_columns)(const ScaleColumnsJob& job) noexcept;
    void (*gemm)(const GemmJob& job) noexcept;
    // Adds to the statistics.
    void (*quantize)(const QuantizeJob& job, numerics::QuantStats& stats) noexcept;
    void (*dequantize)(const DequantizeJob& job) noexcept;
    // For `largest`, blocks of amaxes do not straddle jobs.
    void (*sum_parts)(const SumPartsJob& job) noexcept;
    // Around the caches.
    void (*stream_copy)(void* destination, const void* source, int64_t bytes) noexcept;
};

} // namespace mp::backends::host
