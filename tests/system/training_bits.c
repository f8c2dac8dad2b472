/* SPDX-License-Identifier: Apache-2.0
 * Trains one layer for a few steps in each of several recipes and prints a hash of the bits of its weights. The products
 * have sizes at which several implementations are about equally fast. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <mixedprec.h>

enum { kRows = 192, kIn = 256, kOut = 224, kSteps = 4 };

static void require(mp_status status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, mp_last_error_message());
        exit(1);
    }
}

static mp_tensor* tensor(mp_context* context, int32_t dtype, int64_t rows, int64_t columns,
                         const float* values) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    mp_tensor* made = NULL;
    require(mp_tensor_create(context, &desc, &made), "mp_tensor_create");
    if (values != NULL) {
        mp_tensor* exact = NULL;
        desc.dtype = MP_DTYPE_FP32;
        require(mp_tensor_create(context, &desc, &exact), "mp_tensor_create");
        require(mp_tensor_write(exact, NULL, values, sizeof(float) * (size_t)(rows * columns)),
                "mp_tensor_write");
        require(dtype == MP_DTYPE_FP32 ? mp_tensor_copy(exact, NULL, made)
                                       : mp_tensor_cast(exact, NULL, made, NULL),
                "mp_tensor_cast");
        mp_tensor_destroy(exact);
    }
    return made;
}

static float* numbers(size_t count, uint32_t seed) {
    float* values = malloc(count * sizeof(float));
    if (values == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return values;
}

static uint64_t hash_of(mp_tensor* weights, size_t element) {
    const size_t bytes = element * kIn * kOut;
    unsigned char* data = malloc(bytes);
    if (data == NULL) {
        exit(1);
    }
    require(mp_tensor_read(weights, NULL, data, bytes), "mp_tensor_read");
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < bytes; ++i) {
        hash = (hash ^ data[i]) * 1099511628211u;
    }
    free(data);
    return hash;
}

static void train(mp_context* context, const char* name, int32_t dtype, int32_t weight_dtype) {
    mp_recipe* recipe = NULL;
    require(mp_recipe_create(context, name, &recipe), "mp_recipe_create");
    float* x_values = numbers((size_t)kRows * kIn, 1);
    float* w_values = numbers((size_t)kOut * kIn, 2);
    mp_tensor* x = tensor(context, dtype, kRows, kIn, x_values);
    mp_tensor* weight = tensor(context, weight_dtype, kOut, kIn, w_values);
    mp_tensor* gradient = tensor(context, MP_DTYPE_FP32, kOut, kIn, NULL);
    mp_tensor* y = tensor(context, dtype, kRows, kOut, NULL);
    mp_tensor* dx = tensor(context, dtype, kRows, kIn, NULL);
    mp_linear_desc linear_desc = MP_LINEAR_DESC_INIT;
    linear_desc.in_features = kIn;
    linear_desc.out_features = kOut;
    mp_linear* linear = NULL;
    require(mp_linear_create(context, recipe, &linear_desc, weight, NULL, &linear),
            "mp_linear_create");
    mp_optimizer* optimizer = NULL;
    require(mp_optimizer_create(context, recipe, NULL, &optimizer), "mp_optimizer_create");
    int32_t group = 0;
    require(mp_optimizer_add_group(optimizer, NULL, &group), "mp_optimizer_add_group");
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "weight";
    param.param = weight;
    param.grad = gradient;
    require(mp_optimizer_add_param(optimizer, group, &param, NULL), "mp_optimizer_add_param");
    for (int step = 0; step < kSteps; ++step) {
        require(mp_linear_forward(linear, NULL, x, y), "mp_linear_forward");
        require(mp_linear_backward(linear, NULL, y, dx, gradient, NULL, 0), "mp_linear_backward");
        require(mp_optimizer_step(optimizer, NULL, NULL), "mp_optimizer_step");
    }
    printf("%s %016llx\n", name, (unsigned long long)hash_of(weight, mp_dtype_size(weight_dtype)));
    mp_optimizer_destroy(optimizer);
    mp_linear_destroy(linear);
    mp_tensor_destroy(dx);
    mp_tensor_destroy(y);
    mp_tensor_destroy(gradient);
    mp_tensor_destroy(weight);
    mp_tensor_destroy(x);
    mp_recipe_destroy(recipe);
    free(w_values);
    free(x_values);
}

int main(void) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    mp_context* context = NULL;
    require(mp_context_create(&desc, &context), "mp_context_create");
    train(context, "fp32", MP_DTYPE_FP32, MP_DTYPE_FP32);
    train(context, "bf16_pure_kahan", MP_DTYPE_BF16, MP_DTYPE_BF16);
    train(context, "fp8_current", MP_DTYPE_BF16, MP_DTYPE_FP32);
    mp_context_destroy(context);
    return 0;
}
