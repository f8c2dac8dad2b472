// SPDX-License-Identifier: Apache-2.0
// What ranks that share an optimizer must have in common, and what they share of its parameters.
#pragma once

#include <vector>

#include "optim/options.hpp"
#include "optim/parameters.hpp"

namespace mp::optim {

shard::Definition definition(const recipe::Recipe& recipe, const OptimizerOptions& options,
                             const Parameters& parameters);

// Of one parameter: what definition() has of it.
shard::Common common_of(const Parameters& parameters, int32_t index);

// Throws for parameters that the options cannot share.
std::vector<shard::ShardedTensor> sharded_tensors(const recipe::Recipe& recipe,
                                                  const shard::ShardingOptions& options,
                                                  const Parameters& parameters);

} // namespace mp::optim
