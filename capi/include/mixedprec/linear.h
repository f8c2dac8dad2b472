/* SPDX-License-Identifier: Apache-2.0
 * mp_linear: y = x * w^T + bias and its two gradients, in the dtypes of a recipe.
 *
 * Shapes, all row-major: x [rows, in], w [out, in], bias [out], y [rows, out]; dy as y, dx as x, dw as w,
 * dbias as bias. rows may change from call to call. x, y, dy and dx are fp32, fp16 or bf16, whichever the
 * caller's activations are; operands are rounded to the recipe's GEMM dtypes inside, sums are fp32.
 *
 * One step of training:  forward -> backward (or its halves backward_data and backward_weight, in either
 * order), once for each micro-batch. forward keeps what backward_weight needs: a copy of x in the recipe's dtype, or, where
 * x already has that dtype, a reference to it, in which case its contents must not change until backward_weight
 * has run. A second forward replaces what the first one kept. */
#ifndef MIXEDPREC_LINEAR_H
#define MIXEDPREC_LINEAR_H

#include "status.h"

/* mp_linear_desc.flags */
#define MP_LINEAR_INFERENCE 1u /* forward keeps nothing; backward_weight is refused */

/* mp_linear_backward and mp_linear_backward_weight flags */
#define MP_LINEAR_ACCUMULATE 1u /* dw and dbias += ; otherwise they are overwritten */

typedef struct mp_linear_desc {
    uint32_t struct_size; /* sizeof(mp_linear_desc) */
    uint32_t flags;       /* MP_LINEAR_* */
    int64_t in_features;  /* required, > 0 */
    int64_t out_features; /* required, > 0 */
} mp_linear_desc;

#define MP_LINEAR_DESC_INIT                                                                        \
    { sizeof(mp_linear_desc), 0, 0, 0 }

MP_BEGIN_DECLS

/** Fills a descriptor with the defaults: the function twin of MP_LINEAR_DESC_INIT.
 * @param[out] desc  the descriptor
 * @param[in]  size  sizeof(mp_linear_desc) as the caller knows it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_linear_desc_init(mp_linear_desc* desc, size_t size);

/** Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
 * changes to them (by an optimizer, say) count at once. Freezes the recipe.
 * @param[in]  context  the context
 * @param[in]  recipe   decides the GEMM dtypes
 * @param[in]  desc     the sizes
 * @param[in]  weight   [out, in]; fp32, fp16 or bf16
 * @param[in]  bias     [out], fp32, fp16 or bf16; NULL for none
 * @param[out] out      the new layer
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device, recipe); MP_STATUS_UNSUPPORTED
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_linear_create(mp_context* context, mp_recipe* recipe,
                                  const mp_linear_desc* desc, mp_tensor* weight, mp_tensor* bias,
                                  mp_linear** out) MP_MUST_CHECK;

/** y = x * w^T + bias. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] x       [rows, in], or more dimensions whose last is in
 * @param[in] y       written; [rows, out]
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device); MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_linear_forward(mp_linear* linear, mp_queue* queue, mp_tensor* x, mp_tensor* y);

/** dx = dy * w. Enqueues. Needs no forward before it.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out]
 * @param[in] dx      written; [rows, in]
 * @returns as mp_linear_forward
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_linear_backward_data(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                         mp_tensor* dx);

/** dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
 * rows are fp32 and are rounded once into dw and dbias. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out], rows as in the last forward
 * @param[in] dw      written or added to; [out, in], fp32, fp16 or bf16: the main gradient
 * @param[in] dbias   written or added to; [out]; NULL when not wanted or the layer has no bias
 * @param[in] flags   MP_LINEAR_ACCUMULATE or 0
 * @returns as mp_linear_forward; MP_STATUS_BAD_STATE without a forward before it
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_linear_backward_weight(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                           mp_tensor* dw, mp_tensor* dbias, uint32_t flags);

/** Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
 * both GEMMs want the same type. The same bits as the two calls. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out], rows as in the last forward
 * @param[in] dx      written; [rows, in]; NULL when not wanted
 * @param[in] dw      written or added to; [out, in]
 * @param[in] dbias   written or added to; [out]; NULL when not wanted or the layer has no bias
 * @param[in] flags   MP_LINEAR_ACCUMULATE or 0
 * @returns as mp_linear_backward_weight
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_linear_backward(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                    mp_tensor* dx, mp_tensor* dw, mp_tensor* dbias, uint32_t flags);

/** What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
 * @param[in]  linear    the layer
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_linear_describe(const mp_linear* linear, char* buffer, size_t capacity,
                                    size_t* needed);

/** Gives the caller's reference back.
 * @param[in] linear  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.1 */
MP_API void mp_linear_destroy(mp_linear* linear);

MP_END_DECLS

#endif /* MIXEDPREC_LINEAR_H */
