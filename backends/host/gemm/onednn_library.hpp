// SPDX-License-Identifier: Apache-2.0
// oneDNN, opened when products are first asked for: a library that is not installed costs speed, not the program.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "status/status.hpp"

namespace mp::backends::host {

struct OnednnLibrary {
    bool is_usable = false;
    TextLine<512> reason; // why it is not
};

// Opened once for the process, by any thread. Only then, and where it is usable, may a dnnl_* function be called.
const OnednnLibrary& onednn_library() noexcept;

} // namespace mp::backends::host
