/* SPDX-License-Identifier: Apache-2.0
 * Reading the text and drawing batches from it. */
#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static bool read_all(Text* text, FILE* file, const char* path) {
    int64_t capacity = 1 << 20;
    text->bytes = malloc((size_t)capacity);
    while (text->bytes != NULL) {
        text->count +=
            (int64_t)fread(text->bytes + text->count, 1, (size_t)(capacity - text->count), file);
        if (text->count < capacity) {
            break;
        }
        capacity *= 2;
        uint8_t* larger = realloc(text->bytes, (size_t)capacity);
        if (larger == NULL) {
            text_free(text);
        } else {
            text->bytes = larger;
        }
    }
    if (text->bytes == NULL) {
        fprintf(stderr,
                "train_gpt: '%s' does not fit into memory: pass a smaller file with --data\n",
                path);
        return false;
    }
    if (ferror(file)) {
        fprintf(stderr, "train_gpt: cannot read '%s': %s\n", path, strerror(errno));
        text_free(text);
        return false;
    }
    return true;
}

bool text_load(Text* text, const Options* options) {
    const char* path = options->data;
    memset(text, 0, sizeof *text);
    FILE* file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr,
                "train_gpt: cannot open the text '%s': %s. Pass any text file with --data FILE, or "
                "make the default one "
                "with scripts/corpus.sh (Debian packages bible-kjv and bible-kjv-text)\n",
                path, strerror(errno));
        return false;
    }
    const bool complete = read_all(text, file, path);
    fclose(file);
    if (!complete) {
        return false;
    }
    text->train_count = text->count - text->count / 10;
    const int64_t shorter = text->count - text->train_count;
    if (shorter <= options->context) {
        fprintf(stderr,
                "train_gpt: '%s' has %lld bytes, too few: its last tenth, which is for validation, "
                "has %lld and must "
                "hold more than --context %lld. Pass a longer text or a smaller --context\n",
                path, (long long)text->count, (long long)shorter, (long long)options->context);
        text_free(text);
        return false;
    }
    return true;
}

void text_free(Text* text) {
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

void text_batch(const Text* text, const Options* options, uint64_t stream, int64_t index,
                uint8_t* tokens, uint8_t* targets) {
    const bool train = stream == STREAM_TRAIN;
    const uint8_t* part = train ? text->bytes : text->bytes + text->train_count;
    const int64_t count = train ? text->train_count : text->count - text->train_count;
    const int64_t context = options->context;
    for (int64_t row = 0; row < options->batch; row++) {
        const uint64_t number = (uint64_t)(index * options->batch + row);
        const uint64_t start =
            random_bits((uint64_t)options->seed, stream, number) % (uint64_t)(count - context);
        memcpy(tokens + row * context, part + start, (size_t)context);
        memcpy(targets + row * context, part + start + 1, (size_t)context);
    }
}
