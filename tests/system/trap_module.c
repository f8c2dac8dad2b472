/* SPDX-License-Identifier: Apache-2.0
 * Stands where the library looks for its CUDA module, and tells that it was loaded. */
#include <stdio.h>

__attribute__((constructor)) static void tell(void) { puts("the trap was loaded"); }
