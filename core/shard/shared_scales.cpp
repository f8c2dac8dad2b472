// SPDX-License-Identifier: Apache-2.0
#include "shard/shared_scales.hpp"

#include <algorithm>
#include <cmath>

#include "comm/wire.hpp"
#include "numerics/bits.hpp"
#include "quant/quantize.hpp"

namespace mp::shard {

SharedScales::SharedScales(const Stream& stream, const ShardPlan& plan, int32_t shard,
                           const std::vector<bool>& shares, int32_t contributions, HostLane* lane)
    : plan_(plan), shard_(shard), states_(shares.size()), lane_(lane) {
    if (std::find(shares.begin(), shares.end(), true) == shares.end()) {
        return;
    }
    first_mu_ =
        std::max(numerics::kSmallestMu, 1.0F / std::sqrt(static_cast<float>(contributions)));
    std::size_t words = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        states_[i].shares = shares[i];
        states_[i].mu = first_mu_;
        states_[i].first_word = words;
        words += shares[i] ? 1 + plan.slices_of(static_cast<int32_t>(i)).size() : 0;
    }
    const std::vector<float> ones(states_.size(), 1.0F);
    scales_ = stream.allocate(ones.size() * sizeof(float));
    stream.copy(scales_.data(), ones.data(), scales_.bytes(), CopyKind::host_to_device);
    if (lane_ != nullptr) {
        on_host_ = lane_->make(scales_.bytes());
    }
    words_ = stream.allocate(words * sizeof(uint32_t));
    agreed_ = stream.allocate(words_.bytes());
    stream.zero(words_.data(), words_.bytes());
}

Format SharedScales::format(int32_t parameter) const {
    Format format = comm::wire_format(DType::fp8_e4m3, comm::WireScale::shared);
    format.policy = numerics::shared_gradient_policy(mu(parameter));
    return format;
}

uint32_t* SharedScales::words(Stream& stream) {
    if (!has_words_) {
        stream.zero(words_.data(), words_.bytes());
        has_words_ = true;
    }
    return words_.as<uint32_t>();
}

void SharedScales::set_sum(Stream& stream, int32_t parameter, const float* scale_inv,
                           const float* amax) {
    State& state = states_[static_cast<std::size_t>(parameter)];
    quant::raise_amax(stream, amax, reinterpret_cast<float*>(words(stream) + state.first_word));
    stream.copy(scale(parameter), scale_inv, sizeof *scale_inv, CopyKind::device_to_device);
    state.was_reduced = true;
}

void SharedScales::set_clipped(Stream& stream, const ShardSlice& slice, const int64_t* clipped) {
    const std::vector<ShardSlice>& slices = plan_.slices_of(slice.parameter);
    const auto found = std::find_if(slices.begin(), slices.end(), [&](const ShardSlice& each) {
        return each.rank == shard_ && each.start == slice.start;
    });
    const auto place = static_cast<std::size_t>(found - slices.begin());
    stream.copy(words(stream) + at(slice.parameter).first_word + 1 + place, clipped,
                sizeof(uint32_t), CopyKind::device_to_device);
}

void SharedScales::leave(Stream& stream) {
    if (exist() && lane_ != nullptr) {
        lane_->follow(stream);
        lane_->to_host(stream, on_host_.data(), scales_.data(), scales_.bytes());
    }
}

void SharedScales::collect(Stream& stream) {
    if (exist()) {
        stream.copy(agreed_.data(), words_.data(), words_.bytes(), CopyKind::device_to_device);
    }
}

void SharedScales::propose(comm::Agreement& agreement) {
    if (exist()) {
        first_word_ = agreement.add_maxima_of_device(
            agreed_.as<uint32_t>(), static_cast<int64_t>(agreed_.bytes() / sizeof(uint32_t)), true);
    }
}

void SharedScales::accept(const comm::Agreement& agreement) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
        State& state = states_[i];
        if (!state.shares || !state.was_reduced) {
            continue;
        }
        std::size_t place = first_word_ + state.first_word;
        const bool is_finite = agreement.maximum(place++) < numerics::kFloatInfinity;
        int64_t clipped = 0;
        int64_t count = 0;
        for (const ShardSlice& slice : plan_.slices_of(static_cast<int32_t>(i))) {
            clipped += agreement.maximum(place++);
            count += slice.count;
        }
        if (is_finite) {
            state.mu = numerics::next_mu(state.mu, clipped, count);
        }
        state.was_reduced = false;
    }
    has_words_ = false;
}

void SharedScales::set_mu(int32_t parameter, float mu) {
    states_[static_cast<std::size_t>(parameter)].mu = mu == 0.0F ? first_mu_ : mu;
}

void SharedScales::follow(Stream& stream, const SharedScales& before) {
    for (std::size_t i = 0; i < before.states_.size(); ++i) {
        const auto parameter = static_cast<int32_t>(i);
        if (before.shares(parameter) && shares(parameter)) {
            states_[i].mu = before.mu(parameter);
            stream.copy(scale(parameter), before.scale(parameter), sizeof(float),
                        CopyKind::device_to_device);
        }
    }
}

} // namespace mp::shard
