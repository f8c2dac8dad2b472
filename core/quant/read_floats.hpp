// SPDX-License-Identifier: Apache-2.0
// Elements of arrays from and to fp32 numbers in host memory, some at a time: for files and imports, not for every step.
#pragma once

#include <span>

#include "array/array_ref.hpp"
#include "runtime/stream.hpp"

namespace mp::quant {

// Those from `first` on, in row-major order. Of types of blocks whole blocks. Integers and plain codes give what they are without
// a scale. Waits.
void read_floats(Stream& stream, const ArrayRef& array, int64_t first, std::span<float> values);

// Writes those from `first` on, as numerics::store_floats() makes them. Of types of blocks whole blocks. Waits.
void write_floats(Stream& stream, const ArrayRef& array, int64_t first,
                  std::span<const float> values);

} // namespace mp::quant
