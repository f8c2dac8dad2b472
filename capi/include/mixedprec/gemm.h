/* SPDX-License-Identifier: Apache-2.0
 * mp_gemm: a planned matrix product, D = epilogue(alpha * op(A) * op(B) + beta * C + bias).
 *
 * Row-major. op(A) is m x k, op(B) is k x n, C and D are m x n; with MP_GEMM_TRANS_A, A is stored k x m;
 * with MP_GEMM_TRANS_B, B is stored n x k. Products are exact and sums are fp32, whatever the inputs; one
 * rounding (to nearest even) into D. The order of the sums is the implementation's: bits are repeatable
 * for one implementation, thread count and shape, not equal across implementations. An implementation on
 * the processor's bf16 dot instruction takes subnormal operands, products and sums as zero. */
#ifndef MIXEDPREC_GEMM_H
#define MIXEDPREC_GEMM_H

#include "status.h"

/* mp_gemm_desc.flags */
#define MP_GEMM_TRANS_A 1u
#define MP_GEMM_TRANS_B 2u
#define MP_GEMM_BIAS 4u       /* add a vector of n elements to every row */
#define MP_GEMM_GELU 8u       /* 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), after the bias */
#define MP_GEMM_HAS_ALPHA 16u /* alpha counts; otherwise alpha is 1 */

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
    int64_t batch_stride_b;
    int64_t batch_stride_c;
    int64_t batch_stride_d;
    double alpha;       /* with MP_GEMM_HAS_ALPHA */
    double beta;        /* 0: C is not read */
    int32_t dtype_a;    /* fp32, fp16 or bf16; required */
    int32_t dtype_b;    /* the same as dtype_a */
    int32_t dtype_c;    /* default: dtype_d; must equal it */
    int32_t dtype_d;    /* fp32, fp16 or bf16; default: fp32 */
    int32_t dtype_bias; /* fp32, fp16 or bf16; default: fp32 */
    int32_t reserved;   /* 0 */
} mp_gemm_desc;

#define MP_GEMM_DESC_INIT                                                                          \
    { sizeof(mp_gemm_desc), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0 }

MP_BEGIN_DECLS

/** Fills a descriptor with the defaults: the function twin of MP_GEMM_DESC_INIT.
 * @param[out] desc  the descriptor
 * @param[in]  size  sizeof(mp_gemm_desc) as the caller knows it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_gemm_desc_init(mp_gemm_desc* desc, size_t size);

/** Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
 * @param[in]  context  the context
 * @param[in]  desc     the product
 * @param[out] out      the plan
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_UNSUPPORTED with every candidate's reason;
 *          MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_gemm_create(mp_context* context, const mp_gemm_desc* desc,
                                mp_gemm** out) MP_MUST_CHECK;

/** Computes the product. Enqueues.
 * @param[in] gemm   the plan
 * @param[in] queue  NULL: the default queue
 * @param[in] a      holds at least the elements the plan reads, in the plan's dtype and device
 * @param[in] b      likewise
 * @param[in] bias   n elements; NULL exactly when the plan has no bias
 * @param[in] c      read when beta is not 0 (NULL otherwise); may be d itself
 * @param[in] d      written; overlaps a, b and bias nowhere
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device, overlap); vendor codes
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_gemm_run(mp_gemm* gemm, mp_queue* queue, const mp_tensor* a, const mp_tensor* b,
                             const mp_tensor* bias, const mp_tensor* c, mp_tensor* d);

/** What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
 * @param[in]  gemm      the plan
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.1 */
MP_API mp_status mp_gemm_describe(const mp_gemm* gemm, char* buffer, size_t capacity,
                                  size_t* needed);

/** Gives the caller's reference back.
 * @param[in] gemm  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.1 */
MP_API void mp_gemm_destroy(mp_gemm* gemm);

MP_END_DECLS

#endif /* MIXEDPREC_GEMM_H */
