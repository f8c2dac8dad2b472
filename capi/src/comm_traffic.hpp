// SPDX-License-Identifier: Apache-2.0
// mp_comm_traffic, filled.
#pragma once

#include <numeric>

#include "objects.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

inline void write_traffic(const comm::Traffic& counted, mp_comm_traffic* traffic) {
    const auto bytes_of = [&](CollectiveKind kind) {
        return counted.bytes.at(static_cast<std::size_t>(kind));
    };
    mp_comm_traffic copy{};
    copy.calls = std::accumulate(counted.calls.begin(), counted.calls.end(), int64_t{0});
    copy.total_bytes = counted.total_bytes();
    copy.all_to_all_bytes = bytes_of(CollectiveKind::all_to_all);
    copy.all_gather_bytes = bytes_of(CollectiveKind::all_gather);
    copy.broadcast_bytes = bytes_of(CollectiveKind::broadcast);
    copy.max_u32_bytes = bytes_of(CollectiveKind::max_u32);
    copy.sum_f32_bytes = bytes_of(CollectiveKind::sum_f32);
    write_struct(traffic, copy, "traffic");
}

} // namespace mp::capi
