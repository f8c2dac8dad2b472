// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/candidates.hpp"

#include <array>
#include <mutex>

#include "host/gemm/ranking.hpp"
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

// The interface's functions get no pointer of ours, so each implementation has functions of its own.
template <const GemmImplementation& kImplementation>
bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return kImplementation.supports(static_cast<const GemmDesc&>(op), reason);
}

template <const GemmImplementation& kImplementation>
Status prepare(Device& device, const GemmDesc& op, Plan** plan) noexcept {
    std::unique_ptr<HostGemm> made;
    const Status status = kImplementation.make(op, device.num_threads(), made);
    *plan = made.release();
    return status;
}

Status run_plan(Device& device, Queue& /*queue*/, Plan& plan, const GemmBuffers& buffers) noexcept {
    return static_cast<HostGemm&>(plan).run(resources_of(device), buffers);
}

template <const GemmImplementation& kImplementation> Candidate candidate() noexcept {
    return {kImplementation.name, supports<kImplementation>, nullptr, prepare<kImplementation>,
            run_plan};
}

Candidate candidate_of(const GemmImplementation* implementation) noexcept {
    if (implementation == &kFewRows) {
        return candidate<kFewRows>();
    }
    if (implementation == &kBlockedFp32) {
        return candidate<kBlockedFp32>();
    }
    if (implementation == &kWidenFp32) {
        return candidate<kWidenFp32>();
    }
    if (implementation == &kBlockedBf16) {
        return candidate<kBlockedBf16>();
    }
    return implementation == &kOnednnFp32 ? candidate<kOnednnFp32>() : candidate<kOnednnBf16>();
}

using Candidates = std::array<Candidate, kImplementationCount + 1>;

const ProductOrder& order_here() noexcept { return product_order(this_processor()); }

// One for each row that was in use: MIXEDPREC_ISA may change between contexts.
const Candidates& candidates_of(const ProductOrder& order) noexcept {
    struct Known {
        const ProductOrder* order = nullptr;
        Candidates items;
    };
    static std::mutex mutex;
    static std::array<Known, 8> known;
    const std::lock_guard<std::mutex> lock(mutex);
    Known* at = known.data();
    while (at->order != nullptr && at->order != &order) {
        ++at;
    }
    if (at->order == nullptr) {
        for (std::size_t i = 0; i < kImplementationCount; ++i) {
            at->items[i] = candidate_of(order.items[i]);
        }
        at->items[kImplementationCount] = kGemm;
        at->order = &order;
    }
    return at->items;
}

} // namespace

CandidateList gemm_candidates() noexcept {
    const Candidates& items = candidates_of(order_here());
    return {items.data(), static_cast<int32_t>(items.size())};
}

bool has_fast_bf16() noexcept { return order_here().has_fast_bf16; }

const char* gemm_processor() noexcept { return order_here().processor; }

} // namespace mp::backends::host
