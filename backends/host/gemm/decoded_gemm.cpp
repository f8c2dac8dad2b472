// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/decoded_gemm.hpp"

#include <algorithm>
#include <new>

#include "dtype/divide.hpp"
#include "host/resources/atomic_max.hpp"

namespace mp::backends::host {

namespace {

constexpr int64_t kHalf = 2;
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kRows = 16;           // that a thread takes at a time
constexpr int64_t kFactorsAtOnce = 256; // of a row's blocks, laid out by column

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool are_powers(const GemmDesc& desc) {
    const auto is_power = [](const ScaleGrid& grid) {
        return !grid.exists() || grid.dtype == DType::e8m0;
    };
    return desc.power_of_two_scales || (is_power(desc.scale_a) && is_power(desc.scale_b));
}

// What is left to the inner product: no scales, no epilogue.
GemmDesc inner(const GemmDesc& d) {
    GemmDesc op{};
    op.kind = OpKind::gemm;
    op.m = d.m;
    op.n = d.n;
    op.k = d.k;
    op.trans_a = d.trans_a;
    op.trans_b = d.trans_b;
    op.lda = d.trans_a ? d.m : d.k;
    op.ldb = d.trans_b ? d.k : d.n;
    op.ldc = op.ldd = d.n;
    op.batch_stride_a = d.m * d.k;
    op.batch_stride_b = d.k * d.n;
    op.batch_stride_c = op.batch_stride_d = d.m * d.n;
    op.dtype_a = op.dtype_b = DType::bf16;
    op.dtype_d = DType::fp32;
    return op;
}

} // namespace

bool DecodedGemm::takes(const GemmDesc& desc, Reason& reason) noexcept {
    if (desc.batch_count != 1 || desc.m == 0 || desc.n == 0 || desc.k == 0) {
        reason.set("decodes fp8 operands of one product that is not empty");
        return false;
    }
    if (scale_block_k(desc) != 0 && !are_powers(desc)) {
        reason.set("scales change along k and need not be powers of two");
        return false;
    }
    return BlockedGemm::takes_scales(desc, reason);
}

DecodedGemm::DecodedGemm(const GemmDesc& desc) noexcept
    : desc_(desc),
      block_k_(scale_block_k(desc)), a_{desc.dtype_a,
                                        desc.trans_a ? desc.k : desc.m,
                                        desc.trans_a ? desc.m : desc.k,
                                        desc.lda,
                                        !desc.trans_a,
                                        has_scales(desc) ? LineScales::of_a(desc, block_k_)
                                                         : LineScales()},
      b_{desc.dtype_b,
         desc.trans_b ? desc.n : desc.k,
         desc.trans_b ? desc.k : desc.n,
         desc.ldb,
         desc.trans_b,
         has_scales(desc) ? LineScales::of_b(desc, block_k_) : LineScales()},
      table_(active_panel_table()) {}

Status DecodedGemm::make(const GemmDesc& desc, int32_t threads, Make make,
                         std::unique_ptr<HostGemm>& out) noexcept {
    std::unique_ptr<DecodedGemm> plan(new (std::nothrow) DecodedGemm(desc));
    if (plan == nullptr) {
        return Status::error(Code::out_of_memory, "host: no memory for a gemm plan");
    }
    Status status = make(inner(desc), threads, plan->product_);
    if (status.ok() && plan->block_k_ != 0) {
        status = BlockedGemm::make(desc, false, threads, plan->fallback_);
    }
    if (status.ok()) {
        out = std::move(plan);
    }
    return status;
}

void DecodedGemm::fill(const LineScales& scales, const void* from, float* values,
                       LineScales::Range& range) const noexcept {
    for (int64_t block = 0; block < scales.blocks(); ++block) {
        scales.fill(from, block, values + block * scales.stride(), range);
    }
}

// One stored row, in runs that have their factors beside each other.
void DecodedGemm::decode_row(const DecodedOperand& operand, const void* codes, const float* factors,
                             int64_t row, void* out) const noexcept {
    const auto* from = static_cast<const char*>(codes) + row * operand.stride;
    auto* to = static_cast<char*>(out) + row * operand.columns * kHalf;
    if (factors == nullptr) {
        table_.decode({operand.dtype, from, operand.columns, nullptr, to});
        return;
    }
    const int64_t stride = operand.scales.stride();
    if (!operand.lines_are_rows) {
        table_.decode(
            {operand.dtype, from, operand.columns, factors + row / block_k_ * stride, to});
        return;
    }
    float by_column[kFactorsAtOnce];
    for (int64_t column = 0; column < operand.columns; column += kFactorsAtOnce) {
        const int64_t count = std::min(kFactorsAtOnce, operand.columns - column);
        for (int64_t i = 0; i < count; i += block_k_) {
            std::fill(by_column + i, by_column + std::min(i + block_k_, count),
                      factors[(column + i) / block_k_ * stride + row]);
        }
        table_.decode({operand.dtype, from + column, count, by_column, to + column * kHalf});
    }
}

void DecodedGemm::decode(ThreadPool& threads, const DecodedOperand& operand, const void* codes,
                         const float* factors, void* out) const noexcept {
    threads.for_each(
        operand.rows, [&](int64_t row) { decode_row(operand, codes, factors, row, out); }, kRows);
}

void DecodedGemm::finish(ThreadPool& threads, const GemmBuffers& buffers, const float* sums,
                         const float* scales_a, const float* scales_b) const noexcept {
    const GemmDesc& d = desc_;
    const int64_t strips = divide_up(d.n, kFinishColumns);
    const auto strip = [&](int64_t i) {
        const int64_t row = i / strips;
        const int64_t column = i % strips * kFinishColumns;
        FinishJob job = finish_job(d, buffers, 0, row, column);
        job.sums = sums + row * d.n + column;
        job.stride = d.n;
        job.rows = 1;
        job.columns = std::min(kFinishColumns, d.n - column);
        if (scales_a != nullptr) {
            job.scale_a = scales_a + row;
            job.scale_b = scales_b + column;
        }
        table_.finish(job);
        raise_amax(buffers.amax_d, job.amax);
    };
    threads.for_each(d.m * strips, strip, kRows);
}

Status DecodedGemm::run(const Resources& with, const GemmBuffers& buffers) const noexcept {
    const int64_t a_bytes = aligned(desc_.m * desc_.k * kHalf);
    const int64_t b_bytes = aligned(desc_.k * desc_.n * kHalf);
    const int64_t sum_bytes = aligned(desc_.m * desc_.n * kFloat);
    const int64_t scales = a_.scales.size() + b_.scales.size();
    ScratchPool::Lease lease;
    Status status = with.scratch.take(
        static_cast<std::size_t>(a_bytes + b_bytes + sum_bytes + aligned(scales * kFloat)), lease);
    if (!status.ok()) {
        return status;
    }
    char* const a = static_cast<char*>(lease.data());
    char* const b = a + a_bytes;
    auto* const sums = reinterpret_cast<float*>(b + b_bytes);
    auto* const scales_a = reinterpret_cast<float*>(b + b_bytes + sum_bytes);
    float* const scales_b = scales_a + a_.scales.size();
    LineScales::Range range_a;
    LineScales::Range range_b;
    fill(a_.scales, buffers.scale_a, scales_a, range_a);
    fill(b_.scales, buffers.scale_b, scales_b, range_b);
    if (block_k_ != 0 && !may_fold(desc_, range_a, range_b)) {
        return fallback_->run(with, buffers);
    }
    decode(with.threads, a_, buffers.a, block_k_ != 0 ? scales_a : nullptr, a);
    decode(with.threads, b_, buffers.b, block_k_ != 0 ? scales_b : nullptr, b);
    GemmBuffers decoded;
    decoded.a = a;
    decoded.b = b;
    decoded.d = sums;
    status = product_->run(with, decoded);
    if (status.ok()) {
        const bool is_scaled = block_k_ == 0 && scales > 0;
        finish(with.threads, buffers, sums, is_scaled ? scales_a : nullptr, scales_b);
    }
    return status;
}

} // namespace mp::backends::host
