// SPDX-License-Identifier: Apache-2.0
// The body of panels_<isa>.cpp: the panel jobs, compiled by the flags of that file into the namespace
// MP_ISA_NAMESPACE, and the table of them. As in host/isa, nothing here may use a function of the
// standard library: the linker could keep this file's copy for the whole program.
#include "host/gemm/decode.hpp"
#include "host/gemm/dot.hpp"
#include "host/gemm/finish.hpp"
#include "host/gemm/multiply.hpp"
#include "host/gemm/pack.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

namespace {

constexpr int kRows = static_cast<int>(kGroupRows);
constexpr int kColumns = static_cast<int>(kPanelColumns);
static_assert(kLanes - kRows % kLanes <= kGroupSlack && kColumns % kLanes == 0);

void run_pack_a(const PackJob& job) noexcept { pack<kRows>(job); }
void run_pack_b(const PackJob& job) noexcept { pack<kColumns>(job); }
void run_multiply(const MultiplyJob& job) noexcept { multiply<MultiplyFp32>(job); }
void run_pack_a_pairs(const PackJob& job) noexcept { pack_pairs<kRows>(job); }
void run_pack_b_pairs(const PackJob& job) noexcept { pack_pairs<kColumns>(job); }
#if defined(__AVX512BF16__)
void run_multiply_pairs(const MultiplyJob& job) noexcept { multiply<MultiplyPairs>(job); }
#else
constexpr void (*run_multiply_pairs)(const MultiplyJob& job) noexcept = nullptr;
#endif
void run_widen(DType dtype, const void* source, int64_t count, float* out) noexcept {
    widen_all(dtype, source, count, out);
}
void run_finish(FinishJob& job) noexcept { finish_block(job); }
void run_decode(const DecodeJob& job) noexcept { decode_codes(job); }
void run_dot(const DotJob& job) noexcept { dot_rows(job); }

} // namespace

extern const PanelTable kTable;
constinit const PanelTable kTable = {
    MP_ISA_NAME,        run_pack_a, run_pack_b, run_multiply, run_pack_a_pairs, run_pack_b_pairs,
    run_multiply_pairs, run_widen,  run_finish, run_decode,   run_dot};

} // namespace mp::backends::host::MP_ISA_NAMESPACE
