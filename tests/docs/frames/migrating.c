/* SPDX-License-Identifier: Apache-2.0
 * docs/migrating: the lines of a page in C. */
#define OUT 3072
#include "migrating.h"

int main(void) {
    prepare();
    /* snippet: ours */
    return 0;
}
