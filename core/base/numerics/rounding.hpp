// SPDX-License-Identifier: Apache-2.0
// Rounding: how numbers of an array become numbers of fewer bits, wherever that is done: casts, codes, gradients, the wire.
#pragma once

#include "numerics/philox.hpp"

namespace mp::numerics {

// How one number becomes one of fewer bits. stochastic saturates in fp8; stochastic_nonsat does not.
enum class Narrowing : int32_t { nearest, saturating, stochastic, stochastic_nonsat };
[[nodiscard]] constexpr bool is_stochastic(Narrowing narrowing) {
    return narrowing == Narrowing::stochastic || narrowing == Narrowing::stochastic_nonsat;
}

struct Rounding {
    bool stochastic = false; // else to nearest, ties to even
    // The random bits are Philox's of (seed, uid, element, step).
    uint64_t seed = 0;
    uint64_t uid = 0;
    uint64_t step = 0; // sr_time()
    // Where the array lies in the logical one; the random bits of its element i are those of first_element + i.
    int64_t first_element = 0;

    [[nodiscard]] MP_HD_INLINE constexpr SrKey key() const { return make_sr_key(seed, uid, step); }
    // Of the part of the array from element `first` on.
    [[nodiscard]] constexpr Rounding from(int64_t first) const {
        Rounding part = *this;
        part.first_element += first;
        return part;
    }
};

} // namespace mp::numerics
