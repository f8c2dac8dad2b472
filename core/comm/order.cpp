// SPDX-License-Identifier: Apache-2.0
#include "comm/order.hpp"

#include <bit>
#include <string>

#include "status/status.hpp"

namespace mp::comm {
namespace {

// Slots from `first` on, 2^level of them; those from `slots` on do not exist.
struct Subtree {
    int32_t first = 0;
    int32_t level = 0;

    [[nodiscard]] SlotRun run(int32_t slots) const {
        const int64_t after = int64_t{first} + (int64_t{1} << level);
        return {first, after < slots ? static_cast<int32_t>(after) : slots};
    }
    [[nodiscard]] Subtree left() const { return {first, level - 1}; }
    [[nodiscard]] Subtree right() const { return {first + (1 << (level - 1)), level - 1}; }
};

// Appends the subtrees of `node` that lie inside the run.
void cover(Subtree node, SlotRun run, int32_t slots, std::vector<SlotRun>& out) {
    const SlotRun own = node.run(slots);
    if (own.count() <= 0 || run.first >= own.end || run.end <= own.first) {
        return;
    }
    if (run.first <= own.first && own.end <= run.end) {
        out.push_back(own);
    } else if (node.level > 0) { // a slot is in the run or is not
        cover(node.left(), run, slots, out);
        cover(node.right(), run, slots, out);
    }
}

struct MergeBuilder {
    std::span<const SlotRun> parts;
    int32_t slots;
    std::size_t next = 0;
    std::vector<int32_t> merges;

    // True where the node has any slots.
    bool build(Subtree node) {
        const SlotRun own = node.run(slots);
        if (own.count() <= 0) {
            return false;
        }
        if (next < parts.size() && parts[next] == own) {
            ++next;
            merges.push_back(0);
            return true;
        }
        if (node.level == 0) {
            fail(Code::internal, "tree sum: nobody has slot %d", static_cast<int>(node.first));
        }
        const bool left = build(node.left());
        const bool right = build(node.right());
        if (left && right) {
            ++merges.back();
        }
        return left || right;
    }
};

std::vector<SlotRun> whole_run(SlotRun run, int32_t /*slots*/) {
    return run.count() > 0 ? std::vector<SlotRun>{run} : std::vector<SlotRun>{};
}

bool always(int32_t /*slots*/, int32_t /*groups*/) { return true; }
bool never(int32_t /*slots*/, int32_t /*groups*/) { return false; }
// A group's slots are a whole subtree.
bool as_subtree(int32_t slots, int32_t groups) {
    return slots % groups == 0 && std::has_single_bit(static_cast<uint32_t>(slots / groups));
}

constexpr Format kPlain = wire_format(DType::fp32);
constexpr Format kUnits = wire_format(DType::int64);

// Left to right by rank: the same bits for a fixed number of ranks, whatever the threads, vectors and buckets.
constexpr OrderTraits kRank = {"rank",    false,  false,   true,  false,
                               whole_run, kPlain, nullptr, always};
// The balanced tree over the slots (microbatches of the global batch): the same bits for every number of ranks.
constexpr OrderTraits kTree = {"tree",      true,   false,       false,     false,
                               subtrees_of, kPlain, tree_merges, as_subtree};
// Fixed point under the blocks' agreed amax, one rounding: the same bits for every number of ranks and any order.
constexpr OrderTraits kExact = {"exact",   true,   false,   false, true,
                                whole_run, kUnits, nullptr, never};
// The transport's own sum where it has one, else as rank: nothing but that all ranks get the same.
constexpr OrderTraits kFast = {"fast",    false,  true,    true,  false,
                               whole_run, kPlain, nullptr, always};

} // namespace

const OrderTraits& traits(SumOrder order) noexcept {
    switch (order) {
    case SumOrder::rank:
        return kRank;
    case SumOrder::tree:
        return kTree;
    case SumOrder::exact:
        return kExact;
    case SumOrder::fast:
        return kFast;
    }
    __builtin_unreachable();
}

int32_t tree_levels(int32_t slots) {
    int32_t levels = 0;
    while ((int64_t{1} << levels) < slots) {
        ++levels;
    }
    return levels;
}

std::vector<SlotRun> subtrees_of(SlotRun run, int32_t slots) {
    std::vector<SlotRun> out;
    cover({0, tree_levels(slots)}, run, slots, out);
    return out;
}

std::vector<int32_t> tree_merges(std::span<const SlotRun> parts, SlotRun whole, int32_t slots) {
    MergeBuilder builder{parts, slots, 0, {}};
    builder.build({whole.first, tree_levels(whole.count())});
    if (builder.next != parts.size()) {
        fail(Code::internal, "tree sum: part %zu is in nobody's place", builder.next);
    }
    return std::move(builder.merges);
}

void set_merges(std::span<SumPart> parts, std::span<const SlotRun> runs, SlotRun whole,
                SumOrder order, int32_t slots) {
    const auto tree = traits(order).merges;
    const std::vector<int32_t> merges =
        tree != nullptr && !parts.empty() ? tree(runs, whole, slots) : std::vector<int32_t>();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i].merges = tree != nullptr ? merges[i] : i == 0 ? 0 : 1;
    }
}

} // namespace mp::comm
