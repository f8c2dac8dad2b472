// SPDX-License-Identifier: Apache-2.0
#include "optim/grad_scales.hpp"

namespace mp::optim {

float GradScales::mu(int32_t parameter) const {
    (void)parameters_[parameter];
    const shard::Sharding* const sharding = parameters_.sharding();
    const bool shares = sharding != nullptr && sharding->grad_scales().shares(parameter);
    return shares ? sharding->grad_scales().mu(parameter) : 0.0F;
}

void GradScales::propose(comm::Agreement& agreement) {
    parameters_.sharding()->grad_scales().propose(agreement);
}

void GradScales::accept(const comm::Agreement& agreement) {
    parameters_.sharding()->grad_scales().accept(agreement);
}

std::vector<float> GradScales::saved() const {
    std::vector<float> mus;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const auto place = static_cast<std::size_t>(i);
        const float mu = this->mu(i);
        if (mu != 0.0F) {
            mus.push_back(parameters_.sharding()->grad_scales().has_moved(i) ? mu : 0.0F);
        } else {
            mus.push_back(place < kept_.size() ? kept_[place] : 0.0F);
        }
    }
    return mus;
}

void GradScales::restore(std::vector<float> mus) {
    for (int32_t i = 0; i < static_cast<int32_t>(mus.size()); ++i) {
        float& saved = mus[static_cast<std::size_t>(i)];
        if (mu(i) != 0.0F) {
            parameters_.sharding()->grad_scales().set_mu(i, saved);
            saved = 0.0F;
        }
    }
    kept_ = std::move(mus);
}

} // namespace mp::optim
