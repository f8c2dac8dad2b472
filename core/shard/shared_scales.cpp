// SPDX-License-Identifier: Apache-2.0
#include "shard/shared_scales.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/bits.hpp"

namespace mp::shard {

SharedScales::SharedScales(const Stream& stream, const ShardPlan& plan, int32_t shard,
                           std::vector<bool> shares, int32_t contributions)
    : plan_(plan), shard_(shard), shares_(std::move(shares)), states_(shares_.size()) {
    if (std::find(shares_.begin(), shares_.end(), true) == shares_.end()) {
        return;
    }
    first_mu_ =
        std::max(numerics::kSmallestMu, 1.0F / std::sqrt(static_cast<float>(contributions)));
    for (State& state : states_) {
        state.mu = first_mu_;
    }
    values_.assign(states_.size(), 1.0F);
    device_ = stream.allocate(values_.size() * sizeof(float));
}

numerics::BlockScale SharedScales::scale_for(int32_t parameter, uint32_t amax_bits) const {
    return numerics::shared_gradient_scale(numerics::float_from_bits(amax_bits), at(parameter).mu,
                                           at(parameter).scale_inv);
}

void SharedScales::set_sum(int32_t parameter, float scale_inv, int64_t clipped, bool is_finite) {
    State& state = states_[static_cast<std::size_t>(parameter)];
    state.is_finite = is_finite && (state.is_finite || !state.was_reduced);
    state.scale_inv = scale_inv;
    state.clipped = clipped;
    state.was_reduced = true;
}

float* SharedScales::device_scale(int32_t parameter) const noexcept {
    return device_.as<float>() + parameter;
}

void SharedScales::write(Stream& stream) {
    if (!exist()) {
        return;
    }
    for (std::size_t i = 0; i < states_.size(); ++i) {
        values_[i] = states_[i].scale_inv;
    }
    stream.copy(device_.data(), values_.data(), values_.size() * sizeof(float),
                CopyKind::host_to_device);
}

void SharedScales::propose(comm::Agreement& agreement) {
    std::vector<uint32_t> clipped;
    for (std::size_t i = 0; i < states_.size(); ++i) {
        if (!shares_[i]) {
            continue;
        }
        const auto parameter = static_cast<int32_t>(i);
        for (const ShardSlice& slice : plan_.slices_of(parameter)) {
            const int64_t own = slice.rank == shard_ ? states_[i].clipped : 0;
            clipped.push_back(static_cast<uint32_t>(std::min<int64_t>(own, UINT32_MAX)));
        }
    }
    first_word_ = agreement.add_maxima(clipped);
}

void SharedScales::accept(const comm::Agreement& agreement) {
    std::size_t place = first_word_;
    for (std::size_t i = 0; i < states_.size(); ++i) {
        if (!shares_[i]) {
            continue;
        }
        int64_t clipped = 0;
        int64_t count = 0;
        for (const ShardSlice& slice : plan_.slices_of(static_cast<int32_t>(i))) {
            clipped += agreement.maximum(place++);
            count += slice.count;
        }
        State& state = states_[i];
        if (state.was_reduced && state.is_finite) {
            state.mu = numerics::next_mu(state.mu, clipped, count);
        }
        state.was_reduced = false;
    }
}

void SharedScales::set_mu(int32_t parameter, float mu) {
    states_[static_cast<std::size_t>(parameter)].mu = mu == 0.0F ? first_mu_ : mu;
}

void SharedScales::follow(const SharedScales& before) {
    for (std::size_t i = 0; i < before.states_.size(); ++i) {
        if (before.shares_[i] && shares_[i]) {
            states_[i] = before.states_[i];
        }
    }
}

} // namespace mp::shard
