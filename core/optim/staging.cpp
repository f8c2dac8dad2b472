// SPDX-License-Identifier: Apache-2.0
#include "optim/staging.hpp"

#include <algorithm>

#include "dtype/divide.hpp"

namespace mp::optim {
namespace {

// A bucket is closed once it has so many bytes: enough for a copy at full speed, and few enough for the first to arrive and
// the last to leave quickly.
constexpr std::size_t kBucketBytes = std::size_t{16} << 20;
// Arrays begin at multiples of this.
constexpr std::size_t kAlignment = 64;

} // namespace

std::size_t StagedArray::scales_at() const noexcept {
    return round_up(std::max(grad_bytes, param_bytes), kAlignment);
}

std::size_t StagedArray::bytes() const noexcept {
    return scales_at() + (has_scales ? kAlignment : 0);
}

int64_t host_gradient_bytes(FormatId format, int64_t count) noexcept {
    const StagedArray array = {static_cast<std::size_t>(bytes_of(dtype_of(format), count)), 0,
                               is_scaled(format)};
    return static_cast<int64_t>(array.bytes());
}

Staging make_staging(std::span<const StagedArray> arrays) {
    Staging staging;
    std::size_t bytes = 0; // of the last bucket
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (staging.buckets.empty() || bytes >= kBucketBytes) {
            staging.buckets.emplace_back();
            bytes = 0;
        }
        staging.buckets.back().push_back(i);
        bytes += arrays[i].bytes();
        std::size_t& largest = staging.bytes[(staging.buckets.size() - 1) % 2];
        largest = std::max(largest, bytes);
    }
    return staging;
}

} // namespace mp::optim
