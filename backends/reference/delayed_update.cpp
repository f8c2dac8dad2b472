// SPDX-License-Identifier: Apache-2.0
// delayed_update: the end of a step for every tensor with delayed scaling.
#include "device/supports.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const DelayedUpdateDesc&>(desc);
    for (int64_t i = 0; i < op.state_count; ++i) {
        numerics::update_delayed(op.states[i], op.histories + i * op.rule.history_len, op.rule);
    }
    return {};
}

} // namespace

const Candidate kDelayedUpdate = {kName, takes_all<DelayedUpdateDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
