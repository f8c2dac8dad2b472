// SPDX-License-Identifier: Apache-2.0
// What arrays are filled with: ordinary numbers of both signs over several binades, so that no format meets only zeros.
#pragma once

#include <cstddef>

namespace mp_bench {

inline void fill(float* values, std::size_t count) {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001u) - 1000) * 0.0101F;
    }
}

} // namespace mp_bench
