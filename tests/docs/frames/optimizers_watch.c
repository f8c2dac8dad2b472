/* SPDX-License-Identifier: Apache-2.0
 * docs/optimizers.md: a guard, a history, and a gradient that is not finite in the end. */
#include "frame.h"
#include <math.h>

enum { n = 64, steps = 90, bad_step = 80 };
static float weights[n], grads[n];

/* Sinks towards 0; one step stands out, the last ones are not finite. */
static double forward_and_backward(int step) {
    double loss = 0.0;
    for (int i = 0; i < n; i++) {
        loss += 0.5 * (double)weights[i] * (double)weights[i] / n;
        grads[i] = weights[i] / n * (step == 70 ? 1000.0f : 1.0f);
    }
    grads[5] = step >= bad_step ? NAN : grads[5];
    return loss;
}

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    fill(weights, n, 3);
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp32", &recipe));
    MP_TRY(mp_optimizer_create(context, recipe, NULL, &optimizer));
    MP_TRY(mp_optimizer_add_group(optimizer, NULL, NULL));
    mp_tensor* weight = wrapped(context, weights, 0, n);
    mp_tensor* grad = wrapped(context, grads, 0, n);
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "weights";
    param.param = weight;
    param.grad = grad;
    MP_TRY(mp_optimizer_add_param(optimizer, 0, &param, NULL));

    /* snippet: watch */

    mp_optimizer_stats last = MP_OPTIMIZER_STATS_INIT;
    MP_TRY(mp_optimizer_get_stats(optimizer, NULL, &last));
    must(last.outlier_steps == 1 && last.skipped_steps == 1 + steps - bad_step, "what was skipped");
    char first[200];
    MP_TRY(mp_optimizer_get_bad_tensor(optimizer, first, sizeof first, NULL));
    must(strcmp(first, "the gradient of 'weights'") == 0, "the bad tensor's name");
    FILE* file = fopen("last-steps.json", "r");
    must(file != NULL, "the last steps are in a file");
    fclose(file);
    mp_tensor_destroy(weight);
    mp_tensor_destroy(grad);
    mp_optimizer_destroy(optimizer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
