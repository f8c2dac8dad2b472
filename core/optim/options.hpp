// SPDX-License-Identifier: Apache-2.0
// What an optimizer is made with.
#pragma once

#include "optim/layout.hpp"
#include "shard/sharding.hpp"

namespace mp::optim {

struct OptimizerOptions {
    uint64_t seed = 0;
    double max_grad_norm = 0.0;
    bool check_finite = false;
    bool zero_grad = false;
    bool offload = false;       // states and step on the host
    bool offload_grads = false; // and gradients, or their sums
    bool grads_given =
        false; // parameters have no gradients of their own: steps in parts are given them
    shard::ShardingOptions sharding;

    [[nodiscard]] bool is_sharded() const noexcept { return sharding.comm != nullptr; }
};
// Throws for what cannot be; `ranks` 0: nobody shares it. So that ranks can refuse before they ask each other.
void check_options(const OptimizerOptions& options, int32_t ranks);

// What of them layouts follow from.
LayoutOptions layout_options(const OptimizerOptions& options, bool is_shared);

} // namespace mp::optim
