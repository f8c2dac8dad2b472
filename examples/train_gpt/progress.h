/* SPDX-License-Identifier: Apache-2.0
 * The line that shows how training goes: redrawn in place on a terminal, a new one every few seconds elsewhere. */
#ifndef TRAIN_GPT_PROGRESS_H
#define TRAIN_GPT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char* name;
    int64_t steps;
    bool terminal;
    double start, last; /* seconds */
    bool drawn;         /* something stands on the terminal's line */
} Progress;

void progress_begin(Progress* p, const char* name, int64_t steps);
void progress_update(Progress* p, int64_t done, double loss, double tokens_per_second,
                     double loss_scale, double grad_norm, int64_t skipped);
void progress_end(Progress* p);

#endif
