// SPDX-License-Identifier: Apache-2.0
// Which compiled panel table runs: the one of the instruction set that the other kernels use.
#include "host/gemm/panels.hpp"

#include <cstring>

#include "host/isa/isa.hpp"

namespace mp::backends::host {

// Defined by panel_table.inc.hpp in each of these files.
namespace panels_baseline {
extern const PanelTable kTable;
}
#if defined(__x86_64__)
namespace panels_avx2 {
extern const PanelTable kTable;
}
namespace panels_avx512 {
extern const PanelTable kTable;
}
namespace panels_avx512_bf16 {
extern const PanelTable kTable;
}
#endif

const PanelTable& active_panel_table() noexcept {
#if defined(__x86_64__)
    const char* name = active_isa().name;
    if (std::strcmp(name, "avx512") == 0) {
        return __builtin_cpu_supports("avx512bf16") ? panels_avx512_bf16::kTable
                                                    : panels_avx512::kTable;
    }
    if (std::strcmp(name, "avx2") == 0) {
        return panels_avx2::kTable;
    }
#endif
    return panels_baseline::kTable;
}

} // namespace mp::backends::host
