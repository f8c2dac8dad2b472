/* SPDX-License-Identifier: Apache-2.0
 * mp_optimizer: parameters by name, in groups with their own rule and hyperparameters, with states of the library's in the
 * formats of a recipe. The step is that of step.h, which has its arithmetic, with the same bits. optimizer_state.h has states
 * in and out, sharding.h ranks, checkpoint.h files, step_parts.h steps in parts, watch.h what looks after it. */
#ifndef MIXEDPREC_OPTIMIZER_H
#define MIXEDPREC_OPTIMIZER_H

#include "optimizer_state.h"
#include "recipe.h"
#include "step.h"

/* mp_optimizer_desc.flags, beside those of step.h */
/* States and step on the host, parameters and gradients on the context's device. Gradients come in buckets, of whole tensors and
 * at least 16 MiB, while the host steps the bucket before; weights go back likewise. The bits are the same. mp_optimizer_step
 * waits for all of it. The host keeps a copy of the weights: after writing into one call mp_optimizer_sync_master. States, and
 * their values, are tensors on the host. Each rank's (sharding.h) are on its host. Not for mp_optimizer_step_pointers. */
#define MP_OPTIMIZER_OFFLOAD 4u
/* Parameters have no gradients of their own: steps are taken in parts (step_parts.h) and are given them. Not for ranks,
 * MP_OPTIMIZER_OFFLOAD, MP_OPTIMIZER_CHECK_FINITE or max_grad_norm. */
#define MP_OPTIMIZER_GRADS_GIVEN 8u
/* With MP_OPTIMIZER_OFFLOAD, and the same bits: gradients are the host's, but from mp_optimizer_acquire_grad until
 * mp_optimizer_grad_ready or the step; mp_param_desc.grad is NULL. Of ranks (stages 1 to 3) it is their sums. */
#define MP_OPTIMIZER_OFFLOAD_GRADS 16u

typedef struct mp_optimizer_desc {
    uint32_t struct_size; /* sizeof(mp_optimizer_desc) */
    uint32_t flags;       /* MP_OPTIMIZER_* */
    uint64_t seed;        /* stochastic rounding */
    double max_grad_norm; /* clip the global norm of the unscaled gradients; 0: no clipping */
} mp_optimizer_desc;

#define MP_OPTIMIZER_DESC_INIT                                                                     \
    { sizeof(mp_optimizer_desc), 0, 0, 0.0 }

/** What offload has moved; see mp_optimizer_get_offload_traffic. */
typedef struct mp_offload_traffic {
    uint32_t struct_size;    /* sizeof(mp_offload_traffic), set by the caller */
    int32_t reserved;        /* 0 */
    int64_t steps;           /* that were applied */
    int64_t to_host_bytes;   /* gradients, or their sums, with scales */
    int64_t to_device_bytes; /* weights, likewise; and gradients that are added to again */
    int64_t step_ns;         /* of moving and updating, until all of it was there */
    int64_t waited_ns;       /* of it, for copies alone */
} mp_offload_traffic;

#define MP_OFFLOAD_TRAFFIC_INIT                                                                    \
    { sizeof(mp_offload_traffic), 0, 0, 0, 0, 0, 0 }

typedef struct mp_param_group_desc {
    uint32_t struct_size; /* sizeof(mp_param_group_desc) */
    uint32_t flags;       /* MP_RULE_MAXIMIZE, MP_RULE_NO_BIAS_CORRECTION */
    /* 0 in one of the next four: what is usual for the rule. mp_rule_get_hyper has these numbers and ranges. */
    double lr;
    double beta1;        /* in [0, 1) */
    double beta2;        /* in [0, 1) */
    double eps;          /* >= 0 */
    double weight_decay; /* >= 0; 0: none */
    int32_t rule;        /* MP_RULE_* (rule.h) */
    int32_t hyper_count; /* of hypers */
    /* Hyperparameters by name, in place of zeros above; here 0 is 0, and gives way to a number above that is not. NULL where
     * hyper_count is 0. Not kept alive. */
    const mp_hyper* hypers;
    /* What each state of this group's parameters is kept in, in the rule's order, for example "fp32" for embeddings: a value of
     * the recipe's key "optimizer.<state>.dtype". NULL: what the recipe says. Not kept alive. */
    const char* state_formats[MP_MAX_RULE_STATES];
} mp_param_group_desc;

#define MP_PARAM_GROUP_DESC_INIT                                                                   \
    {                                                                                              \
        sizeof(mp_param_group_desc), 0, 0.0, 0.0, 0.0, 0.0, 0.0, MP_RULE_ADAMW, 0, NULL, {         \
            NULL, NULL, NULL, NULL                                                                 \
        }                                                                                          \
    }

/* mp_param_desc.flags. A rank of mp_optimizer_set_norm_comm counts the gradient of this parameter in the norm, which it holds too
 * (a layer norm under tensor parallelism): here it is only checked to be finite. Exactly one of them adds it without the flag. */
#define MP_PARAM_NORM_ELSEWHERE 1u
/* The parameter is not trained until mp_optimizer_set_frozen (param_changes.h) says so: no gradient, no states, no decay, no part
 * in the norm. It is fp32, fp16, bf16, or codes with scales of any kind (mp_tensor_create_quantized). Ranks hold it whole and
 * never send it. In stage 3 each has its slice, of whole rows of blocks, with their scales; and all of it between gather and
 * release. Checkpoints have it. Takes neither grad nor init_fp32. */
#define MP_PARAM_FROZEN 2u

typedef struct mp_param_desc {
    uint32_t struct_size; /* sizeof(mp_param_desc) */
    uint32_t flags;       /* MP_PARAM_* */
    const char*
        name; /* unique, 1 to 255 bytes of UTF-8, not "__metadata__"; keys state, messages and random numbers */
    /* The weight, kept alive; fp32, or the recipe's weight.dtype (scaled: quantized); where ranks share it under
     * weight.gather.codes also fp8 codes with one scale, which are for use only. */
    mp_tensor* param;
    mp_tensor* grad; /* main gradient, same shape; NULL: one is made in the recipe's grad.dtype */
    /* NULL, or the exact initial value in fp32: param is overwritten by its rounding, and master or
     * compensation receive what the rounding lost. */
    mp_tensor* init_fp32;
} mp_param_desc;

#define MP_PARAM_DESC_INIT                                                                         \
    { sizeof(mp_param_desc), 0, NULL, NULL, NULL, NULL }

MP_BEGIN_DECLS

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
 * first step, whatever t its group has; t that was set before the group's first parameter is that parameter's. Where ranks
 * have cut the parameters it is collective (param_changes.h).
 * @param[in]  optimizer  the optimizer
 * @param[in]  group      the group's number
 * @param[in]  desc       name and tensors
 * @param[out] index      the parameter's number, from 0; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (group, name
 *          taken, device, memory shared with another parameter, gradient or state); MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_OUT_OF_MEMORY; and as mp_optimizer_set_frozen
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_add_param(mp_optimizer* optimizer, int32_t group,
                                        const mp_param_desc* desc, int32_t* index);

/** One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
 * for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
 * the layers of mp_optimizer_set_linears, and calls their monitors.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] scaler     its scale is divided out and its found_inf is set; NULL: no loss scale. Optimizers may share it: each
 *                       skips by its own gradients, in any order
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (device);
 *          MP_STATUS_BAD_STATE (it is taken in parts); MP_STATUS_UNSUPPORTED with all reasons; MP_STATUS_OUT_OF_MEMORY; vendor
 *          codes; MP_STATUS_WARNING, once: no parameters; an eps of 0 (elements whose gradients were all 0 become NaN); two
 *          steps with one scaler without mp_scaler_update
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

/** Says that parameters had no part in this step's loss, as those of an expert that no token came to: what a gradient of None is
 * in PyTorch. Their gradients are set to zero. The next step passes over them: no decay, no change of their states or weight, no
 * part in the norm, and t, which their bias correction goes by, stays. It holds for one step, skipped or taken. A step that
 * fails in or before its agreement keeps it; mp_optimizer_zero_grad and a checkpoint's load end it. Calls before one step add
 * up. Gradients that are zero and not named here count as such: weights decay, moments shrink. Call it when backward is over,
 * and add nothing to these gradients before the step is. Ranks that share the optimizer, or hold copies of a parameter
 * (MP_PARAM_NORM_ELSEWHERE), name the same ones. A step over other parameters than the last one's waits for the device. Enqueues.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] indices    the parameters' numbers, in any order; frozen ones are passed over in any case
 * @param[in] count      how many; 0: none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index, count), and
 *          then nothing has changed; MP_STATUS_BAD_STATE (the queue's stream is being captured); MP_STATUS_OUT_OF_MEMORY;
 *          vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_mark_unused(mp_optimizer* optimizer, mp_queue* queue,
                                          const int32_t* indices, int32_t count);

/** Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
 * mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own
 * agreement, without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
 * not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
 * changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
 * Operands that are rounded stochastically have the optimizer's seed from now on, and bits of their own on each rank. Replaces
 * the layers named before: the seed of those left out is 0, those named again go on as they are. The optimizer keeps its layers
 * alive, and no other may name them. Blocks where ranks share it: all name as many, of the same sizes and recipes, in one order.
 * @param[in] optimizer  the optimizer
 * @param[in] linears    the layers, on the optimizer's device; NULL among them is passed over
 * @param[in] count      how many; 0: none any more
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (count, device, one
 *          twice); MP_STATUS_BAD_STATE (another optimizer's); MP_STATUS_RANK_MISMATCH; as mp_comm_all_to_all; and nothing changes
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

/** The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share
 * the optimizer, the same on each.
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

/** Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same
 * model: tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks
 * one after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside
 * mp_optimizer_create_sharded this is another communicator, of ranks that do not share parameters. Implies
 * MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of before the step is not asked for: mp_scaler_combine.
 * @param[in] optimizer  the optimizer
 * @param[in] comm       kept alive; one message of 16 bytes a rank in every step; NULL: this rank's parameters alone. A
 *                       guard, and the loss that it watches, must be the same on all: MP_STATUS_RANK_MISMATCH otherwise
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE. mp_optimizer_step is collective from now on and may
 *          return what mp_comm_all_to_all does, or MP_STATUS_PEER_ERROR where another rank cannot go on; nothing has changed then
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_norm_comm(mp_optimizer* optimizer, mp_comm* comm);

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
 *                           is read instead; hypers are the zeros that are meant, in the optimizer's memory until the next
 *                           call for this group; the formats are those in use, static strings, NULL where the rule keeps none,
 *                           and, where the recipe has rules ("layers"), where the group was given none
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

/** What steps under MP_OPTIMIZER_OFFLOAD have moved since the optimizer was made, and how long they took. Bytes by time beside
 * what a copy reaches say which share of the link is used. waited_ns beside step_ns says whether the link or the host is what
 * a step waits for. Without the flag all is 0.
 * @param[in]     optimizer  the optimizer
 * @param[in,out] traffic    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_offload_traffic(const mp_optimizer* optimizer,
                                                  mp_offload_traffic* traffic);

MP_END_DECLS

#endif /* MIXEDPREC_OPTIMIZER_H */
