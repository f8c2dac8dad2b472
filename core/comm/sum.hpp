// SPDX-License-Identifier: Apache-2.0
// In which order contributions are added, and which bits that promises:
//   rank   left to right by rank: the same for a fixed number of ranks, whatever the threads, vectors and buckets
//   tree   the balanced tree over the slots (microbatches of the global batch): the same for every number of ranks
//   exact  fixed point under the blocks' agreed amax, one rounding: the same for every number of ranks and any order
//   fast   the transport's own sum where it has one, else as rank: nothing but that all ranks get the same
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/stream.hpp"
#include "interface/ops.hpp"

namespace mp::comm {

enum class SumOrder : int32_t { rank = 0, tree = 1, exact = 2, fast = 3 };

const char* order_name(SumOrder order) noexcept;

// Those that promise the same bits for every number of ranks, and therefore know slots.
[[nodiscard]] constexpr bool has_slots(SumOrder order) {
    return order == SumOrder::tree || order == SumOrder::exact;
}

// What contributions are added in. automatic: fp32, or fixed point for exact.
enum class Accumulate : int32_t { automatic = 0, fp32 = 1, fp64 = 2, fixed = 3 };

inline constexpr int32_t kMostSlots = 1 << 20;

// Slots [first, end) that a rank owns: contiguous runs in rank order, as even as can be.
struct SlotRun {
    int32_t first = 0;
    int32_t end = 0;
    [[nodiscard]] constexpr int32_t count() const { return end - first; }
};
[[nodiscard]] constexpr SlotRun slots_of(int32_t rank, int32_t ranks, int32_t slots) {
    const auto at = [&](int64_t r) { return static_cast<int32_t>(r * slots / ranks); };
    return {at(rank), at(int64_t{rank} + 1)};
}

// log2 of the leaves of the tree over so many slots: of the next power of two.
[[nodiscard]] int32_t tree_levels(int32_t slots);

// The slots from first * on, 2^level of them; those from `slots` on do not exist and add nothing.
struct Subtree {
    int32_t first = 0;
    int32_t level = 0;

    [[nodiscard]] constexpr int32_t end(int32_t slots) const {
        const int64_t after = int64_t{first} + (int64_t{1} << level);
        return after < slots ? static_cast<int32_t>(after) : slots;
    }
    constexpr bool operator==(const Subtree&) const = default;
};

// The largest subtrees inside a run, in order: one where ranks and slots are powers of two, at most 2 log2(slots).
[[nodiscard]] std::vector<Subtree> subtrees_of(SlotRun run, int32_t slots);

// SumPart::merges for parts that are sums over subtrees, together all the slots of `root`, in order.
[[nodiscard]] std::vector<int32_t> tree_merges(std::span<const Subtree> parts, Subtree root,
                                               int32_t slots);

// Enqueues a sum of parts; on another device than the host the table of parts is copied there. kind, parts,
// host_parts and part_count are filled in.
void sum_parts(Stream& stream, std::span<const SumPart> parts, SumPartsDesc op);

} // namespace mp::comm
