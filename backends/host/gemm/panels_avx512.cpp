// SPDX-License-Identifier: Apache-2.0
// The panel bodies for the instruction set "avx512"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE panels_avx512
#define MP_ISA_NAME "avx512"
#include "host/gemm/panel_table.inc.hpp"
