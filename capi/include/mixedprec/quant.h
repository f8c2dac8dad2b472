/* SPDX-License-Identifier: Apache-2.0
 * Quantized tensors: codes of fp8 (or fp16, fp4) with scales beside them. value = code * scale_inv: what is
 * stored is always the factor that turns codes into values.
 *
 * A quantized tensor is an mp_tensor of its code type. mp_tensor_get_data, _read, _write, _copy and mp_dlpack_export
 * see its codes; mp_tensor_get_scales gives its scales as a tensor of their own. Seen as a matrix its last
 * dimension has the columns and all others together the rows. */
#ifndef MIXEDPREC_QUANT_H
#define MIXEDPREC_QUANT_H

#include "tensor.h"

/* What happened to elements when they were quantized. */
typedef struct mp_quant_stats {
    uint32_t struct_size; /* sizeof(mp_quant_stats) */
    uint32_t flags;       /* 0 */
    int64_t elements;     /* how many were quantized */
    int64_t saturated;    /* finite, beyond the largest code: became that code */
    int64_t underflowed;  /* not zero, became the code of zero */
    int64_t non_finite;   /* infinity or NaN: coded as NaN where the type has no infinity */
    double amax;          /* largest |x|; NaN beats infinity beats numbers */
} mp_quant_stats;

#define MP_QUANT_STATS_INIT                                                                        \
    { sizeof(mp_quant_stats), 0, 0, 0, 0, 0, 0.0 }

MP_BEGIN_DECLS

/* ---- The simple way: a tensor of codes that has its scales */

/** Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
 * @param[in]  context  the context
 * @param[in]  desc     shape and code type: MP_DTYPE_FP8_E4M3 or _E5M2; _FP16 with MP_SCALE_RULE_MSAMP;
 *                      _FP4_E2M1 with MP_SCALING_NVFP4 or _MX_1X32. Where the number of columns is odd two rows share a
 *                      byte of it: the host quantizes that, accelerators and the backend "kokkos" say MP_STATUS_UNSUPPORTED
 * @param[in]  quant    scaling and rule; NULL: one scale for the tensor
 * @param[out] out      the new tensor
 * @returns as mp_tensor_create; MP_STATUS_INVALID_ARGUMENT and MP_STATUS_INVALID_DTYPE for parts that do
 *          not belong together
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_create_quantized(mp_context* context, const mp_tensor_desc* desc,
                                            const mp_quant_desc* quant,
                                            mp_tensor** out) MP_MUST_CHECK;

/** Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
 * Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
 * exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
 * The scale of a block never is infinite or negative, whatever its elements are.
 * @param[in]  source       fp32, fp16 or bf16
 * @param[in]  queue        NULL: the default queue
 * @param[in]  destination  quantized; the shape of source, no overlap with it
 * @param[in]  transposed   NULL, or a tensor of destination's code type and of [columns, rows]: receives the
 *                          same codes turned, in the same pass. Not of fp4: its pairs would be others
 * @param[in]  args         NULL: rounded to nearest, by source's own amax
 * @param[out] stats        NULL, or struct_size set by the caller: receives what happened; then the call blocks
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_ARGUMENT (not quantized, overlap, device, args);
 *          MP_STATUS_BAD_STATE (MP_QUANTIZE_CHECK_AMAX); MP_STATUS_UNSUPPORTED with all reasons; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_quantize(const mp_tensor* source, mp_queue* queue,
                                    mp_tensor* destination, mp_tensor* transposed,
                                    const mp_quantize_args* args, mp_quant_stats* stats);

/** destination = code * scale_inv, in fp32, rounded once to destination's type; of codes in blocks (MP_DTYPE_Q4_0 and so on) the
 * numbers of ggml's own dequantizers, bit for bit, every NaN the same one. Enqueues.
 * @param[in] source       quantized, or codes in blocks
 * @param[in] queue        NULL: the default queue
 * @param[in] destination  fp32, fp16 or bf16; the shape of source, no overlap with it
 * @returns as mp_tensor_quantize
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_tensor_dequantize(const mp_tensor* source, mp_queue* queue,
                                      mp_tensor* destination);

/** The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
 * fp8_e4m3. The handle shares their memory, which changes with every quantization.
 * @param[in]  tensor  a quantized tensor
 * @param[out] out     a new handle on its scales
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT for a
 *          tensor without scales
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_scales(const mp_tensor* tensor, mp_tensor** out) MP_MUST_CHECK;

/* ---- The explicit way: codes and scales of the caller's */

/** Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of
 * memory holds for all three pieces.
 * @param[in]  context    the context
 * @param[in]  desc       as for mp_tensor_create_quantized
 * @param[in]  quant      NULL: one scale for the tensor
 * @param[in]  codes      aligned to their elements; NULL only for a tensor without elements
 * @param[in]  scale_inv  as many as mp_tensor_get_scale_grid says; aligned to 16 bytes
 * @param[in]  amax       the largest |x| behind the codes, aligned to 4 bytes; NULL: the tensor keeps one of its own, 0 at first,
 *                        which is not for NVFP4
 * @param[in]  deleter    called with payload when all is done, with handles on scales and amax too; NULL: the caller keeps the
 *                        memory alive
 * @param[in]  payload    handed to deleter
 * @param[out] out        the new tensor; on failure the deleter is not called
 * @returns as mp_tensor_create_quantized; MP_STATUS_INVALID_ARGUMENT also for alignment, and for pieces that overlap
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_wrap_quantized(mp_context* context, const mp_tensor_desc* desc,
                                          const mp_quant_desc* quant, void* codes, void* scale_inv,
                                          float* amax, mp_deleter_fn deleter, void* payload,
                                          mp_tensor** out) MP_MUST_CHECK;

/* ---- Everything else: what a tensor is */

/** How a tensor is quantized.
 * @param[in]     tensor  a quantized tensor
 * @param[in,out] desc    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW;
 *          MP_STATUS_INVALID_ARGUMENT for a tensor without scales
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_quant_desc(const mp_tensor* tensor, mp_quant_desc* desc);

/** The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
 * the tensor's memory.
 * @param[in]  tensor  a quantized tensor
 * @param[out] out     a new handle on the amax
 * @returns as mp_tensor_get_scales
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_quantized_amax(const mp_tensor* tensor,
                                              mp_tensor** out) MP_MUST_CHECK;

MP_END_DECLS

#endif /* MIXEDPREC_QUANT_H */
