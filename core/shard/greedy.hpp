// SPDX-License-Identifier: Apache-2.0
// MS-AMP's shard plan: whole tensors, never cut, the largest first, each to the rank that has least.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mp::shard {

struct GreedyPlan {
    std::vector<int32_t> owner; // by tensor
    std::vector<int64_t> load;  // elements, by rank; goes on from group to group

    // How far the fullest rank is above the mean; 1 is even. Above 1.5 a plan that cuts tensors is better.
    [[nodiscard]] double imbalance() const;
};

// Tensors of equal size go in the order of their index modulo the ranks, ties between ranks to the lowest. `load` is
// what the ranks hold already (empty: nothing). Throws unless ranks > 0 and every count is >= 0.
GreedyPlan assign_greedily(std::span<const int64_t> counts, int32_t ranks,
                           std::vector<int64_t> load = {});

} // namespace mp::shard
