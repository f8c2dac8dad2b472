/* SPDX-License-Identifier: Apache-2.0
 * mp_queue: an in-order stream of work on one device. NULL stands for the context's default queue
 * wherever a function takes one. Host queues run work in the calling thread today; do not rely on it. */
#ifndef MIXEDPREC_QUEUE_H
#define MIXEDPREC_QUEUE_H

#include "status.h"

MP_BEGIN_DECLS

/* ---- The simple way */

/** Waits for the context's default queue. Blocks.
 * @param[in] context  the context
 * @returns as mp_queue_sync
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_context_sync(mp_context* context);

/** Makes a queue on the context's device.
 * @param[in]  context  the context
 * @param[out] out      the new queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_OUT_OF_MEMORY;
 *          MP_STATUS_CUDA_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_queue_create(mp_context* context, mp_queue** out) MP_MUST_CHECK;

/** Waits until all work enqueued so far is done, and reports what went wrong in it. Work that is behind other ranks, over NCCL,
 * is waited for until their deadline; cudaStreamSynchronize on a stream of the caller's would know of none. Blocks.
 * @param[in] queue  the queue; the default queue of a context is synchronized by mp_context_sync
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_CUDA_ERROR; for the other ranks
 *          MP_STATUS_TIMEOUT, MP_STATUS_PEER_LOST, MP_STATUS_NCCL_ERROR
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_queue_sync(mp_queue* queue);

/** Gives the caller's reference back; the queue ends when its work is done.
 * @param[in] queue  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_queue_destroy(mp_queue* queue);

/* ---- The explicit way: streams and scratch memory of the caller's */

/** Makes a queue over the caller's own stream, which stays the caller's and must outlive the queue.
 * @param[in]  context  the context
 * @param[in]  native   the address of a cudaStream_t or hipStream_t; the handle itself is copied. A NULL handle is refused: the
 *                      default stream has handles of its own, such as cudaStreamLegacy. So is cudaStreamPerThread, another
 *                      stream in each thread (and hipStreamPerThread), and a host, which has no streams
 * @param[out] out      the new queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (such a handle);
 *          MP_STATUS_UNSUPPORTED (a host)
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_queue_wrap_native(mp_context* context, const void* native,
                                      mp_queue** out) MP_MUST_CHECK;

/** The stream under a queue, for work of one's own between the library's. It stays whose it was. Enqueues nothing.
 * @param[in]  queue   the queue
 * @param[out] native  receives a cudaStream_t or hipStream_t
 * @param[in]  size    bytes of native: the size of such a handle
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (size);
 *          MP_STATUS_UNSUPPORTED (a host, which has no streams)
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_queue_get_native(const mp_queue* queue, void* native, size_t size);

/** The most memory that work on this queue has held at once for a while (rounded operands, sums), as mp_queue_set_workspace
 * needs it: run one step, ask, and hand so much over. Enqueues nothing.
 * @param[in]  queue  the queue
 * @param[out] bytes  of one piece of memory
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_queue_get_workspace_peak(const mp_queue* queue, size_t* bytes);

/** Has work on this queue use the caller's memory instead of memory of the library's. What does not fit makes a call fail
 * with MP_STATUS_OUT_OF_MEMORY and a message that says how many bytes are needed. What layers and optimizers keep is not
 * there, nor what oneDNN takes for itself; cuBLASLt's workspace is. Blocks.
 * @param[in] queue   the queue
 * @param[in] memory  on its device, aligned to 256 bytes; stays the caller's until another takes its place or the queue
 *                    ends; NULL: the library's memory again
 * @param[in] bytes   of memory; 0 with NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_queue_set_workspace(mp_queue* queue, void* memory, size_t bytes);

/** What mp_queue_set_workspace was given. Enqueues nothing.
 * @param[in]  queue   the queue
 * @param[out] memory  NULL where it is the library's
 * @param[out] bytes   of memory; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_queue_get_workspace(const mp_queue* queue, void** memory, size_t* bytes);

MP_END_DECLS

#endif /* MIXEDPREC_QUEUE_H */
