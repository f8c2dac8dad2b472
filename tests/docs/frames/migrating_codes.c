/* SPDX-License-Identifier: Apache-2.0
 * docs/migrating: the lines of a page in C whose recipe gathers fp8 codes. */
#define OUT 3072
#define RECIPE "bf16_with_fp8_mixed"
#include "migrating.h"

int main(void) {
    prepare();
    /* snippet: ours */
    return 0;
}
