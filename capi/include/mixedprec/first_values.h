/* SPDX-License-Identifier: Apache-2.0
 * First values of an optimizer's parameters, for the elements that a rank has: by a rule, from a model's files, or from the
 * caller, who may read on one rank for all. With deferred tensors (MP_TENSOR_DEFERRED) no rank of stage 3 ever holds a
 * whole model: parameters are added without memory, cut by mp_optimizer_shard, and get their values here.
 *
 * Values are exact, in fp32: a weight is their rounding, and what that loses goes into the parameter's master weight,
 * remainder or compensation. A frozen one in codes is what mp_tensor_quantize makes of the whole; that may lose more, and nothing
 * keeps it. Moments and counts stay. All must be finite. The bits do not depend on ranks, stages and plans.
 *
 * Where ranks share the optimizer these calls are collective, come after mp_optimizer_shard and between steps, and name the
 * same parameters in the same order. In stage 3 they leave no parameter gathered. A call that fails in between leaves the
 * parameters that it names without values: steps are refused until they get some. */
#ifndef MIXEDPREC_FIRST_VALUES_H
#define MIXEDPREC_FIRST_VALUES_H

#include "model_file.h"
#include "optimizer.h"

/* mp_param_init.kind. Random numbers come from Philox4x32-10 by (seed, the parameter's name, element): the same on every machine
 * and for any number of ranks. */
#define MP_INIT_CONSTANT 0 /* a */
#define MP_INIT_UNIFORM 1  /* from a to b */
/* Of mean a and standard deviation b: the normal quantile of uniform numbers (Wichura, AS 241), so within 6.4 deviations */
#define MP_INIT_NORMAL 2

typedef struct mp_param_init {
    uint32_t struct_size; /* sizeof(mp_param_init), the same in all of an array */
    int32_t index;        /* the parameter's number */
    int32_t kind;         /* MP_INIT_* */
    int32_t reserved;     /* 0 */
    double a;             /* the constant, the lower bound, or the mean */
    double b;             /* the upper bound, or the standard deviation, >= 0 */
} mp_param_init;

#define MP_PARAM_INIT_INIT                                                                         \
    { sizeof(mp_param_init), 0, MP_INIT_CONSTANT, 0, 0.0, 0.0 }

/** Writes `count` values of parameter `index` from element `first` on, in row-major order. Returns MP_STATUS_OK, or why it
 * cannot. It must not call the library with this optimizer. */
typedef mp_status (*mp_fill_fn)(int32_t index, int64_t first, int64_t count, float* values,
                                void* payload);

MP_BEGIN_DECLS

/** Gives parameters their values by rules. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] seed       of random numbers
 * @param[in] inits      the parameters and their rules
 * @param[in] count      how many
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index, one named
 *          twice, a kind, numbers that are none); MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_BAD_STATE (before
 *          mp_optimizer_shard); MP_STATUS_OUT_OF_MEMORY; MP_STATUS_RANK_MISMATCH; MP_STATUS_PEER_ERROR; as
 *          mp_comm_all_to_all; vendor codes
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_init_params(mp_optimizer* optimizer, mp_queue* queue, uint64_t seed,
                                          const mp_param_init* inits, int32_t count);

/** Gives parameters the values that a model's files have. Each rank reads what it has. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] model      has a tensor of each parameter's shape, of a type that mp_model_file_read_floats takes
 * @param[in] prefix     what the files' names begin with before a parameter's name, "model." say; NULL: nothing
 * @param[in] indices    the parameters' numbers; NULL: all parameters
 * @param[in] count      how many; without indices 0
 * @returns as mp_optimizer_init_params; before anything has changed MP_STATUS_UNKNOWN_NAME, MP_STATUS_INVALID_SHAPE and
 *          MP_STATUS_INVALID_DTYPE, of a tensor; MP_STATUS_IO_ERROR
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_load_params(mp_optimizer* optimizer, mp_queue* queue,
                                          mp_model_file* model, const char* prefix,
                                          const int32_t* indices, int32_t count);

/** Gives parameters the values that a function of the caller's writes. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] indices    the parameters' numbers
 * @param[in] count      how many
 * @param[in] fill       called on this thread
 * @param[in] payload    handed to it
 * @param[in] root       -1: each rank is asked for what it has. A rank: it alone is asked, for 2^20 elements at a time, and
 *                       sends them to all; the others' fill may be NULL
 * @returns as mp_optimizer_init_params; what `fill` returned
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_fill_params(mp_optimizer* optimizer, mp_queue* queue,
                                          const int32_t* indices, int32_t count, mp_fill_fn fill,
                                          void* payload, int32_t root);

MP_END_DECLS

#endif /* MIXEDPREC_FIRST_VALUES_H */
