/* SPDX-License-Identifier: Apache-2.0
 * Times casts and matrix products, when asked: the same half of compare_steps.py for these operations
 * (--program compare_ops.c). It uses what versions since f8a71ef have. */
#include "compare.h"

typedef struct Row {
    const char* name;
    int32_t from;    /* of casts; of products: of both operands */
    int32_t to;      /* of casts; of products: of the result */
    int64_t m, n, k; /* k 0: a cast of m elements */
    uint32_t flags;  /* of products; of casts: 1: stochastic */
    mp_tensor* a;
    mp_tensor* b;
    mp_tensor* d;
    mp_gemm* gemm;
} Row;

#define CASTS(count, size)                                                                          \
    {"cast fp32 to bf16, " size, MP_DTYPE_FP32, MP_DTYPE_BF16, count, 0, 0, 0, 0, 0, 0, 0},         \
        {"cast bf16 to fp32, " size, MP_DTYPE_BF16, MP_DTYPE_FP32, count, 0, 0, 0, 0, 0, 0, 0},     \
        {"cast fp32 to fp16, " size, MP_DTYPE_FP32, MP_DTYPE_FP16, count, 0, 0, 0, 0, 0, 0, 0},     \
        {"cast fp32 to e4m3, " size, MP_DTYPE_FP32, MP_DTYPE_FP8_E4M3, count, 0, 0, 0, 0, 0, 0, 0}, \
        {"cast e4m3 to fp32, " size, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP32, count, 0, 0, 0, 0, 0, 0, 0}, \
    {                                                                                               \
        "cast fp32 to bf16 SR, " size, MP_DTYPE_FP32, MP_DTYPE_BF16, count, 0, 0, 1, 0, 0, 0, 0     \
    }
#define PRODUCTS(m, n, k, flags, size)                                                             \
    {"fp32 product, " size, MP_DTYPE_FP32, MP_DTYPE_FP32, m, n, k, flags, 0, 0, 0, 0},             \
        {"bf16 product, " size, MP_DTYPE_BF16, MP_DTYPE_BF16, m, n, k, flags, 0, 0, 0, 0}, {       \
        "bf16 product into fp32, " size, MP_DTYPE_BF16, MP_DTYPE_FP32, m, n, k, flags, 0, 0, 0, 0  \
    }

static Row rows[] = {
    CASTS(1 << 14, "16 Ki elements"),
    CASTS(1 << 22, "4 Mi elements"),
    PRODUCTS(512, 512, 512, 0, "512 x 512 x 512"),
    PRODUCTS(1024, 768, 768, MP_GEMM_TRANS_B, "1024 x 768 x 768, B transposed"),
    PRODUCTS(768, 3072, 1024, MP_GEMM_TRANS_A, "768 x 3072 x 1024, A transposed"),
};

static void prepare(mp_context* context, int index) {
    Row* row = &rows[index];
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    const int trans_a = (row->flags & MP_GEMM_TRANS_A) != 0;
    const int trans_b = (row->flags & MP_GEMM_TRANS_B) != 0;
    if (row->k == 0) {
        row->a = make(context, row->from, 1, row->m);
        row->d = make(context, row->to, 1, row->m);
        return;
    }
    row->a = make(context, row->from, trans_a ? row->k : row->m, trans_a ? row->m : row->k);
    row->b = make(context, row->from, trans_b ? row->n : row->k, trans_b ? row->k : row->n);
    row->d = make(context, row->to, row->m, row->n);
    desc.flags = row->flags;
    desc.m = row->m;
    desc.n = row->n;
    desc.k = row->k;
    desc.dtype_a = desc.dtype_b = row->from;
    desc.dtype_d = row->to;
    check(mp_gemm_create(context, &desc, &row->gemm), "mp_gemm_create");
}

static void run(mp_context* context, int index) {
    const Row* row = &rows[index];
    (void)context;
    if (row->k == 0) {
        mp_cast_desc desc = MP_CAST_DESC_INIT;
        desc.rounding = row->flags != 0 ? MP_ROUND_STOCHASTIC : MP_ROUND_NEAREST;
        check(CAST(row->a, row->d, &desc), row->name);
    } else {
        check(mp_gemm_run(row->gemm, NULL, row->a, row->b, NULL, NULL, row->d), row->name);
    }
}

static void print_name(int row) { fputs(rows[row].name, stdout); }

int main(int argc, char** argv) {
    const Program program = {(int)(sizeof rows / sizeof *rows), print_name, prepare, run};
    return serve(&program, argc, argv);
}
