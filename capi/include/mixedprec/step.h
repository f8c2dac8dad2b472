/* SPDX-License-Identifier: Apache-2.0
 * The first page: all that a program needs which keeps its own arrays. One call is one optimizer step on weights, gradients and
 * states wherever they lie; beside it are the loss scale, casts and codes. Any of fp32, fp16, bf16 for each array, 16- and 8-bit
 * codes with one scale, 8- and 4-bit codes in blocks; fp32 master weights, Kahan compensation, stochastic rounding; unscaling
 * and clipping folded in.
 *
 *     mp_context* context = NULL;
 *     mp_context_create(NULL, &context);                       (context.h; and mp_context_destroy)
 *     mp_step_slot slot = MP_STEP_SLOT_INIT;                   one for each array of parameters
 *     slot.count = n;
 *     slot.param.data = weights;                               bf16; so for gradients and states, each in its own type
 *     slot.param.dtype = MP_DTYPE_BF16;
 *     ...
 *     mp_step_args args = MP_STEP_ARGS_INIT;                   AdamW; all but lr is what is usual
 *     for (args.step = 1; args.step <= steps; ++args.step) {
 *         ... forward, backward ...
 *         args.lr = learning_rate(args.step);
 *         mp_optimizer_step_pointers(context, NULL, &args, &slot, 1, NULL, NULL);
 *     }
 *
 * What else such programs use: mp_scaler_create, _get_scale, _update, _destroy (scaler.h) where gradients are fp16;
 * mp_tensor_cast_pointers, mp_tensor_quantize_pointers and _dequantize_pointers (convert.h); mp_last_error_message (status.h);
 * mp_rule_get_number and its siblings (rule.h). Parameters by name, groups, ranks and checkpoints: optimizer.h.
 *
 * Arithmetic of AdamW: everything in fp32 registers, one rounding per stored tensor.
 *   g  = grad * grad_mul                              grad_mul = 1/loss_scale * min(1, max_norm / (norm + 1e-6))
 *   m' = beta1 m + (1 - beta1) g
 *   v' = beta2 v + (1 - beta2) g g
 *   d  = sqrt(v') / sqrt(1 - beta2^t) + eps           (as a multiplication by the reciprocal)
 *   u  = -lr weight_decay p - lr / (1 - beta1^t) m'/d
 *   plain: p' = round(p + u)      p is the master weight where there is one, and p' is then rounded into the weight
 *   Kahan: c  = c + u;  p' = round(p + c);  c' = round(c + (p - p'))
 * Weight decay is decoupled and part of u, so low-precision parameters do not lose it. Hyperparameters are
 * doubles; the scalars above are computed in double and rounded once. t is the group's own: it counts the steps that
 * the group took part in, so one that was off, or was added later, has its own bias corrections.
 * Scaled codes (MS-AMP): value = code * scale_inv. Of what the step writes, the scale is renewed: scale_inv is
 * the smallest power of two under which the largest new magnitude fits the codes, and stays as it was where that
 * magnitude is 0 or not finite. So the step reads its arrays twice: once for the maxima, once to store. A scaled
 * parameter beside a master weight is rounded from the master weight as it is stored. exp_avg_sq in fp8 under one
 * scale is refused: it holds squares of gradients with a ratio of 479 at most.
 * A step whose gradients are not finite (where that is checked) changes nothing: not p, m, v, c, not t; under
 * MP_OPTIMIZER_ZERO_GRAD its gradients become zero as those of any other.
 * The bits of a step do not depend on threads, instruction set or device. */
#ifndef MIXEDPREC_STEP_H
#define MIXEDPREC_STEP_H

#include "array.h"
#include "context.h"
#include "convert.h"
#include "rule.h"
#include "scaler.h"

/* mp_optimizer_desc.flags and mp_step_args.flags */
/* Read the gradients once more first, and skip the step if any is NaN or Inf. Implied by a scaler that
 * checks, and by max_grad_norm. */
#define MP_OPTIMIZER_CHECK_FINITE 1u
/* The step writes zeros into the gradients it has used, one that is skipped too. Those of a group that is off stay as they are;
 * where ranks share the optimizer they become zero with the others, as they leave for their owners. */
#define MP_OPTIMIZER_ZERO_GRAD 2u

/* mp_step_args.flags: what is rounded stochastically. Of states that of the rule's first; the next have the next bits */
#define MP_STEP_SR_PARAM 16u /* the parameter */
#define MP_STEP_SR_STATE 32u /* the first state; MP_STEP_SR_STATE << k is of states[k] */

typedef struct mp_optimizer_stats {
    uint32_t struct_size;  /* sizeof(mp_optimizer_stats), set by the caller */
    uint32_t found_inf;    /* 1: the last step was skipped because a gradient was not finite */
    int64_t step;          /* steps really taken; a group's own t: mp_optimizer_get_group_step */
    int64_t skipped_steps; /* since creation, outliers included */
    double grad_norm;      /* global, of the last step's unscaled gradients; 0 where not computed */
    double grad_mul;       /* what the gradients of the last step were multiplied by */
    int64_t outlier_steps; /* of the skipped ones, those that the guard of watch.h skipped */
    double grad_norm_z;    /* the last step's z-scores; 0 where the guard does not watch */
    double loss_z;         /* likewise */
} mp_optimizer_stats;

#define MP_OPTIMIZER_STATS_INIT                                                                    \
    { sizeof(mp_optimizer_stats), 0, 0, 0, 0.0, 0.0, 0, 0.0, 0.0 }

/** One array of parameters in the caller's memory, for mp_optimizer_step_pointers. On an accelerator that is its own memory, or
 * pinned host memory that it reaches (states that are not on the device, zero-copy). What is left zero is not there.
 *
 *               elements                  codes with one scale, which the step renews, but not the gradient's
 * param         fp32, fp16, bf16          fp16, fp8_e4m3
 * grad          fp32, fp16, bf16          fp16, bf16, fp8_e4m3, fp8_e5m2. Written only under MP_OPTIMIZER_ZERO_GRAD
 * master        fp32                      fp16. Or MP_CODING_REMAINDER: int16 beside a bf16 param
 * compensation  fp32, fp16, bf16          none. Blocks. Not beside a master
 * states        fp32, fp16, bf16          fp16; fp8_e4m3 where they have a sign. Blocks */
typedef struct mp_step_slot {
    uint32_t struct_size; /* sizeof(mp_step_slot), the same in every slot of an array */
    uint32_t flags;       /* 0 */
    int64_t count;        /* elements */
    uint64_t uid;         /* names the parameter to stochastic rounding */
    /* Where this slot's element 0 lies in the whole parameter; a multiple of 8. Stochastic rounding of a slice then gives the
     * bits of the whole. States in blocks are the whole's too where slices begin with a block. */
    int64_t first_element;
    /* The weight. Its amax is that of the new weight as stored; not beside a scale, which is made of it. No other has one. */
    mp_array param;
    mp_array grad;                       /* its gradient */
    mp_array master;                     /* the weight that is updated, where it is another */
    mp_array compensation;               /* Kahan's c */
    mp_array states[MP_MAX_RULE_STATES]; /* those of the rule, in its order (mp_rule_get_state) */
} mp_step_slot;

#define MP_STEP_SLOT_INIT                                                                          \
    {                                                                                              \
        sizeof(mp_step_slot), 0, 0, 0, 0, MP_ARRAY_INIT, MP_ARRAY_INIT, MP_ARRAY_INIT,             \
            MP_ARRAY_INIT, {                                                                       \
            MP_ARRAY_INIT, MP_ARRAY_INIT, MP_ARRAY_INIT, MP_ARRAY_INIT                             \
        }                                                                                          \
    }

typedef struct mp_step_args {
    uint32_t struct_size; /* sizeof(mp_step_args) */
    uint32_t flags;       /* MP_OPTIMIZER_*, MP_STEP_*, and those of a rule */
    int64_t step;         /* t of this step, from 1; do not count skipped steps. See step_pointer */
    uint64_t seed;        /* stochastic rounding */
    double lr;            /* the learning rate: 0 is 0, as a schedule may say */
    /* 0 in one of the next three: what is usual for the rule. mp_rule_get_hyper has these numbers and ranges. */
    double beta1;         /* in [0, 1) */
    double beta2;         /* in [0, 1) */
    double eps;           /* >= 0 */
    double weight_decay;  /* >= 0 */
    double max_grad_norm; /* 0: no clipping */
    /* Gradients are divided by this as well as by the scaler's scale; 0: 1. At least 2^-126, so that its inverse is a number of
     * fp32. A step whose factor is none (of grad_scale_pointer or grad_mul_pointer, which nobody checks before) is skipped. */
    double grad_scale;
    /* One element each in the context's device memory that replaces the number above; NULL: none */
    const float* lr_pointer;
    const float* grad_scale_pointer; /* replaces grad_scale */
    int32_t rule; /* MP_RULE_*; of the states that it does not keep there is none in a slot */
    int32_t hyper_count; /* of hypers */
    /* Hyperparameters by name, in place of zeros above; here 0 is 0, and gives way to a number above that is not. NULL where
     * hyper_count is 0. */
    const mp_hyper* hypers;
    /* Steps taken so far, one number in the context's device memory, or NULL. t is one more; a step that is taken adds 1, a
     * skipped one does not. So nobody waits to learn it. step is then left at 0 or 1. Below 0: refused on the host, elsewhere
     * the step is skipped. */
    int64_t* step_pointer;
    /* In the context's device memory, or NULL: all hyperparameters of the rule, in the order of mp_rule_get_hyper, which
     * replace the numbers above. They are not checked. Not with lr_pointer. */
    const double* hyper_pointer;
    /* One element in the context's device memory, or NULL: a factor for the gradients, of a clip of the caller's */
    const float* grad_mul_pointer;
} mp_step_args;

#define MP_STEP_ARGS_INIT                                                                          \
    {                                                                                              \
        sizeof(mp_step_args), 0, 1, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, NULL, NULL,              \
            MP_RULE_ADAMW, 0, NULL, NULL, NULL, NULL                                               \
    }

MP_BEGIN_DECLS

/* ---- The simple way: one step */

/** One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
 * kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
 * @param[in]  context     the context whose device the memory is on
 * @param[in]  queue       NULL: the default queue
 * @param[in]  args        hyperparameters
 * @param[in]  slots       the arrays; what the step writes may share no memory with any other array or number of the call.
 *                         Slots may share one param.amax
 * @param[in]  slot_count  how many
 * @param[in]  scaler      its scale is divided out and its found_inf is set; NULL: no loss scale. Of several calls with one
 *                         scaler each skips by its own gradients: where all arrays are to be skipped together,
 *                         mp_scaler_check_pointers first
 * @param[out] stats       what happened; NULL: not wanted. Blocks when not NULL
 * @returns as mp_optimizer_step; at step 1 (on the host by step_pointer, where there is one) MP_STATUS_WARNING where lr is 0
 *          without a name, where bf16 second moments rounded to nearest cannot decrease at this beta2, where second moments are
 *          fp16, where eps is 0, or where slots share the random bits of stochastic rounding (the same elements of one uid);
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (a hyperparameter, a negative count, a pointer that is NULL or
 *          not aligned to its element, arrays that overlap); MP_STATUS_STRUCT_TOO_NEW
 * @threads A, as long as no two calls share memory or a scaler
 * @since 0.2 */
MP_API mp_status mp_optimizer_step_pointers(mp_context* context, mp_queue* queue,
                                            const mp_step_args* args, const mp_step_slot* slots,
                                            int64_t slot_count, mp_scaler* scaler,
                                            mp_optimizer_stats* stats);

/* ---- The explicit way: the same step prepared once */

/** Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and
 * a count of steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
 * @param[in]  context     the context whose device the memory is on
 * @param[in]  args        hyperparameters; step is t of the first run
 * @param[in]  slots       the arrays, as for mp_optimizer_step_pointers
 * @param[in]  slot_count  how many
 * @param[out] out         the new plan
 * @returns as mp_optimizer_step_pointers
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_step_plan_create(mp_context* context, const mp_step_args* args,
                                     const mp_step_slot* slots, int64_t slot_count,
                                     mp_step_plan** out) MP_MUST_CHECK;

/** A step, with the bits of mp_optimizer_step_pointers. t grows with every step that is taken. Enqueues; allocates nothing.
 * @param[in] plan    the plan
 * @param[in] queue   NULL: the default queue; the same for all runs, or ordered by the caller
 * @param[in] scaler  its scale is divided out and its found_inf is set; NULL: no loss scale
 * @returns as mp_optimizer_step
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_step_plan_run(mp_step_plan* plan, mp_queue* queue, mp_scaler* scaler);

/** Other hyperparameters, from the next run on. What changes every step is better given by hyper_pointer or lr_pointer. Blocks.
 * @param[in] plan   the plan
 * @param[in] queue  NULL: the default queue
 * @param[in] args   rule, step and MP_OPTIMIZER_ZERO_GRAD as they were at creation: the plan counts steps
 * @returns MP_STATUS_OK; MP_STATUS_WARNING as at the plan's creation, for what these bring; MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_step_plan_set_args(mp_step_plan* plan, mp_queue* queue,
                                       const mp_step_args* args);

/** What the plan was told last.
 * @param[in]     plan  the plan
 * @param[in,out] args  struct_size set by the caller; the rest is written. hypers are in the plan's memory until
 *                      mp_step_plan_set_args or mp_step_plan_destroy
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_step_plan_get_args(const mp_step_plan* plan, mp_step_args* args);

/** What the last run did, and the steps taken so far. Blocks.
 * @param[in]     plan   the plan
 * @param[in]     queue  NULL: the default queue
 * @param[in,out] stats  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_step_plan_get_stats(mp_step_plan* plan, mp_queue* queue,
                                        mp_optimizer_stats* stats);

/** Gives the caller's reference back.
 * @param[in] plan  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_step_plan_destroy(mp_step_plan* plan);

MP_END_DECLS

#endif /* MIXEDPREC_STEP_H */
