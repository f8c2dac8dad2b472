// SPDX-License-Identifier: Apache-2.0
// In which order contributions are added, and which bits that promises. Everything that depends on the order is in its
// OrderTraits; a new order is a row of orders.def, its traits in order.cpp, and its constant in the public header.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/wire.hpp"
#include "device/ops.hpp"

namespace mp::comm {

enum class SumOrder : int32_t {
#define X(c_name, name) name,
#include "comm/orders.def"
#undef X
};
inline constexpr int32_t kOrders = 0
#define X(c_name, name) +1
#include "comm/orders.def"
#undef X
    ;

// Slots [first, end) that a rank owns: contiguous runs in rank order, as even as can be.
struct SlotRun {
    int32_t first = 0;
    int32_t end = 0;
    [[nodiscard]] constexpr int32_t count() const { return end - first; }
    constexpr bool operator==(const SlotRun&) const = default;
};
[[nodiscard]] constexpr SlotRun slots_of(int32_t rank, int32_t ranks, int32_t slots) {
    const auto at = [&](int64_t r) { return static_cast<int32_t>(r * slots / ranks); };
    return {at(rank), at(int64_t{rank} + 1)};
}

struct OrderTraits {
    const char* name;
    // Promises the same bits for every number of ranks, and therefore knows slots; else each rank is one.
    bool has_slots;
    bool may_be_native; // the transport's own sum where it has one
    bool may_be_wide;   // accumulates in fp64 where asked, as no partial sum travels
    bool is_fixed;      // adds in fixed point under the blocks' amax, which ranks agree on first
    // The runs of slots whose sums a rank sends; a run of one slot travels as it is on the wire, others as `partial`.
    std::vector<SlotRun> (*sums)(SlotRun run, int32_t slots);
    Format partial = wire_format(DType::bf16);
    // SumPart::merges of parts that are such sums, together all the slots of `whole`, in order. Null: one after another.
    std::vector<int32_t> (*merges)(std::span<const SlotRun> parts, SlotRun whole, int32_t slots);
    // Whether groups of ranks may add their own slots first, and their sums be added in fp32 then.
    bool (*nests)(int32_t slots, int32_t groups);
};
[[nodiscard]] const OrderTraits& traits(SumOrder order) noexcept;

[[nodiscard]] inline const char* order_name(SumOrder order) noexcept { return traits(order).name; }
[[nodiscard]] inline bool has_slots(SumOrder order) noexcept { return traits(order).has_slots; }

// log2 of the leaves of the tree over so many slots: of the next power of two.
[[nodiscard]] int32_t tree_levels(int32_t slots);

// The largest subtrees inside a run, in order: one where ranks and slots are powers of two, at most 2 log2(slots). The last
// leaves of a subtree may lie beyond `slots`; they do not exist and add nothing.
[[nodiscard]] std::vector<SlotRun> subtrees_of(SlotRun run, int32_t slots);
[[nodiscard]] std::vector<int32_t> tree_merges(std::span<const SlotRun> parts, SlotRun whole,
                                               int32_t slots);

// Sets in parts, the sums of `runs`, how they add up to the sum of `whole`.
void set_merges(std::span<SumPart> parts, std::span<const SlotRun> runs, SlotRun whole,
                SumOrder order, int32_t slots);

} // namespace mp::comm
