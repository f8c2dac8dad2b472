// SPDX-License-Identifier: Apache-2.0
// HIP's runtime, libamdhip64, opened at first use: it has no static form, and the module must load where it is not
// installed, to say so.
#pragma once

#include "vendor/library.hpp"

namespace mp::backends::hip {

// Nothing of HIP may be called before this says that it is usable. Then the module's kernels are known to it.
const vendor::OptionalLibrary& hip_library() noexcept;

// Registers this module's kernels with the runtime. The name of a function that it lacks, or null.
const char* register_kernels(void* library) noexcept;

} // namespace mp::backends::hip
