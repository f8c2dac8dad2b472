// SPDX-License-Identifier: Apache-2.0
// The tensor of a parameter that a checkpoint has without states: frozen, so it stays in its type, codes under their scales too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint_files.hpp"

namespace command {

// `type` and `shape` are the manifest's. Throws a Failure where no tensor is like that.
mixedprec::Tensor frozen_weight(const mixedprec::Context& context, const Manifest& manifest,
                                const std::string& name, const std::string& type,
                                const std::vector<int64_t>& shape);

} // namespace command
