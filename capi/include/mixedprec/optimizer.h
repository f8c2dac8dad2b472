/* SPDX-License-Identifier: Apache-2.0
 * mp_optimizer: AnyPrecisionAdamW, Adam, Lion (MP_RULE_*). Any of fp32, fp16, bf16 for parameter, gradient, both moments and the
 * Kahan compensation; fp32 master weights; stochastic rounding; unscaling and clipping folded into the step.
 * Parameter, gradient, moments and master weight may also be fp16 or fp8 codes with one scale for the tensor.
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
#ifndef MIXEDPREC_OPTIMIZER_H
#define MIXEDPREC_OPTIMIZER_H

#include "array.h"
#include "recipe.h"
#include "rule.h"
#include "status.h"

/* mp_optimizer_desc.flags and mp_step_args.flags */
/* Read the gradients once more first, and skip the step if any is NaN or Inf. Implied by a scaler that
 * checks, and by max_grad_norm. */
#define MP_OPTIMIZER_CHECK_FINITE 1u
/* The step writes zeros into the gradients it has used, one that is skipped too. Those of a group that is off stay as they are;
 * where ranks share the optimizer they become zero with the others, as they leave for their owners. */
#define MP_OPTIMIZER_ZERO_GRAD 2u
/* States and step on the host, parameters and gradients on the context's device. Gradients come in buckets of 16 MiB
 * while the host steps the bucket before; weights go back likewise. The bits are the same. mp_optimizer_step waits for
 * all of it. The host keeps a copy of the weights: after writing into one call mp_optimizer_sync_master. States, and
 * values of states, are tensors on the host. mp_optimizer_get_memory counts states wherever they are, but neither that copy
 * nor two buckets of gradients. Not for mp_optimizer_step_pointers. */
#define MP_OPTIMIZER_OFFLOAD 4u
/* mp_step_args.flags only */
#define MP_STEP_SR_PARAM 16u      /* stochastic rounding of the parameter */
#define MP_STEP_SR_EXP_AVG 32u    /* of the first moment */
#define MP_STEP_SR_EXP_AVG_SQ 64u /* of the second moment */
/* mp_param_group_desc.flags and mp_step_args.flags: the five hyperparameters are meant literally, zeros included */
#define MP_HYPERPARAMETERS_EXPLICIT 256u

/* The same two: the gradient's sign is turned; both bias corrections are 1 (of rules that have them) */
#define MP_RULE_MAXIMIZE 1024u
#define MP_RULE_NO_BIAS_CORRECTION 2048u /* of rules that have bias corrections: both are 1 */

typedef struct mp_optimizer_desc {
    uint32_t struct_size; /* sizeof(mp_optimizer_desc) */
    uint32_t flags;       /* MP_OPTIMIZER_* */
    uint64_t seed;        /* stochastic rounding */
    double max_grad_norm; /* clip the global norm of the unscaled gradients; 0: no clipping */
} mp_optimizer_desc;

#define MP_OPTIMIZER_DESC_INIT                                                                     \
    { sizeof(mp_optimizer_desc), 0, 0, 0.0 }

typedef struct mp_param_group_desc {
    uint32_t struct_size; /* sizeof(mp_param_group_desc) */
    uint32_t flags;       /* MP_HYPERPARAMETERS_EXPLICIT, MP_RULE_MAXIMIZE and the like */
    /* 0 in one of the next four: what is usual for the rule. mp_rule_get_hyper has these numbers and ranges. */
    double lr;
    double beta1;        /* in [0, 1) */
    double beta2;        /* in [0, 1) */
    double eps;          /* >= 0 */
    double weight_decay; /* >= 0; 0: none */
    int32_t rule;        /* MP_RULE_* (rule.h) */
    int32_t reserved;    /* 0 */
    /* What the moments of this group's parameters are kept in, for example "fp32" for embeddings: a value of the recipe's
     * key optimizer.exp_avg.dtype or optimizer.exp_avg_sq.dtype. NULL: what the recipe says. Not kept alive. */
    const char* exp_avg_format;
    const char* exp_avg_sq_format; /* second moments, likewise */
} mp_param_group_desc;

#define MP_PARAM_GROUP_DESC_INIT                                                                   \
    {                                                                                              \
        sizeof(mp_param_group_desc), MP_HYPERPARAMETERS_EXPLICIT, 1e-3, 0.9, 0.999, 1e-8, 0.0,     \
            MP_RULE_ADAMW, 0, NULL, NULL                                                           \
    }

/* mp_param_desc.flags. A rank of mp_optimizer_set_norm_comm counts the gradient of this parameter in the norm, which it holds too
 * (a layer norm under tensor parallelism): here it is only checked to be finite. Exactly one of them adds it without the flag. */
#define MP_PARAM_NORM_ELSEWHERE 1u

typedef struct mp_param_desc {
    uint32_t struct_size; /* sizeof(mp_param_desc) */
    uint32_t flags;       /* MP_PARAM_* */
    const char*
        name; /* unique, 1 to 255 bytes of UTF-8, not "__metadata__"; keys state, messages and random numbers */
    /* The weight, kept alive; fp32, or the recipe's weight.dtype (scaled: quantized); where ranks share it under
     * fp8.all_gather also fp8 codes with one scale, which are for use only. */
    mp_tensor* param;
    mp_tensor* grad; /* main gradient, same shape; NULL: one is made in the recipe's grad.dtype */
    /* NULL, or the exact initial value in fp32: param is overwritten by its rounding, and master or
     * compensation receive what the rounding lost. */
    mp_tensor* init_fp32;
} mp_param_desc;

#define MP_PARAM_DESC_INIT                                                                         \
    { sizeof(mp_param_desc), 0, NULL, NULL, NULL, NULL }

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

/** One array of parameters in the caller's memory, for mp_optimizer_step_pointers. On an accelerator that is its own memory, or pinned
 * host memory that it reaches (states that are not on the device, zero-copy). What is left zero is not there.
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
    /* Where this slot's element 0 lies in the whole parameter; a multiple of 8. Stochastic rounding of a slice then gives the bits
     * of the whole. States in blocks are the whole's too where slices begin with a block. */
    int64_t first_element;
    /* The weight. Its amax is that of the new weight as stored; not beside a scale, which is made of it. No other has one. */
    mp_array param;
    mp_array grad;                   /* its gradient */
    mp_array master;                 /* the weight that is updated, where it is another */
    mp_array compensation;           /* Kahan's c */
    mp_array states[MP_STEP_STATES]; /* those of the rule, in its order (mp_rule_get_state) */
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
    uint32_t flags;       /* MP_OPTIMIZER_*, MP_STEP_*, and those of a group */
    int64_t step;         /* t of this step, from 1; do not count skipped steps. See step_pointer */
    uint64_t seed;        /* stochastic rounding */
    double lr;            /* as in mp_param_group_desc */
    double beta1;         /* likewise */
    double beta2;         /* likewise */
    double eps;           /* likewise */
    double weight_decay;  /* likewise */
    double max_grad_norm; /* 0: no clipping */
    /* Gradients are divided by this as well as by the scaler's scale; 0: 1. At least 2^-126, so that its inverse is a number of
     * fp32. A step whose factor is none (of grad_scale_pointer or grad_mul_pointer, which nobody checks before) is skipped. */
    double grad_scale;
    /* One element each in the context's device memory that replaces the number above; NULL: none */
    const float* lr_pointer;
    const float* grad_scale_pointer; /* replaces grad_scale */
    /* MP_RULE_*; states that it does not keep are NULL, of MP_DTYPE_NONE */
    int32_t rule;
    int32_t reserved; /* 0 */
    /* Steps taken so far, one number in the context's device memory, or NULL. t is one more; a step that is taken adds 1, a skipped
     * one does not. So nobody waits to learn it. step is then left at 0 or 1. Below 0: refused on the host, elsewhere the
     * step is skipped. */
    int64_t* step_pointer;
    /* In the context's device memory, or NULL: lr, beta1, beta2, eps, weight_decay, which replace the numbers above. They are not
     * checked. Not with lr_pointer. */
    const double* hyper_pointer;
    /* One element in the context's device memory, or NULL: a factor for the gradients, of a clip of the caller's */
    const float* grad_mul_pointer;
} mp_step_args;

#define MP_STEP_ARGS_INIT                                                                          \
    {                                                                                              \
        sizeof(mp_step_args), MP_HYPERPARAMETERS_EXPLICIT, 1, 0, 1e-3, 0.9, 0.999, 1e-8, 0.0, 0.0, \
            1.0, NULL, NULL, MP_RULE_ADAMW, 0, NULL, NULL, NULL                                    \
    }

MP_BEGIN_DECLS

/* ---- The simple way: one step on the caller's memory */

/** One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
 * kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
 * @param[in]  context     the context whose device the memory is on
 * @param[in]  queue       NULL: the default queue
 * @param[in]  args        hyperparameters
 * @param[in]  slots       the arrays; what the step writes may share no memory with any other array or number of the call.
 *                         Slots may share one param.amax
 * @param[in]  slot_count  how many
 * @param[in]  scaler      its scale is divided out and its found_inf is set; NULL: no loss scale. Of several calls with one scaler each
 *                         skips by its own gradients: where all arrays are to be skipped together, mp_scaler_check_pointers first
 * @param[out] stats       what happened; NULL: not wanted. Blocks when not NULL
 * @returns as mp_optimizer_step; at step 1 (on the host by step_pointer, where there is one) MP_STATUS_WARNING where bf16 second
 *          moments rounded to nearest cannot decrease at this beta2, where second moments are fp16, where eps is 0, or where
 *          slots share the random bits of stochastic rounding (the same elements of one uid); MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (a hyperparameter, a negative count, a pointer that is NULL or not aligned to its
 *          element, arrays that overlap); MP_STATUS_STRUCT_TOO_NEW
 * @threads A, as long as no two calls share memory or a scaler
 * @since 0.2 */
MP_API mp_status mp_optimizer_step_pointers(mp_context* context, mp_queue* queue,
                                            const mp_step_args* args, const mp_step_slot* slots,
                                            int64_t slot_count, mp_scaler* scaler,
                                            mp_optimizer_stats* stats);

/* ---- The library's way: parameters by name in groups, states of its own */

/** Makes an optimizer without groups. Freezes the recipe.
 * @param[in]  context  the context
 * @param[in]  recipe   decides the dtypes and the rounding
 * @param[in]  desc     NULL: all defaults
 * @param[out] out      the new optimizer
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_optimizer_create(mp_context* context, mp_recipe* recipe,
                                     const mp_optimizer_desc* desc,
                                     mp_optimizer** out) MP_MUST_CHECK;

/** Adds a group of parameters with its own hyperparameters.
 * @param[in]  optimizer  the optimizer
 * @param[in]  desc       NULL: all defaults
 * @param[out] index      the group's number, from 0; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_WARNING (bf16 second moments rounded to nearest at this beta2 cannot decrease; fp16 ones);
 *          MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_add_group(mp_optimizer* optimizer, const mp_param_group_desc* desc,
                                        int32_t* index);

/** Adds a parameter and allocates its states, all zero. Allowed also between steps: its bias correction then begins with its own
 * first step, whatever t its group has; t that was set before the group's first parameter is that parameter's.
 * @param[in]  optimizer  the optimizer
 * @param[in]  group      the group's number
 * @param[in]  desc       name and tensors
 * @param[out] index      the parameter's number, from 0; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (group, name
 *          taken, device, memory shared with another parameter, gradient or state); MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_add_param(mp_optimizer* optimizer, int32_t group,
                                        const mp_param_desc* desc, int32_t* index);

/** One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
 * for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
 * the layers of mp_optimizer_set_linears, and calls their monitors.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] scaler     its scale is divided out and its found_inf is set; NULL: no loss scale. Optimizers may share it: each skips by
 *                       its own gradients, in any order
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (device);
 *          MP_STATUS_UNSUPPORTED with all reasons; MP_STATUS_OUT_OF_MEMORY; vendor codes
 *          MP_STATUS_WARNING, once: no parameters; an eps of 0 (elements whose gradients were all 0 become NaN); two steps with one scaler without mp_scaler_update
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_step(mp_optimizer* optimizer, mp_queue* queue, mp_scaler* scaler);

/** Sets all gradients to zero. Enqueues. Not needed under MP_OPTIMIZER_ZERO_GRAD.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_zero_grad(mp_optimizer* optimizer, mp_queue* queue);

/** Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
 * mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own agreement,
 * without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
 * not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
 * changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
 * Replaces the layers named before. The optimizer keeps them alive. Blocks where ranks share it: every rank then names as
 * many layers, of the same sizes and recipes, in the same order, before or after mp_optimizer_shard.
 * @param[in] optimizer  the optimizer
 * @param[in] linears    the layers, on the optimizer's device; NULL among them is passed over
 * @param[in] count      how many; 0: none any more
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (count, device, a layer
 *          listed twice); MP_STATUS_RANK_MISMATCH; as mp_comm_all_to_all; after a failure those named before stay
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_linears(mp_optimizer* optimizer, mp_linear* const* linears,
                                          int32_t count);

/** What the last step did. Blocks.
 * @param[in]     optimizer  the optimizer
 * @param[in]     queue      NULL: the default queue
 * @param[in,out] stats      struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_stats(mp_optimizer* optimizer, mp_queue* queue,
                                        mp_optimizer_stats* stats);

/** Sets the learning rate of a group from the next step on. Replaces a tensor of mp_optimizer_set_lr_tensor.
 * @param[in] optimizer  the optimizer
 * @param[in] group      the group's number; -1: all groups
 * @param[in] lr         finite, >= 0; taken literally
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_lr(mp_optimizer* optimizer, int32_t group, double lr);

/** Turns a group on or off. Parameters of a group that is off are not touched by a step, and their gradients count
 * neither in the norm nor in the finite check; its t stays. Groups are on at first.
 * @param[in] optimizer  the optimizer
 * @param[in] group      the group's number; -1: all groups
 * @param[in] enabled    0: off
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_enabled(mp_optimizer* optimizer, int32_t group, int32_t enabled);

/** The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share the
 * optimizer, the same on each.
 * @param[in] optimizer      the optimizer
 * @param[in] max_grad_norm  of the unscaled gradients; 0: no clipping
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_max_grad_norm(mp_optimizer* optimizer, double max_grad_norm);

/** Gives the caller's reference back.
 * @param[in] optimizer  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_optimizer_destroy(mp_optimizer* optimizer);

/* ---- The explicit way: numbers in device memory, steps prepared once, norms over other ranks */

/** Lets every step read a group's learning rate from a tensor, on the device and in the order of the step's queue: a
 * schedule that runs on the device, or a captured graph, needs neither the host nor a new upload. Its value is taken as
 * it is, without a check.
 * @param[in] optimizer  the optimizer
 * @param[in] group      the group's number; -1: all groups
 * @param[in] lr         one fp32 element on the context's device, outside of parameters, gradients and states; kept alive;
 *                       NULL: the number again
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (group,
 *          device, overlap); MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_lr_tensor(mp_optimizer* optimizer, int32_t group, mp_tensor* lr);

/** Lets every step divide the gradients by a number in device memory, beside the scaler's scale: a count of
 * micro-batches or tokens. Read like mp_optimizer_set_lr_tensor's; the norm is that of the divided gradients.
 * @param[in] optimizer   the optimizer
 * @param[in] grad_scale  one fp32 element on the context's device, kept alive; NULL: gradients are divided by nothing
 * @returns as mp_optimizer_set_lr_tensor
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_grad_scale_tensor(mp_optimizer* optimizer, mp_tensor* grad_scale);

/** grad_norm of the last step in device memory: one fp32 element that shares the optimizer's memory, for loops that log it
 * without waiting.
 * @param[in]  optimizer  the optimizer, kept alive
 * @param[out] out        a new handle on it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_grad_norm_tensor(mp_optimizer* optimizer,
                                                   mp_tensor** out) MP_MUST_CHECK;

/** 1 where the last step was skipped, else 0, likewise.
 * @param[in]  optimizer  the optimizer, kept alive
 * @param[out] out        a new handle on it
 * @returns as mp_optimizer_get_grad_norm_tensor
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_found_inf_tensor(mp_optimizer* optimizer,
                                                   mp_tensor** out) MP_MUST_CHECK;

/** Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and a count of
 * steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
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
 * @param[in,out] args  struct_size set by the caller; the rest is written
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

/** Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same model:
 * tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks one
 * after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside mp_optimizer_create_sharded this
 * is another communicator, of ranks that do not share parameters. Implies MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of
 * before the step is not asked for: mp_scaler_combine.
 * @param[in] optimizer  the optimizer
 * @param[in] comm       kept alive; one message of 16 bytes a rank in every step; NULL: this rank's parameters alone. A
 *                       guard, and the loss that it watches, must be the same on all: MP_STATUS_RANK_MISMATCH otherwise
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE. mp_optimizer_step is collective from now on and may
 *          return what mp_comm_all_to_all does; nothing has changed then
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_norm_comm(mp_optimizer* optimizer, mp_comm* comm);

/* ---- States, in and out */

/** A tensor of one parameter, by name: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"; and
 * for one of codes with a scale that scale, by its name and "_scale_inv". Contents may be read and written between
 * steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
 * @param[in]  optimizer  the optimizer
 * @param[in]  index      the parameter's number
 * @param[in]  state      the name
 * @param[out] out        a new reference for the caller to destroy
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index);
 *          MP_STATUS_UNKNOWN_NAME (no such state, or this parameter has none of it)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_state(mp_optimizer* optimizer, int32_t index, const char* state,
                                        mp_tensor** out) MP_MUST_CHECK;

/** The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
 *   "exp_avg"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
 *   "exp_avg_sq"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
 *   "compensation"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
 *   "fp32_param"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
 *                   joined, parameter plus compensation, or the parameter alone
 *                                              Megatron-Core: fp32_param, param; apex: master
 * t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
 * stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
 * optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
 * @param[in]  optimizer  the optimizer
 * @param[in]  queue      NULL: the default queue
 * @param[in]  index      the parameter's number
 * @param[in]  state      the name
 * @param[in]  values     fp32, fp16 or bf16 on the context's device, as many elements as the parameter; is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index, device);
 *          MP_STATUS_UNKNOWN_NAME (no such state, or this parameter has none of it); MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_read_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                         const char* state, mp_tensor* values);

/** Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
 * scales. "fp32_param" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
 * compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
 * compensation, write the parameter, call mp_optimizer_sync_master, then write "compensation". Numbers
 * must be finite, second moments not negative. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] index      the parameter's number
 * @param[in] state      a name of mp_optimizer_read_state
 * @param[in] values     fp32, fp16 or bf16 on the context's device, as many elements as the parameter
 * @returns as mp_optimizer_read_state
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_write_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                          const char* state, mp_tensor* values);

/** After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
 * compensations zero. Enqueues; blocks for parameters with a scale.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] index      the parameter's number; -1: all
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index); vendor
 *          codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_sync_master(mp_optimizer* optimizer, mp_queue* queue, int32_t index);

/** Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] step       steps taken so far, >= 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_step(mp_optimizer* optimizer, mp_queue* queue, int64_t step);

/** t of one group: the steps it took part in, torch's `step` of its parameters. Of those that were added after a step it
 * is ahead: they count their own, which checkpoints keep. Blocks.
 * @param[in]  optimizer  the optimizer
 * @param[in]  queue      NULL: the default queue
 * @param[in]  group      the group's number
 * @param[out] step       the count
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (group);
 *          vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_group_step(mp_optimizer* optimizer, mp_queue* queue,
                                             int32_t group, int64_t* step);

/** Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] group      the group's number
 * @param[in] step       >= 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_group_step(mp_optimizer* optimizer, mp_queue* queue,
                                             int32_t group, int64_t step);

/* ---- Everything else: what was told */

/** What the optimizer was made with; the seed is a checkpoint's where one was loaded.
 * @param[in]     optimizer  the optimizer
 * @param[in,out] desc       struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_desc(const mp_optimizer* optimizer, mp_optimizer_desc* desc);

/** Number of groups added.
 * @param[in]  optimizer  the optimizer
 * @param[out] count      the number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_group_count(const mp_optimizer* optimizer, int32_t* count);

/** A group as it is now: with what mp_optimizer_set_lr and mp_checkpoint_load have changed. A new group made with it is alike.
 * @param[in]     optimizer  the optimizer
 * @param[in]     group      the group's number
 * @param[in,out] desc       struct_size set by the caller; the rest is written. lr is the last number, also where a tensor
 *                           is read instead; the formats are those in use, static strings, NULL where the rule keeps none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_group(const mp_optimizer* optimizer, int32_t group,
                                        mp_param_group_desc* desc);

/** Whether a group is on.
 * @param[in]  optimizer  the optimizer
 * @param[in]  group      the group's number
 * @param[out] enabled    1: on; 0: off
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_enabled(const mp_optimizer* optimizer, int32_t group,
                                          int32_t* enabled);

/** Number of parameters added.
 * @param[in]  optimizer  the optimizer
 * @param[out] count      the number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_param_count(const mp_optimizer* optimizer, int32_t* count);

/** A parameter's name.
 * @param[in]  optimizer  the optimizer
 * @param[in]  index      the parameter's number
 * @param[out] buffer     receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity   bytes of buffer
 * @param[out] needed     bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE;
 *          MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_param_name(const mp_optimizer* optimizer, int32_t index,
                                             char* buffer, size_t capacity, size_t* needed);

/** A parameter's group.
 * @param[in]  optimizer  the optimizer
 * @param[in]  index      the parameter's number
 * @param[out] group      the group's number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_param_group(const mp_optimizer* optimizer, int32_t index,
                                              int32_t* group);

/** Bytes really held for the parameters added so far, by class.
 * @param[in]     optimizer  the optimizer
 * @param[in,out] report     struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_memory(const mp_optimizer* optimizer, mp_memory_report* report);

MP_END_DECLS

#endif /* MIXEDPREC_OPTIMIZER_H */
