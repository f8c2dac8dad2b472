/* SPDX-License-Identifier: Apache-2.0
 * Reductions over the ranks of an mp_comm: what goes over the wire, what is added in, and what comes out have types of
 * their own. Every rank sends each other rank its part once, as the wire's type, and adds what it receives in fp32 or
 * wider: the bytes of a ring, without its rounding at every hop. There is no average: fold 1/N into the next factor.
 *
 * Which bits are promised (MP_COMM_ORDER_*):
 *   RANK   left to right by rank: the same for a fixed number of ranks, whatever the threads, devices and buckets
 *   TREE   the balanced tree over slots (the microbatches of the global batch): the same for every number of ranks
 *   EXACT  fixed point and one rounding: the same for every number of ranks and any order of the slots
 *   FAST   only that every rank gets the same
 * TREE and EXACT need shares that begin where blocks of the wire's scales begin, and send more where a rank has several
 * slots: TREE up to 2 log2(slots) partial sums of fp32, EXACT 8 bytes an element and the blocks' maxima. */
#ifndef MIXEDPREC_REDUCE_H
#define MIXEDPREC_REDUCE_H

#include "comm.h"
#include "tensor.h"

/* mp_comm_reduce_desc.op */
#define MP_COMM_OP_SUM 0
#define MP_COMM_OP_MAX_ABS_BITS 1 /* the largest bits(|x|): NaN above infinity above numbers */

/* mp_comm_reduce_desc.order */
#define MP_COMM_ORDER_RANK 0  /* left to right by rank */
#define MP_COMM_ORDER_TREE 1  /* the balanced tree over slots */
#define MP_COMM_ORDER_EXACT 2 /* fixed point and one rounding */
#define MP_COMM_ORDER_FAST 3  /* any, the same result on every rank */

/* mp_comm_reduce_desc.accumulate */
#define MP_COMM_ACCUMULATE_DEFAULT 0 /* FP32; FIXED for EXACT */
#define MP_COMM_ACCUMULATE_FP32 1    /* RANK, TREE and FAST */
#define MP_COMM_ACCUMULATE_FP64 2    /* RANK and FAST */
#define MP_COMM_ACCUMULATE_FIXED 3   /* EXACT: 64-bit integers */

/* Scales of fp8 on the wire, which are sent with the codes. */
#define MP_COMM_SCALE_DEFAULT 0 /* BLOCK for fp8; other types have none */
#define MP_COMM_SCALE_TENSOR 1  /* one fp32 scale a message */
#define MP_COMM_SCALE_BLOCK 2   /* an fp32 scale for 128 elements */
#define MP_COMM_SCALE_MX 3      /* an E8M0 scale for 32 elements */
#define MP_COMM_SCALE_SHARED 4  /* none: ranks agreed on it; in mp_sharding_desc only */

/* mp_comm_reduce_desc.flags */
#define MP_REDUCE_STOCHASTIC                                                                       \
    1u /* round to the wire by seed, uid, step, micro-batch, slot, element */

/** How values are sent and added. The types of what goes in and comes out are the tensors'. */
typedef struct mp_comm_reduce_desc {
    uint32_t struct_size;  /* sizeof(mp_comm_reduce_desc) */
    uint32_t flags;        /* MP_REDUCE_STOCHASTIC */
    int32_t op;            /* MP_COMM_OP_* */
    int32_t order;         /* MP_COMM_ORDER_* */
    int32_t accumulate;    /* MP_COMM_ACCUMULATE_* */
    int32_t slots;         /* TREE, EXACT: contributions of all ranks; 0: one a rank */
    int32_t wire_dtype;    /* MP_DTYPE_*, the same on every rank; NONE: the sources' */
    int32_t wire_scale;    /* MP_COMM_SCALE_* */
    int32_t gather_dtype;  /* all_reduce's second half; NONE: the destination's */
    int32_t gather_scale;  /* MP_COMM_SCALE_* */
    int64_t first_element; /* which logical element the array begins with */
    uint64_t seed;         /* of stochastic rounding */
    uint64_t uid;          /* which tensor this is, for stochastic rounding */
    uint64_t step;         /* below 2^48 */
    int64_t deadline_ms;   /* of each transfer; 0: the communicator's */
    const char* site;      /* a name for messages, copied; NULL: none */
    int32_t microbatch;    /* of the step, 0 to 65535, where each is summed: fresh random bits */
    int32_t reserved;      /* 0 */
} mp_comm_reduce_desc;

#define MP_COMM_REDUCE_DESC_INIT                                                                   \
    { sizeof(mp_comm_reduce_desc), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0 }

MP_BEGIN_DECLS

/* ---- The simple way: the sum on every rank */

/** The same sums of all elements on every rank: a reduce-scatter, then a gather in gather_dtype. With op MAX_ABS_BITS, the
 * largest |x| of each element over the ranks as fp32. Blocks, unless it has a request; a maximum takes none.
 * @param[in]  comm          the communicator
 * @param[in]  queue         NULL: the default queue of the destination's device
 * @param[in]  desc          NULL: all defaults
 * @param[in]  sources       as for mp_comm_reduce_scatter
 * @param[in]  source_count  how many
 * @param[out] destination   as many elements as a source; fp32, fp16 or bf16; in memory of its own
 * @param[out] request       NULL: wait; else receives the request, which keeps the tensors
 * @returns as mp_comm_reduce_scatter
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_all_reduce(mp_comm* comm, mp_queue* queue, const mp_comm_reduce_desc* desc,
                                    const mp_tensor* const* sources, int32_t source_count,
                                    mp_tensor* destination, mp_comm_request** request);

/* ---- The explicit way: its two halves */

/** Rank r gets the sum of its share of all ranks' elements: those from counts[0] + ... + counts[r - 1] on. Shares may be
 * empty. The destination may be fp32, or fp16 or bf16, to which the sum is rounded once. What is not finite on any rank
 * is not finite in the sum. Blocks, unless it has a request; what is enqueued on the queue comes first.
 * @param[in]  comm          the communicator
 * @param[in]  queue         NULL: the default queue of the destination's device
 * @param[in]  desc          NULL: all defaults; op SUM
 * @param[in]  sources       fp32, fp16 or bf16, or fp8 with one scale; all elements, for each slot of this rank: of S slots
 *                           and N ranks those from rank*S/N up to (rank+1)*S/N; one array in order RANK and FAST
 * @param[in]  source_count  how many; 0 where the rank has no slot
 * @param[in]  counts        elements of each rank's share, the same on every rank; NULL: even shares that begin at
 *                           multiples of 128, of the sources' count
 * @param[out] destination   counts[rank] elements, on the sources' device, in memory of its own
 * @param[out] request       NULL: wait; else receives the request, which keeps the tensors
 * @returns as mp_comm_all_to_all; MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE; MP_STATUS_UNSUPPORTED (a combination
 *          without a meaning, with the reason); MP_STATUS_CUDA_ERROR
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_reduce_scatter(mp_comm* comm, mp_queue* queue,
                                        const mp_comm_reduce_desc* desc,
                                        const mp_tensor* const* sources, int32_t source_count,
                                        const int64_t* counts, mp_tensor* destination,
                                        mp_comm_request** request);

/** Every rank gets all ranks' values in wire_dtype: of fp8 all get the decoded ones, the owner too. Of the descriptor,
 * order, slots, accumulate and the gather's fields are not read. Blocks, unless it has a request.
 * @param[in]  comm         the communicator
 * @param[in]  queue        NULL: the default queue of the destination's device
 * @param[in]  desc         NULL: all defaults
 * @param[in]  shard        this rank's: counts[rank] elements
 * @param[in]  counts       elements of each rank, the same on every rank; NULL: even shares, as for
 *                          mp_comm_reduce_scatter
 * @param[out] destination  all elements; fp32, fp16 or bf16
 * @param[out] request      NULL: wait; else receives the request, which keeps the tensors
 * @returns as mp_comm_reduce_scatter
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_all_gather_values(mp_comm* comm, mp_queue* queue,
                                           const mp_comm_reduce_desc* desc, const mp_tensor* shard,
                                           const int64_t* counts, mp_tensor* destination,
                                           mp_comm_request** request);

/* ---- Everything else: the bytes of it */

/** Bytes that so many elements take on the wire, scales included.
 * @param[in]  count  elements
 * @param[in]  dtype  MP_DTYPE_FP32, FP16, BF16, FP8_E4M3 or FP8_E5M2
 * @param[in]  scale  MP_COMM_SCALE_*
 * @param[out] bytes  receives them
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_INVALID_DTYPE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_wire_bytes(int64_t count, int32_t dtype, int32_t scale,
                                        int64_t* bytes);

MP_END_DECLS

#endif /* MIXEDPREC_REDUCE_H */
