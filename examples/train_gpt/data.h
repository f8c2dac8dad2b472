/* SPDX-License-Identifier: Apache-2.0
 * The text, and the batches drawn from it. One byte is one token. */
#ifndef TRAIN_GPT_DATA_H
#define TRAIN_GPT_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

typedef struct {
    uint8_t* bytes;
    int64_t count;
    int64_t train_count; /* the first nine tenths; the rest is for validation */
} Text;

/* Reads the file; on failure prints why and what to do, and returns false. Both parts must hold context + 1 bytes. */
bool text_load(Text* text, const Options* options);
void text_free(Text* text);

/* Fills tokens and targets [batch, context] with batch number `index` of a stream (STREAM_TRAIN or STREAM_VAL). */
void text_batch(const Text* text, const Options* options, uint64_t stream, int64_t index,
                uint8_t* tokens, uint8_t* targets);

#endif
