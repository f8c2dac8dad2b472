/* SPDX-License-Identifier: Apache-2.0
 * docs/layers.md: forwards in flight, and one that is computed again. dw has the bits of a plain loop. */
#include "frame.h"

enum { micro_batches = 3, rows = 16, in = 32, out = 48 };
static float xs[micro_batches][rows * in], ys[micro_batches][rows * out],
    dys[micro_batches][rows * out];
static float dxs[micro_batches][rows * in], dws[3][out * in], dbiases[out], biases[out],
    weights[out * in];

static mp_linear* new_layer(mp_context* context, mp_recipe* recipe, mp_tensor* weight,
                            mp_tensor* bias) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    mp_linear* layer;
    desc.in_features = in;
    desc.out_features = out;
    MP_TRY(mp_linear_create(context, recipe, &desc, weight, bias, &layer));
    return layer;
}

static void pipeline(mp_linear* layer, mp_queue* queue, mp_tensor** x, mp_tensor** y,
                     mp_tensor** dy, mp_tensor** dx, mp_tensor* dw, mp_tensor* dbias) {
    mp_saved* saved[micro_batches];
    /* snippet: pipeline */
    for (int i = 0; i < micro_batches; i++) {
        mp_saved_destroy(saved[i]);
    }
}

static void recompute(mp_linear* layer, mp_queue* queue, mp_tensor* x, mp_tensor* y, mp_tensor* dy,
                      mp_tensor* dx, mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    mp_saved* saved;
    MP_TRY(mp_saved_create(layer, &saved));
    /* snippet: recompute */
    mp_saved_destroy(saved);
}

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_tensor *x[micro_batches], *y[micro_batches], *dy[micro_batches], *dx[micro_batches], *dw[3];
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp8_delayed", &recipe));
    fill(weights, out * in, 1);
    mp_tensor* weight = wrapped(context, weights, out, in);
    mp_tensor* bias = wrapped(context, biases, 0, out);
    mp_tensor* dbias = wrapped(context, dbiases, 0, out);
    for (int i = 0; i < micro_batches; i++) {
        fill(xs[i], rows * in, 10u + (uint32_t)i);
        fill(dys[i], rows * out, 20u + (uint32_t)i);
        x[i] = wrapped(context, xs[i], rows, in);
        y[i] = wrapped(context, ys[i], rows, out);
        dy[i] = wrapped(context, dys[i], rows, out);
        dx[i] = wrapped(context, dxs[i], rows, in);
        dw[i] = wrapped(context, dws[i], out, in);
    }

    mp_linear* layers[3];
    for (int i = 0; i < 3; i++) {
        layers[i] = new_layer(context, recipe, weight, bias);
    }
    pipeline(layers[0], NULL, x, y, dy, dx, dw[0], dbias);
    for (int i = 0; i < micro_batches; i++) {
        const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
        MP_TRY(mp_linear_forward(layers[1], NULL, x[i], y[i]));
        MP_TRY(mp_linear_backward(layers[1], NULL, dy[i], dx[i], dw[1], dbias, flags));
        recompute(layers[2], NULL, x[i], y[i], dy[i], dx[i], dw[2], dbias, flags);
    }
    must(dws[0][0] != 0.0f, "dw was computed");
    must(memcmp(dws[0], dws[1], sizeof dws[0]) == 0,
         "dw of a pipeline has the bits of a plain loop");
    must(memcmp(dws[2], dws[1], sizeof dws[2]) == 0,
         "dw of a recomputed x has the bits of a plain loop");

    MP_TRY(mp_linear_end_step(layers, 3, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        mp_linear_destroy(layers[i]);
        mp_tensor* tensors[] = {x[i], y[i], dy[i], dx[i], dw[i]};
        for (int j = 0; j < 5; j++) {
            mp_tensor_destroy(tensors[j]);
        }
    }
    mp_tensor_destroy(weight);
    mp_tensor_destroy(bias);
    mp_tensor_destroy(dbias);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
