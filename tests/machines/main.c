/* SPDX-License-Identifier: Apache-2.0
 * Does everything that the library promises to give the same bits on every machine, and prints a hash of each result. Of
 * products, whose bits may differ, it prints the numbers.
 *     machines_bits [--backend NAME] [--threads N] [--products | --bounds]
 * --products does products only; --bounds products only, and says how far each may be from the exact result. Exit code 0; 1
 * where a call fails; 3 where the library gives no context. */
#include "bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "key": "value" of a text in JSON, for the reader of a log. */
static void note_value(const char* json, const char* key) {
    const char* at = strstr(json, key);
    if (at != NULL) {
        printf("# %.60s\n", at);
    }
}

static void note_machine(mp_context* context) {
    static char text[65536];
    char* line = text;

    OK(mp_context_describe(context, text, sizeof text, NULL));
    while ((line = strpbrk(line, "\n\r")) != NULL) {
        *line = ' ';
    }
    note_value(text, "\"instruction_set\"");
    note_value(text, "\"onednn\"");
    printf("# %s\n", mp_library_build_info());
}

static int usage(void) {
    fprintf(stderr,
            "usage: machines_bits [--backend NAME] [--threads N] [--products | --bounds]\n");
    return 2;
}

int main(int argc, char** argv) {
    Bits bits = {NULL, 0, 0};
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_status status = MP_STATUS_OK;
    int i = 0;

    desc.num_threads = 2;
    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--products") == 0) {
            bits.with_products = 1;
        } else if (strcmp(argv[i], "--bounds") == 0) {
            bits.with_products = bits.with_bounds = 1;
        } else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) {
            desc.backend = argv[++i];
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            desc.num_threads = atoi(argv[++i]);
        } else {
            return usage();
        }
    }
    status = mp_context_create(&desc, &bits.context);
    if (status < 0) {
        fprintf(stderr, "mp_context_create: %s: %s\n", mp_status_string(status),
                mp_last_error_message());
        return 3;
    }
    note_machine(bits.context);
    if (!bits.with_products) {
        show_casts(&bits);
        show_quantizers(&bits);
        show_pointer_steps(&bits);
        show_recipe_steps(&bits);
    } else {
        show_gemms(&bits);
    }
    show_linears(&bits);
    mp_context_destroy(bits.context);
    return fflush(stdout) == 0 ? 0 : 1;
}
