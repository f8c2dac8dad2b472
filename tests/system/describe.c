/* SPDX-License-Identifier: Apache-2.0
 * Prints how the library describes this machine. */
#include <stdio.h>

#include <mixedprec.h>

int main(void) {
    static char text[65536];
    mp_context* context = NULL;
    if (mp_context_create(NULL, &context) < 0 ||
        mp_context_describe(context, text, sizeof text, NULL) < 0) {
        fprintf(stderr, "%s\n", mp_last_error_message());
        return 1;
    }
    puts(text);
    mp_context_destroy(context);
    return 0;
}
