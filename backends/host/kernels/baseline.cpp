// SPDX-License-Identifier: Apache-2.0
// The chunk bodies for the instruction set "baseline"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE baseline
#define MP_ISA_NAME "baseline"
#include "host/kernels/isa_table.inc.hpp"
