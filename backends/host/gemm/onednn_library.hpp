// SPDX-License-Identifier: Apache-2.0
// oneDNN, opened when products are first asked for: a library that is not installed costs speed, not the program.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "vendor/library.hpp"

namespace mp::backends::host {

// Opened once for the process, by any thread. Only then, and where it is usable, may a dnnl_* function be called.
const vendor::OptionalLibrary& onednn_library() noexcept;

} // namespace mp::backends::host
