/* SPDX-License-Identifier: Apache-2.0
 * A guard that skips steps which stand out, and a history of the last steps for the first one that goes wrong.
 *
 * The guard is llm.c's: a value's z-score is (value - mean) / deviation, with mean and deviation (divided by the window's
 * length) of the last `window` values. A step whose gradient norm or loss has a z-score above the bound changes nothing,
 * as if a gradient were not finite; but found_inf stays 0, so that the loss scale does not move. Nothing is judged before the
 * window is full. A value joins the window, whether its step is taken or not, unless it is not finite: a lasting change
 * stops standing out. Decided on the device, in fp64, in the order of the values: the same on all ranks. Checkpoints keep the
 * window: it waits for the guard that is set after a load, and is saved again where none is set.
 *
 * The history is a ring in host memory. The first step that is skipped because something is not finite names the first
 * bad tensor, and writes the ring to a file.
 *
 * A step that is captured into a graph has neither a history nor a guard of the loss, which the host would have to give at
 * each replay: MP_STATUS_BAD_STATE, and nothing changes. A guard of the gradient norm alone works in a graph. */
#ifndef MIXEDPREC_WATCH_H
#define MIXEDPREC_WATCH_H

#include "optimizer.h"

MP_BEGIN_DECLS

typedef struct mp_guard_desc {
    uint32_t struct_size;   /* sizeof(mp_guard_desc) */
    int32_t window;         /* values that a new one is compared with, 2 to 1024; 0: 128 */
    double max_grad_norm_z; /* largest z-score of the gradient norm; 0: it is not watched */
    double max_loss_z;      /* likewise of the loss that mp_optimizer_set_loss gives */
} mp_guard_desc;

#define MP_GUARD_DESC_INIT                                                                         \
    { sizeof(mp_guard_desc), 0, 0.0, 0.0 }

/* mp_step_record.outcome */
#define MP_STEP_TAKEN 0u      /* weights and states are new */
#define MP_STEP_NON_FINITE 1u /* skipped: a gradient, or the caller's found_inf, was not finite */
#define MP_STEP_OUTLIER 2u    /* skipped by the guard */

typedef struct mp_step_record {
    uint32_t struct_size; /* sizeof(mp_step_record) */
    uint32_t outcome;     /* MP_STEP_TAKEN and the like */
    int64_t call;       /* calls of mp_optimizer_step since the history began, this one included */
    int64_t step;       /* steps taken in all, this one included */
    double loss;        /* of mp_optimizer_set_loss; NaN where it was not called */
    double loss_scale;  /* what the scaler had; 1 without one */
    double lr;          /* of the first group */
    double grad_norm;   /* unscaled, before clipping; 0 where it was not computed */
    double grad_mul;    /* what the gradients were multiplied by */
    double grad_norm_z; /* z-score; 0 where the guard does not watch it */
    double loss_z;      /* z-score; 0 where the guard does not watch it */
} mp_step_record;

#define MP_STEP_RECORD_INIT                                                                        \
    { sizeof(mp_step_record), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/** Skips steps that stand out from now on. Gradients are then read once before each step, as for clipping. What the last
 * guard has seen, here or in the checkpoint that was loaded, stays in the window. Where ranks share the optimizer all give the
 * same; one that does not is named in the next step. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      that of the steps; NULL: the default queue
 * @param[in] desc       the bounds, one of them at least; NULL: no guard
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_guard(mp_optimizer* optimizer, mp_queue* queue,
                                        const mp_guard_desc* desc);

/** The guard as it is.
 * @param[in]     optimizer  the optimizer
 * @param[in,out] desc       struct_size set by the caller; the rest is written. Both bounds are 0 where there is no guard
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_guard(const mp_optimizer* optimizer, mp_guard_desc* desc);

/** Gives the loss of the step to come, for the guard and the history; each step forgets it. Where ranks share the
 * optimizer and the guard watches the loss, it is the same number on all, such as the mean over the ranks.
 * @param[in] optimizer  the optimizer
 * @param[in] loss       not multiplied by the loss scale; a loss that is not finite is never an outlier
 * @returns MP_STATUS_OK; MP_STATUS_INVALID_HANDLE; MP_STATUS_NULL_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_loss(mp_optimizer* optimizer, double loss);

/** Keeps the last steps. Each mp_optimizer_step then waits for its own decision on an accelerator. Of the first step that is
 * skipped because something is not finite it finds the first bad tensor: in the order of mp_optimizer_set_linears the weight
 * or input of a layer that counts its operands (MP_LINEAR_STATS or a monitor), else the first gradient in the order of
 * parameters. With a path it writes the records and what the layers counted as one JSON object; a failure to write goes to the
 * log and fails no step. Begins anew: records, call and bad tensor are forgotten.
 * @param[in] optimizer  the optimizer
 * @param[in] steps      how many, to 2^20; 0: none
 * @param[in] path       a file that is replaced if it is a regular one, its folder exists; NULL: none. What a relative path
 *                       means is settled here. On ranks, another on each. Copied
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (steps; a link, a
 *          device, a pipe or a folder has that name); MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_history(mp_optimizer* optimizer, int32_t steps, const char* path);

/** Number of records there are: of the steps since the history began, or as many as it keeps.
 * @param[in]  optimizer  the optimizer
 * @param[out] count      the number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_record_count(const mp_optimizer* optimizer, int32_t* count);

/** One record of the history.
 * @param[in]     optimizer  the optimizer
 * @param[in]     index      0: the oldest
 * @param[in,out] record     struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_record(const mp_optimizer* optimizer, int32_t index,
                                         mp_step_record* record);

/** The first tensor that was not finite, in the first step that was skipped for it, in words such as
 * "the gradient of 'h0.qkv.weight'". Empty: there was no such step since the history began.
 * @param[in]  optimizer  the optimizer
 * @param[out] buffer     receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity   bytes of buffer
 * @param[out] needed     bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_bad_tensor(const mp_optimizer* optimizer, char* buffer,
                                             size_t capacity, size_t* needed);

MP_END_DECLS

#endif /* MIXEDPREC_WATCH_H */
