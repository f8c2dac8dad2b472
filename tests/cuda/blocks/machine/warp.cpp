// SPDX-License-Identifier: Apache-2.0
#include "warp.hpp"

#include <algorithm>

namespace mp::blocks {

namespace {

bool is_in(uint32_t mask, unsigned lane) { return (mask >> lane & 1U) != 0; }

// As the CUDA C++ programming guide says of each shuffle, with groups of `width` lanes.
unsigned source_lane(const WarpCall& call, unsigned lane) {
    const unsigned first = lane & ~(call.width - 1);
    const unsigned end = first + call.width;
    switch (call.op) {
    case WarpOp::shuffle_up:
        return lane >= first + call.which ? lane - call.which : lane;
    case WarpOp::shuffle_down:
        return lane + call.which < end ? lane + call.which : lane;
    case WarpOp::shuffle_xor:
        return (lane ^ call.which) < end ? lane ^ call.which : lane;
    default:
        return first + (call.which & (call.width - 1));
    }
}

uint32_t combine(WarpOp op, uint32_t a, uint32_t b) {
    switch (op) {
    case WarpOp::largest:
        return std::max(a, b);
    case WarpOp::smallest:
        return std::min(a, b);
    case WarpOp::sum:
        return a + b;
    default:
        return a | b;
    }
}

} // namespace

void WarpOrder::sync(uint32_t mask) {
    std::array<uint32_t, kWarp> joined = {};
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        for (unsigned other = 0; is_in(mask, lane) && other < kWarp; ++other) {
            joined[other] = std::max(joined[other], known_[lane][other]);
        }
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        joined[lane] = is_in(mask, lane) ? time_ : joined[lane];
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        if (is_in(mask, lane)) {
            known_[lane] = joined;
        }
    }
    ++time_;
}

WarpResult warp_result(const std::array<WarpCall, kWarp>& calls, unsigned lane) {
    const WarpCall& call = calls[lane];
    uint32_t all = 0;
    bool is_first = true;
    switch (call.op) {
    case WarpOp::sync:
        return {};
    case WarpOp::shuffle:
    case WarpOp::shuffle_up:
    case WarpOp::shuffle_down:
    case WarpOp::shuffle_xor: {
        const unsigned source = source_lane(call, lane);
        return {calls[source % kWarp].value, source < kWarp && is_in(call.mask, source)};
    }
    case WarpOp::ballot:
        for (unsigned i = 0; i < kWarp; ++i) {
            all |= is_in(call.mask, i) && calls[i].value != 0 ? 1U << i : 0U;
        }
        return {all};
    default:
        for (unsigned i = 0; i < kWarp; ++i) {
            if (is_in(call.mask, i)) {
                const auto value = static_cast<uint32_t>(calls[i].value);
                all = is_first ? value : combine(call.op, all, value);
                is_first = false;
            }
        }
        return {all};
    }
}

} // namespace mp::blocks
