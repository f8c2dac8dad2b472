/* SPDX-License-Identifier: Apache-2.0
 * mp_saved: what one forward of a layer keeps for its backward. The simple calls of linear.h keep one inside the layer.
 * With handles of their own several forwards may wait for their backward at once: micro-batches of a pipeline (1F1B), a
 * layer used twice in a pass, activations that are moved away or computed again.
 *
 *   mp_saved_create(layer, &saved);                                         once for each forward in flight
 *   mp_linear_forward_saved(layer, queue, x, y, saved, 0);
 *   mp_linear_backward_saved(layer, queue, saved, dy, dx, dw, dbias, MP_BACKWARD_ACCUMULATE);
 *
 * Recompute: forward with MP_FORWARD_DROP keeps no x, only how it was scaled. Before backward the same x is given once
 * more with MP_FORWARD_RECOMPUTE: the codes are those of the first time, also where delayed scales have moved on since, and
 * no amax counts twice.
 *
 * Moving away: with mp_saved_set_memory what is kept lies in memory of the caller, who may copy it elsewhere, reuse the
 * place, and name the bytes' new place before backward.
 *
 * Tied weights: make a layer for each use over one weight tensor, so that each has scales of its own; let every backward
 * add to one dw (MP_BACKWARD_ACCUMULATE), and add the weight to the optimizer once. The optimizer refuses the same memory
 * under two names. */
#ifndef MIXEDPREC_SAVED_H
#define MIXEDPREC_SAVED_H

#include "linear.h"
#include "quant.h"

/* mp_linear_forward_saved flags */
#define MP_FORWARD_DROP                                                                            \
    1u /* saved keeps how x was scaled, not x; MP_FORWARD_RECOMPUTE must follow */
/* x is what it was: it is kept under the scale of the first time, and nothing is counted. y may be NULL where only x is
 * wanted back. */
#define MP_FORWARD_RECOMPUTE 2u

/* The products of a layer. */
#define MP_PRODUCT_FPROP 0 /* y = x * w^T */
#define MP_PRODUCT_DGRAD 1 /* dx = dy * w */
#define MP_PRODUCT_WGRAD 2 /* dw = dy^T * x */

MP_BEGIN_DECLS

/** Makes a place for what one forward of this layer keeps. It holds memory from its first forward on.
 * @param[in]  linear  the layer, kept alive
 * @param[out] out     the new handle
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE for a layer that keeps nothing
 *          (MP_LINEAR_INFERENCE; MP_LINEAR_FROZEN without an adapter); MP_STATUS_OUT_OF_MEMORY
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_saved_create(mp_linear* linear, mp_saved** out) MP_MUST_CHECK;

/** mp_linear_forward that keeps what backward needs in `saved` instead of in the layer. What was in it is replaced. Enqueues.
 * x may be codes (a quantized tensor). In the format of the product they serve as they are, and their amax
 * (mp_tensor_get_quantized_amax) enters the delayed scale; other codes are read to fp32 and rounded again.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] x       [rows, in]. Where it has the format of the weight gradient already, a reference to it is kept, unless
 *                    `saved` has memory of the caller's
 * @param[in] y       written; [rows, out]
 * @param[in] saved   of this layer; NULL: nothing is kept, and nothing counted: an evaluation leaves delayed scales and
 *                    statistics alone. A backward of dx alone that follows without `saved` counts the amax of the last such
 *                    forward
 * @param[in] flags   0, MP_FORWARD_DROP or MP_FORWARD_RECOMPUTE
 * @returns as mp_linear_forward; MP_STATUS_INVALID_ARGUMENT also for another layer's `saved`, for flags without it, and for
 *          memory of mp_saved_set_memory that is too small or that x, y or the weight has a part of;
 *          MP_STATUS_BAD_STATE for MP_FORWARD_RECOMPUTE without a forward before it
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_forward_saved(mp_linear* linear, mp_queue* queue, mp_tensor* x,
                                         mp_tensor* y, mp_saved* saved, uint32_t flags);

/** mp_linear_backward with what that forward kept. It stays there: a second backward may follow. Enqueues. dy may be codes,
 * as x may; dbias is then the sum of their values.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] saved   of this layer, after a forward; NULL where dw is, and where no adapter's gradients are named
 * @param[in] dy      [rows, out], rows as in that forward
 * @param[in] dx      written; [rows, in]; NULL when not wanted
 * @param[in] dw      written or added to; [out, in]; NULL when not wanted: a frozen weight
 * @param[in] dbias   written or added to; [out]; NULL when not wanted, and without dw
 * @param[in] flags   MP_BACKWARD_ACCUMULATE or 0
 * @returns as mp_linear_backward; MP_STATUS_INVALID_ARGUMENT also for another layer's `saved` and where nothing is wanted;
 *          MP_STATUS_BAD_STATE also where x was dropped, or dx of an earlier call was written over it
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_backward_saved(mp_linear* linear, mp_queue* queue, const mp_saved* saved,
                                          const mp_tensor* dy, mp_tensor* dx, mp_tensor* dw,
                                          mp_tensor* dbias, uint32_t flags);

/** Bytes that mp_saved_set_memory needs for a forward of so many rows: x in the format of the weight gradient, and its scales; of
 * each adapter that is active what its two layers keep so, one after another.
 * @param[in]  linear  the layer
 * @param[in]  rows    >= 0
 * @param[out] bytes   the number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE (rows)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_saved_bytes(const mp_linear* linear, int64_t rows, size_t* bytes);

/** Has what is kept lie in the caller's memory. Where a forward has been, the bytes that were at the old place of the caller's
 * are taken to be at the new one: copy them first. A saved whose x lies in the library's memory cannot be moved.
 * @param[in] saved   the handle
 * @param[in] memory  on the layer's device, aligned to 256 bytes; stays the caller's. A call that would write anything else
 *                    over the x that lies there, and then read it, is refused. NULL: the library's memory again, and
 *                    x is dropped
 * @param[in] bytes   of memory; 0 with NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (alignment, fewer bytes
 *          than are kept); MP_STATUS_BAD_STATE where x is kept elsewhere than in the caller's memory
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_saved_set_memory(mp_saved* saved, void* memory, size_t bytes);

/** The caller's memory that mp_saved_set_memory named.
 * @param[in]  saved   the handle
 * @param[out] memory  NULL where it is the library's
 * @param[out] bytes   of memory; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_saved_get_memory(const mp_saved* saved, void** memory, size_t* bytes);

/** Gives the caller's reference back.
 * @param[in] saved  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_saved_destroy(mp_saved* saved);

/** How dw in fp16 or bf16 is rounded from now on, by mp_linear_backward too. Under MP_ROUND_STOCHASTIC the product is added
 * to dw in fp32 and rounded once, by the bits of (seed, uid, element, step, microbatch): set them before each micro-batch.
 * A dw in fp32 is not rounded.
 * @param[in] linear  the layer
 * @param[in] desc    NULL: to nearest. Its flags must be 0: a gradient never saturates
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW. A quantized dw makes the backward say MP_STATUS_UNSUPPORTED
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_set_gradient_rounding(mp_linear* linear, const mp_cast_desc* desc);

/** What mp_linear_set_gradient_rounding was told.
 * @param[in]     linear  the layer
 * @param[in,out] desc    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_gradient_rounding(const mp_linear* linear, mp_cast_desc* desc);

/** The format in which a product takes an operand: for codes that the caller makes, and for memory that holds them.
 * @param[in]     linear   the layer
 * @param[in]     product  MP_PRODUCT_*
 * @param[in]     operand  MP_OPERAND_*, one of the product's two
 * @param[out]    dtype    MP_DTYPE_* of the elements
 * @param[in,out] quant    struct_size set by the caller; the rest is written: what mp_tensor_create_quantized takes. scaling
 *                         is 0 where the elements are rounded only, without scales
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_operand_format(const mp_linear* linear, int32_t product,
                                              int32_t operand, int32_t* dtype,
                                              mp_quant_desc* quant);

/** Rounds an operand as the product would, into codes of the caller's: by the layer's delayed scale where it has one, and
 * counted by the layer at once, so not for an evaluation. Random bits are those of the next forward, or of the first backward
 * that has not run. Enqueues. Give them to the calls above as x or dy, or to
 * mp_linear_set_weight_codes.
 * @param[in] linear   the layer
 * @param[in] queue    NULL: the default queue
 * @param[in] product  MP_PRODUCT_*
 * @param[in] operand  MP_OPERAND_*, one of the product's two
 * @param[in] source   fp32, fp16 or bf16
 * @param[in] codes    written; quantized, in the format of mp_linear_get_operand_format, the shape of source
 * @returns as mp_tensor_quantize; MP_STATUS_INVALID_ARGUMENT also where the product takes no codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_quantize(mp_linear* linear, mp_queue* queue, int32_t product,
                                    int32_t operand, const mp_tensor* source, mp_tensor* codes);

/** Has products take these codes of the caller's instead of rounding the weight: who changes the weight makes them anew.
 * Their amax enters the delayed scale. Kept alive.
 * @param[in] linear  the layer
 * @param[in] fprop   [out, in], in the weight's format of MP_PRODUCT_FPROP; NULL: the weight is rounded
 * @param[in] dgrad   likewise of MP_PRODUCT_DGRAD; NULL: `fprop` where both formats are one, else the weight is rounded
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE (another format);
 *          MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_ARGUMENT (device)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_set_weight_codes(mp_linear* linear, mp_tensor* fprop, mp_tensor* dgrad);

/** What mp_linear_set_weight_codes was given.
 * @param[in]  linear   the layer
 * @param[in]  product  MP_PRODUCT_FPROP or MP_PRODUCT_DGRAD
 * @param[out] out      a new handle on the codes; NULL where there are none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_weight_codes(const mp_linear* linear, int32_t product,
                                            mp_tensor** out) MP_MUST_CHECK;

/** The delayed scale of an operand, for kernels of the caller's that make codes: what x is multiplied by before it is
 * rounded; scale_inv = RN(1 / multiply). One fp32 element in device memory that moves with mp_linear_end_step. In the
 * first steps of a recipe with a warm-up it is not used.
 * @param[in]  linear   a layer under delayed scaling, kept alive
 * @param[in]  operand  MP_OPERAND_*
 * @param[out] out      a new handle on it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (operand);
 *          MP_STATUS_BAD_STATE where scales are not delayed
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_multiply_tensor(const mp_linear* linear, int32_t operand,
                                               mp_tensor** out) MP_MUST_CHECK;

MP_END_DECLS

#endif /* MIXEDPREC_SAVED_H */
