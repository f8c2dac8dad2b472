// SPDX-License-Identifier: Apache-2.0
// scaler_update: moves the loss scale by its rule.
#include "device/supports.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& update = static_cast<const ScalerUpdateDesc&>(op);
    numerics::update_loss_scale(*update.state, update.rule);
    return {};
}

} // namespace

const Candidate kScalerUpdate = {kName, takes_all<ScalerUpdateDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
