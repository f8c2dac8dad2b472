/* SPDX-License-Identifier: Apache-2.0
 * Matrix products. The order of their sums is the implementation's, so they are written as numbers, each with the distance
 * that it may have from the exact result: tests/gemm_bound.hpp says why. */
#include "products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How large a number may be when it is multiplied: fp8_e5m2 rounds by an eighth at most, and its subnormals, and those of
 * fp8_e4m3 under a scale of at most 1, by less than 2^-10. */
static double magnitude(const View* view, int64_t row, int64_t column) {
    const double value = fabs((double)view->at[row * view->row + column * view->column]);
    return view->is_rounded ? 1.125 * value + 0x1p-10 : value;
}

static void write_hex(const void* bytes, size_t count) {
    static const char kDigits[] = "0123456789abcdef";
    const unsigned char* at = bytes;
    size_t i = 0;
    for (i = 0; i < count; ++i) {
        putchar(kDigits[at[i] >> 4]);
        putchar(kDigits[at[i] & 15]);
    }
    putchar('\n');
}

static double bound_of(const Product* p, int64_t row, int64_t column) {
    const double unit = 0x1p-24;
    const int64_t scales = (p->k + 31) / 32; /* of 32 elements each */
    const double steps = (double)(p->k + 2 + scales);
    double sum = 0.0;
    double terms = 0.0;
    double bound = 0.0;
    int64_t l = 0;
    for (l = 0; l < p->k; ++l) {
        sum += magnitude(&p->a, row, l) * magnitude(&p->b, l, column);
    }
    terms = p->times * sum + p->added;
    bound = steps * unit * p->times * sum + 4.0 * unit * terms;
    return p->is_gelu ? 1.13 * bound + 4.0 * unit * terms : bound;
}

static void write_bounds(const Product* p) {
    int64_t i = 0;
    int64_t j = 0;
    double* bounds = malloc((size_t)(p->m * p->n) * sizeof(double));
    if (bounds == NULL) {
        abort();
    }
    for (i = 0; i < p->m; ++i) {
        for (j = 0; j < p->n; ++j) {
            bounds[i * p->n + j] = bound_of(p, i, j);
        }
    }
    printf("bounds %s ", p->name);
    write_hex(bounds, (size_t)(p->m * p->n) * sizeof(double));
    free(bounds);
}

void write_product(Bits* bits, const Product* p, const mp_tensor* result) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* wide = NULL;
    if (!bits->with_products) {
        return;
    }
    OK(mp_tensor_get_desc(result, &desc));
    wide = make(bits, MP_DTYPE_FP32, p->m, p->n);
    OK(mp_tensor_cast(result, NULL, wide, NULL));
    printf("product %s %s ", p->name, mp_dtype_name(desc.dtype));
    write_hex(data_of(wide), bytes_of(wide));
    mp_tensor_destroy(wide);
    if (bits->with_bounds) {
        write_bounds(p);
    }
}

/* The numbers of a tensor in fp32, in a tensor of the caller's to destroy. */
static mp_tensor* widened(Bits* bits, const mp_tensor* tensor) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    mp_tensor* wide = NULL;
    OK(mp_tensor_get_desc(tensor, &desc));
    wide = make(bits, MP_DTYPE_FP32, desc.shape[0], desc.shape[1]);
    if (mp_tensor_get_quant_desc(tensor, &quant) >= 0) {
        OK(mp_tensor_dequantize(tensor, NULL, wide));
    } else {
        OK(mp_tensor_cast(tensor, NULL, wide, NULL));
    }
    return wide;
}

static void note_choice(const char* name, const mp_gemm* gemm) {
    char text[4096];
    OK(mp_gemm_describe(gemm, text, sizeof text, NULL));
    text[strcspn(text, "\n")] = '\0';
    printf("# %s: %.90s\n", name, text);
}

enum { kM = 33, kN = 47, kK = 130 };

static void run_gemm(Bits* bits, const char* name, mp_gemm_desc* desc, const mp_tensor* a,
                     const mp_tensor* b) {
    const int trans_a = (desc->flags & MP_GEMM_TRANS_A) != 0;
    const int trans_b = (desc->flags & MP_GEMM_TRANS_B) != 0;
    const int has_bias = (desc->flags & MP_GEMM_BIAS) != 0;
    mp_tensor* wide_a = widened(bits, a);
    mp_tensor* wide_b = widened(bits, b);
    mp_tensor* bias = make_numbers(bits, MP_DTYPE_FP32, 0, kN, 61, 1.0F);
    mp_tensor* c = make_numbers(bits, desc->dtype_d, kM, kN, 62, 2.0F);
    mp_tensor* d = make(bits, desc->dtype_d, kM, kN);
    mp_gemm* gemm = NULL;
    mp_gemm_args args = MP_GEMM_ARGS_INIT;
    Product p = {name, kM, kN, kK, {NULL, kK, 1, 0}, {NULL, kN, 1, 0}, 0.0, 1.0, 0};

    desc->m = kM;
    desc->n = kN;
    desc->k = kK;
    OK(mp_gemm_create(bits->context, desc, &gemm));
    note_choice(name, gemm);
    args.a = a;
    args.b = b;
    args.bias = has_bias ? bias : NULL;
    args.c = desc->beta == 0.0 ? NULL : c;
    args.d = d;
    OK(mp_gemm_run_scaled(gemm, NULL, &args));
    p.a = (View){data_of(wide_a), trans_a ? 1 : kK, trans_a ? kM : 1, 0};
    p.b = (View){data_of(wide_b), trans_b ? 1 : kN, trans_b ? kK : 1, 0};
    p.added = (has_bias ? 1.0 : 0.0) + 2.0 * fabs(desc->beta);
    p.is_gelu = (desc->flags & MP_GEMM_GELU) != 0;
    write_product(bits, &p, d);
    mp_gemm_destroy(gemm);
    mp_tensor_destroy(wide_a);
    mp_tensor_destroy(wide_b);
    mp_tensor_destroy(bias);
    mp_tensor_destroy(c);
    mp_tensor_destroy(d);
}

/* All ways that operands may lie, with and without what is added. */
static void show_plain_gemms(Bits* bits, int32_t in, int32_t out) {
    static const uint32_t kFlags[] = {0, MP_GEMM_TRANS_A, MP_GEMM_TRANS_B | MP_GEMM_BIAS,
                                      MP_GEMM_TRANS_A | MP_GEMM_TRANS_B,
                                      MP_GEMM_BIAS | MP_GEMM_GELU};
    size_t i = 0;
    for (i = 0; i < sizeof kFlags / sizeof kFlags[0]; ++i) {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        const int trans_a = (kFlags[i] & MP_GEMM_TRANS_A) != 0;
        const int trans_b = (kFlags[i] & MP_GEMM_TRANS_B) != 0;
        mp_tensor* a = make_numbers(bits, in, trans_a ? kK : kM, trans_a ? kM : kK, 71, 1.0F);
        mp_tensor* b = make_numbers(bits, in, trans_b ? kN : kK, trans_b ? kK : kN, 72, 1.0F);
        char name[64];
        desc.flags = kFlags[i];
        desc.dtype_a = desc.dtype_b = in;
        desc.dtype_d = out;
        desc.beta = i == 3 ? 0.5 : 0.0;
        (void)snprintf(name, sizeof name, "gemm.%s.%s.%d", mp_dtype_name(in), mp_dtype_name(out),
                       (int)i);
        run_gemm(bits, name, &desc, a, b);
        mp_tensor_destroy(a);
        mp_tensor_destroy(b);
    }
}

/* Codes with scales: how mp_quant_desc.scaling says it, and how mp_gemm_desc does. */
static void show_scaled_gemm(Bits* bits, int32_t scaling, int32_t rows, int32_t columns,
                             int32_t dtype_b) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    mp_tensor* a = NULL;
    mp_tensor* b = NULL;
    mp_tensor* exact_a = make_numbers(bits, MP_DTYPE_FP32, kM, kK, 81, 1.0F);
    mp_tensor* exact_b = make_numbers(bits, MP_DTYPE_FP32, kN, kK, 82, 4.0F);
    char name[64];
    quant.scaling = scaling;
    a = make_quantized(bits, MP_DTYPE_FP8_E4M3, kM, kK, &quant);
    b = make_quantized(bits, dtype_b, kN, kK, &quant);
    assign(a, exact_a);
    assign(b, exact_b);
    desc.flags = MP_GEMM_TRANS_B;
    desc.dtype_a = MP_DTYPE_FP8_E4M3;
    desc.dtype_b = dtype_b;
    desc.scale_a_dtype = desc.scale_b_dtype =
        scaling == MP_SCALING_MX_1X32 ? MP_DTYPE_E8M0 : MP_DTYPE_FP32;
    desc.scale_a_rows = desc.scale_b_rows = rows;
    desc.scale_a_columns = desc.scale_b_columns = columns;
    desc.dtype_d = MP_DTYPE_FP32;
    (void)snprintf(name, sizeof name, "gemm.scaling%d.%s", (int)scaling, mp_dtype_name(dtype_b));
    run_gemm(bits, name, &desc, a, b);
    mp_tensor_destroy(a);
    mp_tensor_destroy(b);
    mp_tensor_destroy(exact_a);
    mp_tensor_destroy(exact_b);
}

void show_gemms(Bits* bits) {
    int32_t type = 0;
    for (type = MP_DTYPE_FP32; type <= MP_DTYPE_BF16; ++type) {
        show_plain_gemms(bits, type, MP_DTYPE_FP32);
        if (type != MP_DTYPE_FP32) {
            show_plain_gemms(bits, type, type);
        }
    }
    for (type = MP_DTYPE_FP8_E4M3; type <= MP_DTYPE_FP8_E5M2; ++type) {
        show_scaled_gemm(bits, MP_SCALING_TENSOR, 0, 0, type);
        show_scaled_gemm(bits, MP_SCALING_ROW, 1, 0, type);
        show_scaled_gemm(bits, MP_SCALING_BLOCK_1X128, 1, 128, type);
        show_scaled_gemm(bits, MP_SCALING_BLOCK_128X128, 128, 128, type);
        show_scaled_gemm(bits, MP_SCALING_MX_1X32, 1, 32, type);
    }
}
