// SPDX-License-Identifier: Apache-2.0
// Headers of GGUF files that are written: version 3, little-endian, tensors aligned to 32 bytes in the order in which they come.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/new_model.hpp"

namespace mp::model {

// The first bytes of a file with these, padded. The first tensor follows, each other one at the next multiple of the alignment,
// and the file ends at one. Throws invalid_argument for a header that no reader takes.
std::string write_gguf_header(std::span<const NewTensor> tensors, std::span<const NewValue> values);

} // namespace mp::model
