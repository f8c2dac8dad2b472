/* SPDX-License-Identifier: Apache-2.0
 * docs/layers.md: a training under delayed scaling, with validation after each step and without: the same bits. */
#include "frame.h"

enum { ROWS = 16, SIZE = 32 };

static mp_tensor* matrix(mp_context* context, int64_t rows, uint32_t seed, float factor) {
    static float values[SIZE * SIZE];
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = SIZE;
    fill(values, (size_t)(rows * SIZE), seed);
    for (int i = 0; i < rows * SIZE; i++) {
        values[i] *= factor;
    }
    MP_TRY(mp_tensor_create(context, &desc, &tensor));
    MP_TRY(mp_tensor_write(tensor, NULL, values, (size_t)(rows * SIZE) * sizeof(float)));
    return tensor;
}

static void train(int evaluates, float* result) {
    mp_context* context;
    mp_recipe* recipe;
    mp_linear* layer;
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp8_delayed", &recipe));
    mp_tensor *weight = matrix(context, SIZE, 1, 1.0F), *dw = matrix(context, SIZE, 1, 0.0F);
    mp_tensor *y = matrix(context, ROWS, 1, 0.0F), *dy = matrix(context, ROWS, 2, 1.0F);
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = desc.out_features = SIZE;
    MP_TRY(mp_linear_create(context, recipe, &desc, weight, NULL, &layer));
    for (uint32_t step = 0; step < 4; step++) {
        mp_tensor* x = matrix(context, ROWS, 10 + step, (float)(1 + step));
        MP_TRY(mp_linear_forward(layer, NULL, x, y));
        MP_TRY(mp_linear_backward(layer, NULL, dy, NULL, dw, NULL, 0));
        mp_tensor_destroy(x);
        if (evaluates) {
            x = matrix(context, ROWS, 77, 100.0F);
            /* snippet: evaluate */
            mp_tensor_destroy(x);
        }
        MP_TRY(mp_linear_end_step(&layer, 1, NULL, NULL));
    }
    MP_TRY(mp_tensor_read(dw, NULL, result, SIZE * SIZE * sizeof(float)));
    mp_tensor* all[] = {weight, dw, y, dy};
    for (int i = 0; i < 4; i++) {
        mp_tensor_destroy(all[i]);
    }
    mp_linear_destroy(layer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
}

int main(void) {
    static float with[SIZE * SIZE], without[SIZE * SIZE];
    train(1, with);
    train(0, without);
    must(memcmp(with, without, sizeof with) == 0, "evaluation changes nothing");
    return 0;
}
