// SPDX-License-Identifier: Apache-2.0
// What a reduction may be, and what its messages hold.
#include <algorithm>

#include "comm/reduce_scatter.hpp"
#include "comm/shares.hpp"
#include "dtype/divide.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

constexpr int64_t kPartAlign = 16;

} // namespace

void check_reduce(const ReduceDesc& desc, DType result, const char* what) {
    check_wire(desc.wire, what);
    const OrderTraits& order = traits(desc.order);
    if (order.may_be_native && desc.wire.is_quantized()) {
        fail(Code::unsupported,
             "%s: order %s adds in the wire's own type, and fp8 would be rounded at every hop (27 "
             "to 92 %% error at 64 ranks); use order rank",
             what, order.name);
    }
    if (order.has_slots && wire_scale(desc.wire) == WireScale::tensor) {
        fail(Code::unsupported,
             "%s: order %s promises the same bits for every number of ranks, but one scale a "
             "message depends on who gets what; use block scales",
             what, order.name);
    }
    const Accumulate wanted = order.is_fixed ? Accumulate::fixed : Accumulate::fp32;
    if (desc.accumulate != Accumulate::automatic && desc.accumulate != wanted &&
        !(order.may_be_wide && desc.accumulate == Accumulate::fp64)) {
        fail(Code::unsupported, "%s: order %s accumulates in %s", what, order.name,
             order.is_fixed      ? "int64"
             : order.may_be_wide ? "fp32 or fp64"
                                 : "fp32 only, because partial sums travel in it");
    }
    if (result != DType::fp32 && result != DType::fp16 && result != DType::bf16) {
        fail(Code::invalid_dtype, "%s: the result is fp32, fp16 or bf16, not %s", what,
             dtype_name(result));
    }
    if (desc.slots < 0 || desc.slots > kMostSlots) {
        fail(Code::invalid_argument, "%s: %d slots; there may be 1 to %d", what, desc.slots,
             kMostSlots);
    }
    check_rounding(desc.rounding, what);
}

std::vector<int64_t> even_counts(int64_t total, int32_t ranks, int64_t align) {
    const int64_t share = round_up(divide_up(total, ranks), align);
    std::vector<int64_t> counts(static_cast<std::size_t>(ranks));
    for (int64_t r = 0; r < ranks; ++r) {
        counts[static_cast<std::size_t>(r)] =
            std::min(total, (r + 1) * share) - std::min(total, r * share);
    }
    return counts;
}

MessageLayout message_layout(const ReduceDesc& desc, int32_t rank, int32_t ranks, int64_t count) {
    MessageLayout layout;
    const OrderTraits& order = traits(desc.order);
    const int32_t slots = !order.has_slots || desc.slots == 0 ? ranks : desc.slots;
    for (const SlotRun run : order.sums(slots_of(rank, ranks, slots), slots)) {
        MessageLayout::Part part;
        part.slots = run;
        part.format = run.count() == 1 ? desc.wire : order.partial;
        part.offset = round_up(layout.bytes, kPartAlign);
        layout.bytes = part.offset + wire_bytes(count, part.format);
        layout.parts.push_back(part);
    }
    layout.bytes = count == 0 ? 0 : layout.bytes;
    return layout;
}

} // namespace mp::comm
