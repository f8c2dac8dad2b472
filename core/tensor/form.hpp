// SPDX-License-Identifier: Apache-2.0
// MatrixForm: the form a matrix is kept or multiplied in, either rounded to a type or as codes with scales.
#pragma once

#include <string>

#include "array/scale_grid.hpp"
#include "numerics/scale_rules.hpp"

namespace mp {

struct MatrixForm {
    DType dtype = DType::none;
    ScaleGrid grid; // none: rounded only
    numerics::ScalePolicy policy;

    [[nodiscard]] constexpr bool is_quantized() const noexcept { return grid.exists(); }
    // The same codes and scales for the same matrix.
    constexpr bool operator==(const MatrixForm&) const = default;
};

// "bf16", "fp8_e4m3 with one scale", "fp8_e4m3 with scales of 1x128".
std::string form_text(const MatrixForm& form);

// Throws where dtype, grid and rule do not belong together; `what` begins the message.
void check_form(const MatrixForm& form, const char* what);

} // namespace mp
