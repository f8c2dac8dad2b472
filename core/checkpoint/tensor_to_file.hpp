// SPDX-License-Identifier: Apache-2.0
// The elements of tensors into a model's files, a piece at a time.
#pragma once

#include "model/model_writer.hpp"
#include "tensor/tensor.hpp"

namespace mp::checkpoint {

inline constexpr int64_t kFilePieceElements = int64_t{1} << 18; // whole blocks of every type

// Bytes as they are where the file's tensor has the type and there are no scales, else numbers. Throws invalid_shape where shapes
// differ, and as the writer does. Waits.
void write_tensor(Stream& stream, const Tensor& tensor, model::ModelWriter& writer,
                  std::size_t index);

// Throws invalid_shape, with the name of what is to be written.
void check_shape_in_file(const model::NewTensor& to, const Shape& shape, const char* what);

} // namespace mp::checkpoint
