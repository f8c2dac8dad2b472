// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/candidates.hpp"

#include <algorithm>
#include <array>
#include <mutex>

#include "host/device.hpp"
#include "host/gemm/panels.hpp"
#include "host/gemm/ranking.hpp"
#include "kokkos/host_ops.hpp"

namespace mp::backends::host {

namespace {

// One candidate is its implementation's place in the default order: the functions of the interface get no
// pointer of ours.
const GemmImplementation& implementation_at(int32_t place) noexcept {
    static const Ranking all = default_ranking();
    return *all.order[static_cast<std::size_t>(place)];
}

template <int32_t kPlace>
bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return implementation_at(kPlace).supports(static_cast<const GemmDesc&>(op), reason);
}

template <int32_t kPlace> Status prepare(Device& device, const GemmDesc& op, Plan** plan) noexcept {
    std::unique_ptr<HostGemm> made;
    const Status status = implementation_at(kPlace).make(op, device.num_threads(), made);
    *plan = made.release();
    return status;
}

Status run_plan(Device& device, Queue& /*queue*/, Plan& plan, const GemmBuffers& buffers) noexcept {
    return static_cast<HostGemm&>(plan).run(static_cast<HostDevice&>(device).scratch(), buffers);
}

template <int32_t kPlace> Candidate candidate() {
    return {implementation_at(kPlace).name, supports<kPlace>, nullptr, prepare<kPlace>, run_plan};
}

Candidate candidate_at(int32_t place) {
    switch (place) {
    case 0:
        return candidate<0>();
    case 1:
        return candidate<1>();
    case 2:
        return candidate<2>();
    case 3:
        return candidate<3>();
    default:
        return candidate<4>();
    }
}
static_assert(kMaxImplementations == 5);

struct RankedCandidates {
    const PanelTable* table = nullptr; // the instruction set they were measured with
    Ranking ranking;
    std::array<Candidate, kMaxImplementations + 1> items;
    int32_t count = 0;
};

void fill(RankedCandidates& ranked, const Ranking& ranking) noexcept {
    ranked.ranking = ranking;
    for (int32_t i = 0; i < ranking.count; ++i) {
        for (int32_t place = 0; place < ranking.count; ++place) {
            if (&implementation_at(place) == ranking.order[static_cast<std::size_t>(i)]) {
                ranked.items[static_cast<std::size_t>(ranked.count++)] = candidate_at(place);
            }
        }
    }
    // Last: it takes everything.
    ranked.items[static_cast<std::size_t>(ranked.count++)] =
        kokkos::host_candidates(OpKind::gemm).items[0];
}

// One for each instruction set that was in use; never more than there are tables.
const RankedCandidates& ranked_candidates(const HostDevice& device) noexcept {
    static std::mutex mutex;
    static std::array<RankedCandidates, 4> known;
    const PanelTable& table = active_panel_table();
    const std::lock_guard<std::mutex> lock(mutex);
    for (RankedCandidates& ranked : known) {
        if (ranked.table == nullptr) {
            fill(ranked, measure_ranking(device.scratch()));
            ranked.table = &table;
        }
        if (ranked.table == &table) {
            return ranked;
        }
    }
    return known.back();
}

} // namespace

CandidateList gemm_candidates(const HostDevice& device) noexcept {
    const RankedCandidates& ranked = ranked_candidates(device);
    return {ranked.items.data(), ranked.count};
}

double bf16_speedup(const HostDevice& device) noexcept {
    double fp32 = 0.0;
    double bf16 = 0.0;
    for (const Rate& rate : ranked_candidates(device).ranking.rates) {
        double& best = rate.dtype == DType::bf16 ? bf16 : fp32;
        best = std::max(best, rate.gflops);
    }
    return fp32 > 0.0 ? bf16 / fp32 : 1.0;
}

void describe_gemm_ranking(const HostDevice& device, TextLine<1024>& text) noexcept {
    const RankedCandidates& ranked = ranked_candidates(device);
    TextLine<512> order;
    for (int32_t i = 0; i < ranked.count; ++i) {
        const TextLine<512> before = order;
        order.set("%s%s\"%s\"", before.c_str(), i == 0 ? "" : ", ",
                  ranked.items[static_cast<std::size_t>(i)].name);
    }
    TextLine<512> rates;
    for (const Rate& rate : ranked.ranking.rates) {
        if (rate.implementation != nullptr) {
            const TextLine<512> before = rates;
            rates.set("%s%s\"%s, %s\": %.0f", before.c_str(), before.empty() ? "" : ", ",
                      rate.implementation->name, dtype_name(rate.dtype), rate.gflops);
        }
    }
    text.set(
        R"({"order": [%s], "gflops_of_one_thread": {%s}, "rule": "what is %.2f times as fast for a type moves up"})",
        order.c_str(), rates.c_str(), kClearlyFaster);
}

} // namespace mp::backends::host
