/* SPDX-License-Identifier: Apache-2.0
 * docs/migrating: what their lines take for granted, one layer and ranks that are one. Every call of a page is checked. */
#ifndef MIGRATING_H
#define MIGRATING_H

#include "frame.h"

#ifndef RECIPE
#define RECIPE "fp8_current"
#endif
#define index index_ /* strings.h has one */
enum { ROWS = 16, IN = 768 };

static mp_context* context;
static mp_recipe* recipe;
static mp_optimizer* optimizer;
static mp_scaler* scaler;
static mp_comm* comm;
static mp_linear* layer;
static mp_tensor *weight, *bias, *x, *y, *dy, *dx, *dw;
static int32_t group, index;
static double scale;
static float xs[ROWS * IN], ys[ROWS * OUT], dxs[ROWS * IN], biases[OUT];

static mp_status checked(mp_status status, const char* call) {
    must(status >= 0, call);
    return status;
}

static mp_tensor* zeros(int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    MP_TRY(mp_tensor_create(context, &desc, &tensor));
    return tensor;
}

static void add_parameters(mp_optimizer* to) {
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "w";
    param.param = weight;
    MP_TRY(mp_optimizer_add_group(to, NULL, &group));
    MP_TRY(mp_optimizer_add_param(to, group, &param, &index));
    MP_TRY(mp_optimizer_shard(to, NULL));
}

/* The layer of pages that make none. Not every page uses all of this. */
static void prepare(void) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    const int64_t shape[2] = {OUT, IN};
    float* values = malloc(sizeof(float) * OUT * IN);
    must(values != NULL, "there is memory");
    fill(values, (int64_t)OUT * IN, 1);
    fill(xs, ROWS * IN, 2);
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, RECIPE, &recipe));
    MP_TRY(mp_comm_create_self(NULL, &comm));
    MP_TRY(mp_scaler_create_from_recipe(context, recipe, &scaler));
    MP_TRY(mp_optimizer_create(context, recipe, NULL, &optimizer));
    MP_TRY(mp_recipe_create_weight(context, recipe, 2, shape, values, &weight));
    free(values);
    bias = wrapped(context, biases, 0, OUT);
    x = wrapped(context, xs, ROWS, IN);
    dx = wrapped(context, dxs, ROWS, IN);
    y = wrapped(context, ys, ROWS, OUT);
    dy = wrapped(context, ys, ROWS, OUT);
    dw = zeros(OUT, IN);
    desc.in_features = IN;
    desc.out_features = OUT;
    MP_TRY(mp_linear_create(context, recipe, &desc, weight, NULL, &layer));
    (void)add_parameters;
    (void)checked;
    (void)group;
    (void)index;
    (void)scale;
}

#define mp_optimizer_create_sharded(...)                                                           \
    checked((mp_optimizer_create_sharded)(__VA_ARGS__), "mp_optimizer_create_sharded")
#define mp_optimizer_add_group(...)                                                                \
    checked((mp_optimizer_add_group)(__VA_ARGS__), "mp_optimizer_add_group")
#define mp_optimizer_add_param(...)                                                                \
    checked((mp_optimizer_add_param)(__VA_ARGS__), "mp_optimizer_add_param")
#define mp_recipe_create_weight_codes(...)                                                         \
    checked((mp_recipe_create_weight_codes)(__VA_ARGS__), "mp_recipe_create_weight_codes")
#define mp_optimizer_gather_begin(...)                                                             \
    checked((mp_optimizer_gather_begin)(__VA_ARGS__), "mp_optimizer_gather_begin")
#define mp_optimizer_gather_wait(...)                                                              \
    checked((mp_optimizer_gather_wait)(__VA_ARGS__), "mp_optimizer_gather_wait")
#define mp_optimizer_gather_free(...)                                                              \
    checked((mp_optimizer_gather_free)(__VA_ARGS__), "mp_optimizer_gather_free")
#define mp_optimizer_set_layer_params(...)                                                         \
    checked((mp_optimizer_set_layer_params)(__VA_ARGS__), "mp_optimizer_set_layer_params")
#define mp_optimizer_layer_begin(...)                                                              \
    checked((mp_optimizer_layer_begin)(__VA_ARGS__), "mp_optimizer_layer_begin")
#define mp_optimizer_layer_end(...)                                                                \
    checked((mp_optimizer_layer_end)(__VA_ARGS__), "mp_optimizer_layer_end")
#define mp_optimizer_grad_ready(...)                                                               \
    checked((mp_optimizer_grad_ready)(__VA_ARGS__), "mp_optimizer_grad_ready")
#define mp_optimizer_set_linears(...)                                                              \
    checked((mp_optimizer_set_linears)(__VA_ARGS__), "mp_optimizer_set_linears")
#define mp_optimizer_step(...) checked((mp_optimizer_step)(__VA_ARGS__), "mp_optimizer_step")
#define mp_scaler_get_scale(...) checked((mp_scaler_get_scale)(__VA_ARGS__), "mp_scaler_get_scale")
#define mp_scaler_update(...) checked((mp_scaler_update)(__VA_ARGS__), "mp_scaler_update")
#define mp_linear_create(...) checked((mp_linear_create)(__VA_ARGS__), "mp_linear_create")
#define mp_linear_forward(...) checked((mp_linear_forward)(__VA_ARGS__), "mp_linear_forward")
#define mp_linear_backward(...) checked((mp_linear_backward)(__VA_ARGS__), "mp_linear_backward")

#endif
