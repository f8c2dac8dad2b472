/* SPDX-License-Identifier: Apache-2.0
 * Times quantizers and layers, when asked: the same half of compare_steps.py for these (--program compare_layers.c). It uses
 * what versions since a5b2a5b have. */
#include "compare.h"

enum { QUANTIZE, TRANSPOSED, DEQUANTIZE, LAYER };

typedef struct Row {
    const char* name;
    int kind;
    const char* recipe; /* of layers */
    int32_t scaling;    /* of quantizers */
    int32_t dtype;      /* of the source, or of x and dy */
    int64_t rows, in, out;
    mp_tensor *x, *y, *dy, *dx, *dw, *w, *codes, *transposed;
    mp_linear* layer;
} Row;

#define NOTHING 0, 0, 0, 0, 0, 0, 0, 0, 0
#define MATRIX(name, kind, scaling, dtype, rows, in)                                               \
    { name, kind, 0, scaling, dtype, rows, in, 0, NOTHING }
#define MATRICES(dtype, of, rows, in, size)                                                        \
    MATRIX("quantize tensor " of size, QUANTIZE, MP_SCALING_TENSOR, dtype, rows, in),              \
        MATRIX("quantize rows " of size, QUANTIZE, MP_SCALING_ROW, dtype, rows, in),               \
        MATRIX("quantize columns " of size, QUANTIZE, MP_SCALING_COLUMN, dtype, rows, in),         \
        MATRIX("quantize 1x128 " of size, QUANTIZE, MP_SCALING_BLOCK_1X128, dtype, rows, in),      \
        MATRIX("quantize 128x1 " of size, QUANTIZE, MP_SCALING_BLOCK_128X1, dtype, rows, in),      \
        MATRIX("quantize mx 1x32 " of size, QUANTIZE, MP_SCALING_MX_1X32, dtype, rows, in),        \
        MATRIX("quantize mx 32x1 " of size, QUANTIZE, MP_SCALING_MX_32X1, dtype, rows, in),        \
        MATRIX("quantize and turn 128x128 " of size, TRANSPOSED, MP_SCALING_BLOCK_128X128, dtype,  \
               rows, in),                                                                          \
        MATRIX("dequantize 1x128 " of size, DEQUANTIZE, MP_SCALING_BLOCK_1X128, dtype, rows, in)
#define LAYERS(recipe, rows, in, out, size)                                                        \
    { "layer " recipe size, LAYER, recipe, 0, MP_DTYPE_BF16, rows, in, out, NOTHING }
#define RECIPES(rows, in, out, size)                                                               \
    LAYERS("bf16_mixed", rows, in, out, size), LAYERS("fp8_delayed", rows, in, out, size),         \
        LAYERS("fp8_current", rows, in, out, size), LAYERS("fp8_rowwise", rows, in, out, size),    \
        LAYERS("fp8_rowwise_gw_hp", rows, in, out, size),                                          \
        LAYERS("fp8_block", rows, in, out, size), LAYERS("mxfp8", rows, in, out, size)

static Row rows[] = {
    MATRICES(MP_DTYPE_FP32, "fp32", 256, 512, ", 256 x 512"),
    MATRICES(MP_DTYPE_BF16, "bf16", 256, 512, ", 256 x 512"),
    MATRICES(MP_DTYPE_FP32, "fp32", 4096, 2048, ", 4096 x 2048"),
    MATRICES(MP_DTYPE_BF16, "bf16", 4096, 2048, ", 4096 x 2048"),
    RECIPES(256, 576, 576, ", 256 rows, 576 to 576"),
    RECIPES(2048, 384, 1536, ", 2048 rows, 384 to 1536"),
    RECIPES(2048, 1024, 1024, ", 2048 rows, 1024 to 1024"),
    RECIPES(8192, 1024, 128, ", 8192 rows, 1024 to 128"),
};

static void prepare_matrix(mp_context* context, Row* row) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    mp_tensor_desc desc = shape(MP_DTYPE_FP8_E4M3, row->rows, row->in);
    quant.scaling = row->scaling;
    check(mp_tensor_create_quantized(context, &desc, &quant, &row->codes), row->name);
    desc = shape(MP_DTYPE_FP8_E4M3, row->in, row->rows);
    if (row->kind == TRANSPOSED) {
        check(mp_tensor_create(context, &desc, &row->transposed), row->name);
    }
    check(mp_tensor_quantize(row->x, NULL, row->codes, row->transposed, NULL, NULL), row->name);
}

static void prepare_layer(mp_context* context, Row* row) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    mp_recipe* recipe = NULL;
    const char* weight = NULL;
    check(mp_recipe_create(context, row->recipe, &recipe), row->recipe);
    check(mp_recipe_get_string(recipe, "weight.dtype", &weight), row->recipe);
    row->w = make(context, weight[0] == 'b' ? MP_DTYPE_BF16 : MP_DTYPE_FP32, row->out, row->in);
    row->y = make(context, MP_DTYPE_BF16, row->rows, row->out);
    row->dy = make(context, MP_DTYPE_BF16, row->rows, row->out);
    row->dx = make(context, MP_DTYPE_BF16, row->rows, row->in);
    row->dw = make(context, MP_DTYPE_FP32, row->out, row->in);
    desc.in_features = row->in;
    desc.out_features = row->out;
    check(mp_linear_create(context, recipe, &desc, row->w, NULL, &row->layer), row->recipe);
    mp_recipe_destroy(recipe);
}

static void prepare(mp_context* context, int index) {
    Row* row = &rows[index];
    row->x = make(context, row->dtype, row->rows, row->in);
    if (row->kind == LAYER) {
        prepare_layer(context, row);
    } else {
        prepare_matrix(context, row);
    }
}

static void run(mp_context* context, int index) {
    const Row* row = &rows[index];
    (void)context;
    if (row->kind == LAYER) {
        check(mp_linear_forward(row->layer, NULL, row->x, row->y), row->name);
        check(mp_linear_backward(row->layer, NULL, row->dy, row->dx, row->dw, NULL, 0), row->name);
        check(mp_linear_end_step(&row->layer, 1, NULL, NULL), row->name);
    } else if (row->kind == DEQUANTIZE) {
        check(mp_tensor_dequantize(row->codes, NULL, row->x), row->name);
    } else {
        check(mp_tensor_quantize(row->x, NULL, row->codes, row->transposed, NULL, NULL), row->name);
    }
}

static void print_name(int row) { fputs(rows[row].name, stdout); }

int main(int argc, char** argv) {
    const Program program = {(int)(sizeof rows / sizeof *rows), print_name, prepare, run};
    return serve(&program, argc, argv);
}
