// SPDX-License-Identifier: Apache-2.0
#include "optim/grad_scales.hpp"

#include "optim/saved_counts.hpp"

namespace mp::optim {

float GradScales::mu(int32_t parameter) const {
    (void)parameters_[parameter];
    const shard::Sharding* const sharding = parameters_.sharding();
    const bool shares = sharding != nullptr && sharding->grad_scales().shares(parameter);
    return shares ? sharding->grad_scales().mu(parameter) : 0.0F;
}

void GradScales::collect(Stream& stream) { parameters_.sharding()->grad_scales().collect(stream); }

void GradScales::propose(comm::Agreement& agreement) {
    parameters_.sharding()->grad_scales().propose(agreement);
}

void GradScales::accept(const comm::Agreement& agreement) {
    parameters_.sharding()->grad_scales().accept(agreement);
}

void GradScales::save(Stream& /*stream*/, OptimizerCounts& counts) const {
    std::vector<float>& mus = counts.grad_mus;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const auto place = static_cast<std::size_t>(i);
        const float mu = this->mu(i);
        if (mu != 0.0F) {
            mus.push_back(parameters_.sharding()->grad_scales().has_moved(i) ? mu : 0.0F);
        } else {
            mus.push_back(place < kept_.size() ? kept_[place] : 0.0F);
        }
    }
}

void GradScales::prepare_restore(Stream& /*stream*/, RestoredCounts& restored) const {
    for (const float mu : restored.counts.grad_mus) {
        if (mu != 0.0F && !numerics::is_mu(mu)) {
            fail(Code::corrupt_data, "optimizer: a saved mu is %g; it lies in [2^-16, 2]",
                 static_cast<double>(mu));
        }
    }
}

void GradScales::restore(Stream& /*stream*/, RestoredCounts& restored) {
    std::vector<float>& mus = restored.counts.grad_mus;
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
