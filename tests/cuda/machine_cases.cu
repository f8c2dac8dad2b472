// SPDX-License-Identifier: Apache-2.0
// Kernels whose types are arguments, compiled with the arguments of common cases: their machine code then has one way through
// the main loop, which tests/cuda/machine_code.py counts. The work is the same text that the module is made of. Nothing here
// is ever launched.
#include <Kokkos_Core.hpp>

#include "cuda/amax.cuh"
#include "cuda/cast.cuh"
#include "cuda/codes.cuh"
#include "cuda/launch.cuh"
#include "kernels/column_sum.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/grad_stats.hpp"
#include "kernels/quantize.hpp"

namespace mp::cases {

using namespace mp::backends::cuda;

namespace {

__device__ int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

template <DType kFrom, DType kTo, numerics::Narrowing kRounding>
__device__ void cast_known(CastWork work) {
    constexpr bool kHasBits = kRounding == numerics::Narrowing::stochastic ||
                              kRounding == numerics::Narrowing::stochastic_nonsat;
    work.from = kFrom;
    work.to = kTo;
    work.rounding = kRounding;
    work.has_bits = kHasBits;
    work.clamps = kRounding == numerics::Narrowing::stochastic;
    work.is_aligned = true;
    cast_thread(work, thread_index(), thread_count());
}

} // namespace

#define MP_CASE __global__ void __launch_bounds__(kThreads)

MP_CASE cast_bf16_to_e4m3(CastWork work) {
    cast_known<DType::bf16, DType::fp8_e4m3, numerics::Narrowing::saturating>(work);
}
MP_CASE cast_bf16_to_fp32(CastWork work) {
    cast_known<DType::bf16, DType::fp32, numerics::Narrowing::nearest>(work);
}
MP_CASE cast_fp32_to_bf16(CastWork work) {
    cast_known<DType::fp32, DType::bf16, numerics::Narrowing::nearest>(work);
}
MP_CASE cast_fp32_to_bf16_stochastic(CastWork work) {
    cast_known<DType::fp32, DType::bf16, numerics::Narrowing::stochastic_nonsat>(work);
}

MP_CASE amax_of_bf16(TensorRef source, uint32_t* result) {
    source.dtype = DType::bf16;
    result[thread_index()] = amax_thread(source, true, thread_index(), thread_count());
}

MP_CASE codes_of_rows(CodesWork work) {
    work.transposed = false;
    codes_thread(work, thread_index(), thread_count());
}
MP_CASE codes_turned(CodesWork work) {
    work.transposed = true;
    codes_thread(work, thread_index(), thread_count());
}

MP_CASE column_sum_of_bf16(kernels::ColumnSumTeams<Kokkos::Cuda> teams, float* sums) {
    teams.op.source.dtype = DType::bf16;
    sums[thread_index()] = teams.sum_block(int64_t{blockIdx.x} * kColumnSumBlock, threadIdx.x);
}

MP_CASE grad_stats_of_bf16(UpdateSegment segment, double* sums) {
    segment.grad.dtype = DType::bf16;
    segment.grad.coding = Coding::plain;
    segment.grad.scale_inv = nullptr;
    sums[thread_index()] = kernels::GradStatsTeams<Kokkos::Cuda>::sum_lane(
        segment, int64_t{blockIdx.x} * kStatsBlock, static_cast<int>(threadIdx.x));
}

namespace {

// One scale for the matrix, or one for each row.
template <bool kHasOneScale> struct QuantizeToE4m3 {
    static constexpr int kThreads = kernels::QuantizeTeams<Kokkos::Cuda>::kThreads;
    kernels::QuantizeTeams<Kokkos::Cuda> teams;

    KOKKOS_FUNCTION void operator()(const kernels::TeamOf<Kokkos::Cuda>& team) const {
        kernels::QuantizeTeams<Kokkos::Cuda> known = teams;
        known.has_one_scale = kHasOneScale;
        known.gathers_amax = false;
        kernels::QuantizeParts& op = known.scale.op;
        op.source.dtype = DType::bf16;
        op.dtype = DType::fp8_e4m3;
        op.codes_transposed = nullptr;
        op.grid = {DType::fp32, kHasOneScale ? 0 : 1, 0};
        op.delayed = nullptr;
        op.delayed_amax = nullptr;
        op.policy.rule = numerics::ScaleRule::current;
        op.stats = nullptr;
        op.rounding.stochastic = false;
        known(team);
    }
};

// One scale for the matrix (0), or one for so many elements of a row.
template <int kBlock> struct DequantizeFromE4m3 {
    kernels::DequantizeElements elements;

    KOKKOS_FUNCTION void tile(const kernels::RangeTile& tile) const {
        kernels::DequantizeElements known = elements;
        known.op.source.format.dtype = DType::fp8_e4m3;
        known.op.source.format.grid = {DType::fp32, kBlock == 0 ? 0 : 1, kBlock};
        known.op.destination.dtype = DType::bf16;
        known.tile(tile);
    }
};

} // namespace

void instantiate(const Kokkos::Cuda& exec, const kernels::QuantizeTeams<Kokkos::Cuda>& quantize,
                 const kernels::DequantizeElements& dequantize);

void instantiate(const Kokkos::Cuda& exec, const kernels::QuantizeTeams<Kokkos::Cuda>& quantize,
                 const kernels::DequantizeElements& dequantize) {
    constexpr std::size_t kScratch = kernels::QuantizeTeams<Kokkos::Cuda>::kScratch;
    kernels::for_each_team(exec, "", 1, 1, kScratch, QuantizeToE4m3<true>{quantize});
    kernels::for_each_team(exec, "", 1, 1, kScratch, QuantizeToE4m3<false>{quantize});
    kernels::for_each_tile(exec, "", 1, DequantizeFromE4m3<0>{dequantize});
    kernels::for_each_tile(exec, "", 1, DequantizeFromE4m3<128>{dequantize});
}

} // namespace mp::cases
