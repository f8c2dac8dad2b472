// SPDX-License-Identifier: Apache-2.0
// mp_quant_desc and the format of a matrix.
#pragma once

#include "mixedprec/quant.h"
#include "tensor/format.hpp"

namespace mp::capi {

mp_quant_desc desc_of(const Format& format);
// NULL: one scale for the tensor. Throws for what a desc may not say.
Format format_of(DType dtype, const mp_quant_desc* quant);

} // namespace mp::capi
