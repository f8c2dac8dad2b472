/* SPDX-License-Identifier: Apache-2.0
 * docs/migrating/torchao.md: a layer as large as a head is. */
#define OUT 50304
#include "migrating.h"

int main(void) {
    prepare();
    /* snippet: ours */
    return 0;
}
