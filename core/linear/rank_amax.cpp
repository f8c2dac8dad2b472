// SPDX-License-Identifier: Apache-2.0
#include "linear/rank_amax.hpp"

#include <algorithm>

#include "comm/all_max.hpp"
#include "comm/capture.hpp"

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
}

int64_t RankAmaxes::count() const noexcept {
    return static_cast<int64_t>(layers_.size() * kOperands);
}

void RankAmaxes::read(Stream& stream, float* amaxes) const {
    const bool trains = is_training(all_);
    for (Linear* const layer : layers_) {
        const DelayedState* const states = layer->scaling().delayed();
        for (std::size_t k = 0; k < kOperands; ++k) {
            stream.copy(amaxes + k, &states[k].amax, sizeof *amaxes, CopyKind::device_to_device);
        }
        if (counts_forwards(*layer, trains)) {
            layer->amaxes().add_forwards(stream, amaxes, amaxes + 1);
        }
        amaxes += kOperands;
    }
}

void RankAmaxes::write(Stream& stream, const float* amaxes) const {
    for (Linear* const layer : layers_) {
        DelayedState* const states = layer->scaling().delayed();
        for (std::size_t k = 0; k < kOperands; ++k) {
            stream.copy(&states[k].amax, amaxes++, sizeof *amaxes, CopyKind::device_to_device);
        }
    }
}

void reduce_amaxes(Stream& stream, comm::Communicator& comm, std::span<Linear* const> layers) {
    comm::refuse_capture(stream);
    const RankAmaxes amaxes(layers);
    const Scratch values(stream, static_cast<std::size_t>(amaxes.count()) * sizeof(float));
    auto* const largest = static_cast<float*>(values.data());
    amaxes.read(stream, largest);
    comm::CallOptions options;
    options.site = "amaxes of delayed scaling";
    comm::all_reduce_max(comm, stream, static_cast<uint32_t*>(values.data()), amaxes.count(),
                         options);
    amaxes.write(stream, largest);
}

} // namespace mp::linear
