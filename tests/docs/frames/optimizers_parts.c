/* SPDX-License-Identifier: Apache-2.0
 * docs/optimizers.md: a step in parts, each given its gradient in one memory for all. */
#include "frame.h"

enum { n = 64, layers = 3 };
static float weights[layers][n], same[layers][n], memory[n];

/* Of one layer, into the memory that all share. */
static void backward(int layer) {
    for (int i = 0; i < n; i++) {
        memory[i] = weights[layer][i] * 0.5f + (float)layer;
    }
}

int main(void) {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_tensor* tensors[layers];
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp32", &recipe));
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_GRADS_GIVEN;
    MP_TRY(mp_optimizer_create(context, recipe, &desc, &optimizer));
    MP_TRY(mp_optimizer_add_group(optimizer, NULL, NULL));
    for (int layer = 0; layer < layers; layer++) {
        fill(weights[layer], n, 3);
        memcpy(same[layer], weights[layer], sizeof same[layer]);
        tensors[layer] = wrapped(context, weights[layer], 0, n);
        char name[16];
        snprintf(name, sizeof name, "layer.%d", layer);
        mp_param_desc param = MP_PARAM_DESC_INIT;
        param.name = name;
        param.param = tensors[layer];
        MP_TRY(mp_optimizer_add_param(optimizer, 0, &param, NULL));
    }
    mp_tensor* gradient = wrapped(context, memory, 0, n);

    /* snippet: parts */

    for (int layer = 0; layer < layers; layer++) {
        must(memcmp(weights[layer], same[layer], sizeof same[layer]) != 0, "all layers have moved");
        mp_tensor_destroy(tensors[layer]);
    }
    mp_tensor_destroy(gradient);
    mp_optimizer_destroy(optimizer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
