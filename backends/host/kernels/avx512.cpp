// SPDX-License-Identifier: Apache-2.0
// The chunk bodies for the instruction set "avx512"; the flags are in CMakeLists.txt.
#define MP_ISA_NAMESPACE avx512
#define MP_ISA_NAME "avx512"
#include "host/kernels/isa_table.inc.hpp"
