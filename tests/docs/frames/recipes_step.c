/* SPDX-License-Identifier: Apache-2.0
 * docs/recipes.md: the order of calls in a step, here of one layer under fp8_delayed. */
#include "frame.h"

enum { micro_batches = 4, rows = 16, in = 32, out = 32, layer_count = 1 };
static float xs[micro_batches][rows * in], ys[rows * out], dxs[rows * in], values[out * in];
static mp_linear* layers[layer_count];
static mp_tensor *x[micro_batches], *y, *dx, *dw;

static void forward(int i) { MP_TRY(mp_linear_forward(layers[0], NULL, x[i], y)); }

/* Of the mean of y^2 / 2: y is its own gradient. */
static void backward(uint32_t flags) {
    MP_TRY(mp_linear_backward(layers[0], NULL, y, dx, dw, NULL, flags));
}

static double squares(void) {
    double sum = 0.0;
    for (int i = 0; i < rows * out; i++) {
        sum += (double)ys[i] * ys[i];
    }
    return sum;
}

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_scaler* scaler;
    mp_tensor* weight;
    int32_t group, index;
    const int64_t shape[2] = {out, in};
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp8_delayed", &recipe));
    MP_TRY(mp_scaler_create_from_recipe(context, recipe, &scaler));
    MP_TRY(mp_optimizer_create(context, recipe, NULL, &optimizer));
    fill(values, out * in, 1);
    MP_TRY(mp_recipe_create_weight(context, recipe, 2, shape, values, &weight));
    mp_param_group_desc hyper = MP_PARAM_GROUP_DESC_INIT;
    hyper.lr = 0.02;
    MP_TRY(mp_optimizer_add_group(optimizer, &hyper, &group));
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "w";
    param.param = weight;
    MP_TRY(mp_optimizer_add_param(optimizer, group, &param, &index));
    MP_TRY(mp_optimizer_get_state(optimizer, index, "grad", &dw));
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = in;
    desc.out_features = out;
    desc.flags = MP_LINEAR_CACHE_WEIGHT;
    MP_TRY(mp_linear_create(context, recipe, &desc, weight, NULL, &layers[0]));
    y = wrapped(context, ys, rows, out);
    dx = wrapped(context, dxs, rows, in);
    for (int i = 0; i < micro_batches; i++) {
        fill(xs[i], rows * in, 10u + (uint32_t)i);
        x[i] = wrapped(context, xs[i], rows, in);
    }

    double first = 0.0;
    for (int step = 0; step < 20; step++) {
        /* snippet: step */
        first = step == 0 ? squares() : first;
    }
    must(squares() < 0.5 * first, "the loss falls");

    mp_tensor* tensors[] = {x[0], x[1], x[2], x[3], y, dx, dw, weight};
    for (int i = 0; i < 8; i++) {
        mp_tensor_destroy(tensors[i]);
    }
    mp_linear_destroy(layers[0]);
    mp_optimizer_destroy(optimizer);
    mp_scaler_destroy(scaler);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
