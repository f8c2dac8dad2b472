// SPDX-License-Identifier: Apache-2.0
// The chunk bodies for the instruction set "baseline"; the flags are in CMakeLists.txt.
#define MP_CHUNK_NAMESPACE baseline
#define MP_ISA_NAME "baseline"
#include "host/kernels/chunk_table.inc.hpp"
