// SPDX-License-Identifier: Apache-2.0
// What happened to the elements of a tensor when it was quantized. Sums and maxima of integers, so
// they do not depend on the order.
#pragma once

#include <cstdint>

namespace mp::numerics {

struct QuantStats {
    int64_t elements = 0;
    int64_t saturated = 0;   // finite, and would have been rounded beyond the largest code
    int64_t underflowed = 0; // not zero, and zero as a code
    int64_t non_finite = 0;  // infinity or NaN
    uint32_t amax_bits = 0;  // of |x|, as a bit pattern: NaN beats infinity beats numbers
    uint32_t reserved = 0;
};
static_assert(sizeof(QuantStats) == 40);

} // namespace mp::numerics
