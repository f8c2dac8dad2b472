// SPDX-License-Identifier: Apache-2.0
#include "shard/greedy.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "status/status.hpp"

namespace mp::shard {

double GreedyPlan::imbalance() const {
    const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
    if (total == 0) {
        return 1.0;
    }
    const int64_t most = *std::max_element(load.begin(), load.end());
    return static_cast<double>(most) * static_cast<double>(load.size()) /
           static_cast<double>(total);
}

GreedyPlan assign_greedily(std::span<const int64_t> counts, int32_t ranks,
                           std::vector<int64_t> load) {
    if (ranks <= 0) {
        fail(Code::invalid_argument, "shard plan: %d ranks; there must be at least 1", ranks);
    }
    load.resize(static_cast<std::size_t>(ranks));
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto place = [&](std::size_t i) { return i % static_cast<std::size_t>(ranks); };
        return counts[a] != counts[b] ? counts[a] > counts[b] : place(a) < place(b);
    });
    GreedyPlan plan{std::vector<int32_t>(counts.size()), std::move(load)};
    using Place = std::pair<int64_t, int32_t>; // the least load first, of equal ones the first rank
    std::vector<Place> places;
    places.reserve(plan.load.size());
    for (int32_t rank = 0; rank < ranks; ++rank) {
        places.emplace_back(plan.load[static_cast<std::size_t>(rank)], rank);
    }
    std::priority_queue<Place, std::vector<Place>, std::greater<>> least(std::greater<>(),
                                                                         std::move(places));
    for (const std::size_t tensor : order) {
        if (counts[tensor] < 0) {
            fail(Code::invalid_argument, "shard plan: tensor %zu has %lld elements", tensor,
                 static_cast<long long>(counts[tensor]));
        }
        const auto [sum, rank] = least.top();
        least.pop();
        least.emplace(sum + counts[tensor], rank);
        plan.load[static_cast<std::size_t>(rank)] = sum + counts[tensor];
        plan.owner[tensor] = rank;
    }
    return plan;
}

} // namespace mp::shard
