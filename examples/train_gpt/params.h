/* SPDX-License-Identifier: Apache-2.0
 * The parameters, in the types of a recipe, with the optimizer that owns their gradients and states.
 * Matrices of linear layers and their biases are used by the library only. The others (embeddings, gains and biases of
 * layer normalizations) are used by kernels.c, which wants fp32: where the recipe stores 16-bit weights or gradients,
 * these have an fp32 copy, refreshed after each step, and an fp32 gradient, rounded into the main one after each pass.
 * Scaled codes of weights or gradients (MS-AMP) are for the matrices of linear layers; beside them all else is fp32. */
#ifndef TRAIN_GPT_PARAMS_H
#define TRAIN_GPT_PARAMS_H

#include "options.h"
#include "ranks.h"
#include "support.h"

typedef struct {
    char name[32];
    int64_t rows, cols; /* cols 0: a vector */
    bool own_kernels;   /* used by kernels.c */
    double std;         /* of the initial values; 0: constant */
    float constant;
    int32_t index; /* in the optimizer */
    Array weight;
    Array grad;     /* the main gradient */
    Array value;    /* own kernels, 16-bit weights: the fp32 copy */
    Array gradient; /* own kernels, 16-bit main gradients: the fp32 gradient of this pass */
} Param;

typedef struct {
    const Options* options;
    const Ranks* ranks;
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    int32_t plan;       /* MP_SHARDING_* */
    double gathered;    /* bytes of weights gathered since params_expected_traffic */
    int32_t dtype;      /* of weights */
    bool scaled;        /* which are codes of this type with a scale */
    bool matrices_only; /* only those of linear layers are of this type, the others fp32 */
    Param* list;
    int count;
    Array scratch; /* as large as the largest parameter of own kernels */
} Params;

/* The order of all parameters; those of block b begin at PARAM_BLOCKS + b * PARAMS_PER_BLOCK. */
enum { PARAM_WTE, PARAM_WPE, PARAM_BLOCKS };
enum {
    LN1_GAIN,
    LN1_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    PROJ_WEIGHT,
    PROJ_BIAS,
    LN2_GAIN,
    LN2_BIAS,
    FC_WEIGHT,
    FC_BIAS,
    FC2_WEIGHT,
    FC2_BIAS,
    PARAMS_PER_BLOCK
};
enum { LNF_GAIN, LNF_BIAS, HEAD_WEIGHT, PARAMS_BEHIND_BLOCKS };

static inline Param* block_param(const Params* params, int64_t block, int which) {
    return &params->list[PARAM_BLOCKS + block * PARAMS_PER_BLOCK + which];
}
static inline Param* last_param(const Params* params, int which) {
    return &params->list[params->count - PARAMS_BEHIND_BLOCKS + which];
}

/* What the kernels read and what they add gradients to. */
static inline float* param_value(const Param* p) {
    return floats(p->value.tensor != NULL ? &p->value : &p->weight);
}
static inline float* param_gradient(const Param* p) {
    return floats(p->gradient.tensor != NULL ? &p->gradient : &p->grad);
}

/* Creates parameters and optimizer with initial values from --seed or --init. After a failure, params_destroy. */
bool params_create(Params* params, mp_context* context, mp_recipe* recipe, const Options* options,
                   const Ranks* ranks);
void params_destroy(Params* params);

/* The bytes that the recipe promises for these parameters, on this rank. *known is false where it makes no promise: scaled
 * codes beside fp32, shared by ranks. */
bool params_expected_memory(const Params* params, mp_memory_report* report, bool* known);
/* The bytes that this rank should send in a step of the optimizer: the last one, where weights are gathered for each use. */
bool params_expected_traffic(Params* params, double* bytes);

/* After a step: refreshes the fp32 copies. */
bool params_refresh(Params* params);

/* Groups of parameters are the embeddings, each block by its number, and what is behind the blocks by the next number. */
enum { PARAMS_EMBEDDINGS = -1 };

/* Whether weights have memory only between params_gather_wait and params_release: --zero 3. Else these do nothing. */
bool params_come_and_go(const Params* params);
bool params_gather_begin(Params* params, int64_t group);
bool params_gather_wait(Params* params, int64_t group);
bool params_release(Params* params, int64_t group);

/* Whether the gradients of each pass are kept apart, for sums that do not depend on the number of ranks. */
bool params_have_slots(const Params* params);
/* Around the backward pass of a group: memory, zeros where own kernels add in the first pass of a step, and then those
 * kernels' fp32 gradients rounded into 16-bit main gradients; after the last pass they are on their way to other ranks. */
bool params_begin_gradients(Params* params, int64_t group, bool first);
bool params_end_gradients(Params* params, int64_t group, bool first, bool last);
bool params_end_pass(Params* params);

/* For params_create. (sharing.c) */
bool params_create_optimizer(Params* params, const mp_optimizer_desc* desc);
bool params_shard(Params* params);
bool params_sharded_memory(const Params* params, const int64_t* counts, mp_memory_report* report);

/* Writes all weights in fp32, as exactly as the recipe knows them, to a file for --init. */
bool params_save(Params* params, const Options* options, const char* path);

/* Reads such a file into one fp32 array (the caller frees it); NULL after printing what is wrong. (weights_file.c) */
float* weights_load(const char* path, const Options* options, int64_t count);
bool weights_save(const char* path, const Options* options, const float* values, int64_t count);

#endif
