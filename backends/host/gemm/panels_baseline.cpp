// SPDX-License-Identifier: Apache-2.0
// The panel bodies for the instruction set "baseline"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE panels_baseline
#define MP_ISA_NAME "baseline"
#include "host/gemm/panel_table.inc.hpp"
