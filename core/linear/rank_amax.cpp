// SPDX-License-Identifier: Apache-2.0
#include "linear/rank_amax.hpp"

#include "numerics/bits.hpp"

namespace mp {
namespace {

using numerics::DelayedSlot;

// Between the slots of all states, in device memory, and one array.
void copy_slots(Stream& stream, std::span<const ScalingState* const> states,
                std::vector<DelayedSlot>& host, CopyKind kind) {
    for (std::size_t i = 0; i < states.size(); ++i) {
        DelayedSlot* near = &host[i * kOperands];
        DelayedSlot* device = states[i]->slots();
        const bool is_read = kind == CopyKind::device_to_host;
        stream.copy(is_read ? near : device, is_read ? device : near,
                    kOperands * sizeof(DelayedSlot), kind);
    }
    stream.sync();
}

} // namespace

void reduce_amaxes(Stream& stream, comm::Communicator& comm,
                   std::span<const ScalingState* const> states) {
    std::vector<const ScalingState*> shared;
    for (const ScalingState* state : states) {
        if (state->reduces_amax()) {
            shared.push_back(state);
        }
    }
    std::vector<DelayedSlot> slots(shared.size() * kOperands);
    copy_slots(stream, shared, slots, CopyKind::device_to_host);
    std::vector<uint32_t> bits;
    bits.reserve(slots.size());
    for (const DelayedSlot& slot : slots) {
        bits.push_back(numerics::bits_from_float(slot.amax));
    }
    comm::CallOptions options;
    options.site = "amaxes of delayed scaling";
    check(comm.max_u32(bits.data(), static_cast<int64_t>(bits.size()), options));
    for (std::size_t i = 0; i < slots.size(); ++i) {
        slots[i].amax = numerics::float_from_bits(bits[i]);
    }
    copy_slots(stream, shared, slots, CopyKind::host_to_device);
}

} // namespace mp
