// SPDX-License-Identifier: Apache-2.0
// Values of arrays on a device, by way of host memory: for creation, checkpoints and imports, not for every step. All of
// them wait.
#pragma once

#include <vector>

#include "optim/param_states.hpp"

namespace mp::optim {

using Bytes = std::vector<unsigned char>;

Bytes download(Stream& stream, const TensorRef& ref);
void upload(Stream& stream, void* data, const Bytes& host);

// Numbers without a scale; stored to nearest.
std::vector<float> download_floats(Stream& stream, const TensorRef& ref);
void upload_floats(Stream& stream, const TensorRef& ref, const std::vector<float>& values);

// States and compensations without a scale, or in blocks, which get new scales.
std::vector<float> read_stored(Stream& stream, const StoredState& state);
void write_stored(Stream& stream, const StoredState& state, const std::vector<float>& values);

} // namespace mp::optim
