/* SPDX-License-Identifier: Apache-2.0
 * Asks for a device whose module the environment may name, and opens a context, which opens libraries of others; says first
 * whether the system trusts the environment, and at the end what the context says of itself. */
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <mixedprec.h>

int main(int argc, char** argv) {
    static char text[65536];
    mp_context* context = NULL;
    printf("secure %lu\n", getauxval(AT_SECURE));
    fflush(stdout);
    if (argc > 1 && chdir(argv[1]) != 0) {
        return 1;
    }
    (void)mp_device_available(MP_DEVICE_CUDA, 0);
    puts(mp_last_error_message());
    if (mp_context_create(NULL, &context) < 0 ||
        mp_context_describe(context, text, sizeof text, NULL) < 0) {
        puts(mp_last_error_message());
        return 1;
    }
    puts(text);
    return 0;
}
