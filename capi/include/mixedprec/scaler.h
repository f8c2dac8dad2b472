/* SPDX-License-Identifier: Apache-2.0
 * mp_scaler: the loss scale and the rule that moves it. Multiply the loss by mp_scaler_get_scale(), run backward,
 * hand the scaler to the optimizer's step (which divides the gradients, checks that they are finite, and
 * skips the step if not), then mp_scaler_update(). Several optimizers may share a scaler: each skips by its own gradients,
 * whichever steps first, and one update after all of them backs off if any overflowed (torch.amp's rule). What the caller finds
 * itself (mp_scaler_check_pointers, found_inf written while it is 0) skips every step until the update.
 *
 * The union of four published rules, each a preset of mp_scaler_desc_preset:
 *                init   growth/backoff  interval  hysteresis  min  max    growth comes with the
 *   torch        2^16   2 / 0.5         2000      1           0    -      Nth good step in a row
 *   megatron     2^32   2 / 0.5         1000      2           1    -      Nth; hysteresis refilled on growth only
 *   deepspeed    2^16   2 / 0.5         1000      2           1    -      (N+1)th, then every Nth; error at the minimum
 *   apex         2^16   2 / 0.5         2000      1           0    2^24   Nth
 * The state is a small struct in device memory: no function here except those that say so waits for it. */
#ifndef MIXEDPREC_SCALER_H
#define MIXEDPREC_SCALER_H

#include "status.h"

#define MP_SCALER_DYNAMIC 0 /* the scale grows after good steps and falls after overflows */
#define MP_SCALER_STATIC 1  /* init_scale for ever; non-finite gradients still skip the step */
#define MP_SCALER_NONE 2    /* scale 1 and no check for finite gradients */

/* mp_scaler_desc.flags */
#define MP_SCALER_REFILL_ON_GOOD_STEP 1u /* refill hysteresis on good steps, not only on growth */
#define MP_SCALER_ERROR_AT_MIN 2u /* a backoff at the minimum makes mp_scaler_get_state fail */

typedef struct mp_scaler_desc {
    uint32_t struct_size;    /* sizeof(mp_scaler_desc) */
    uint32_t flags;          /* MP_SCALER_REFILL_ON_GOOD_STEP, MP_SCALER_ERROR_AT_MIN */
    int32_t kind;            /* MP_SCALER_DYNAMIC, _STATIC, _NONE */
    int32_t growth_interval; /* good steps before growth; 0: 2000 */
    int32_t hysteresis;      /* overflows that are forgiven, plus 1; 0: 1 */
    int32_t count_offset;    /* good steps after an overflow that do not count; 0 or 1 */
    double init_scale;       /* 0: 65536 */
    double growth_factor;    /* > 1; 0: 2 */
    double backoff_factor;   /* in (0, 1); 0: 0.5 */
    double min_scale;        /* 0: none */
    double max_scale;        /* 0: none, growth only keeps the scale finite */
} mp_scaler_desc;

#define MP_SCALER_DESC_INIT                                                                        \
    { sizeof(mp_scaler_desc), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/** Everything that save and resume need, and what a progress line wants to show. */
typedef struct mp_scaler_state {
    uint32_t struct_size;       /* sizeof(mp_scaler_state), set by the caller */
    uint32_t found_inf;         /* 1: the gradients seen since the last update are not all finite */
    double scale;               /* the loss scale */
    int32_t growth_tracker;     /* good steps counted towards growth */
    int32_t hysteresis_tracker; /* overflows still forgiven, plus 1 */
    int64_t good_steps;         /* since creation */
    int64_t overflow_steps;     /* since creation */
} mp_scaler_state;

#define MP_SCALER_STATE_INIT                                                                       \
    { sizeof(mp_scaler_state), 0, 0.0, 0, 0, 0, 0 }

MP_BEGIN_DECLS

/* ---- The simple way: the scaler that a recipe or a descriptor asks for */

/** Makes the scaler a recipe asks for; for a recipe without loss scaling one of kind MP_SCALER_NONE, so that
 * the caller's loop is the same for every recipe. Freezes the recipe.
 * @param[in]  context  the context
 * @param[in]  recipe   the recipe
 * @param[out] out      the new scaler
 * @returns as mp_scaler_create
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_scaler_create_from_recipe(mp_context* context, mp_recipe* recipe,
                                              mp_scaler** out) MP_MUST_CHECK;

/** Makes a scaler on the context's device.
 * @param[in]  context  the context
 * @param[in]  desc     NULL: all defaults, which is the torch preset
 * @param[out] out      the new scaler
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (a value
 *          outside its bounds); MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_scaler_create(mp_context* context, const mp_scaler_desc* desc,
                                  mp_scaler** out) MP_MUST_CHECK;

/** The loss scale as it is after all enqueued work. Blocks.
 * @param[in]  scaler  the scaler
 * @param[in]  queue   NULL: the default queue
 * @param[out] scale   multiply the loss by this
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_CUDA_ERROR
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_get_scale(mp_scaler* scaler, mp_queue* queue, double* scale);

/** Moves the scale by the rule, once a step, and clears found_inf. Enqueues.
 * @param[in] scaler  the scaler
 * @param[in] queue   NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_CUDA_ERROR
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_update(mp_scaler* scaler, mp_queue* queue);

/** Gives the caller's reference back.
 * @param[in] scaler  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_scaler_destroy(mp_scaler* scaler);

/* ---- The explicit way: loops without mp_optimizer, numbers that stay on the device, ranks */

/** Looks whether gradients in the caller's own memory are finite; for loops without mp_optimizer. Adds to
 * found_inf until the next update: every step until then is skipped. Enqueues; on the host the memory is read before the call
 * returns.
 * @param[in] scaler    the scaler
 * @param[in] queue     NULL: the default queue
 * @param[in] count     number of arrays
 * @param[in] grads     their pointers, on the scaler's device
 * @param[in] dtypes    their MP_DTYPE_*: fp32, fp16, bf16
 * @param[in] elements  their sizes
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (negative size); MP_STATUS_UNSUPPORTED; MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_check_pointers(mp_scaler* scaler, mp_queue* queue, int64_t count,
                                          const void* const* grads, const int32_t* dtypes,
                                          const int64_t* elements);

/** The loss scale in device memory: one fp32 element that shares the scaler's memory, for losses that are multiplied on the
 * device without waiting. 1 of a scaler of kind MP_SCALER_NONE.
 * @param[in]  scaler  the scaler, kept alive
 * @param[out] out     a new handle on it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_get_scale_tensor(mp_scaler* scaler, mp_tensor** out) MP_MUST_CHECK;

/** found_inf, 0 or 1, likewise. Kernels of the caller's may write it before mp_scaler_update: the maximum over ranks, say.
 * @param[in]  scaler  the scaler, kept alive
 * @param[out] out     a new handle on it
 * @returns as mp_scaler_get_scale_tensor
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_get_found_inf_tensor(mp_scaler* scaler, mp_tensor** out) MP_MUST_CHECK;

/** found_inf becomes 1 where it is on any rank, before mp_scaler_update; for loops without mp_optimizer, and for ranks that
 * hold other parameters. One small message. Blocks.
 * @param[in] scaler  the scaler
 * @param[in] queue   NULL: the default queue
 * @param[in] comm    the ranks
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; as mp_comm_all_to_all, and then nothing has changed
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_scaler_combine(mp_scaler* scaler, mp_queue* queue, mp_comm* comm);

/* ---- Everything else: saving it, presets */

/** Reads the whole state. Blocks.
 * @param[in]     scaler  the scaler
 * @param[in]     queue   NULL: the default queue
 * @param[in,out] state   struct_size set by the caller; the rest is written
 * @returns as mp_scaler_get_scale; MP_STATUS_BAD_STATE after a backoff at the minimum under MP_SCALER_ERROR_AT_MIN (the
 *          state is written all the same); MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_get_state(mp_scaler* scaler, mp_queue* queue, mp_scaler_state* state);

/** Replaces the whole state, to go on exactly where a saved run stopped. Blocks.
 * @param[in] scaler  the scaler
 * @param[in] queue   NULL: the default queue
 * @param[in] state   from mp_scaler_get_state
 * @returns as mp_scaler_get_scale; MP_STATUS_INVALID_ARGUMENT (a scale or counters that this scaler cannot come to);
 *          MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_scaler_set_state(mp_scaler* scaler, mp_queue* queue,
                                     const mp_scaler_state* state);

/** Fills a descriptor with the rule of a known system.
 * @param[out] desc  the descriptor
 * @param[in]  size  sizeof(mp_scaler_desc) as the caller knows it
 * @param[in]  name  "torch", "megatron", "deepspeed" or "apex"
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_UNKNOWN_NAME; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_scaler_desc_preset(mp_scaler_desc* desc, size_t size, const char* name);

MP_END_DECLS

#endif /* MIXEDPREC_SCALER_H */
