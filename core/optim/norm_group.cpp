// SPDX-License-Identifier: Apache-2.0
#include "optim/norm_group.hpp"

#include <cmath>
#include <limits>

#include "interface/ops.hpp"

namespace mp::optim {

std::vector<double> NormGroup::sums(const std::vector<double>& own,
                                    const std::vector<bool>& counts_elsewhere) const {
    double mine =
        own.empty() && !counts_elsewhere.empty() ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (std::size_t i = 0; i < own.size(); ++i) {
        if (!counts_elsewhere[i] || !std::isfinite(own[i])) {
            mine += own[i];
        }
    }
    const auto ranks = static_cast<std::size_t>(comm_->size());
    const std::vector<int64_t> bytes(ranks, sizeof(double));
    std::vector<int64_t> offsets(ranks + 1);
    for (std::size_t i = 0; i <= ranks; ++i) {
        offsets[i] = static_cast<int64_t>(i * sizeof(double));
    }
    std::vector<double> all(ranks);
    comm::CallOptions options;
    options.site = "norm over other parameters";
    check(
        comm_->all_gather({&mine, sizeof mine, all.data(), bytes.data(), offsets.data()}, options));
    return all;
}

std::vector<bool> chunks_counted_elsewhere(const Parameters& parameters,
                                           const std::vector<int32_t>& enabled) {
    std::vector<bool> chunks;
    for (const int32_t i : enabled) {
        const Parameter& p = parameters[i];
        const int64_t count = (p.param->count() + kChunkElements - 1) / kChunkElements;
        chunks.insert(chunks.end(), static_cast<std::size_t>(count), p.counts_elsewhere);
    }
    return chunks;
}

} // namespace mp::optim
