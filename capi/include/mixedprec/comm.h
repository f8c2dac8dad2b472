/* SPDX-License-Identifier: Apache-2.0
 * mp_comm: ranks that exchange bytes. Transports: one rank alone, threads of this process, a table of the caller's
 * own functions (comm_callbacks.h), MPI (module libmixedprec-mpi.so), NCCL (in the module libmixedprec-cuda.so).
 *
 * - Class C: every rank makes the same calls in the same order, one thread at a time for each handle. Over NCCL this holds for
 *   all communicators of a GPU together.
 *   mp_comm_abort, mp_comm_destroy and mp_comm_request_destroy may come from any thread at any time, also from finalizers.
 * - Every call that waits has a deadline. A rank that died, left, stopped or asks for something else gives every
 *   other rank a status within the deadline and a second: MP_STATUS_TIMEOUT, MP_STATUS_PEER_LOST,
 *   MP_STATUS_RANK_MISMATCH. The message names the operation, its number, the rank and, where the
 *   transport knows, who is missing.
 * - The first such failure ends the communicator: every later call returns it again at once. What was received is then
 *   undefined. Destroy the handle, which waits for nobody, and make a new one. Wrong arguments end nothing.
 * - Operations take `request`: NULL waits until it is done; else the call returns when it is begun, and
 *   mp_comm_request_wait or mp_comm_request_test say when memory may be touched again. Several may be in flight.
 * - No bytes, and ranks that give or get nothing, are ordinary. Sizes are 64 bits everywhere. */
#ifndef MIXEDPREC_COMM_H
#define MIXEDPREC_COMM_H

#include "comm_callbacks.h"

/* Bytes of what mp_comm_get_nccl_unique_id fills. */
#define MP_COMM_UNIQUE_ID_BYTES 128

typedef struct mp_comm_desc {
    uint32_t struct_size; /* sizeof(mp_comm_desc) */
    uint32_t flags;       /* 0 */
    int64_t deadline_ms;  /* of every wait; 0: 300000 */
    /* Threads only: pretend that every so many ranks share a machine; 0: all do */
    int32_t ranks_per_node;
    int32_t reserved; /* 0 */
} mp_comm_desc;

#define MP_COMM_DESC_INIT                                                                          \
    { sizeof(mp_comm_desc), 0, 0, 0, 0 }

/** Who gives how many bytes to whom. The arrays may be freed when the call returns; the memory belongs to the operation
 * until it is done. Parts lie at offsets from send and receive, and must not overlap where they are received. */
typedef struct mp_comm_exchange {
    uint32_t struct_size;           /* sizeof(mp_comm_exchange) */
    uint32_t flags;                 /* 0 */
    const void* send;               /* may be NULL where nothing is sent */
    const int64_t* send_bytes;      /* all_to_all: for each rank; all_gather: one number */
    const int64_t* send_offsets;    /* all_to_all: for each rank; all_gather: not read */
    void* receive;                  /* may be NULL where nothing is received */
    const int64_t* receive_bytes;   /* from each rank: what that rank sends to this one */
    const int64_t* receive_offsets; /* for each rank */
    int64_t deadline_ms;            /* of this call; 0: the communicator's */
    const char* site;               /* a name for messages, copied; NULL: none */
} mp_comm_exchange;

#define MP_COMM_EXCHANGE_INIT                                                                      \
    { sizeof(mp_comm_exchange), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL }

/** What this rank has sent to others since the communicator was made: payload, whatever route it took. An all-gather or
 * a broadcast counts its bytes once for each other rank, a maximum 4 bytes a value, a sum as a ring. */
typedef struct mp_comm_traffic {
    uint32_t struct_size;     /* sizeof(mp_comm_traffic), set by the caller */
    uint32_t flags;           /* 0 */
    int64_t calls;            /* operations begun */
    int64_t total_bytes;      /* the sum of those below */
    int64_t all_to_all_bytes; /* of MP_COMM_ALL_TO_ALL */
    int64_t all_gather_bytes; /* of MP_COMM_ALL_GATHER */
    int64_t broadcast_bytes;  /* of MP_COMM_BROADCAST, where this rank is the root */
    int64_t max_u32_bytes;    /* of MP_COMM_MAX_U32 */
    int64_t sum_f32_bytes;    /* of MP_COMM_SUM_F32 */
} mp_comm_traffic;

#define MP_COMM_TRAFFIC_INIT                                                                       \
    { sizeof(mp_comm_traffic), 0, 0, 0, 0, 0, 0, 0, 0 }

MP_BEGIN_DECLS

/* ---- The simple way: make one for what the ranks are, and exchange bytes */

/** The communicator of one rank: what it sends, it receives.
 * @param[in]  desc  NULL: all defaults
 * @param[out] out   the new communicator
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW;
 *          MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_create_self(const mp_comm_desc* desc, mp_comm** out) MP_MUST_CHECK;

/** Communicators for ranks that are threads of this process: one handle for each, which any one thread may use.
 * Destroying one tells the others that its rank is lost.
 * @param[in]  desc   NULL: all defaults
 * @param[in]  count  number of ranks, at least 1
 * @param[out] out    count handles; all NULL after a failure
 * @returns as mp_comm_create_self
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_create_threads(const mp_comm_desc* desc, int32_t count,
                                        mp_comm** out) MP_MUST_CHECK;

/** A communicator over MPI, by the module libmixedprec-mpi.so. Collective over the MPI communicator. The caller's one
 * is duplicated and may be freed. Without one it is MPI_COMM_WORLD, and if MPI is not initialized it is, with
 * MPI_THREAD_MULTIPLE, and ended at exit or by mp_library_shutdown. Memory of the caller is never in a pending MPI
 * call. After MPI_Finalize calls that talk to other ranks, this one too, are MP_STATUS_BAD_STATE, and all can be destroyed.
 * Blocks.
 * @param[in]  desc    NULL: all defaults
 * @param[in]  native  the address of an MPI_Comm; NULL: MPI_COMM_WORLD
 * @param[out] out     the new communicator
 * @returns as mp_comm_create_self; MP_STATUS_MODULE_NOT_FOUND; MP_STATUS_VERSION_MISMATCH; MP_STATUS_MPI_ERROR;
 *          MP_STATUS_TIMEOUT; MP_STATUS_BAD_STATE after MPI_Finalize
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_create_mpi(const mp_comm_desc* desc, const void* native,
                                    mp_comm** out) MP_MUST_CHECK;

/** What the ranks of a new NCCL communicator find each other by: one rank calls it and hands the bytes to the others.
 * @param[out] id    MP_COMM_UNIQUE_ID_BYTES bytes
 * @param[in]  size  bytes of id
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT (size); MP_STATUS_MODULE_NOT_FOUND;
 *          MP_STATUS_UNSUPPORTED (no NCCL, or one before 2.18: the message says what is missing); MP_STATUS_NCCL_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_nccl_unique_id(void* id, size_t size);

/** A communicator over NCCL on the context's GPU, without blocking calls of NCCL's. Collective over its ranks. Blocks.
 * Exchanges take device memory, or host memory, which is staged.
 * @param[in]  context    a context with a GPU
 * @param[in]  desc       NULL: all defaults
 * @param[in]  unique_id  what mp_comm_get_nccl_unique_id gave
 * @param[in]  rank       this rank, from 0
 * @param[in]  size       number of ranks
 * @param[out] out        the new communicator
 * @returns as mp_comm_create_self; MP_STATUS_INVALID_HANDLE; MP_STATUS_MODULE_NOT_FOUND; MP_STATUS_UNSUPPORTED;
 *          MP_STATUS_NCCL_ERROR; MP_STATUS_CUDA_ERROR; MP_STATUS_TIMEOUT
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_create_nccl(mp_context* context, const mp_comm_desc* desc,
                                     const void* unique_id, int32_t rank, int32_t size,
                                     mp_comm** out) MP_MUST_CHECK;

/** This rank's number.
 * @param[in]  comm  the communicator
 * @param[out] rank  from 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_rank(const mp_comm* comm, int32_t* rank);

/** The number of ranks.
 * @param[in]  comm  the communicator
 * @param[out] size  at least 1
 * @returns as mp_comm_get_rank
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_size(const mp_comm* comm, int32_t* size);

/** Every rank gives every rank its own bytes. Blocks, unless it has a request. With a queue, what is enqueued there
 * comes first.
 * @param[in]  comm      the communicator
 * @param[in]  queue     NULL: host memory, ready now
 * @param[in]  exchange  what goes where
 * @param[out] request   NULL: wait; else receives the request
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY; MP_STATUS_BAD_STATE (by a function of the
 *          communicator's own table); and what ends the communicator: MP_STATUS_TIMEOUT;
 *          MP_STATUS_PEER_LOST; MP_STATUS_PEER_ERROR; MP_STATUS_RANK_MISMATCH; MP_STATUS_ABORTED;
 *          MP_STATUS_CALLBACK_FAILED; MP_STATUS_MPI_ERROR; MP_STATUS_NCCL_ERROR
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_all_to_all(mp_comm* comm, mp_queue* queue,
                                    const mp_comm_exchange* exchange, mp_comm_request** request);

/** Every rank gets every rank's bytes. `send` may be where this rank receives its own. Blocks, unless it has a request.
 * @param[in]  comm      the communicator
 * @param[in]  queue     NULL: host memory, ready now
 * @param[in]  exchange  what goes where
 * @param[out] request   NULL: wait; else receives the request
 * @returns as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_all_gather(mp_comm* comm, mp_queue* queue,
                                    const mp_comm_exchange* exchange, mp_comm_request** request);

/** All ranks get the root's bytes. Blocks, unless it has a request.
 * @param[in]     comm     the communicator
 * @param[in]     queue    NULL: host memory, ready now
 * @param[in,out] data     read on the root, written on the others
 * @param[in]     bytes    the same on every rank
 * @param[in]     root     the rank that has the data
 * @param[out]    request  NULL: wait; else receives the request
 * @returns as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_broadcast(mp_comm* comm, mp_queue* queue, void* data, int64_t bytes,
                                   int32_t root, mp_comm_request** request);

/** Replaces values in host memory by their maxima over the ranks: for flags, and for the bits of magnitudes, which as
 * unsigned numbers keep NaN above infinity above all else. Blocks, unless it has a request.
 * @param[in]     comm     the communicator
 * @param[in,out] values   the values
 * @param[in]     count    how many, the same on every rank
 * @param[out]    request  NULL: wait; else receives the request
 * @returns as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_max_u32(mp_comm* comm, uint32_t* values, int64_t count,
                                 mp_comm_request** request);

/** Returns when every rank has called it. Blocks, unless it has a request.
 * @param[in]  comm     the communicator
 * @param[out] request  NULL: wait; else receives the request
 * @returns as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_barrier(mp_comm* comm, mp_comm_request** request);

/** Gives the caller's reference back. Requests and calls under way keep it; optimizers and checkpoints have communicators of
 * their own. With the last reference it ends, in the thread that gives it back, and other ranks that wait for this one are told
 * where the transport can. Over MPI below MPI_THREAD_MULTIPLE the thread that used it last calls MPI: if it is another one, in
 * its next call over MPI. Waits for nobody, except over NCCL, where ncclCommFinalize has the deadline, 5 seconds at most, to
 * reach all ranks: for the communicator and its groups together.
 * @param[in] comm  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_comm_destroy(mp_comm* comm);

/* ---- The explicit way: operations in flight, deadlines, groups, communicators and transports of the caller's */

/** Waits until the operation is done, has failed, or its deadline, counted from its begin, has passed. Blocks.
 * @param[in] request  the request; may be waited for once more, which returns the same
 * @returns as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_request_wait(mp_comm_request* request);

/** Moves all operations of the communicator on, without waiting.
 * @param[in] request  the request
 * @returns MP_STATUS_OK when it is done; MP_STATUS_NOT_READY when it is not; failures as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_request_test(mp_comm_request* request);

/** Gives a request back, and the memory of its operation: when the call returns nobody touches that any more. So one that is
 * neither done nor failed ends its communicator, as mp_comm_abort does. While a wait for it is under way in another
 * thread it stays until that is over. Waits for no rank; beside a call of another thread on the communicator, for one look of
 * that at what is in flight, and for an mp_comm_split that is under way.
 * @param[in] request  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_comm_request_destroy(mp_comm_request* request);

/** Sets the deadline of calls from now on.
 * @param[in] comm         the communicator
 * @param[in] deadline_ms  0: 300000
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_set_deadline(mp_comm* comm, int64_t deadline_ms);

/** The deadline of calls.
 * @param[in]  comm         the communicator
 * @param[out] deadline_ms  milliseconds
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_get_deadline(const mp_comm* comm, int64_t* deadline_ms);

/** Makes communicators of the ranks of one color each, ordered by key and then by rank, with this one's deadline.
 * They live on their own. Blocks.
 * @param[in]  comm   the communicator
 * @param[in]  color  which group; below 0: none
 * @param[in]  key    order inside the group
 * @param[out] out    the group's communicator; NULL where color is below 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNSUPPORTED (callbacks without
 *          split); MP_STATUS_TIMEOUT; MP_STATUS_PEER_LOST; MP_STATUS_RANK_MISMATCH; MP_STATUS_OUT_OF_MEMORY
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_split(mp_comm* comm, int32_t color, int32_t key,
                               mp_comm** out) MP_MUST_CHECK;

/** Which machine a rank is on: ranks with equal numbers share one.
 * @param[in]  comm  the communicator
 * @param[in]  rank  any of its ranks
 * @param[out] node  from 0
 * @returns as mp_comm_get_rank; MP_STATUS_INVALID_ARGUMENT (no such rank)
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_node(const mp_comm* comm, int32_t rank, int32_t* node);

/** A communicator over the caller's NCCL communicator, which stays the caller's, outlives this one, must be on the
 * context's GPU, have been made with blocking = 0, and is aborted when this one fails. Blocks.
 * @param[in]  context  a context with a GPU
 * @param[in]  desc     NULL: all defaults
 * @param[in]  native   the address of an ncclComm_t
 * @param[out] out      the new communicator
 * @returns as mp_comm_create_nccl
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_wrap_nccl(mp_context* context, const mp_comm_desc* desc,
                                   const void* native, mp_comm** out) MP_MUST_CHECK;

/** A communicator over the caller's own functions. After a failure the table's destroy has not been called.
 * @param[in]  desc       NULL: all defaults
 * @param[in]  callbacks  the functions; copied
 * @param[out] out        the new communicator
 * @returns as mp_comm_create_self
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_create_callbacks(const mp_comm_desc* desc,
                                          const mp_comm_callbacks* callbacks,
                                          mp_comm** out) MP_MUST_CHECK;

/* ---- Everything else: giving up, what has happened */

/** Ends the communicator here, and tells the other ranks where the transport can. A call that waits on another thread
 * returns MP_STATUS_ABORTED.
 * @param[in] comm    the communicator
 * @param[in] reason  why, for messages; NULL: none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_abort(mp_comm* comm, const char* reason);

/** Whether the communicator still works: the failure that ended it, with its message.
 * @param[in] comm  the communicator
 * @returns MP_STATUS_OK; or as mp_comm_all_to_all
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_comm_get_status(const mp_comm* comm);

/** What this rank has sent so far.
 * @param[in]     comm     the communicator
 * @param[in,out] traffic  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_get_traffic(const mp_comm* comm, mp_comm_traffic* traffic);

/** One line: rank, transport and what it found, deadline, operations and bytes so far, what ended it.
 * @param[in]  comm      the communicator
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_comm_describe(const mp_comm* comm, char* buffer, size_t capacity,
                                  size_t* needed);

MP_END_DECLS

#endif /* MIXEDPREC_COMM_H */
