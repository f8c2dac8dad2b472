// SPDX-License-Identifier: Apache-2.0
// The chunk bodies for the instruction set "avx2"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE avx2
#define MP_ISA_NAME "avx2"
#include "host/kernels/isa_table.inc.hpp"
