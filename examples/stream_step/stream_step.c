/* SPDX-License-Identifier: Apache-2.0
 * The step of a GPU trainer on the host: states of all layers in its memory, and of gradients two buckets. A layer's gradient
 * comes in 16 bits, its weight goes back in 16 bits, while the GPU is at the layer before. Here no GPU is needed: two
 * constant buckets stand for what a GPU copies.
 *
 *     stream_step [millions of parameters] [steps]         1000 (12 GB of weights and states) and 3 */
#include <mixedprec.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) < MP_STATUS_OK) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, mp_last_error_message());                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char** argv) {
    const int layers = 50, steps = argc > 2 ? atoi(argv[2]) : 3;
    const double millions = argc > 1 ? atof(argv[1]) : 1000.0;
    mp_context* context = NULL;
    mp_recipe* recipe = NULL;
    mp_optimizer* optimizer = NULL;
    mp_tensor *weights[50], *buckets[2];
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_GRADS_GIVEN; /* no memory for gradients */
    TRY(mp_context_create(NULL, &context));
    TRY(mp_recipe_create(context, "bf16_pure_remainder",
                         &recipe)); /* bf16 weights, exact in fp32 */
    TRY(mp_optimizer_create(context, recipe, &desc, &optimizer));
    TRY(mp_optimizer_add_group(optimizer, NULL, NULL));
    mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
    shape.dtype = MP_DTYPE_BF16;
    shape.ndim = 1;
    shape.shape[0] = (int64_t)(millions * 1e6 / layers);
    for (int i = 0; i < layers; i++) { /* of a GPU trainer: mp_tensor_wrap of its pinned memory */
        char name[32];
        snprintf(name, sizeof name, "layer.%d", i);
        TRY(mp_tensor_create(context, &shape, &weights[i]));
        mp_param_desc param = MP_PARAM_DESC_INIT;
        param.name = name;
        param.param = weights[i];
        TRY(mp_optimizer_add_param(optimizer, 0, &param, NULL));
    }
    for (int k = 0; k < 2; k++) {
        TRY(mp_tensor_create(context, &shape, &buckets[k]));
    }
    for (int step = 0; step < steps; step++) {
        const double start = now();
        TRY(mp_optimizer_step_begin(optimizer, NULL, NULL));
        for (int32_t i = layers; i-- > 0;) {
            /* one stream copies gradients to buckets[i % 2]; another waits for its event, calls the next line by
             * cudaLaunchHostFunc, and copies weights[i] to the GPU */
            TRY(mp_optimizer_step_params(optimizer, NULL, &i, 1, &buckets[i % 2]));
        }
        TRY(mp_optimizer_step_end(optimizer, NULL));
        const double ms = 1e3 * (now() - start);
        printf("step %d: %.0f ms, %.2f GB/s of gradients in, as much of weights out\n", step + 1,
               ms, 2e-6 * (double)shape.shape[0] * layers / ms);
    }
    mp_optimizer_destroy(optimizer);
    mp_recipe_destroy(recipe);
    for (int i = 0; i < layers + 2; i++) {
        mp_tensor_destroy(i < layers ? weights[i] : buckets[i - layers]);
    }
    mp_context_destroy(context);
    return 0;
}
