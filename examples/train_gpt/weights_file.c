/* SPDX-License-Identifier: Apache-2.0
 * The file of --save and --init: a header of eight 64-bit integers, then all weights in fp32, in this machine's byte
 * order. For this program only; the library's own checkpoints are something else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

enum { HEADER = 8 };

static void fill_header(int64_t* header, const Options* o, int64_t count) {
    const int64_t values[HEADER] = {
        0x3154504754504d, /* "MPTGPT1" */ o->layers, o->dim, o->heads, o->context, 256, count, 0};
    memcpy(header, values, sizeof values);
}

float* weights_load(const char* path, const Options* o, int64_t count) {
    int64_t wanted[HEADER], found[HEADER];
    fill_header(wanted, o, count);
    FILE* file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "train_gpt: cannot open the weights '%s': %s\n", path, strerror(errno));
        return NULL;
    }
    float* values = NULL;
    const bool header = fread(found, sizeof found, 1, file) == 1;
    if (!header || found[0] != wanted[0]) {
        fprintf(stderr, "train_gpt: '%s' is not a file that --save has written\n", path);
    } else if (memcmp(found, wanted, sizeof wanted) != 0) {
        fprintf(stderr,
                "train_gpt: '%s' holds a model with --layers %lld --dim %lld --heads %lld "
                "--context %lld: pass the same\n",
                path, (long long)found[1], (long long)found[2], (long long)found[3],
                (long long)found[4]);
    } else if ((values = malloc(sizeof(float) * (size_t)count)) == NULL) {
        fputs("train_gpt: out of memory for the initial weights\n", stderr);
    } else if (fread(values, sizeof(float), (size_t)count, file) != (size_t)count ||
               fgetc(file) != EOF) {
        fprintf(stderr, "train_gpt: '%s' is damaged: it must hold exactly %lld weights\n", path,
                (long long)count);
        free(values);
        values = NULL;
    }
    fclose(file);
    return values;
}

bool weights_save(const char* path, const Options* o, const float* values, int64_t count) {
    int64_t header[HEADER];
    fill_header(header, o, count);
    FILE* file = fopen(path, "wb");
    bool good = file != NULL && fwrite(header, sizeof header, 1, file) == 1 &&
                fwrite(values, sizeof(float), (size_t)count, file) == (size_t)count;
    const int error = errno;
    if (file != NULL && fclose(file) != 0) {
        good = false;
    }
    if (!good) {
        fprintf(stderr, "train_gpt: cannot write the weights '%s': %s\n", path, strerror(error));
    }
    return good;
}
