/* SPDX-License-Identifier: Apache-2.0
 * Sharded optimizers: ranks of an mp_comm share the states of one mp_optimizer (ZeRO).
 *
 *   stage 0  every rank has all states and weights; gradients are summed over the ranks
 *   stage 1  each rank has the states of its slices of the parameters
 *   stage 2  and a gradient has memory only until it is on its way to its owners
 *   stage 3  and a weight has memory only between mp_optimizer_gather_begin and mp_optimizer_gather_free
 *
 * A step, on every rank:
 *   forward and backward     stage 3: gather, use, free; stage 2: acquire gradients; then say that they are ready,
 *                            which sends a bucket on its way as soon as it is full (or let the step send all)
 *   mp_optimizer_step        reduce: gradients are summed by their owners, in fp32
 *                            agreement: one small message; whoever differs or cannot go on stops the step on every rank
 *                            apply: each rank updates its slices
 *                            publish: every rank gets the new weights (stage 1 and 2)
 * What a port to stage 1 needs is what it has without ranks, and two calls: mp_comm_create_mpi (or another of comm.h) and, in
 * place of mp_optimizer_create, mp_optimizer_create_sharded with `sharding` NULL. Parameters are added whole, and each rank
 * computes its gradients into the tensors it has; the first mp_optimizer_step cuts, and every step sums, updates and publishes.
 * mp_optimizer_grad_ready may follow where a gradient is complete, so that it travels during backward. All else here may be
 * ignored: acquire and gather do nothing in stage 1, end_microbatch is for the orders TREE and EXACT with several slots a
 * rank, and each member of mp_sharding_desc may stay 0.
 *
 * A call that fails before the agreement is over has changed nothing on any rank. Gradients of a step are means over the ranks,
 * or over the slots, unless MP_SHARDING_SUM_GRADIENTS is set.
 *
 * Slices are whole chunks of 16384 elements of a parameter, so the bits of a step depend on the order of the sum alone:
 *   MP_COMM_ORDER_RANK   the same for every stage, plan, bucket size and number of threads
 *   MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT   also for every number of ranks that share the same slots
 * Hybrid sharding (mp_sharding_desc.shard_ranks): groups of consecutive ranks, those of a node say, hold a copy each, so that
 * weights are gathered inside a node only. Gradients are reduced inside a group, and their fp32 sums are then added across the
 * groups. All groups apply the same step. The bits: RANK as above for fixed ranks and groups; TREE and EXACT as without
 * groups. For that, EXACT, and TREE where a group's slots are not a power of two, send each contribution to every
 * group's owner instead: a group's worth of bytes for each group.
 * The wire's type rounds each contribution once; sums are never rounded. Where the recipe's weight.gather.dtype is
 * narrower than the weights, as bf16_mixed's is, their owner keeps them exactly, and every rank, the owner too and also one
 * alone, computes with what was gathered. Parameters of one dimension (norms, biases) are gathered as they are kept. Embeddings
 * are matrices, and rounded: set the key to the weights' type where they must not be.
 *
 * Over NCCL the device orders what ranks send each other. The calls enqueue it, and the host waits for the step's agreement
 * alone; docs/sharding.md has the exceptions. A rank that is lost later is said by whichever call waits next (mp_queue_sync).
 * All ranks change the queue at the same call, which waits for the last one. On an accelerator gradients of stage 2 and weights
 * of stage 3 come and go in the order of the call's queue: other queues' work on them comes between by an mp_event. They may
 * lie in memory of the caller's, of which mp_tensor_wrap says what becomes. */
#ifndef MIXEDPREC_SHARDING_H
#define MIXEDPREC_SHARDING_H

#include "optimizer.h"
#include "reduce.h"

/* mp_sharding_desc.kind: how parameters are cut among ranks, always between whole chunks of 16384 elements */
#define MP_SHARD_FLAT 0          /* a bucket's chunks in equal runs, as DeepSpeed and Megatron */
#define MP_SHARD_PER_PARAMETER 1 /* each parameter's chunks in equal runs, as FSDP2 */
#define MP_SHARD_GREEDY 2        /* whole parameters, as MS-AMP */

/* mp_sharding_desc.flags */
/* The step uses the sum of the gradients, not their mean. */
#define MP_SHARDING_SUM_GRADIENTS 1u
/* Nothing moves between the calls: there is no thread beside the caller's (see mp_optimizer_grad_ready). */
#define MP_SHARDING_NO_PROGRESS_THREAD 2u

/* mp_sharding_desc.stage: stage 0 of ZeRO, for 0 means the default, as in every struct */
#define MP_SHARDING_STAGE_0 (-1)

typedef struct mp_sharding_desc {
    uint32_t struct_size; /* sizeof(mp_sharding_desc) */
    uint32_t flags;       /* MP_SHARDING_* */
    int32_t stage;        /* of ZeRO: MP_SHARDING_STAGE_0, 1, 2, 3; 0: 1 */
    int32_t kind; /* MP_SHARD_*; GREEDY where the recipe has states with one scale for a tensor */
    int64_t bucket_elements; /* a bucket of gradients is closed once it has so many; 0: 2^24 */
    /* Gradients on the wire: fp32, fp16, bf16, fp8; MP_DTYPE_NONE: the recipe's grad.reduce.dtype and scale. fp8 as
     * MP_RECIPE_GRAD_REDUCE_DTYPE says. */
    int32_t wire_dtype;
    int32_t wire_scale; /* MP_COMM_SCALE_*, for fp8; DEFAULT: BLOCK, or the recipe's */
    int32_t order;      /* MP_COMM_ORDER_* */
    int32_t slots;      /* TREE, EXACT: microbatches of all ranks together; 0: one a rank */
    /* Hybrid sharding: ranks 0 to shard_ranks - 1 share one copy, the next shard_ranks another, and so on; it divides the
     * number of ranks. 0: all share one copy. */
    int32_t shard_ranks;
    /* Every so many steps the agreement compares a hash of all weights, before the step changes them: ranks whose memory or
     * link has flipped a bit are named by MP_STATUS_RANK_MISMATCH. 0: never. It reads all weights once; not in stage 3,
     * where ranks have different ones. */
    int32_t check_every;
    /* Gradients in two levels: added among ranks 0 to node_ranks - 1, the next node_ranks, and so on first, and their sums, in
     * the wire's type again, among the nodes, so that between nodes go a ring's bytes. It divides the number of ranks;
     * order RANK or FAST, bits fixed for fixed ranks and nodes; without shard_ranks. 0: one level. */
    int32_t node_ranks;
    int32_t reserved; /* 0 */
} mp_sharding_desc;

#define MP_SHARDING_DESC_INIT                                                                      \
    { sizeof(mp_sharding_desc), 0, 0, MP_SHARD_FLAT, 0, MP_DTYPE_NONE, 0, 0, 0, 0, 0, 0, 0 }

/** What moves between the calls of a sharded optimizer. A message is a bucket of gradients, or the weights of one
 * mp_optimizer_gather_begin or of one bucket after a step. */
typedef struct mp_sharding_progress {
    uint32_t struct_size;       /* sizeof(mp_sharding_progress), set by the caller */
    int32_t has_thread;         /* 1: a thread moves messages on while the caller computes */
    int64_t begun;              /* messages since mp_optimizer_shard */
    int64_t finished;           /* of them; begun == finished: nothing is under way */
    int64_t finished_by_thread; /* of these */
    const char* reason;         /* why there is no thread; "" where there is one. It stays */
} mp_sharding_progress;

#define MP_SHARDING_PROGRESS_INIT                                                                  \
    { sizeof(mp_sharding_progress), 0, 0, 0, 0, NULL }

/* mp_planned_tensor.flags: its gradient, in the recipe's grad.dtype, is wrapped memory of the caller's, and so there always. */
#define MP_PLANNED_GRAD_LENT 4u
/** A parameter before there is one, for mp_recipe_plan_tensors. */
typedef struct mp_planned_tensor {
    uint32_t struct_size; /* sizeof(mp_planned_tensor), the same in all of an array */
    /* MP_DTYPE_NONE: the recipe's weight.dtype. MP_DTYPE_FP32: kept in fp32. MP_DTYPE_FP8_E4M3 or _E5M2: codes of
     * mp_recipe_create_weight_codes, which ranks gather under weight.gather.codes */
    int32_t weight_dtype;
    int64_t count; /* elements, 0..2^55 in all */
    int32_t rule;  /* MP_RULE_* */
    /* Dimensions: vectors (norms, biases) are gathered as they are kept. 0: 1 where weight_dtype is MP_DTYPE_FP32, else 2 */
    int32_t ndim;
    const char* state_formats[MP_MAX_RULE_STATES]; /* its group's; NULL: the recipe's */
    /* MP_PARAM_FROZEN: weight_dtype may be that of any weight, fp8 with one scale, or what `scaling` says */
    uint32_t flags;
    /* MP_SCALING_* of a frozen weight whose weight_dtype is a type of codes. 0: one scale for fp8, none for others */
    int32_t scaling;
    const char* name; /* for the rules of the recipe's "layers"; NULL: none fits */
    int64_t columns; /* of its matrix, where scaling is not 0 or MP_SCALING_TENSOR; else not read */
} mp_planned_tensor;

#define MP_PLANNED_TENSOR_INIT                                                                     \
    {                                                                                              \
        sizeof(mp_planned_tensor), MP_DTYPE_NONE, 0, MP_RULE_ADAMW, 0, {NULL, NULL, NULL, NULL},   \
            0, 0, NULL, 0                                                                          \
    }

MP_BEGIN_DECLS

/* ---- The simple way: stage 1 needs this one call, and mp_optimizer_step */

/** As mp_optimizer_create, for an optimizer whose states the ranks of a communicator share. It makes a communicator of its
 * own from `comm`, which may be destroyed after. Every rank then adds the same groups and parameters, whole, with
 * the same names, shapes and values. Blocks.
 * @param[in]  context   the context
 * @param[in]  recipe    decides the dtypes and the rounding
 * @param[in]  desc      NULL: all defaults
 * @param[in]  comm      the ranks
 * @param[in]  sharding  NULL: all defaults, that is stage 1
 * @param[out] out       the new optimizer
 * @returns as mp_optimizer_create; MP_STATUS_UNSUPPORTED (order and wire that do not go together); and as mp_comm_split
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_create_sharded(mp_context* context, mp_recipe* recipe,
                                             const mp_optimizer_desc* desc, mp_comm* comm,
                                             const mp_sharding_desc* sharding,
                                             mp_optimizer** out) MP_MUST_CHECK;

/* ---- The explicit way: when parameters are cut, and gradients that leave during backward (all stages) */

/** Cuts the parameters, makes this rank's states, and from stage 2 on takes the gradients' memory, in stage 3 the
 * weights'. The first step does it where nobody has. Later changes of parameters: param_changes.h. Blocks.
 * @param[in] optimizer  a sharded optimizer
 * @param[in] queue      NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (not sharded; in use by a
 *          view or DLPack); MP_STATUS_UNSUPPORTED (states with one scale for the tensor and a plan that cuts);
 *          MP_STATUS_RANK_MISMATCH (parameters, recipe, options, weights: the message says which, and which ranks);
 *          MP_STATUS_OUT_OF_MEMORY; as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_shard(mp_optimizer* optimizer, mp_queue* queue);

/** A gradient has its last addition. When all of its bucket are ready the bucket leaves. A thread of the optimizer's moves what
 * has left on, sums included, while backward goes on, and so it does what mp_optimizer_gather_begin began; it calls the
 * communicator only between calls of this optimizer, begins nothing on it (what a bucket begins later, in the order EXACT or
 * between groups and nodes, goes over groups that nothing else uses), sums with one thread, and sleeps when nothing comes.
 * Where there is none (mp_optimizer_get_progress says why) buckets move in these calls. The bits are the same. A failure that
 * the thread meets comes out of the next call that moves anything, and of all later ones. Every rank says it in the same
 * order. In stages 0 and 1 gradients stay in their tensors, so it is said once a step; under MP_OPTIMIZER_ZERO_GRAD, and from
 * stage 2 on, once a microbatch if wanted: what left is added to what left before. Without sharding it does nothing, but under
 * MP_OPTIMIZER_OFFLOAD_GRADS the gradient leaves for the host. Enqueues; blocks for a bucket that leaves, but not over NCCL.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue. The optimizer keeps it until the step is over
 * @param[in] index      the parameter's number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index);
 *          MP_STATUS_BAD_STATE (said twice; more contributions than slots; wrapped as deferred, and not acquired);
 *          MP_STATUS_OUT_OF_MEMORY; as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_grad_ready(mp_optimizer* optimizer, mp_queue* queue, int32_t index);

/** All gradients of one slot are there, those that were said to be ready and the rest: they are kept in the wire's type, and
 * zeroed. Needed after each of this rank's slots where it has several; nothing else may add to them before. Does nothing
 * without sharding. Enqueues; blocks for buckets that leave, but not over NCCL.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue
 * @returns as mp_optimizer_grad_ready
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_end_microbatch(mp_optimizer* optimizer, mp_queue* queue);

/* ---- Stages 2 and 3: memory of gradients and weights that comes and goes */

/** Gives a gradient its memory, of zeros, where it has none. Does nothing in stages 0 and 1, or without sharding; but
 * under MP_OPTIMIZER_OFFLOAD_GRADS a gradient that nobody shares comes with what the host has of it. Enqueues.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] index      the parameter's number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index);
 *          MP_STATUS_BAD_STATE (another one is in its memory); MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_acquire_grad(mp_optimizer* optimizer, mp_queue* queue, int32_t index);

/** Stage 3: gives parameters memory and begins to fetch their slices; those that have memory are left alone. Several may be
 * under way, for layers to come. Every rank names the same parameters in the same order. Does nothing in other stages.
 * An optimizer that is destroyed before they have arrived ends the exchange for all ranks (MP_STATUS_PEER_LOST there):
 * mp_optimizer_gather_free of all parameters, or a step, waits for them. Blocks until this rank's own slices are ready to
 * be sent; over NCCL it enqueues.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue. The optimizer keeps it until the next step is over
 * @param[in] indices    the parameters' numbers
 * @param[in] count      how many
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index);
 *          MP_STATUS_BAD_STATE (another one is in its memory); MP_STATUS_OUT_OF_MEMORY; as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_gather_begin(mp_optimizer* optimizer, mp_queue* queue,
                                           const int32_t* indices, int32_t count);

/** Returns when these parameters are whole; over NCCL, when they are so for what the queue takes from now on. Blocks, but not
 * over NCCL. Does nothing in other stages.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue
 * @param[in] indices    the parameters' numbers
 * @param[in] count      how many
 * @returns as mp_optimizer_gather_begin; MP_STATUS_BAD_STATE (one is not being gathered)
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_gather_wait(mp_optimizer* optimizer, mp_queue* queue,
                                          const int32_t* indices, int32_t count);

/** Gives the parameters' memory back; what was written there is lost, unless mp_optimizer_sync_master took it. A step
 * does it for all. Blocks; on an accelerator it enqueues. Does nothing in other stages.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue
 * @param[in] indices    the parameters' numbers
 * @param[in] count      how many
 * @returns as mp_optimizer_gather_begin; MP_STATUS_BAD_STATE (lent by DLPack)
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_gather_free(mp_optimizer* optimizer, mp_queue* queue,
                                          const int32_t* indices, int32_t count);

/* ---- Layer by layer: the calls above for all parameters of a layer, around its forward and its backward pass */

/* Which pass of a layer begins or ends */
#define MP_PASS_FORWARD 0
#define MP_PASS_BACKWARD 1 /* gradients have their last addition */
#define MP_PASS_ACCUMULATE                                                                         \
    2 /* backward too, but another micro-batch adds to the gradients: they do not leave */

/** Says which parameters each layer of the model uses, in the order of its forward pass, for mp_optimizer_layer_begin. A
 * parameter may belong to several (tied embeddings), or to none. In place of what was said before; not while a layer has
 * begun. The same on every rank.
 * @param[in] optimizer    the optimizer
 * @param[in] layer_count  how many layers; 0: none
 * @param[in] counts       of each layer: how many parameters
 * @param[in] indices      the parameters' numbers, layer after layer; a layer names each once
 * @param[in] prefetch     how many layers ahead weights are fetched, in 0..64; 0: each when it begins
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (a count, an index,
 *          prefetch); MP_STATUS_BAD_STATE (a layer has begun); MP_STATUS_OUT_OF_MEMORY
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_layer_params(mp_optimizer* optimizer, int32_t layer_count,
                                               const int32_t* counts, const int32_t* indices,
                                               int32_t prefetch);

/** Before a layer computes. Stage 3: its weights are whole when this returns, and those of the layers that come next in this
 * pass are on their way. Before backward, from stage 2 on, its gradients have memory. Without sharding nothing moves. Layers
 * may begin in any order, in the same one on every rank; the next ones are those that follow by number, in backward
 * downwards. Of layers that share a parameter the first by number is the last in backward. One that could not begin may be
 * begun again. After a pass that stops early weights may be on their way: before the optimizer is destroyed call
 * mp_optimizer_gather_free for all parameters. Blocks, but not over NCCL.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue. The optimizer keeps it until the next step is over
 * @param[in] layer      its number, from 0
 * @param[in] pass       MP_PASS_*
 * @returns as mp_optimizer_gather_begin; MP_STATUS_INVALID_ARGUMENT (layer, pass); MP_STATUS_BAD_STATE (it has begun; a
 *          gradient that it adds to has left; before mp_optimizer_shard)
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_layer_begin(mp_optimizer* optimizer, mp_queue* queue, int32_t layer,
                                          int32_t pass);

/** After a layer has computed. Stage 3: the memory of its weights is given back, but of those that another layer uses, which
 * has begun or is coming. After backward its gradients are ready (mp_optimizer_grad_ready), one of several layers with the
 * first of them; the pass has ended also where they could not be sent. A step, or a checkpoint that is loaded, ends what has
 * not ended. Without sharding only gradients move (MP_OPTIMIZER_OFFLOAD_GRADS). Blocks for buckets that leave, but not over NCCL.
 * @param[in] optimizer  the optimizer, after mp_optimizer_shard
 * @param[in] queue      NULL: the default queue
 * @param[in] layer      its number, from 0
 * @param[in] pass       MP_PASS_*, as it began; a backward pass may end as the other kind
 * @returns as mp_optimizer_grad_ready; as mp_optimizer_gather_free; MP_STATUS_BAD_STATE also where it has not begun
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_layer_end(mp_optimizer* optimizer, mp_queue* queue, int32_t layer,
                                        int32_t pass);

/* ---- Everything else: who owns what, what moved, what it needs */

/** Which elements of a parameter a rank owns.
 * @param[in]  optimizer  a sharded optimizer, after mp_optimizer_shard
 * @param[in]  index      the parameter's number
 * @param[in]  rank       any rank
 * @param[out] start      its first element
 * @param[out] count      how many; 0: none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index, rank);
 *          MP_STATUS_BAD_STATE (not sharded yet)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_slice(const mp_optimizer* optimizer, int32_t index, int32_t rank,
                                        int64_t* start, int64_t* count);

/** Whether messages move while the caller computes, and how many have. What the thread finished was over before the
 * step, or whoever waits, asked for it. Where an exchange has failed the numbers stay; the calls that move things say so.
 * @param[in]     optimizer  a sharded optimizer, after mp_optimizer_shard
 * @param[in,out] progress   struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (not sharded yet)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_progress(const mp_optimizer* optimizer,
                                           mp_sharding_progress* progress);

/** FP8-LM's factor mu of a gradient that ranks reduce under a shared scale (grad.reduce.scale "shared"): it begins at 1 /
 * sqrt(ranks), is halved by a step whose sum had to clip more than 1e-5 of its elements (one is forgiven), and doubles in
 * 1000 steps that had not. Codes are made under it rounded down to a power of two. A checkpoint keeps it.
 * @param[in]  optimizer  a sharded optimizer
 * @param[in]  index      of the parameter
 * @param[out] mu         receives it, the same on every rank; 0 where the gradient has none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index);
 *          MP_STATUS_BAD_STATE (not sharded yet)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_grad_mu(const mp_optimizer* optimizer, int32_t index, double* mu);

/** What this rank has sent for this optimizer.
 * @param[in]     optimizer  a sharded optimizer
 * @param[in,out] traffic    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (not sharded)
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_traffic(const mp_optimizer* optimizer, mp_comm_traffic* traffic);

/** mp_recipe_plan_memory for one rank of many that share an optimizer, after mp_optimizer_shard: exactly the bytes of its
 * own elements, and of what every rank has. The one scale of a weight or gradient is on every rank. Gradients from stage
 * 2 on, and weights in stage 3, are not counted: they have memory while they are in use only. Every tensor is taken for a
 * matrix; mp_recipe_plan_tensors knows others.
 * @param[in]     recipe        the recipe
 * @param[in]     rule          MP_RULE_*
 * @param[in]     counts        elements of each tensor; may be NULL when tensor_count is 0
 * @param[in]     tensor_count  how many tensors
 * @param[in]     sharding      as for mp_optimizer_create_sharded; NULL: the defaults
 * @param[in]     rank          in 0..ranks-1; -1: the rank that holds most, the first of equal ones
 * @param[in]     ranks         how many; 1: an optimizer without ranks. One of mp_optimizer_create_sharded on a single rank
 *                              holds its reduced gradients besides
 * @param[in,out] report        struct_size set by the caller; the rest is written; parameter_count is the whole model's
 * @returns as mp_recipe_plan_memory; MP_STATUS_INVALID_ARGUMENT also for rank, ranks and what is in `sharding`
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_plan_memory_sharded(const mp_recipe* recipe, int32_t rule,
                                               const int64_t* counts, int64_t tensor_count,
                                               const mp_sharding_desc* sharding, int32_t rank,
                                               int32_t ranks, mp_memory_report* report);

/** Plans tensors of several kinds: kept in fp32 beside the recipe's weights, of groups with formats of their own, or gathered
 * as codes; what one rank holds, and what it sends. A model that is made so holds exactly these bytes.
 * @param[in]     recipe        the recipe
 * @param[in]     desc          as for mp_optimizer_create, and refused as there: MP_OPTIMIZER_OFFLOAD counts, with the
 *                              buckets of a step over all tensors; NULL: all defaults
 * @param[in]     tensors       the parameters; may be NULL when tensor_count is 0
 * @param[in]     tensor_count  how many
 * @param[in]     sharding      as for mp_optimizer_create_sharded; NULL: the defaults
 * @param[in]     rank          in 0..ranks-1; -1: the rank that holds most (with offload: on its device), the first of
 *                              equal ones, found in one pass
 * @param[in]     ranks         how many; 1: as for mp_recipe_plan_memory_sharded, also with offload
 * @param[in,out] memory        as of mp_recipe_plan_memory_sharded; NULL: not wanted
 * @param[in,out] traffic       bytes that a rank sends in a step, the mean over the ranks: gradients as all_to_all_bytes,
 *                              weights (stage 0: the sums) as all_gather_bytes, both in total_bytes; other fields 0. In stage 3
 *                              weights are gathered twice, for one forward and one backward. The small messages that
 *                              agree on a step are not counted. NULL: not wanted
 * @returns as mp_recipe_plan_memory_sharded; MP_STATUS_INVALID_DTYPE (a weight that is none of the three kinds);
 *          MP_STATUS_UNKNOWN_NAME (a format)
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_plan_tensors(const mp_recipe* recipe, const mp_optimizer_desc* desc,
                                        const mp_planned_tensor* tensors, int64_t tensor_count,
                                        const mp_sharding_desc* sharding, int32_t rank,
                                        int32_t ranks, mp_memory_report* memory,
                                        mp_comm_traffic* traffic);

MP_END_DECLS

#endif /* MIXEDPREC_SHARDING_H */
