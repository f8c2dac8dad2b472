/* SPDX-License-Identifier: Apache-2.0
 * Everything the command line decides. */
#ifndef TRAIN_GPT_OPTIONS_H
#define TRAIN_GPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RECIPES = 64, MAX_SETTINGS = 64 };

/* Exit codes. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

typedef struct {
    const char* data;                 /* the text */
    const char* recipes[MAX_RECIPES]; /* preset names, or JSON files */
    int recipe_count;
    const char* settings[MAX_SETTINGS]; /* KEY=VALUE, of every recipe */
    int setting_count;
    int64_t steps, accum;
    int64_t layers, dim, heads, context, batch;
    double lr, min_lr;
    int64_t warmup;
    double beta1, beta2, eps, weight_decay, clip;
    int64_t seed, threads;
    int64_t val_every, val_batches;
    int64_t monitor; /* steps between looks at the layers' operands; 0: none */
    int64_t sample;
    double temperature;
    int64_t max_memory; /* MiB that the estimate may not exceed */
    const char* backend;
    const char* out;  /* folder for curves and results */
    const char* init; /* weights to start from */
    const char* save; /* where to leave the weights */
    /* Checkpoints. */
    const char* checkpoint;   /* folder of them to write */
    int64_t checkpoint_every; /* steps between them; 0: only at the end */
    int64_t keep;             /* the newest ones; 0: all */
    const char* resume;       /* one, or a folder of them, to go on from */
    /* Ranks that share the work of a step. */
    int64_t ranks;       /* threads of this process */
    bool mpi;            /* or processes under mpirun */
    int64_t zero;        /* stage */
    int64_t shard_ranks; /* of a group that has a copy; 0: all */
    int64_t node_ranks;  /* inside which gradients are added first; 0: no such */
    const char *order_name, *wire_name;
    int32_t order;      /* MP_COMM_ORDER_* */
    int32_t wire_dtype; /* MP_DTYPE_NONE: the recipe's */
    bool shared;        /* whether any of these was asked for */
} Options;

/* Reads the command line. Returns EXIT_OK to go on; EXIT_USAGE after printing what was wrong; -1 when there is nothing
 * more to do (--help, --list-recipes). */
int options_parse(Options* options, int argc, char** argv);

/* Whether so many ranks can share these steps: EXIT_OK, or EXIT_USAGE after printing why not. */
int options_check_ranks(const Options* options, int64_t ranks);

/* Bytes that the model, its optimizer and its activations will take at most, in fp32; the number of parameters. */
double options_memory(const Options* options, int64_t* parameter_count);

/* Between the files of the command line. (options.c, options_ranks.c) */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int usage_error(const char* format, ...);
int options_parse_sharing(Options* options);
int options_check_sharing(const Options* options);

#endif
