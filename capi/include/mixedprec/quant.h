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
#define MP_SCALE_RULE_MX_CEIL 7  /* its exponent is ceil(log2 amax) - floor(log2 max) */
#define MP_SCALE_RULE_MX_EVEN 8  /* as MX_FLOOR; amax rounded, halves up, to a code's mantissa */
#define MP_SCALE_RULE_NVFP4 9    /* amax / max under the scale of the tensor, rounded to fp8_e4m3 */

/* mp_quant_desc.flags */
#define MP_QUANT_POWER_OF_TWO                                                                      \
    1u /* scales are rounded to powers of two, so that nothing saturates */

typedef struct mp_quant_desc {
    uint32_t struct_size; /* sizeof(mp_quant_desc) */
    uint32_t flags;       /* MP_QUANT_* */
    int32_t scaling;      /* MP_SCALING_* */
    int32_t rule;         /* MP_SCALE_RULE_* */
    double amax_epsilon;  /* an amax below this counts as this; 0: none */
    int32_t margin;       /* the largest code is taken for 2^-margin of itself; 0..20, nvfp4: 0 */
    int32_t reserved;     /* 0 */
} mp_quant_desc;

#define MP_QUANT_DESC_INIT                                                                         \
    { sizeof(mp_quant_desc), 0, 0, 0, 0.0, 0, 0 }

/* mp_quantize_args.flags */
/* With amax_pointer: fail with MP_STATUS_BAD_STATE where nobody has written an amax since the call before took it. The call
 * leaves -1 there, which no amax is. For finding mistakes: it makes the call block. */
#define MP_QUANTIZE_CHECK_AMAX 1u

/** How to quantize, beyond what the destination says. */
typedef struct mp_quantize_args {
    uint32_t struct_size; /* sizeof(mp_quantize_args) */
    uint32_t flags;       /* MP_QUANTIZE_* */
    int32_t rounding;     /* MP_ROUND_* */
    int32_t microbatch;   /* this and the next three as in mp_cast_desc */
    uint64_t seed;        /* stochastic rounding: the run's seed */
    uint64_t uid;         /* stochastic rounding: which tensor this is */
    uint64_t step;        /* stochastic rounding: which step this is, below 2^48 */
    int64_t
        first_element; /* stochastic rounding: where source's element 0 lies in the whole tensor */
    /* One element in the device's memory that stands for source's amax where the one scale of MP_SCALING_TENSOR is chosen;
     * elements beyond it saturate. Its sign is ignored. It lies in no other argument of the
     * call. NULL: the amax is found, in a pass of its own. */
    float* amax_pointer;
} mp_quantize_args;

#define MP_QUANTIZE_ARGS_INIT                                                                      \
    { sizeof(mp_quantize_args), 0, 0, 0, 0, 0, 0, 0, NULL }

/** A quantized matrix in the caller's memory. */
typedef struct mp_quantized_memory {
    uint32_t struct_size; /* sizeof(mp_quantized_memory) */
    int32_t dtype;        /* of the codes, as in mp_tensor_create_quantized */
    int64_t rows;         /* of the matrix, >= 0 */
    int64_t columns;      /* of the matrix, >= 0 */
    void* codes;          /* rows x columns */
    void* transposed;     /* columns x rows: receives the same codes turned; NULL: not wanted */
    void*
        scale_inv; /* as many as mp_tensor_get_scale_grid says, in its type, aligned to 16 bytes */
    float* amax;   /* receives the largest |x|; NULL: not wanted. NVFP4 needs it */
} mp_quantized_memory;

#define MP_QUANTIZED_MEMORY_INIT                                                                   \
    { sizeof(mp_quantized_memory), 0, 0, 0, NULL, NULL, NULL, NULL }

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

/** destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
 * @param[in] source       quantized
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

/** How many scales a matrix has.
 * @param[in]  quant         NULL: one for the tensor
 * @param[in]  rows          of the matrix, >= 0
 * @param[in]  columns       of the matrix, >= 0
 * @param[out] grid_rows     rows of blocks
 * @param[out] grid_columns  columns of blocks; the scales lie row after row
 * @param[out] dtype         MP_DTYPE_* of a scale
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_INVALID_SHAPE; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_tensor_get_scale_grid(const mp_quant_desc* quant, int64_t rows, int64_t columns,
                                          int64_t* grid_rows, int64_t* grid_columns,
                                          int32_t* dtype);

/** Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of memory
 * holds for all three pieces.
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

/** mp_tensor_quantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
 * returns.
 * @param[in]  context       the context whose device the memory is on
 * @param[in]  queue         NULL: the default queue
 * @param[in]  source        rows x columns, row-major
 * @param[in]  source_dtype  MP_DTYPE_FP32, _FP16 or _BF16
 * @param[in]  quant         NULL: one scale for the matrix
 * @param[in]  destination   where codes and scales go; no overlap with source or of one another
 * @param[in]  args          NULL: rounded to nearest, by source's own amax
 * @returns as mp_tensor_quantize; MP_STATUS_INVALID_ARGUMENT also for alignment
 * @threads A, as long as no two calls share memory
 * @since 0.2 */
MP_API mp_status mp_tensor_quantize_pointers(mp_context* context, mp_queue* queue,
                                             const void* source, int32_t source_dtype,
                                             const mp_quant_desc* quant,
                                             const mp_quantized_memory* destination,
                                             const mp_quantize_args* args);

/** mp_tensor_dequantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
 * returns.
 * @param[in]  context            the context whose device the memory is on
 * @param[in]  queue              NULL: the default queue
 * @param[in]  source             codes, scale_inv and, under NVFP4, amax; transposed is NULL
 * @param[in]  quant              NULL: one scale for the matrix
 * @param[out] destination        rows x columns; no overlap with source
 * @param[in]  destination_dtype  MP_DTYPE_FP32, _FP16 or _BF16
 * @returns as mp_tensor_quantize_pointers
 * @threads A, as long as no two calls share memory
 * @since 0.2 */
MP_API mp_status mp_tensor_dequantize_pointers(mp_context* context, mp_queue* queue,
                                               const mp_quantized_memory* source,
                                               const mp_quant_desc* quant, void* destination,
                                               int32_t destination_dtype);

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
