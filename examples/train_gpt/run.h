/* SPDX-License-Identifier: Apache-2.0
 * Training with one recipe, and what is known about it afterwards. */
#ifndef TRAIN_GPT_RUN_H
#define TRAIN_GPT_RUN_H

#include <mixedprec.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "data.h"
#include "monitor.h"
#include "network.h"
#include "options.h"

typedef enum { RUN_FAILED, RUN_INTERRUPTED, RUN_DONE } Outcome;

typedef struct {
    char recipe[64];
    int32_t outcome;
    int32_t threads;
    int64_t steps;            /* done, skipped ones included */
    int64_t skipped;          /* by loss scaling */
    double train_loss;        /* mean of the last 20 steps */
    double val_loss;          /* at the end */
    double tokens_per_second; /* over all training steps, without validation */
    double step_seconds;      /* the median step */
    int64_t parameter_count;
    mp_memory_report expected, measured; /* of the optimizer, on rank 0 */
    bool memory_is_promised;             /* expected is known */
    int32_t ranks;                       /* 0: nothing is shared */
    double wire_expected, wire_counted; /* bytes that a rank sends in a step, the mean over ranks */
    double rank_bytes_planned, rank_bytes_held; /* of the rank that has most */
    int64_t peak_memory;                        /* bytes this process had resident at most */
    float* losses;                              /* of each step */
    float* val_losses;                          /* NaN where there was no validation */
    MonitorPoint* points;                       /* what the monitor saw */
    int64_t point_count;
    char* sample; /* NUL-terminated; NULL for none */
} Run;

/* Set by Ctrl-C. */
extern volatile sig_atomic_t interrupted;

/* Trains. After a failure or an interruption `run` holds what was reached. False only for a failure. */
bool run_recipe(Run* run, const Options* options, const Text* text, const char* recipe);
void run_free(Run* run);

/* Sends a run through a pipe and takes it back. */
bool run_write(const Run* run, int descriptor);
bool run_read(Run* run, int descriptor);

/* Of the steps: the mean of the last losses, and the median time; sorts the seconds. (summary.c) */
void summary_of_steps(Run* run, double* step_seconds);
/* Bytes between ranks, over so many steps. */
typedef struct {
    double steps, counted, expected;
} Sent;
/* Of all ranks: what each has sent, the mean, and holds, the most. */
bool summary_of_ranks(Run* run, const Ranks* ranks, Sent sent);
/* The most this process had resident. */
int64_t summary_peak_memory(void);

/* Lets the model write --sample bytes. (sample.c) */
bool run_sample(Run* run, Params* params, const Network* trained, const Options* options,
                const Text* text);

#endif
