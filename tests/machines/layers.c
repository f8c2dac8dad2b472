/* SPDX-License-Identifier: Apache-2.0
 * Linear layers of every recipe, forward and backward. Their outputs are products (products.c); column sums, delayed scales
 * and what happened to the operands' elements get a hash like everything else. */
#include "products.h"

#include <stdio.h>
#include <string.h>

enum {
    kRows = 64,
    kIn = 96,
    kOut = 160,
    kSteps = 2
}; /* sizes that fp8 layers take; blocks of 128 are cut */

typedef struct Layer {
    const char* recipe;
    mp_linear* linear;
    mp_tensor *weight, *bias, *x, *dy, *y, *dx, *dw, *dbias;
    int step;
} Layer;

static void open_layer(Bits* bits, const char* name, Layer* layer) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    mp_recipe* recipe = NULL;
    memset(layer, 0, sizeof *layer);
    OK(mp_recipe_create(bits->context, name, &recipe));
    layer->recipe = name;
    layer->weight = make_numbers(bits, MP_DTYPE_FP32, kOut, kIn, 91, 0.25F);
    layer->bias = make_numbers(bits, MP_DTYPE_FP32, 0, kOut, 92, 1.0F);
    layer->y = make(bits, MP_DTYPE_FP32, kRows, kOut);
    layer->dx = make(bits, MP_DTYPE_FP32, kRows, kIn);
    layer->dw = make(bits, MP_DTYPE_FP32, kOut, kIn);
    layer->dbias = make(bits, MP_DTYPE_FP32, 0, kOut);
    desc.flags = MP_LINEAR_STATS;
    desc.in_features = kIn;
    desc.out_features = kOut;
    OK(mp_linear_create(bits->context, recipe, &desc, layer->weight, layer->bias, &layer->linear));
    mp_recipe_destroy(recipe);
}

static void close_layer(Layer* layer) {
    mp_linear_destroy(layer->linear);
    mp_tensor_destroy(layer->weight);
    mp_tensor_destroy(layer->bias);
    mp_tensor_destroy(layer->y);
    mp_tensor_destroy(layer->dx);
    mp_tensor_destroy(layer->dw);
    mp_tensor_destroy(layer->dbias);
}

/* y = x w^T + bias, dx = dy w, dw += dy^T x. */
static void write_products(Bits* bits, const Layer* layer) {
    const View x = {data_of(layer->x), kIn, 1, 1};
    const View x_transposed = {x.at, kIn, 1, 1};
    const View w = {data_of(layer->weight), kIn, 1, 1};
    const View w_transposed = {w.at, 1, kIn, 1};
    const View dy = {data_of(layer->dy), kOut, 1, 1};
    const View dy_transposed = {dy.at, 1, kOut, 1};
    char name[96];
    Product y = {name, kRows, kOut, kIn, {0}, {0}, 1.0, 1.0, 0};
    Product dx = {name, kRows, kIn, kOut, {0}, {0}, 0.0, 1.0, 0};
    Product dw = {name, kOut, kIn, kRows, {0}, {0}, 0.0, 2.0, 0};
    y.a = x;
    y.b = w_transposed;
    dx.a = dy;
    dx.b = w;
    dw.a = dy_transposed;
    dw.b = x_transposed;
    (void)snprintf(name, sizeof name, "linear.%s.%d.y", layer->recipe, layer->step);
    write_product(bits, &y, layer->y);
    (void)snprintf(name, sizeof name, "linear.%s.%d.dx", layer->recipe, layer->step);
    write_product(bits, &dx, layer->dx);
    (void)snprintf(name, sizeof name, "linear.%s.%d.dw", layer->recipe, layer->step);
    write_product(bits, &dw, layer->dw);
}

static void show_state(const Layer* layer) {
    unsigned char state[65536];
    size_t needed = 0;
    int32_t operand = 0;
    OK(mp_linear_get_scaling(layer->linear, state, sizeof state, &needed));
    show(state, needed <= sizeof state ? needed : 0, "linear.%s.%d.scaling", layer->recipe,
         layer->step);
    show(data_of(layer->dbias), bytes_of(layer->dbias), "linear.%s.%d.dbias", layer->recipe,
         layer->step);
    for (operand = 0; operand < MP_OPERAND_COUNT; ++operand) {
        mp_linear_stats stats;
        memset(&stats, 0, sizeof stats);
        stats.struct_size = sizeof stats;
        OK(mp_linear_get_stats(layer->linear, operand, &stats));
        show(&stats, sizeof stats, "linear.%s.%d.stats%d", layer->recipe, layer->step,
             (int)operand);
    }
}

/* A step with two micro-batches of the same numbers, so that dw is accumulated. */
static void run_step(Bits* bits, Layer* layer) {
    const uint32_t seed = 100U * (uint32_t)layer->step;
    layer->x =
        make_numbers(bits, MP_DTYPE_FP32, kRows, kIn, seed + 1, layer->step == 1 ? 1.0F : 2.0F);
    layer->dy = make_numbers(bits, MP_DTYPE_FP32, kRows, kOut, seed + 2, 0.5F);
    OK(mp_linear_forward(layer->linear, NULL, layer->x, layer->y));
    OK(mp_linear_backward(layer->linear, NULL, layer->dy, layer->dx, layer->dw, layer->dbias, 0));
    OK(mp_linear_forward(layer->linear, NULL, layer->x, layer->y));
    OK(mp_linear_backward(layer->linear, NULL, layer->dy, layer->dx, layer->dw, layer->dbias,
                          MP_BACKWARD_ACCUMULATE));
    write_products(bits, layer);
    OK(mp_linear_end_step(&layer->linear, 1, NULL, NULL));
    show_state(layer);
    mp_tensor_destroy(layer->x);
    mp_tensor_destroy(layer->dy);
}

void show_linears(Bits* bits) {
    int32_t i = 0;
    for (i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = NULL;
        Layer layer;
        OK(mp_recipe_get_preset_info(i, &name, NULL));
        open_layer(bits, name, &layer);
        for (layer.step = 1; layer.step <= kSteps; ++layer.step) {
            run_step(bits, &layer);
        }
        close_layer(&layer);
    }
}
