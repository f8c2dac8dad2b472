// SPDX-License-Identifier: Apache-2.0
// Format: how a matrix of numbers is kept: rounded to a type, or as codes whose scales lie in a grid over it and follow a rule.
#pragma once

#include "dtype/scale_grid.hpp"
#include "numerics/scale_rules.hpp"

namespace mp {

struct Format {
    DType dtype = DType::none; // of a code, or of the numbers themselves
    ScaleGrid grid;            // none: rounded only
    numerics::ScalePolicy policy;

    MP_HD_INLINE constexpr bool exists() const noexcept { return dtype != DType::none; }
    MP_HD_INLINE constexpr bool is_quantized() const noexcept { return grid.exists(); }
    // The same codes and scales for the same matrix.
    constexpr bool operator==(const Format&) const = default;
};

} // namespace mp
