/* SPDX-License-Identifier: Apache-2.0
 * Asks for a device whose module the environment may name; says first whether the system trusts the environment. */
#include <stdio.h>
#include <sys/auxv.h>

#include <mixedprec.h>

int main(void) {
    printf("secure %lu\n", getauxval(AT_SECURE));
    (void)mp_device_available(MP_DEVICE_CUDA, 0);
    return 0;
}
