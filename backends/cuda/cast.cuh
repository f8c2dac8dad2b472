// SPDX-License-Identifier: Apache-2.0
// cast: what one thread does. A grid-stride loop over groups of eight elements.
#pragma once

#include "cuda/group.cuh"
#include "device/backend.hpp"

namespace mp::backends::cuda {

struct CastWork {
    const void* source;
    void* destination;
    int64_t count;
    int64_t first_element; // a multiple of kGroup
    DType from;
    DType to;
    numerics::Narrowing rounding;
    bool has_bits; // random ones
    bool clamps;   // stochastic rounding that saturates
    bool is_aligned;
    numerics::SrKey key;
};

inline CastWork cast_work(const CastDesc& op) {
    CastWork work = {};
    work.source = op.source.data;
    work.destination = op.destination.data;
    work.count = op.destination.count;
    work.first_element = op.rounding.first_element;
    work.from = op.source.dtype;
    work.to = op.destination.dtype;
    if (op.rounding.stochastic) {
        work.rounding =
            op.saturate ? numerics::Narrowing::stochastic : numerics::Narrowing::stochastic_nonsat;
    } else {
        work.rounding =
            op.saturate ? numerics::Narrowing::saturating : numerics::Narrowing::nearest;
    }
    work.has_bits = op.rounding.stochastic && work.to != DType::fp32;
    work.clamps = op.rounding.stochastic && op.saturate && work.to != DType::fp32;
    work.is_aligned = is_group_aligned(op.source.data, dtype_size(work.from)) &&
                      is_group_aligned(op.destination.data, dtype_size(work.to));
    work.key = op.rounding.key();
    return work;
}

inline bool takes_cast(const CastDesc& op, Reason& reason) noexcept {
    if (op.rounding.stochastic &&
        op.rounding.first_element % kGroup != 0) { // a group takes one block of random bits
        reason.set("the array begins at element %lld, inside a block of random bits",
                   static_cast<long long>(op.rounding.first_element));
        return false;
    }
    return takes_elements("the source", op.source.data, op.source.dtype, reason) &&
           takes_elements("the destination", op.destination.data, op.destination.dtype, reason);
}

MP_HD_INLINE void cast_group(const CastWork& work, const GroupAt& at) {
    float x[kGroup] = {};
    for_floating_type(work.from, [&](auto codec) { load_group(codec, work.source, at, x); });
    GroupBits bits;
    if (work.has_bits) {
        bits =
            group_bits(work.to, work.key, numerics::Purpose::cast, work.first_element + at.first);
    }
    if (work.clamps) {
        const float limit = max_finite(work.to);
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            x[j] = numerics::clamp_to_finite(x[j], limit);
        }
    }
    for_floating_type(work.to, [&](auto codec) {
        store_group(codec, work.destination, at, x, work.rounding, bits);
    });
}

MP_HD_INLINE void cast_thread(const CastWork& work, int64_t thread, int64_t threads) {
    const int64_t groups = (work.count + kGroup - 1) / kGroup;
    for (int64_t group = thread; group < groups; group += threads) {
        const int64_t first = group * kGroup;
        const int64_t left = work.count - first;
        const int count = left < kGroup ? static_cast<int>(left) : kGroup;
        cast_group(work, {first, count, work.is_aligned && count == kGroup});
    }
}

} // namespace mp::backends::cuda
