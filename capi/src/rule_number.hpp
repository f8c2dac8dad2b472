// SPDX-License-Identifier: Apache-2.0
// MP_RULE_*.
#pragma once

#include "numerics/rules.hpp"
#include "status/status.hpp"

namespace mp::capi {

inline numerics::RuleId rule_of(int32_t rule) {
    if (static_cast<uint32_t>(rule) >= numerics::kRuleCount) {
        fail(Code::invalid_argument, "rule is %d; it must be one of MP_RULE_*",
             static_cast<int>(rule));
    }
    return static_cast<numerics::RuleId>(rule);
}

} // namespace mp::capi
