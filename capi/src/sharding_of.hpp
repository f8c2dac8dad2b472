// SPDX-License-Identifier: Apache-2.0
// What ranks share of an optimizer, for the calls that need it.
#pragma once

#include "objects.hpp"

namespace mp::capi {

inline shard::Sharding& sharding_of(const optim::Optimizer& optimizer) {
    if (optimizer.sharding() == nullptr) {
        fail(Code::bad_state, "optimizer: its parameters are not cut yet; make it with "
                              "mp_optimizer_create_sharded and call mp_optimizer_shard");
    }
    return *optimizer.sharding();
}

} // namespace mp::capi
