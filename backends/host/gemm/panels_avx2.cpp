// SPDX-License-Identifier: Apache-2.0
// The panel bodies for the instruction set "avx2"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE panels_avx2
#define MP_ISA_NAME "avx2"
#include "host/gemm/panel_table.inc.hpp"
