// SPDX-License-Identifier: Apache-2.0
#include "host/gemm_candidates.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "host/gemm_onednn.hpp"
#include "kokkos/host_ops.hpp"

namespace mp::backends::host {
namespace {

// Native bf16 stays first unless widening is clearly faster, so that noise does not change the order, and with it
// the bits, from one run to the next.
constexpr double kClearlyFaster = 1.15;
constexpr int64_t kProbeSize = 384;
constexpr int kProbeRuns = 5;

struct Ranking {
    std::array<Candidate, 4> order;
    double native_bf16_gflops = 0.0; // 0: it cannot
    double widened_gflops = 0.0;
};

class NoQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
};

// The rate of one candidate for a bf16 product of moderate size; 0 where it fails.
double measure(Device& device, const Candidate& candidate, const std::vector<uint16_t>& operand,
               std::vector<float>& result) {
    GemmDesc op{};
    op.kind = OpKind::gemm;
    op.m = op.n = op.k = kProbeSize;
    op.lda = op.ldb = op.ldc = op.ldd = kProbeSize;
    op.batch_stride_a = op.batch_stride_b = op.batch_stride_c = op.batch_stride_d =
        kProbeSize * kProbeSize;
    op.dtype_a = op.dtype_b = DType::bf16;
    op.dtype_d = DType::fp32;
    Plan* raw = nullptr;
    if (!candidate.prepare(device, op, &raw).ok()) {
        return 0.0;
    }
    const std::unique_ptr<Plan> plan(raw);
    NoQueue queue;
    double best = 1e30;
    for (int i = 0; i < kProbeRuns; ++i) {
        const auto start = std::chrono::steady_clock::now();
        if (!candidate
                 .run_plan(device, queue, *plan,
                           {operand.data(), operand.data(), nullptr, nullptr, result.data()})
                 .ok()) {
            return 0.0;
        }
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 2.0 * static_cast<double>(kProbeSize * kProbeSize * kProbeSize) / best / 1e9;
}

Ranking rank(Device& device) {
    Ranking ranking;
    const std::vector<uint16_t> ones(kProbeSize * kProbeSize, 0x3f80);
    std::vector<float> result(kProbeSize * kProbeSize);
    ranking.native_bf16_gflops = measure(device, kOnednnBf16, ones, result);
    ranking.widened_gflops = measure(device, kWidenFp32, ones, result);
    const bool widen_first = ranking.widened_gflops > kClearlyFaster * ranking.native_bf16_gflops;
    ranking.order = {kOnednnFp32, widen_first ? kWidenFp32 : kOnednnBf16,
                     widen_first ? kOnednnBf16 : kWidenFp32,
                     kokkos::host_candidates(OpKind::gemm).items[0]};
    return ranking;
}

// Measured once a process: a few milliseconds, at the first question.
const Ranking& ranking_of(const Device& device) {
    static const Ranking ranking = rank(const_cast<Device&>(device));
    return ranking;
}

} // namespace

CandidateList gemm_candidates(const Device& device) noexcept {
    try {
        const Ranking& ranking = ranking_of(device);
        return {ranking.order.data(), static_cast<int32_t>(ranking.order.size())};
    } catch (...) { // no memory to measure with
        return kokkos::host_candidates(OpKind::gemm);
    }
}

void describe_gemm_ranking(const Device& device, TextLine<2048>& text) noexcept {
    try {
        const Ranking& ranking = ranking_of(device);
        text.set(
            R"({"bf16_probe_gflops": {"onednn_bf16": %.0f, "widen_fp32": %.0f}, "rule": "native bf16 first unless )"
            R"(widening is %.2f times as fast", "first": "%s"})",
            ranking.native_bf16_gflops, ranking.widened_gflops, kClearlyFaster,
            ranking.order[1].name);
    } catch (...) {
        text.set(R"({"first": "kokkos"})");
    }
}

} // namespace mp::backends::host
