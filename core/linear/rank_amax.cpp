// SPDX-License-Identifier: Apache-2.0
#include "linear/rank_amax.hpp"

#include <algorithm>

#include "comm/capture.hpp"
#include "numerics/bits.hpp"

namespace mp::linear {

using numerics::DelayedState;

static_assert(static_cast<int32_t>(recipe::Operand::input) == 0 &&
              static_cast<int32_t>(recipe::Operand::weight) == 1);

bool is_training(std::span<Linear* const> layers) {
    return std::any_of(layers.begin(), layers.end(),
                       [](Linear* layer) { return layer->amaxes().has_backward(); });
}

namespace {

// Whether all its forwards since the last end of a step count at the end of this one. It is one of training where a layer had a
// backward: then only forwards with one count, but of a frozen layer, which may need none.
bool counts_forwards(Linear& layer, bool is_training) {
    return !layer.amaxes().has_backward() && (!is_training || layer.options().frozen);
}

} // namespace

void settle_amaxes(Stream& stream, std::span<Linear* const> layers) {
    const bool trains = is_training(layers);
    for (Linear* const layer : layers) {
        layer->amaxes().settle(stream, layer->scaling(), counts_forwards(*layer, trains));
    }
}

RankAmaxes::RankAmaxes(std::span<Linear* const> layers) : all_(layers.begin(), layers.end()) {
    for (Linear* const layer : layers) {
        if (layer->scaling().reduces_amax()) {
            layers_.push_back(layer);
        }
    }
    states_.resize(layers_.size() * kOperands);
    bits_.resize(states_.size());
}

void RankAmaxes::copy_states(Stream& stream, CopyKind kind) {
    const bool is_read = kind == CopyKind::device_to_host;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        DelayedState* near = &states_[i * kOperands];
        DelayedState* device = layers_[i]->scaling().delayed();
        stream.copy(is_read ? near : device, is_read ? device : near,
                    kOperands * sizeof(DelayedState), kind);
    }
    if (is_read && !layers_.empty()) {
        stream.sync();
    }
}

void RankAmaxes::read(Stream& stream) {
    copy_states(stream, CopyKind::device_to_host);
    for (std::size_t i = 0; i < states_.size(); ++i) {
        bits_[i] = numerics::bits_from_float(states_[i].amax);
    }
    const bool trains = is_training(all_);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (counts_forwards(*layers_[i], trains)) {
            const std::array<uint32_t, 2> forwards = layers_[i]->amaxes().forwards(stream);
            uint32_t* const bits = &bits_[i * kOperands];
            bits[0] = std::max(bits[0], forwards[0]);
            bits[1] = std::max(bits[1], forwards[1]);
        }
    }
}

void RankAmaxes::write(Stream& stream) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
        states_[i].amax = numerics::float_from_bits(bits_[i]);
    }
    copy_states(stream, CopyKind::host_to_device);
}

void reduce_amaxes(Stream& stream, comm::Communicator& comm, std::span<Linear* const> layers) {
    comm::refuse_capture(stream);
    RankAmaxes amaxes(layers);
    amaxes.read(stream);
    comm::CallOptions options;
    options.site = "amaxes of delayed scaling";
    const std::span<uint32_t> bits = amaxes.bits();
    check(comm.run(comm::MaxU32{bits.data(), static_cast<int64_t>(bits.size())}, options));
    amaxes.write(stream);
}

} // namespace mp::linear
