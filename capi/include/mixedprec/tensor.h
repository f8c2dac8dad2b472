/* SPDX-License-Identifier: Apache-2.0
 * mp_tensor: dense row-major arrays of one element type on one device, owned or borrowed. */
#ifndef MIXEDPREC_TENSOR_H
#define MIXEDPREC_TENSOR_H

#include "convert.h"

/* mp_tensor_desc.flags, of mp_tensor_create, mp_tensor_create_quantized and mp_tensor_wrap alone. Type and shape without memory:
 * a parameter's, or its gradient's. The optimizer that it is added to gives it memory, of zeros; in stage 3 (sharding.h) as any
 * other of that stage, of this rank's slice alone between uses, and of the scales that belong to it. first_values.h gives it
 * values. mp_tensor_wrap names the memory in advance: it serves while the optimizer has the tensor in use, a weight of stage 3
 * between gather and release, a gradient from stage 2 on until it has left, and at no other time. So several may name the same
 * memory, those of layers that come one after another. What another one has now nobody gets (MP_STATUS_BAD_STATE). */
#define MP_TENSOR_DEFERRED 1u

typedef struct mp_tensor_desc {
    uint32_t struct_size;       /* sizeof(mp_tensor_desc) */
    uint32_t flags;             /* MP_TENSOR_* */
    int32_t dtype;              /* MP_DTYPE_*, required */
    int32_t ndim;               /* 0..MP_MAX_DIMS; 0 is one scalar */
    int64_t shape[MP_MAX_DIMS]; /* ndim sizes, each >= 0, slowest first; the rest 0 */
    int32_t device_kind;        /* MP_DEVICE_*; default: the context's device */
    int32_t device_index;       /* from 0 */
} mp_tensor_desc;

#define MP_TENSOR_DESC_INIT                                                                        \
    { sizeof(mp_tensor_desc), 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0 }

/** Called once when a wrapped tensor no longer needs the caller's memory. On an accelerator that is when the work so far on all
 * queues of its context is done: the call that ends the tensor calls it if it is, else a later mp_queue_sync, mp_context_sync,
 * wrap or import of the same context does, and at the latest mp_context_destroy, which waits for it. */
typedef void (*mp_deleter_fn)(void* payload);

MP_BEGIN_DECLS

/* ---- The simple way: memory of the library's, filled, read and converted */

/** Makes a tensor in the library's memory, 64-byte aligned, all zero bytes.
 * @param[in]  context  the context
 * @param[in]  desc     type and shape
 * @param[out] out      the new tensor
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_SHAPE (negative size, more bytes than 2^62); MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_create(mp_context* context, const mp_tensor_desc* desc,
                                  mp_tensor** out) MP_MUST_CHECK;

/** Copies from host memory into a tensor. Blocks.
 * @param[in] tensor  the destination
 * @param[in] queue   NULL: the default queue
 * @param[in] data    host memory
 * @param[in] bytes   must be the tensor's size
 * @returns as mp_tensor_copy
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_write(mp_tensor* tensor, mp_queue* queue, const void* data,
                                 size_t bytes);

/** Copies a tensor into host memory. Blocks.
 * @param[in]  tensor  the source
 * @param[in]  queue   NULL: the default queue
 * @param[out] data    host memory
 * @param[in]  bytes   must be the tensor's size
 * @returns as mp_tensor_copy
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_read(const mp_tensor* tensor, mp_queue* queue, void* data, size_t bytes);

/** Copies elements between tensors of the same type and number of elements, on the same or on different
 * devices; of quantized ones, which must be alike, also scales and amax. Enqueues. Overlapping memory is refused.
 * @param[in] source       read
 * @param[in] queue   NULL: the default queue of destination's context
 * @param[in] destination  written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_ARGUMENT (overlap); MP_STATUS_CUDA_ERROR
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_copy(const mp_tensor* source, mp_queue* queue, mp_tensor* destination);

/** Sets every byte to zero. Enqueues.
 * @param[in] tensor  the tensor
 * @param[in] queue   NULL: the default queue
 * @returns as mp_tensor_copy
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_zero(mp_tensor* tensor, mp_queue* queue);

/** Converts between fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2. Enqueues.
 * Numerics: through fp32, exact on the way in; one rounding on the way out; NaN kept; subnormals exact.
 * Stochastic rounding draws from Philox4x32-10 by (seed, uid, element, step, micro-batch), so the bits do not depend on
 * threads or device.
 * @param[in] source       read; any of the five types
 * @param[in] queue        NULL: the default queue
 * @param[in] destination  written; same number of elements, no overlap with source
 * @param[in] desc         NULL: round to nearest even, fp8 saturating
 * @returns as mp_tensor_copy; MP_STATUS_INVALID_ARGUMENT (flags); MP_STATUS_UNSUPPORTED with all reasons
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_cast(const mp_tensor* source, mp_queue* queue, mp_tensor* destination,
                                const mp_cast_desc* desc);

/** Gives the caller's reference back.
 * @param[in] tensor  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_tensor_destroy(mp_tensor* tensor);

/* ---- The explicit way: memory of the caller's, and parts of a tensor */

/** Makes a tensor over the caller's memory, which must hold the whole shape, be aligned to the element
 * size, and stay valid until the deleter runs (or, without one, until the tensor and all that uses it are
 * destroyed). As a weight in stage 3 (sharding.h) its values are taken when it is cut; from then on each gather writes it whole
 * there, and nothing is to be read there after its release. As a gradient in stages 2 and 3 it is there always, and is set to
 * zero when it has left. MP_TENSOR_DEFERRED above saves that memory.
 * @param[in]  context  the context
 * @param[in]  desc     type, shape and the device the memory is on; MP_TENSOR_DEFERRED: for when it is in use
 * @param[in]  data     the memory; may be NULL only for a tensor without elements
 * @param[in]  deleter  called with payload when done; NULL: the caller keeps the memory alive
 * @param[in]  payload  handed to deleter
 * @param[out] out      the new tensor; on failure the deleter is not called
 * @returns as mp_tensor_create; MP_STATUS_INVALID_ARGUMENT when data is not aligned
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_wrap(mp_context* context, const mp_tensor_desc* desc, void* data,
                                mp_deleter_fn deleter, void* payload,
                                mp_tensor** out) MP_MUST_CHECK;

/** Some elements of a tensor as a tensor of their own, without a copy: rows of an embedding, the Q of a QKV weight, one expert
 * of a stack. What is written through one is seen through the other, and caches of either notice it. The view keeps the
 * tensor alive, and its memory in its place (of a sharded parameter it cannot be given back meanwhile).
 * @param[in]  tensor  not quantized
 * @param[in]  offset  the view's first element, in the tensor's row-major order
 * @param[in]  ndim    0..MP_MAX_DIMS
 * @param[in]  shape   ndim sizes, each >= 0; the elements lie behind one another; may be NULL when ndim is 0
 * @param[out] out     the view
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE (also what is not inside
 *          of the tensor); MP_STATUS_UNSUPPORTED (quantized); MP_STATUS_BAD_STATE (no memory now)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_create_view(mp_tensor* tensor, int64_t offset, int32_t ndim,
                                       const int64_t* shape, mp_tensor** out) MP_MUST_CHECK;

/** Type, shape and device of a tensor, also of one that has no memory now.
 * @param[in]     tensor  the tensor
 * @param[in,out] desc    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_desc(const mp_tensor* tensor, mp_tensor_desc* desc);

/** The tensor's memory: a borrowed pointer, on its device, valid as long as the tensor.
 * @param[in]  tensor  the tensor
 * @param[out] data    the pointer; NULL for a tensor without elements
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_data(const mp_tensor* tensor, void** data);

/** Largest absolute value. NaN wins over everything and infinity over every number; 0 for no elements.
 * Enqueues.
 * @param[in] tensor  read; fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2
 * @param[in] queue   NULL: the default queue
 * @param[in] amax    written; fp32, one element, same device
 * @returns as mp_tensor_copy; MP_STATUS_UNSUPPORTED with all reasons
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_amax(const mp_tensor* tensor, mp_queue* queue, mp_tensor* amax);

MP_END_DECLS

#endif /* MIXEDPREC_TENSOR_H */
