/* SPDX-License-Identifier: Apache-2.0
 * Exchange of tensors with other libraries by DLPack 1.x. The struct is only declared here: include a
 * dlpack.h of version 1.0 or newer where you look inside.
 *
 * On an accelerator the struct says nothing of pending work. Neither function here orders any, so the caller does, with the
 * other library's stream (a cudaStream_t or hipStream_t) as a queue:
 *
 *   mp_queue_wrap_native(context, &stream, &theirs);
 *   mp_event_record(event, theirs);       before an imported tensor is used: after their work,
 *   mp_queue_wait_event(NULL, event);     the default queue's; or another queue in place of NULL
 *   mp_event_record(event, NULL);         before an exported one is, or they use again what an import has changed: after
 *   mp_queue_wait_event(theirs, event);   the default queue's work, theirs
 *
 * Bindings that speak Python's __dlpack__ do so by its `stream`. */
#ifndef MIXEDPREC_DLPACK_H
#define MIXEDPREC_DLPACK_H

#include "status.h"

struct DLManagedTensorVersioned;

MP_BEGIN_DECLS

/** Takes over a DLPack tensor without copying. Takes ownership on success and on failure: the producer's
 * deleter runs when the tensor and the work on it end (as an mp_deleter_fn), or at once on failure (also for a major version
 * other than 1, after which nothing else of the struct is read). Accepts NULL strides, byte_offset, and any strides that are
 * row-major for the shape. A read-only tensor is refused: tensors here are writable. No synchronization: see above.
 * @param[in]  context  the context whose device holds the memory
 * @param[in]  managed  the DLPack tensor
 * @param[out] out      the new tensor
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_VERSION_MISMATCH;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_SHAPE (not row-major, too many dimensions);
 *          MP_STATUS_UNSUPPORTED (device, read-only); MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_dlpack_import(mp_context* context, struct DLManagedTensorVersioned* managed,
                                  mp_tensor** out) MP_MUST_CHECK;

/** Lends a tensor as DLPack 1.1 without copying. The tensor's memory stays alive until the consumer calls
 * the deleter. No synchronization: see above.
 * @param[in]  tensor  the tensor
 * @param[out] out     the DLPack tensor; the consumer owns it and calls its deleter
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_OUT_OF_MEMORY; MP_STATUS_UNSUPPORTED for
 *          codes in blocks, for which DLPack has no type
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_dlpack_export(mp_tensor* tensor,
                                  struct DLManagedTensorVersioned** out) MP_MUST_CHECK;

MP_END_DECLS

#endif /* MIXEDPREC_DLPACK_H */
