/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints of a run: everything to go on with the same bits. */
#ifndef TRAIN_GPT_SAVER_H
#define TRAIN_GPT_SAVER_H

#include "network.h"

typedef struct {
    const Options* options;
    mp_checkpoint* checkpoint; /* NULL: neither --checkpoint nor --resume */
    int64_t next_step;  /* also where the data go on: batches follow from the step's number */
    int64_t saved_step; /* of the last checkpoint; -1: none */
} Saver;

/* A curve that goes on where it was, of options->steps elements. */
typedef struct {
    const char* name;
    void* values;
    size_t element_size;
} Curve;

/* Knows what belongs to the run, and with --resume loads it. After a failure, saver_destroy. */
bool saver_create(Saver* saver, const Options* options, mp_context* context, Params* params,
                  mp_scaler* scaler, Network* network, const Curve* curves, int curve_count);
/* After step number `taken`, from 1: saves where its turn has come, while training goes on. */
bool saver_step(Saver* saver, int64_t taken);
/* After the last step: saves unless that is done, and waits. */
bool saver_finish(Saver* saver, int64_t taken);
void saver_destroy(Saver* saver);

/* Whether --save's file is to be one of safetensors; and that file: the weights in their own types. */
bool saver_is_safetensors(const char* path);
bool saver_export(Params* params, const char* path);

#endif
