// SPDX-License-Identifier: Apache-2.0
// The chunk bodies that gain from AVX-512 VBMI, which looks bytes up; the flags are in CMakeLists.txt. For the others
// isa.cpp takes those of "avx512".
#define MP_ISA_NAMESPACE avx512_vbmi
#include "host/kernels/cast.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/quantize.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

namespace {

void run_cast(const CastJob& job) noexcept { cast_chunk(job); }
void run_quantize(const QuantizeJob& job, numerics::QuantStats& stats) noexcept {
    quantize_block_rows(job, stats);
}

// constexpr, so that the table is there before anything runs: code of this file is illegal on most processors.
constexpr IsaTable make_table() noexcept {
    IsaTable table = {};
    table.name = "avx512_vbmi";
    table.cast = run_cast;
    table.quantize = run_quantize;
    return table;
}

} // namespace

extern const IsaTable kTable;
constinit const IsaTable kTable = make_table();

} // namespace mp::backends::host::MP_ISA_NAMESPACE
