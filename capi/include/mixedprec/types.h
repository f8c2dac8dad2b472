/* SPDX-License-Identifier: Apache-2.0
 * Constants and opaque types shared by all headers. Numbers never move and are never reused. */
#ifndef MIXEDPREC_TYPES_H
#define MIXEDPREC_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "export.h"

/* Element types. 0 means "default" or "none", whichever the field says. */
#define MP_DTYPE_NONE 0     /* none, or the default */
#define MP_DTYPE_FP32 1     /* IEEE binary32 */
#define MP_DTYPE_FP16 2     /* IEEE binary16: 5 exponent bits, max 65504 */
#define MP_DTYPE_BF16 3     /* 8 exponent bits, 7 mantissa bits */
#define MP_DTYPE_FP8_E4M3 4 /* "fn": max 448, NaN 0x7f/0xff, no infinity */
#define MP_DTYPE_FP8_E5M2 5 /* max 57344, has infinities */
#define MP_DTYPE_E8M0 6     /* power-of-two scale byte, 2^(b-127), 0xff is NaN */
#define MP_DTYPE_INT8 7     /* two's complement, 1 byte */
#define MP_DTYPE_INT16 8    /* two's complement, 2 bytes */
#define MP_DTYPE_INT32 9    /* two's complement, 4 bytes */
#define MP_DTYPE_INT64 10   /* two's complement, 8 bytes */
#define MP_DTYPE_UINT8 11   /* unsigned, 1 byte */
#define MP_DTYPE_FP4_E2M1                                                                          \
    12 /* max 6, no NaN; two to a byte, the first one low; only in quantized tensors */
/* Codes in blocks of a row, each with its scales inside, as ggml's files have them: in model files, and in tensors that are
 * frozen weights (linear.h) or B of a product (gemm.h). mp_tensor_dequantize makes numbers of them; nothing makes codes of
 * numbers. A block is 32 elements, of the types with a K 256; the last sizes of shapes are multiples of that. */
#define MP_DTYPE_Q4_0 13        /* d * (code - 8), d fp16: 18 bytes a block */
#define MP_DTYPE_Q4_1 14        /* d * code + m, d and m fp16: 20 bytes */
#define MP_DTYPE_Q5_0 15        /* d * (code - 16): 22 bytes */
#define MP_DTYPE_Q5_1 16        /* d * code + m: 24 bytes */
#define MP_DTYPE_Q8_0 17        /* d * code, code int8: 34 bytes */
#define MP_DTYPE_Q4_K 18        /* d * s * code - m * t for each 32, s and t of 6 bits: 144 bytes */
#define MP_DTYPE_Q5_K 19        /* the same with codes of 5 bits: 176 bytes */
#define MP_DTYPE_Q6_K 20        /* d * s * (code - 32) for each 16, s int8: 210 bytes */
#define MP_DTYPE_MXFP4_BLOCK 21 /* E2M1 codes under an E8M0 scale: 17 bytes */

/* Kinds of device. 0 means "the context's device". */
#define MP_DEVICE_DEFAULT 0
#define MP_DEVICE_HOST 1 /* the processor and its memory */
#define MP_DEVICE_CUDA 2 /* NVIDIA's GPUs, by the module libmixedprec-cuda.so */
#define MP_DEVICE_HIP 3  /* AMD: its module is compiled and linked, and has never run on a GPU */

/* Rounding of a conversion to a narrower type. 0 means round to nearest, ties to even. */
#define MP_ROUND_NEAREST 0
#define MP_ROUND_STOCHASTIC 1 /* up or down by chance, right on average */

/* Most dimensions a tensor can have. */
#define MP_MAX_DIMS 8

/* Opaque handles, always used through pointers. */
typedef struct mp_context mp_context;
typedef struct mp_queue mp_queue;
typedef struct mp_event mp_event;
typedef struct mp_tensor mp_tensor;
typedef struct mp_recipe mp_recipe;
typedef struct mp_gemm mp_gemm;
typedef struct mp_linear mp_linear;
typedef struct mp_saved mp_saved;
typedef struct mp_adapter mp_adapter;
typedef struct mp_scaler mp_scaler;
typedef struct mp_step_plan mp_step_plan;
typedef struct mp_optimizer mp_optimizer;
typedef struct mp_checkpoint mp_checkpoint;
typedef struct mp_model_file mp_model_file;
typedef struct mp_model_writer mp_model_writer;
typedef struct mp_comm mp_comm;
typedef struct mp_comm_request mp_comm_request;

MP_BEGIN_DECLS

/** Name of an element type as recipes and messages spell it ("bf16", "fp8_e4m3", ...).
 * @param[in] dtype  one of MP_DTYPE_*
 * @returns a static string; "unknown" for any other number
 * @threads A
 * @since 0.2 */
MP_API const char* mp_dtype_name(int32_t dtype);

/** The inverse of mp_dtype_name.
 * @param[in] name  "fp32", "bf16", "fp8_e4m3" and the like; may be NULL
 * @returns one of MP_DTYPE_*; MP_DTYPE_NONE for any other text
 * @threads A
 * @since 0.2 */
MP_API int32_t mp_dtype_from_name(const char* name);

/** Bytes of one element.
 * @param[in] dtype  one of MP_DTYPE_*
 * @returns the size in bytes; 0 for types of less than a byte, for those of blocks, for MP_DTYPE_NONE and for any other number
 * @threads A
 * @since 0.2 */
MP_API size_t mp_dtype_size(int32_t dtype);

/** Bytes of an array, of any type: what a tensor of so many elements takes, without the scales of one that is quantized.
 * @param[in] dtype  one of MP_DTYPE_*
 * @param[in] count  elements, at most 2^55; of types of blocks whole blocks
 * @returns the size in bytes; 0 for parts of blocks, for a count below 0 or above 2^55, and for any other dtype
 * @threads A
 * @since 0.2 */
MP_API size_t mp_dtype_bytes(int32_t dtype, int64_t count);

MP_END_DECLS

#endif /* MIXEDPREC_TYPES_H */
