/* SPDX-License-Identifier: Apache-2.0
 * mp_gemm: a planned matrix product, D = epilogue(alpha * op(A) * op(B) + beta * C + bias).
 *
 * Row-major. op(A) is m x k, op(B) is k x n, C and D are m x n; with MP_GEMM_TRANS_A, A is stored k x m;
 * with MP_GEMM_TRANS_B, B is stored n x k. Products are exact and sums are fp32, whatever the inputs; one
 * rounding (to nearest even) into D. The order of the sums is the implementation's: bits are repeatable
 * for one implementation, thread count and shape, not equal across implementations. An implementation on
 * the processor's bf16 dot instruction takes subnormal operands, products and sums as zero.
 *
 * A and B may be fp8 codes (also one E4M3, one E5M2), or fp16 codes, with scales: then a value is
 * code * scale, where scale is the factor that dequantizes (often called scale_inv). A scale belongs to a
 * block of the operand as stored; scale_a_rows x scale_a_columns 0 x 0 is one for the tensor, 1 x 0 one for
 * each row, 1 x 128 or 128 x 128 DeepSeek's, 1 x 32 with e8m0 that of MX. Scales are dense and row-major,
 * blocks at the lower and right edge are cut. Where no scale changes along k, op(A) op(B) is
 * (sum * scale_a) * scale_b; otherwise that is done for each block of k, in fp32, and the results are added in
 * fp32, block after block. fp8 codes without scales are their values.
 *
 * Or B alone is codes, of fp8 or fp4 with scales (fp32, e8m0, or NVFP4's 1 x 16 of fp8_e4m3), or in blocks
 * (MP_DTYPE_Q4_0 and so on): op(B) is what mp_tensor_dequantize makes of it in A's type. A slab of B is decoded at a time, 4 MiB
 * or 256 columns of op(B), in the queue's scratch memory. B is one matrix, its rows without padding and of whole blocks.
 *
 * D may be fp8: its codes are round(d * multiply_d), d being what an fp32 D would get, with finite d
 * saturating; infinity and NaN come out as what the type has for them (a vendor's library may saturate
 * infinity too, as cuBLASLt does; amax_d shows it).
 *
 * Or D is a quantized tensor (mp_gemm_desc.quant_d): codes, scales and amax are those that mp_tensor_quantize makes of an fp32 D,
 * which waits in 4 m n bytes of the queue's scratch memory.
 *
 * On CUDA some products are less exact than that, within the bounds of docs/numerics.md ("Matrix products"): those with a
 * bias of another type than D, those of scaled operands that are dequantized to bf16 first, and those of fp8 on Hopper. */
#ifndef MIXEDPREC_GEMM_H
#define MIXEDPREC_GEMM_H

#include "convert.h"

/* mp_gemm_desc.flags */
#define MP_GEMM_TRANS_A 1u    /* A is stored k x m */
#define MP_GEMM_TRANS_B 2u    /* B is stored n x k */
#define MP_GEMM_BIAS 4u       /* add a vector of n elements to every row */
#define MP_GEMM_GELU 8u       /* 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), after the bias */
#define MP_GEMM_HAS_ALPHA 16u /* alpha counts; otherwise alpha is 1 */
/* All scales are powers of two (e8m0 ones always are), which may be applied to the codes. */
#define MP_GEMM_POWER_OF_TWO_SCALES 32u
/* fp8 operands: the device may sum with fewer bits than fp32 has, where that is faster. The host never does. */
#define MP_GEMM_FAST_ACCUMULATION 64u

typedef struct mp_gemm_desc {
    uint32_t struct_size;   /* sizeof(mp_gemm_desc) */
    uint32_t flags;         /* MP_GEMM_* */
    int64_t m;              /* rows of D, >= 0 */
    int64_t n;              /* columns of D, >= 0 */
    int64_t k;              /* length of the sums, >= 0; 0 gives epilogue(beta * C + bias) */
    int64_t lda;            /* elements from row to row of A as stored; 0: its number of columns */
    int64_t ldb;            /* of B */
    int64_t ldc;            /* of C */
    int64_t ldd;            /* of D */
    int64_t batch_count;    /* 0: one product */
    int64_t batch_stride_a; /* elements from matrix to matrix; 0: dense, one after another */
    int64_t batch_stride_b; /* of B, likewise */
    int64_t batch_stride_c; /* of C, likewise */
    int64_t batch_stride_d; /* of D, likewise */
    double alpha;    /* with MP_GEMM_HAS_ALPHA; 0 too multiplies sums: NaN in A or B gives NaN */
    double beta;     /* 0: C is not read */
    int32_t dtype_a; /* fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2; required */
    int32_t
        dtype_b; /* the same as dtype_a; or the other fp8 type; or any codes, where A is no fp8 */
    int32_t dtype_c;    /* default: dtype_d; must equal it */
    int32_t dtype_d;    /* as dtype_a, fp8 only with beta 0; of codes with quant_d; default: fp32 */
    int32_t dtype_bias; /* fp32, fp16 or bf16; default: fp32 */
    int32_t reserved;   /* 0 */
    /* Scales: blocks need batch_count 1 and lda (ldb) without padding; extents along k divide each other. */
    int32_t scale_a_dtype;   /* fp32 or e8m0; default: A has no scales */
    int32_t scale_a_rows;    /* of a block of A as stored; 0: all */
    int32_t scale_a_columns; /* likewise */
    int32_t scale_b_dtype;   /* fp32 or e8m0; default: B has no scales */
    int32_t scale_b_rows;    /* of a block of B as stored; 0: all */
    int32_t scale_b_columns; /* likewise */
    /* NULL: the first that takes the product. Otherwise no other than the one of this name, also where it would be passed
     * over as slow; mp_context_describe lists the names. Read while mp_gemm_create runs. */
    const char* implementation;
    /* NULL: D is numbers, or fp8 codes under multiply_d. Else D is a quantized tensor, made of dtype_d with this: m x n, with
     * beta 0, batch_count 1 and no padding. Read while mp_gemm_create runs. */
    const mp_quant_desc* quant_d;
} mp_gemm_desc;

#define MP_GEMM_DESC_INIT                                                                          \
    {                                                                                              \
        sizeof(mp_gemm_desc), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0,   \
            0, 0, 0, 0, 0, 0, NULL, NULL                                                           \
    }

/* What one run works on. Tensors as for mp_gemm_run; those that the plan does not need are NULL. */
typedef struct mp_gemm_args {
    uint32_t struct_size;        /* sizeof(mp_gemm_args) */
    uint32_t reserved;           /* 0 */
    const mp_tensor* a;          /* required */
    const mp_tensor* b;          /* required */
    const mp_tensor* bias;       /* with MP_GEMM_BIAS */
    const mp_tensor* c;          /* when beta is not 0 */
    mp_tensor* d;                /* required */
    const mp_tensor* scale_a;    /* of scale_a_dtype; NULL: those of a quantized a */
    const mp_tensor* scale_b;    /* likewise */
    const mp_tensor* multiply_d; /* fp8 D without quant_d: fp32, one element; NULL: 1 */
    mp_tensor* amax_d;           /* likewise; becomes the maximum of itself and of |d|; or NULL */
} mp_gemm_args;

#define MP_GEMM_ARGS_INIT                                                                          \
    { sizeof(mp_gemm_args), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

MP_BEGIN_DECLS

/* ---- The simple way: a product that is planned once and run many times */

/** Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
 * @param[in]  context  the context
 * @param[in]  desc     the product
 * @param[out] out      the plan
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_UNSUPPORTED with every candidate's reason;
 *          MP_STATUS_UNKNOWN_NAME of an implementation; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_gemm_create(mp_context* context, const mp_gemm_desc* desc,
                                mp_gemm** out) MP_MUST_CHECK;

/** Computes the product. Enqueues.
 * @param[in] gemm   the plan
 * @param[in] queue  NULL: the default queue
 * @param[in] a      holds at least the elements the plan reads, in the plan's dtype and device
 * @param[in] b      likewise
 * @param[in] bias   n elements; NULL exactly when the plan has no bias
 * @param[in] c      read when beta is not 0 (NULL otherwise); may be d itself
 * @param[in] d      written; overlaps a, b and bias nowhere; quantized exactly when the plan has quant_d
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device, overlap); vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_gemm_run(mp_gemm* gemm, mp_queue* queue, const mp_tensor* a, const mp_tensor* b,
                             const mp_tensor* bias, const mp_tensor* c, mp_tensor* d);

/** Gives the caller's reference back.
 * @param[in] gemm  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_gemm_destroy(mp_gemm* gemm);

/* ---- The explicit way: operands with scales, results with a factor and an amax */

/** Computes the product, of scaled operands too. Enqueues.
 * @param[in] gemm   the plan
 * @param[in] queue  NULL: the default queue
 * @param[in] args   the operands; amax_d overlaps no other
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device, overlap, scales that the plan does not have);
 *          MP_STATUS_STRUCT_TOO_NEW; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_gemm_run_scaled(mp_gemm* gemm, mp_queue* queue, const mp_gemm_args* args);

/* ---- Everything else: what was chosen */

/** What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
 * @param[in]  gemm      the plan
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_gemm_describe(const mp_gemm* gemm, char* buffer, size_t capacity,
                                  size_t* needed);

MP_END_DECLS

#endif /* MIXEDPREC_GEMM_H */
