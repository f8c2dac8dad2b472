// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/blocked_gemm.hpp"

#include <algorithm>
#include <new>

#include "dtype/divide.hpp"
#include "host/resources/atomic_max.hpp"

namespace mp::backends::host {

namespace {

// The part of k that is packed and multiplied at once: one panel of it, 32 KiB, fits a first-level cache.
constexpr int64_t kDepthWords = 256;
// Columns of a block. Results that wait to be finished share the second-level cache with packed A.
constexpr int64_t kDirectColumns = 1024;
constexpr int64_t kFinishedColumns = 512;
static_assert(kFinishedColumns <= kFinishColumns);

std::size_t aligned(int64_t bytes) { return static_cast<std::size_t>(divide_up(bytes, 64) * 64); }

const void* at(const void* data, int64_t elements, DType dtype) {
    return static_cast<const char*>(data) + elements * dtype_size(dtype);
}
void* at(void* data, int64_t elements, DType dtype) {
    return static_cast<char*>(data) + elements * dtype_size(dtype);
}

constexpr int64_t kWord = sizeof(uint32_t);

} // namespace

struct BlockedGemm::Run {
    const GemmBuffers& buffers;
    char* scratch;
    const float* bias; // as fp32, for a product that adds it
    const float* scales_a;
    const float* scales_b;
    bool folds_scales; // into the codes
};

// The product can scale and add a bias, to fp32; what else there is comes after it.
BlockedGemm::BlockedGemm(const GemmDesc& desc, bool pairs, int32_t threads) noexcept
    : desc_(desc), table_(active_panel_table()), pairs_(pairs),
      is_direct_(desc.dtype_d == DType::fp32 && desc.beta == 0.0F && !desc.gelu) {
    if (desc.m == 0 || desc.n == 0 || desc.batch_count == 0) {
        return;
    }
    grid_ = choose_grid({desc.m, desc.n, desc.k, desc.batch_count,
                         is_direct_ ? kDirectColumns : kFinishedColumns, threads});
    shares_b_ = grid_.row_blocks > 1 && desc.batch_count == 1;
    if (has_scales(desc)) {
        block_k_ = scale_block_k(desc);
        scales_a_ = LineScales::of_a(desc, block_k_);
        scales_b_ = LineScales::of_b(desc, block_k_);
    }
    plan_scratch();
}

Status BlockedGemm::make(const GemmDesc& desc, bool pairs, int32_t threads,
                         std::unique_ptr<BlockedGemm>& out) noexcept {
    out.reset(new (std::nothrow) BlockedGemm(desc, pairs, threads));
    if (out == nullptr) {
        return Status::error(Code::out_of_memory, "host: no memory for a gemm plan");
    }
    return {};
}

void BlockedGemm::plan_scratch() noexcept {
    shared_panels_ = divide_up(grid_.columns, kPanelColumns);
    shared_panel_ = words(desc_.k) * kPanelColumns;
    bias_at_ =
        shares_b_ ? aligned(grid_.column_blocks * shared_panels_ * shared_panel_ * kWord) : 0;
    const bool has_wide_bias = desc_.dtype_bias == DType::none || desc_.dtype_bias == DType::fp32;
    scales_at_ = bias_at_ + (is_direct_ && !has_wide_bias ? aligned(desc_.n * kWord) : 0);
    const int64_t units = scales_a_.blocks() + scales_b_.blocks();
    shared_bytes_ = scales_at_ + aligned((scales_a_.size() + scales_b_.size()) * kWord) +
                    aligned(units * static_cast<int64_t>(sizeof(LineScales::Range)));
    const int64_t depth = std::min(words(desc_.k), kDepthWords);
    const int64_t groups = divide_up(grid_.rows, kGroupRows);
    b_at_ = aligned(groups * (depth * kGroupRows + kGroupSlack) * kWord);
    sums_at_ = b_at_ + (shares_b_ ? 0 : aligned(shared_panels_ * depth * kPanelColumns * kWord));
    thread_bytes_ = sums_at_ + (is_direct_ ? 0 : aligned(grid_.rows * grid_.columns * kWord));
}

// Values of k that are packed at once from `k` on.
int64_t BlockedGemm::depth_from(int64_t k) const noexcept {
    return std::min(desc_.k - k, pairs_ ? 2 * kDepthWords : kDepthWords);
}

void BlockedGemm::pack_a(const Run& run, int64_t batch, int64_t row, int64_t rows, int64_t k,
                         uint32_t* packed) const noexcept {
    const int64_t element =
        batch * desc_.batch_stride_a + (desc_.trans_a ? k * desc_.lda + row : row * desc_.lda + k);
    const int64_t depth = depth_from(k);
    PackJob job = {desc_.dtype_a, at(run.buffers.a, element, desc_.dtype_a),
                   desc_.lda,     !desc_.trans_a,
                   rows,          depth,
                   packed,        words(depth) * kGroupRows + kGroupSlack};
    if (run.folds_scales) {
        set_fold(job, scales_a_, run.scales_a, row, k);
    }
    pairs_ ? table_.pack_a_pairs(job) : table_.pack_a(job);
}

void BlockedGemm::pack_b(const Run& run, int64_t batch, int64_t column, int64_t k, uint32_t* packed,
                         int64_t panel_stride) const noexcept {
    const int64_t element = batch * desc_.batch_stride_b +
                            (desc_.trans_b ? column * desc_.ldb + k : k * desc_.ldb + column);
    PackJob job = {desc_.dtype_b,
                   at(run.buffers.b, element, desc_.dtype_b),
                   desc_.ldb,
                   desc_.trans_b,
                   std::min(grid_.columns, desc_.n - column),
                   depth_from(k),
                   packed,
                   panel_stride};
    if (run.folds_scales) {
        set_fold(job, scales_b_, run.scales_b, column, k);
    }
    pairs_ ? table_.pack_b_pairs(job) : table_.pack_b(job);
}

int64_t BlockedGemm::depth_steps() const noexcept { return divide_up(words(desc_.k), kDepthWords); }

// One step along k of one column block.
void BlockedGemm::pack_shared(const Run& run, int64_t unit) const noexcept {
    const int64_t block = unit / depth_steps();
    const int64_t step = unit % depth_steps();
    auto* packed = reinterpret_cast<uint32_t*>(run.scratch) +
                   block * shared_panels_ * shared_panel_ + step * kDepthWords * kPanelColumns;
    pack_b(run, 0, block * grid_.columns, step * kDepthWords * (pairs_ ? 2 : 1), packed,
           shared_panel_);
}

bool BlockedGemm::takes_scales(const GemmDesc& desc, Reason& reason) noexcept {
    const int64_t block = scale_block_k(desc);
    if (block == 0 || (block % kFoldDepth == 0 && kDepthWords % block == 0)) {
        return true;
    }
    reason.set("scales change after %lld elements of k; this takes 32, 64, 128 or 256",
               static_cast<long long>(block));
    return false;
}

// One block of k of one operand: those of A, then those of B.
void BlockedGemm::widen_scales(const Run& run, int64_t unit) const noexcept {
    auto* values = reinterpret_cast<float*>(run.scratch + scales_at_);
    auto* ranges = reinterpret_cast<LineScales::Range*>(
        run.scratch + scales_at_ + aligned((scales_a_.size() + scales_b_.size()) * kWord));
    const bool is_a = unit < scales_a_.blocks();
    const LineScales& scales = is_a ? scales_a_ : scales_b_;
    const int64_t block = is_a ? unit : unit - scales_a_.blocks();
    float* row = values + (is_a ? 0 : scales_a_.size()) + block * scales.stride();
    auto* range = new (ranges + unit) LineScales::Range;
    scales.fill(is_a ? run.buffers.scale_a : run.buffers.scale_b, block, row, *range);
}

bool BlockedGemm::folds_scales(const Run& run) const noexcept {
    const auto is_power = [](const ScaleGrid& grid) {
        return !grid.exists() || grid.dtype == DType::e8m0;
    };
    const bool may_be =
        desc_.power_of_two_scales || (is_power(desc_.scale_a) && is_power(desc_.scale_b));
    if (block_k_ == 0 || !may_be) {
        return false;
    }
    const auto* ranges = reinterpret_cast<const LineScales::Range*>(
        run.scratch + scales_at_ + aligned((scales_a_.size() + scales_b_.size()) * kWord));
    LineScales::Range of[2];
    for (int64_t unit = 0; unit < scales_a_.blocks() + scales_b_.blocks(); ++unit) {
        of[unit < scales_a_.blocks() ? 0 : 1].add(ranges[unit]);
    }
    return may_fold(desc_, of[0], of[1]);
}

void BlockedGemm::set_fold(PackJob& job, const LineScales& scales, const float* values,
                           int64_t line, int64_t k) const noexcept {
    job.fold = values + k / block_k_ * scales.stride() + line;
    job.fold_stride = scales.stride();
    job.fold_depth = block_k_;
}

// For the step along k that starts there.
void BlockedGemm::set_scales(const Run& run, const OutputBlock& block, int64_t k, bool is_last,
                             MultiplyJob& job) const noexcept {
    if (run.scales_a == nullptr || run.folds_scales || (block_k_ == 0 && !is_last)) {
        return;
    }
    const int64_t row = block_k_ == 0 ? 0 : k / block_k_;
    job.scale_a = run.scales_a + row * scales_a_.stride() + block.row;
    job.scale_b = run.scales_b + row * scales_b_.stride() + block.column;
    job.block_words = words(block_k_);
    job.scale_stride_a = scales_a_.stride();
    job.scale_stride_b = scales_b_.stride();
}

void BlockedGemm::finish(const Run& run, const OutputBlock& block,
                         const float* sums) const noexcept {
    FinishJob job = finish_job(desc_, run.buffers, block.batch, block.row, block.column);
    job.sums = sums;
    job.stride = grid_.columns;
    job.rows = block.rows;
    job.columns = block.columns;
    table_.finish(job);
    raise_amax(run.buffers.amax_d, job.amax);
}

BlockedGemm::OutputBlock BlockedGemm::block_at(int64_t index) const noexcept {
    OutputBlock block{};
    block.batch = index / grid_.blocks();
    block.row = index % grid_.blocks() / grid_.column_blocks * grid_.rows;
    block.column = index % grid_.column_blocks * grid_.columns;
    block.rows = std::min(grid_.rows, desc_.m - block.row);
    block.columns = std::min(grid_.columns, desc_.n - block.column);
    return block;
}

void BlockedGemm::compute_block(const Run& run, int64_t index, char* scratch) const noexcept {
    const OutputBlock block = block_at(index);
    auto* a = reinterpret_cast<uint32_t*>(scratch);
    auto* own_b = reinterpret_cast<uint32_t*>(scratch + b_at_);
    auto* sums = reinterpret_cast<float*>(scratch + sums_at_);
    MultiplyJob job{};
    job.a = a;
    job.rows = block.rows;
    job.columns = block.columns;
    job.d = sums;
    job.stride_d = grid_.columns;
    if (is_direct_) {
        job.d = static_cast<float*>(
            at(run.buffers.d,
               block.batch * desc_.batch_stride_d + block.row * desc_.ldd + block.column,
               DType::fp32));
        job.stride_d = desc_.ldd;
    }
    // One step also where k is 0, which writes alpha * 0 + bias.
    const int64_t steps = std::max<int64_t>(depth_steps(), 1);
    for (int64_t step = 0; step < steps; ++step) {
        const int64_t k = step * kDepthWords * (pairs_ ? 2 : 1);
        job.words = words(depth_from(k));
        job.group_stride = job.words * kGroupRows + kGroupSlack;
        pack_a(run, block.batch, block.row, block.rows, k, a);
        if (shares_b_) {
            job.b = reinterpret_cast<const uint32_t*>(run.scratch) +
                    block.column / grid_.columns * shared_panels_ * shared_panel_ +
                    step * kDepthWords * kPanelColumns;
            job.panel_stride = shared_panel_;
        } else {
            job.b = own_b;
            job.panel_stride = job.words * kPanelColumns;
            pack_b(run, block.batch, block.column, k, own_b, job.panel_stride);
        }
        const bool is_last = step == steps - 1;
        job.accumulate = step > 0;
        job.alpha = is_direct_ && is_last ? desc_.alpha : 1.0F;
        job.bias = is_last && run.bias != nullptr ? run.bias + block.column : nullptr;
        set_scales(run, block, k, is_last, job);
        pairs_ ? table_.multiply_pairs(job) : table_.multiply(job);
    }
    if (!is_direct_) {
        finish(run, block, sums);
    }
}

Status BlockedGemm::run(const Resources& with, const GemmBuffers& buffers) const noexcept {
    const int64_t blocks = desc_.batch_count * grid_.blocks();
    if (blocks == 0) {
        return {};
    }
    ScratchPool::Lease lease;
    const auto parts = static_cast<std::size_t>(std::min<int64_t>(with.threads.threads(), blocks));
    const Status status = with.scratch.take(shared_bytes_ + parts * thread_bytes_, lease);
    if (!status.ok()) {
        return status;
    }
    Run run = {buffers, static_cast<char*>(lease.data()), nullptr, nullptr, nullptr, false};
    if (is_direct_ && desc_.dtype_bias == DType::fp32) {
        run.bias = static_cast<const float*>(buffers.bias);
    } else if (is_direct_ && desc_.dtype_bias != DType::none) {
        auto* wide = reinterpret_cast<float*>(run.scratch + bias_at_);
        table_.widen(desc_.dtype_bias, buffers.bias, desc_.n, wide);
        run.bias = wide;
    }
    if (const int64_t units = scales_a_.blocks() + scales_b_.blocks(); units > 0) {
        run.scales_a = reinterpret_cast<const float*>(run.scratch + scales_at_);
        run.scales_b = run.scales_a + scales_a_.size();
        with.threads.for_each(units, [&](int64_t unit) { widen_scales(run, unit); });
        run.folds_scales = folds_scales(run);
    }
    if (shares_b_) {
        with.threads.for_each(grid_.column_blocks * depth_steps(),
                              [&](int64_t unit) { pack_shared(run, unit); });
    }
    char* const own = run.scratch + shared_bytes_;
    with.threads.for_each_on(blocks, [&](int64_t index, int32_t thread) {
        compute_block(run, index, own + static_cast<std::size_t>(thread) * thread_bytes_);
    });
    return {};
}

} // namespace mp::backends::host
