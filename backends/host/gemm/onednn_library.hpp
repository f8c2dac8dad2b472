// SPDX-License-Identifier: Apache-2.0
// oneDNN, opened when products are first asked for: a library that is not installed costs speed, not the program.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "vendor/library.hpp"

namespace mp::backends::host {

// Opened once for the process, by any thread. Only then, and where it is usable, may a dnnl_* function be called.
const vendor::OptionalLibrary& onednn_library() noexcept;

// The OpenMP that oneDNN works with, which is not ours; not there in a oneDNN made with other threads.
struct OnednnOpenMp {
    int (*get_max_threads)() = nullptr;
    void (*set_num_threads)(int threads) = nullptr;

    [[nodiscard]] bool is_there() const noexcept {
        return get_max_threads != nullptr && set_num_threads != nullptr;
    }
};
const OnednnOpenMp& onednn_openmp() noexcept; // after onednn_library()

} // namespace mp::backends::host
