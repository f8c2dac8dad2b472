/* SPDX-License-Identifier: Apache-2.0
 * Casts and quantizers on the caller's memory; tensor.h and quant.h have them on tensors. value = code * scale_inv: what is
 * stored beside codes is always the factor that turns them into values. */
#ifndef MIXEDPREC_CONVERT_H
#define MIXEDPREC_CONVERT_H

#include "status.h"

/* mp_cast_desc.flags: overflow and infinity become the largest finite value. fp8 targets saturate unless
 * MP_CAST_NO_SATURATE is set; fp16 and bf16 overflow to infinity unless MP_CAST_SATURATE is set. In fp32 nothing overflows, and
 * an infinity stays one under either flag. */
#define MP_CAST_SATURATE 1u
#define MP_CAST_NO_SATURATE 2u /* fp8: overflow becomes infinity, or NaN in E4M3 */

typedef struct mp_cast_desc {
    uint32_t struct_size; /* sizeof(mp_cast_desc) */
    uint32_t flags;       /* MP_CAST_* */
    int32_t rounding;     /* MP_ROUND_* */
    int32_t microbatch; /* stochastic rounding: which micro-batch of the step this is, 0 to 65535 */
    uint64_t seed;      /* stochastic rounding: the run's seed */
    uint64_t uid;       /* stochastic rounding: which tensor this is */
    uint64_t step;      /* stochastic rounding: which step this is, below 2^48 */
} mp_cast_desc;

#define MP_CAST_DESC_INIT                                                                          \
    { sizeof(mp_cast_desc), 0, 0, 0, 0, 0, 0 }

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
    /* One element in the device's memory that stands for source's amax where the one scale of MP_SCALING_TENSOR is chosen, or
     * what the scales of MP_SCALING_NVFP4 are relative to; elements beyond it saturate. Its sign is ignored. It lies in no other
     * argument of the call. NULL: the amax is found, in a pass of its own. */
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

MP_BEGIN_DECLS

/** mp_tensor_cast straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it returns.
 * @param[in]  context            the context whose device the memory is on
 * @param[in]  queue              NULL: the default queue
 * @param[in]  source             read; `count` elements
 * @param[in]  source_dtype       MP_DTYPE_FP32, _FP16, _BF16, _FP8_E4M3 or _FP8_E5M2
 * @param[out] destination        written; no overlap with source
 * @param[in]  destination_dtype  likewise
 * @param[in]  count              elements, >= 0
 * @param[in]  desc               NULL: round to nearest even, fp8 saturating
 * @returns as mp_tensor_cast; MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_SHAPE (count); MP_STATUS_INVALID_ARGUMENT also for
 *          memory that is not aligned to its elements, or overlaps
 * @threads A, as long as no two calls share memory
 * @since 0.2 */
MP_API mp_status mp_tensor_cast_pointers(mp_context* context, mp_queue* queue, const void* source,
                                         int32_t source_dtype, void* destination,
                                         int32_t destination_dtype, int64_t count,
                                         const mp_cast_desc* desc);

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

MP_END_DECLS

#endif /* MIXEDPREC_CONVERT_H */
