// SPDX-License-Identifier: Apache-2.0
// Maxima that several threads raise.
#pragma once

#include <cstdint>

namespace mp::backends::host {

// Magnitudes as bit patterns, also where the memory is a float's.
typedef uint32_t MagnitudeBits __attribute__((may_alias));

inline void raise(MagnitudeBits& largest, uint32_t x) noexcept {
    uint32_t known = __atomic_load_n(&largest, __ATOMIC_RELAXED);
    while (known < x && !__atomic_compare_exchange_n(&largest, &known, x, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
    }
}

// Nothing where there is no amax.
inline void raise_amax(float* amax, uint32_t bits) noexcept {
    if (amax != nullptr) {
        raise(*reinterpret_cast<MagnitudeBits*>(amax), bits);
    }
}

} // namespace mp::backends::host
