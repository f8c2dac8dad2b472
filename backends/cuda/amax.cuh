// SPDX-License-Identifier: Apache-2.0
// amax: what one thread does. Bit patterns of |x| are compared as integers, so a NaN beats infinity
// beats numbers, and the order of the comparisons cannot matter.
#pragma once

#include "cuda/group.cuh"
#include "device/backend.hpp"

namespace mp::backends::cuda {

inline bool takes_amax(const AmaxDesc& op, Reason& reason) noexcept {
    if (op.accumulate || op.skip != nullptr) {
        reason.set("an amax alone; one that adds to another is the Kokkos kernel's");
        return false;
    }
    return takes_elements("the source", op.source.data, op.source.dtype, reason);
}

MP_HD_INLINE uint32_t group_amax(const TensorRef& source, const GroupAt& at) {
    float x[kGroup] = {};
    for_floating_type(source.dtype, [&](auto codec) { load_group(codec, source.data, at, x); });
    uint32_t largest = 0;
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        const uint32_t magnitude = numerics::bits_from_float(x[j]) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

MP_HD_INLINE uint32_t amax_thread(const TensorRef& source, bool is_aligned, int64_t thread,
                                  int64_t threads) {
    const int64_t groups = (source.count + kGroup - 1) / kGroup;
    uint32_t largest = 0;
    for (int64_t group = thread; group < groups; group += threads) {
        const int64_t first = group * kGroup;
        const int64_t left = source.count - first;
        const int count = left < kGroup ? static_cast<int>(left) : kGroup; // absent ones read as 0
        const uint32_t found = group_amax(source, {first, count, is_aligned && count == kGroup});
        largest = found > largest ? found : largest;
    }
    return largest;
}

} // namespace mp::backends::cuda
