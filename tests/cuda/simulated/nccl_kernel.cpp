// SPDX-License-Identifier: Apache-2.0
#include "nccl_kernel.hpp"

#include <algorithm>
#include <cstring>

#include "comm/nccl/api.hpp"

namespace mp::simulated {

namespace {

void mismatch() noexcept { ++NcclRanks::mismatches(); }

template <typename T> void combine(void* into, const void* value, std::size_t bytes, bool is_sum) {
    auto* to = static_cast<T*>(into);
    const auto* from = static_cast<const T*>(value);
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
        to[i] = is_sum ? to[i] + from[i] : std::max(to[i], from[i]);
    }
}

} // namespace

std::atomic<int64_t>& NcclRanks::mismatches() noexcept {
    static std::atomic<int64_t> instance = 0;
    return instance;
}

void NcclRanks::run(int rank, const std::vector<NcclPart>& parts,
                    const std::atomic<bool>& is_given_up) {
    std::unique_lock lock(mutex_);
    int open = static_cast<int>(parts.size());
    for (const NcclPart& part : parts) {
        post(rank, {&part, &open});
    }
    changed_.wait(lock, [&] { return open == 0 || is_given_up.load(); });
    if (open != 0) {
        withdraw(&open);
    }
}

void NcclRanks::wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
}

void NcclRanks::post(int rank, const Posted& posted) {
    const int peer = posted.part->peer;
    switch (posted.part->kind) {
    case NcclPart::send:
        meet(sends_[{rank, peer}], receives_[{rank, peer}], posted);
        break;
    case NcclPart::receive:
        meet(receives_[{peer, rank}], sends_[{peer, rank}], posted);
        break;
    case NcclPart::broadcast:
    case NcclPart::all_reduce:
        join(rank, posted);
        break;
    }
}

// The first sent is the first received.
void NcclRanks::meet(std::deque<Posted>& mine, std::deque<Posted>& others, const Posted& posted) {
    if (others.empty()) {
        mine.push_back(posted);
        return;
    }
    const Posted other = others.front();
    others.pop_front();
    const bool is_send = posted.part->kind == NcclPart::send;
    const NcclPart& from = is_send ? *posted.part : *other.part;
    const NcclPart& to = is_send ? *other.part : *posted.part;
    if (from.bytes != to.bytes || from.type != to.type) {
        mismatch();
    }
    std::memcpy(to.to, from.from, std::min(from.bytes, to.bytes));
    --*posted.open;
    --*other.open;
    changed_.notify_all();
}

// The last rank does it for all, in the order of their coming: as NCCL's, its sums have an order that nobody promised.
void NcclRanks::join(int rank, const Posted& posted) {
    const int64_t sequence = collectives_of_[static_cast<std::size_t>(rank)]++;
    std::deque<Posted>& all = collectives_[sequence];
    all.push_back(posted);
    const NcclPart& first = *all.front().part;
    if (first.kind != posted.part->kind || first.bytes != posted.part->bytes ||
        first.type != posted.part->type || first.operation != posted.part->operation ||
        first.peer != posted.part->peer) {
        mismatch();
    }
    if (static_cast<int>(all.size()) < size_) {
        return;
    }
    // What each gives is read before anything is written: it may be in place.
    std::vector<unsigned char> result(first.bytes);
    bool is_begun = false;
    for (const Posted& each : all) {
        const void* const from = each.part->from;
        if (first.kind == NcclPart::broadcast && from == nullptr) {
            continue; // not the root
        }
        if (!is_begun) {
            std::memcpy(result.data(), from, first.bytes);
        } else if (first.type == comm::kNcclFloat32) {
            combine<float>(result.data(), from, first.bytes, first.operation == comm::kNcclSum);
        } else {
            combine<uint32_t>(result.data(), from, first.bytes, first.operation == comm::kNcclSum);
        }
        is_begun = true;
    }
    for (const Posted& each : all) {
        std::memcpy(each.part->to, result.data(), std::min(first.bytes, each.part->bytes));
        --*each.open;
    }
    collectives_.erase(sequence);
    changed_.notify_all();
}

void NcclRanks::withdraw(const int* open) {
    const auto is_of_it = [open](const Posted& posted) { return posted.open == open; };
    for (auto* channels : {&sends_, &receives_}) {
        for (auto& [channel, waiting] : *channels) {
            waiting.erase(std::remove_if(waiting.begin(), waiting.end(), is_of_it), waiting.end());
        }
    }
    for (auto& [sequence, waiting] : collectives_) {
        waiting.erase(std::remove_if(waiting.begin(), waiting.end(), is_of_it), waiting.end());
    }
}

} // namespace mp::simulated
