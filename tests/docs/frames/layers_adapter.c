/* SPDX-License-Identifier: Apache-2.0
 * docs/layers.md: a frozen layer with an adapter, whose step is taken, and the weight that both are together. */
#include "frame.h"

enum { rows = 16, in = 32, out = 48, rank = 8 };
static float weights[out * in], as[rank * in], bs[out * rank], das[rank * in], dbs[out * rank],
    mergeds[out * in];
static float xs[rows * in], ys[rows * out], dys[rows * out], dxs[rows * in];

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_linear* layer;
    mp_adapter* adapter;
    int32_t group;
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp32", &recipe));
    MP_TRY(mp_optimizer_create(context, recipe, NULL, &optimizer));
    MP_TRY(mp_optimizer_add_group(optimizer, NULL, &group));
    fill(weights, out * in, 1);
    fill(as, rank * in, 2);
    fill(xs, rows * in, 3);
    fill(dys, rows * out, 4);
    mp_tensor* weight = wrapped(context, weights, out, in);
    mp_tensor *a = wrapped(context, as, rank, in), *b = wrapped(context, bs, out, rank);
    mp_tensor *da = wrapped(context, das, rank, in), *db = wrapped(context, dbs, out, rank);
    mp_tensor *x = wrapped(context, xs, rows, in), *y = wrapped(context, ys, rows, out);
    mp_tensor *dx = wrapped(context, dxs, rows, in), *dy = wrapped(context, dys, rows, out);
    mp_tensor* merged = wrapped(context, mergeds, out, in);
    mp_param_desc params[2] = {MP_PARAM_DESC_INIT, MP_PARAM_DESC_INIT};
    params[0].name = "q_proj.lora_A.weight";
    params[0].param = a;
    params[0].grad = da;
    params[1].name = "q_proj.lora_B.weight";
    params[1].param = b;
    params[1].grad = db;
    for (int i = 0; i < 2; i++) {
        MP_TRY(mp_optimizer_add_param(optimizer, group, &params[i], NULL));
    }

    /* snippet: adapter */

    must(bs[0] != 0.0f && dbs[0] != 0.0f && dxs[0] != 0.0f, "b has learned");
    must(memcmp(mergeds, weights, sizeof weights) != 0, "the merged weight has changed");

    mp_adapter_destroy(adapter);
    mp_linear_destroy(layer);
    mp_tensor* tensors[] = {weight, a, b, da, db, x, y, dx, dy, merged};
    for (int i = 0; i < 10; i++) {
        mp_tensor_destroy(tensors[i]);
    }
    mp_optimizer_destroy(optimizer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
