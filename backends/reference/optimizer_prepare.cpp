// SPDX-License-Identifier: Apache-2.0
// optimizer_prepare: decides whether the step is taken, and computes each group's scalars.
#include "device/supports.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const OptimizerPrepareDesc&>(desc);
    numerics::prepare_step(*op.state, op.scaler, op.rule);
    for (int32_t group = 0; group < op.group_count; ++group) {
        numerics::prepare_group(*op.state, op.hyper[group], op.group_steps[group],
                                op.scalars[group]);
    }
    return {};
}

} // namespace

const Candidate kOptimizerPrepare = {kName, takes_all<OptimizerPrepareDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
