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

/* How scales lie over the matrix: one for each block of rows x columns. 0 in a desc means MP_SCALING_TENSOR. */
#define MP_SCALING_TENSOR 1        /* one fp32 scale */
#define MP_SCALING_ROW 2           /* one fp32 scale for each row */
#define MP_SCALING_COLUMN 3        /* one fp32 scale for each column */
#define MP_SCALING_BLOCK_1X128 4   /* fp32, along a row: activations, gradients (DeepSeek-V3) */
#define MP_SCALING_BLOCK_128X1 5   /* fp32, along a column: the operands of a weight gradient */
#define MP_SCALING_BLOCK_128X128 6 /* fp32: weights (DeepSeek-V3) */
#define MP_SCALING_MX_1X32 7       /* e8m0, along a row (OCP microscaling) */
#define MP_SCALING_MX_32X1 8       /* e8m0, along a column */
#define MP_SCALING_NVFP4 9 /* fp8_e4m3 scales of 1x16 under the tensor's amax; codes are fp4_e2m1 */

/* From a block's amax to its scale. 0 in a desc means the usual one of the scaling: RULE_CURRENT, _MX_RCEIL for
 * the MX scalings, _NVFP4 for NVFP4. */
#define MP_SCALE_RULE_CURRENT                                                                      \
    1 /* Transformer Engine: RN(max / amax); 1 where amax is 0 or not finite */
#define MP_SCALE_RULE_FLOAT64 2 /* torchao: max / max(amax, 1e-12), divided in double */
#define MP_SCALE_RULE_MSAMP                                                                        \
    3 /* MS-AMP: the largest power of two; kept where amax is 0 or not finite */
#define MP_SCALE_RULE_DEEPSEEK 4 /* DeepSeek-V3: scale_inv = max(amax, 1e-4) / max */
#define MP_SCALE_RULE_MX_RCEIL 5 /* exponent of amax / max rounded up: nothing saturates */
#define MP_SCALE_RULE_MX_FLOOR 6 /* the OCP specification's: the largest elements may saturate */
#define MP_SCALE_RULE_MX_CEIL 7
#define MP_SCALE_RULE_MX_EVEN 8
#define MP_SCALE_RULE_NVFP4 9

/* mp_quant_desc.flags */
#define MP_QUANT_POWER_OF_TWO                                                                      \
    1u /* scales are rounded to powers of two, so that nothing saturates */

typedef struct mp_quant_desc {
    uint32_t struct_size; /* sizeof(mp_quant_desc) */
    uint32_t flags;       /* MP_QUANT_* */
    int32_t scaling;      /* MP_SCALING_* */
    int32_t rule;         /* MP_SCALE_RULE_* */
    double amax_epsilon;  /* an amax below this counts as this; 0: none */
    int32_t margin;       /* the largest code is taken for 2^-margin of itself; 0..20 */
    int32_t reserved;     /* 0 */
} mp_quant_desc;

#define MP_QUANT_DESC_INIT                                                                         \
    { sizeof(mp_quant_desc), 0, 0, 0, 0.0, 0, 0 }

/* What happened to elements when they were quantized. */
typedef struct mp_quant_stats {
    uint32_t struct_size; /* sizeof(mp_quant_stats) */
    uint32_t flags;       /* 0 */
    int64_t elements;
    int64_t saturated;   /* finite, beyond the largest code: became that code */
    int64_t underflowed; /* not zero, became the code of zero */
    int64_t non_finite;  /* infinity or NaN: coded as NaN where the type has no infinity */
    double amax;         /* largest |x|; NaN beats infinity beats numbers */
} mp_quant_stats;

#define MP_QUANT_STATS_INIT                                                                        \
    { sizeof(mp_quant_stats), 0, 0, 0, 0, 0, 0.0 }

MP_BEGIN_DECLS

/** Fills a struct with its defaults: the function twin of MP_QUANT_STATS_INIT.
 * @param[out] desc  the struct
 * @param[in]  size  sizeof(mp_quant_stats) as the caller knows it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_quant_stats_init(mp_quant_stats* desc, size_t size);

/** Fills a descriptor with the defaults: the function twin of MP_QUANT_DESC_INIT.
 * @param[out] desc  the descriptor
 * @param[in]  size  sizeof(mp_quant_desc) as the caller knows it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_quant_desc_init(mp_quant_desc* desc, size_t size);

/** Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
 * @param[in]  context  the context
 * @param[in]  desc     shape and code type: MP_DTYPE_FP8_E4M3 or _E5M2; _FP16 with MP_SCALE_RULE_MSAMP;
 *                      _FP4_E2M1 with MP_SCALING_NVFP4
 * @param[in]  quant    scaling and rule; NULL: one scale for the tensor
 * @param[out] out      the new tensor
 * @returns as mp_tensor_create; MP_STATUS_INVALID_ARGUMENT and MP_STATUS_INVALID_DTYPE for parts that do
 *          not belong together
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_tensor_create_quantized(mp_context* context, const mp_tensor_desc* desc,
                                            const mp_quant_desc* quant,
                                            mp_tensor** out) MP_MUST_CHECK;

/** How a tensor is quantized.
 * @param[in]     tensor  a quantized tensor
 * @param[in,out] desc    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW;
 *          MP_STATUS_INVALID_ARGUMENT for a tensor without scales
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_tensor_get_quant_desc(const mp_tensor* tensor, mp_quant_desc* desc);

/** The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
 * fp8_e4m3. The handle shares their memory, which changes with every quantization.
 * @param[in]  tensor  a quantized tensor
 * @param[out] out     a new handle on its scales
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT for a
 *          tensor without scales
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_tensor_get_scales(const mp_tensor* tensor, mp_tensor** out) MP_MUST_CHECK;

/** The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
 * the tensor's memory.
 * @param[in]  tensor  a quantized tensor
 * @param[out] out     a new handle on the amax
 * @returns as mp_tensor_get_scales
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_tensor_get_quantized_amax(const mp_tensor* tensor,
                                              mp_tensor** out) MP_MUST_CHECK;

/** Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
 * Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
 * exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
 * The scale of a block never is infinite or negative, whatever its elements are.
 * @param[in]  source       fp32, fp16 or bf16
 * @param[in]  queue        NULL: the default queue
 * @param[in]  destination  quantized; the shape of source, no overlap with it
 * @param[in]  transposed   NULL, or a tensor of destination's code type and of [columns, rows]: receives the
 *                          same codes turned, in the same pass
 * @param[out] stats        NULL, or struct_size set by the caller: receives what happened; then the call blocks
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_ARGUMENT (not quantized, overlap, device);
 *          MP_STATUS_UNSUPPORTED with all reasons; vendor codes
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_tensor_quantize(const mp_tensor* source, mp_queue* queue,
                                    mp_tensor* destination, mp_tensor* transposed,
                                    mp_quant_stats* stats);

/** destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
 * @param[in] source       quantized
 * @param[in] queue        NULL: the default queue
 * @param[in] destination  fp32, fp16 or bf16; the shape of source, no overlap with it
 * @returns as mp_tensor_quantize
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_tensor_dequantize(const mp_tensor* source, mp_queue* queue,
                                      mp_tensor* destination);

MP_END_DECLS

#endif /* MIXEDPREC_QUANT_H */
