// SPDX-License-Identifier: Apache-2.0
// mp_quant_desc and the form of a matrix.
#pragma once

#include "mixedprec/quant.h"
#include "tensor/form.hpp"

namespace mp::capi {

mp_quant_desc desc_of(const MatrixForm& form);

} // namespace mp::capi
