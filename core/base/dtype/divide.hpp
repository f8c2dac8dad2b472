// SPDX-License-Identifier: Apache-2.0
// Divisions of sizes, none of them negative, that lose nothing.
#pragma once

#include <type_traits>

namespace mp {

// How many parts of size b hold a.
template <typename T> [[nodiscard]] constexpr T divide_up(T a, std::type_identity_t<T> b) {
    return (a + b - 1) / b;
}

// The smallest multiple of b that holds a.
template <typename T> [[nodiscard]] constexpr T round_up(T a, std::type_identity_t<T> b) {
    return divide_up(a, b) * b;
}

} // namespace mp
