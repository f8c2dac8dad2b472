// SPDX-License-Identifier: Apache-2.0
#include "linear/rank_amax.hpp"

#include "numerics/bits.hpp"

namespace mp::linear {

using numerics::DelayedSlot;

RankAmaxes::RankAmaxes(std::span<const ScalingState* const> states) {
    for (const ScalingState* state : states) {
        if (state->reduces_amax()) {
            states_.push_back(state);
        }
    }
    slots_.resize(states_.size() * kOperands);
    bits_.resize(slots_.size());
}

void RankAmaxes::copy_slots(Stream& stream, CopyKind kind) {
    const bool is_read = kind == CopyKind::device_to_host;
    for (std::size_t i = 0; i < states_.size(); ++i) {
        DelayedSlot* near = &slots_[i * kOperands];
        DelayedSlot* device = states_[i]->slots();
        stream.copy(is_read ? near : device, is_read ? device : near,
                    kOperands * sizeof(DelayedSlot), kind);
    }
    stream.sync();
}

void RankAmaxes::read(Stream& stream) {
    copy_slots(stream, CopyKind::device_to_host);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        bits_[i] = numerics::bits_from_float(slots_[i].amax);
    }
}

void RankAmaxes::write(Stream& stream) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].amax = numerics::float_from_bits(bits_[i]);
    }
    copy_slots(stream, CopyKind::host_to_device);
}

void reduce_amaxes(Stream& stream, comm::Communicator& comm,
                   std::span<const ScalingState* const> states) {
    RankAmaxes amaxes(states);
    amaxes.read(stream);
    comm::CallOptions options;
    options.site = "amaxes of delayed scaling";
    const std::span<uint32_t> bits = amaxes.bits();
    check(comm.max_u32(bits.data(), static_cast<int64_t>(bits.size()), options));
    amaxes.write(stream);
}

} // namespace mp::linear
