// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/ranking.hpp"

#include <algorithm>
#include <ctime>

namespace mp::backends::host {

namespace {

constexpr int64_t kProbeSize = 256;
constexpr double kProbeSeconds = 1e-3;
constexpr int kProbeRuns = 3;

// The thread's own time: what other processes take does not count.
double thread_seconds() {
    timespec now{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

GemmDesc probe(DType dtype) {
    GemmDesc op{};
    op.kind = OpKind::gemm;
    op.m = op.n = op.k = kProbeSize;
    op.lda = op.ldb = op.ldc = op.ldd = kProbeSize;
    op.batch_stride_a = op.batch_stride_b = op.batch_stride_c = op.batch_stride_d =
        kProbeSize * kProbeSize;
    op.dtype_a = op.dtype_b = dtype;
    op.dtype_d = DType::fp32;
    return op;
}

// The best of a few runs, after one that is not counted.
double measure(const GemmImplementation& implementation, DType dtype, ScratchPool& pool,
               const GemmBuffers& buffers) {
    const GemmDesc op = probe(dtype);
    Reason reason;
    std::unique_ptr<HostGemm> plan;
    if (!implementation.supports(op, reason) || !implementation.make(op, 1, plan).ok() ||
        !plan->run(pool, buffers).ok()) {
        return 0.0;
    }
    double best = 1e30;
    double spent = 0.0;
    for (int run = 0; run < kProbeRuns || spent < kProbeSeconds; ++run) {
        const double start = thread_seconds();
        (void)plan->run(pool, buffers);
        const double seconds = std::max(thread_seconds() - start, 1e-9);
        best = std::min(best, seconds);
        spent += seconds;
    }
    return 2e-9 * static_cast<double>(kProbeSize * kProbeSize * kProbeSize) / best;
}

} // namespace

Ranking default_ranking() noexcept {
    const GemmImplementations onednn = onednn_implementations();
    Ranking ranking;
    const auto add = [&ranking](const GemmImplementation* implementation, DType dtype) {
        ranking.rates[static_cast<std::size_t>(ranking.count)] = {implementation, dtype, 0.0};
        ranking.order[static_cast<std::size_t>(ranking.count++)] = implementation;
    };
    add(&kBlockedFp32, DType::fp32);
    if (onednn.count > 0) {
        add(&onednn.items[0], DType::fp32);
    }
    add(&kBlockedBf16, DType::bf16);
    add(&kWidenFp32, DType::bf16);
    if (onednn.count > 1) {
        add(&onednn.items[1], DType::bf16);
    }
    return ranking;
}

void rank_by_rates(Ranking& ranking) noexcept {
    std::array<Rate, kMaxImplementations> sorted = ranking.rates;
    // Insertion: each moves up past every neighbour that it clearly beats.
    for (int32_t i = 1; i < ranking.count; ++i) {
        for (int32_t j = i; j > 0; --j) {
            Rate& upper = sorted[static_cast<std::size_t>(j - 1)];
            Rate& lower = sorted[static_cast<std::size_t>(j)];
            if (upper.dtype != lower.dtype || lower.gflops <= kClearlyFaster * upper.gflops) {
                break;
            }
            std::swap(upper, lower);
        }
    }
    for (int32_t i = 0; i < ranking.count; ++i) {
        ranking.order[static_cast<std::size_t>(i)] =
            sorted[static_cast<std::size_t>(i)].implementation;
    }
}

Ranking measure_ranking(ScratchPool& pool) noexcept {
    Ranking ranking = default_ranking();
    constexpr auto kElements = static_cast<std::size_t>(kProbeSize * kProbeSize);
    ScratchPool::Lease operand;
    ScratchPool::Lease result;
    if (!pool.take(kElements * sizeof(float), operand).ok() ||
        !pool.take(kElements * sizeof(float), result).ok()) {
        return ranking;
    }
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        if (dtype == DType::fp32) {
            std::fill_n(static_cast<float*>(operand.data()), kElements, 1.0F);
        } else {
            std::fill_n(static_cast<uint16_t*>(operand.data()), kElements, uint16_t{0x3f80}); // 1.0
        }
        for (Rate& rate : ranking.rates) {
            if (rate.implementation != nullptr && rate.dtype == dtype) {
                rate.gflops =
                    measure(*rate.implementation, dtype, pool,
                            {operand.data(), operand.data(), nullptr, nullptr, result.data()});
            }
        }
    }
    rank_by_rates(ranking);
    return ranking;
}

} // namespace mp::backends::host
