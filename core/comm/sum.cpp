// SPDX-License-Identifier: Apache-2.0
#include "comm/sum.hpp"

#include "device/select.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

// Appends the subtrees of `node` that lie inside the run.
void cover(Subtree node, SlotRun run, int32_t slots, std::vector<Subtree>& out) {
    const int32_t end = node.end(slots);
    if (node.first >= end || run.first >= end || run.end <= node.first) {
        return;
    }
    if (run.first <= node.first && end <= run.end) {
        out.push_back(node);
        return;
    }
    if (node.level <= 0) {
        return; // a slot is in the run or is not
    }
    const int32_t below = node.level - 1;
    cover({node.first, below}, run, slots, out);
    cover({node.first + (1 << below), below}, run, slots, out);
}

struct MergeBuilder {
    std::span<const Subtree> parts;
    int32_t slots;
    std::size_t next = 0;
    std::vector<int32_t> merges;

    // True where the node has any slots.
    bool build(Subtree node) {
        if (node.first >= slots) {
            return false;
        }
        if (next < parts.size() && parts[next] == node) {
            ++next;
            merges.push_back(0);
            return true;
        }
        if (node.level == 0) {
            fail(Code::internal, "tree sum: nobody has slot %d", static_cast<int>(node.first));
        }
        const int32_t below = node.level - 1;
        const bool left = build({node.first, below});
        const bool right = build({node.first + (1 << below), below});
        if (left && right) {
            ++merges.back();
        }
        return left || right;
    }
};

} // namespace

const char* order_name(SumOrder order) noexcept {
    switch (order) {
    case SumOrder::rank:
        return "rank";
    case SumOrder::tree:
        return "tree";
    case SumOrder::exact:
        return "exact";
    case SumOrder::fast:
        return "fast";
    }
    return "unknown order";
}

int32_t tree_levels(int32_t slots) {
    int32_t levels = 0;
    while ((int64_t{1} << levels) < slots) {
        ++levels;
    }
    return levels;
}

std::vector<Subtree> subtrees_of(SlotRun run, int32_t slots) {
    std::vector<Subtree> out;
    cover({0, tree_levels(slots)}, run, slots, out);
    return out;
}

std::vector<int32_t> tree_merges(std::span<const Subtree> parts, Subtree root, int32_t slots) {
    MergeBuilder builder{parts, slots, 0, {}};
    builder.build(root);
    if (builder.next != parts.size()) {
        fail(Code::internal, "tree sum: part %zu is in nobody's place", builder.next);
    }
    return std::move(builder.merges);
}

void sum_parts(Stream& stream, std::span<const SumPart> parts, SumPartsDesc op) {
    op.kind = OpKind::sum_parts;
    op.host_parts = parts.data();
    op.part_count = static_cast<int32_t>(parts.size());
    if (stream.device().is_host()) {
        op.parts = parts.data();
        run_op(stream, op);
        return;
    }
    const Scratch table(stream, parts.size_bytes());
    stream.copy(table.data(), parts.data(), parts.size_bytes(), CopyKind::host_to_device);
    op.parts = static_cast<const SumPart*>(table.data());
    run_op(stream, op);
}

} // namespace mp::comm
