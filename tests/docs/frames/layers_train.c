/* SPDX-License-Identifier: Apache-2.0
 * docs/layers.md: a layer of a recipe, its weight in the optimizer, and a loss scale. */
#include "frame.h"
#include <math.h>

enum { rows = 16, dim = 32, classes = 3 * dim };
static float values[classes * dim], inputs[rows * dim], logits[rows * classes], biases[classes];
static float dinputs[rows * dim], dbiases[classes];
static int targets[rows];

/* The mean loss; the logits become its gradient, times scale. */
static double cross_entropy(float* z, const int* target, double scale) {
    double loss = 0.0;
    for (int r = 0; r < rows; r++, z += classes) {
        double sum = 0.0;
        for (int c = 0; c < classes; c++) {
            sum += exp((double)z[c]);
        }
        loss += (log(sum) - (double)z[target[r]]) / rows;
        for (int c = 0; c < classes; c++) {
            z[c] = (float)(scale / rows * (exp((double)z[c]) / sum - (c == target[r])));
        }
    }
    return loss;
}

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_scaler* scaler;
    mp_linear* qkv;
    mp_tensor *weight, *dweight;
    int32_t group, index;
    const int64_t shape[2] = {classes, dim}, steps = 40;
    fill(values, classes * dim, 1);
    fill(inputs, rows * dim, 2);
    for (int r = 0; r < rows; r++) {
        targets[r] = 5 * r;
    }
    MP_TRY(mp_context_create(NULL, &context));
    mp_tensor* initial = wrapped(context, values, classes, dim);
    mp_tensor* bias = wrapped(context, biases, 0, classes);
    mp_tensor* dbias = wrapped(context, dbiases, 0, classes);
    mp_tensor* x = wrapped(context, inputs, rows, dim);
    mp_tensor* dx = wrapped(context, dinputs, rows, dim);
    mp_tensor* y = wrapped(context, logits, rows, classes);
    mp_tensor* dy = wrapped(context, logits, rows, classes);

    /* snippet: heart */

    MP_TRY(mp_linear_forward(qkv, NULL, x, y));
    const double loss = cross_entropy(logits, targets, 1.0);
    must(loss > 0.0 && loss < 5.6, "the loss has fallen from 6.3");
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
    MP_TRY(mp_optimizer_get_stats(optimizer, NULL, &stats));
    must(stats.step == steps, "every step was taken");
    mp_tensor* tensors[] = {initial, bias, dbias, x, dx, y, dy, weight, dweight};
    for (int i = 0; i < 9; i++) {
        mp_tensor_destroy(tensors[i]);
    }
    mp_linear_destroy(qkv);
    mp_scaler_destroy(scaler);
    mp_optimizer_destroy(optimizer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
