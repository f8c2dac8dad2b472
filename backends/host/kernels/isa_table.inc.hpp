// SPDX-License-Identifier: Apache-2.0
// The body of baseline.cpp, avx2.cpp and avx512.cpp: all the bodies here, compiled by
// the flags of that file into the namespace MP_ISA_NAMESPACE, and the table of it. Nothing here
// may use a template or inline function of the standard library or of Kokkos: the linker could keep
// this file's copy of it for the whole program (tests/kernels checks the symbols).
#include "host/kernels/amax.hpp"
#include "host/kernels/cast.hpp"
#include "host/kernels/column_sum.hpp"
#include "host/kernels/dequantize.hpp"
#include "host/kernels/dropout.hpp"
#include "host/kernels/gemm.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/memory.hpp"
#include "host/kernels/quantize.hpp"
#include "host/kernels/row_norm.hpp"
#include "host/kernels/scale_columns.hpp"
#include "host/kernels/stats.hpp"
#include "host/kernels/sum_parts.hpp"
#include "host/kernels/update.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

namespace {

void run_update(const UpdateJob& job) noexcept { update_chunk(job); }
void run_measure_update(const UpdateJob& job, UpdateScaling& maxima) noexcept {
    measure_chunk(job, maxima);
}
void run_cast(const CastJob& job) noexcept { cast_chunk(job); }
void run_dropout(const DropoutJob& job) noexcept { dropout_chunk(job); }
uint32_t run_amax(const TensorRef& source, int64_t start, int64_t count) noexcept {
    return amax_chunk(source, start, count);
}
double run_stats(const void* grad, DType dtype, const float* scale_inv, int64_t start,
                 int64_t count) noexcept {
    return stats_chunk(grad, dtype, scale_inv, start, count);
}
void run_column_sum(const ColumnSumJob& job) noexcept { column_sum_strip(job); }
void run_column_sum_block(const ColumnSumDesc& op, int64_t first_row, float* sums) noexcept {
    column_sum_block(op, first_row, sums);
}
void run_column_sum_finish(const ColumnSumDesc& op, const float* sums, int64_t blocks, float* total,
                           bool store) noexcept {
    column_sum_finish(op, sums, blocks, total, store);
}
void run_row_norm(const RowNormDesc& op, int64_t first_row, int64_t rows) noexcept {
    row_norms(op, first_row, rows);
}
void run_column_factors(const ScaleColumnsDesc& op, float* factors, float* biases) noexcept {
    column_factors(op, factors, biases);
}
void run_scale_columns(const ScaleColumnsJob& job) noexcept { scale_rows(job); }
void run_gemm(const GemmJob& job) noexcept { gemm_tile(job); }
void run_quantize(const QuantizeJob& job, numerics::QuantStats& stats) noexcept {
    quantize_block_rows(job, stats);
}
void run_dequantize(const DequantizeJob& job) noexcept { dequantize_rows(job); }
void run_sum_parts(const SumPartsJob& job) noexcept { sum_parts_chunk(job); }
void run_stream_copy(void* destination, const void* source, int64_t bytes) noexcept {
    stream_bytes(destination, source, bytes);
    finish_stream();
}

} // namespace

extern const IsaTable kTable;
constinit const IsaTable kTable = {MP_ISA_NAME,
                                   run_update,
                                   run_measure_update,
                                   run_cast,
                                   run_dropout,
                                   run_amax,
                                   run_stats,
                                   run_column_sum,
                                   run_column_sum_block,
                                   run_column_sum_finish,
                                   run_row_norm,
                                   run_column_factors,
                                   run_scale_columns,
                                   run_gemm,
                                   run_quantize,
                                   run_dequantize,
                                   run_sum_parts,
                                   run_stream_copy};

} // namespace mp::backends::host::MP_ISA_NAMESPACE
