// SPDX-License-Identifier: Apache-2.0
// The chunk bodies for the instruction set "avx512"; the flags are in CMakeLists.txt.
#define MP_CHUNK_NAMESPACE avx512
#define MP_ISA_NAME "avx512"
#include "host/kernels/chunk_table.inc.hpp"
