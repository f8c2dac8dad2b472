// SPDX-License-Identifier: Apache-2.0
// MP_RULE_*.
#pragma once

#include "numerics/rules.hpp"
#include "status/status.hpp"

namespace mp::capi {

inline numerics::RuleId rule_of(int32_t rule) {
    if (rule < 0 || !numerics::is_rule(static_cast<uint32_t>(rule))) {
        fail(Code::invalid_argument, "rule is %d; it must be one of MP_RULE_*",
             static_cast<int>(rule));
    }
    return static_cast<numerics::RuleId>(rule);
}

} // namespace mp::capi
