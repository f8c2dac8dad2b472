/* SPDX-License-Identifier: Apache-2.0
 * A program as a user of version 0.2 may have written it. It is compiled against the headers of that version (folder
 * include, frozen at the release) and run against the present library: whatever it does must go on working. It is
 * changed only until 0.2 is out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mixedprec.h"

static int failures = 0;

static void expect(int holds, const char* what) {
    if (!holds) {
        printf("FAILED: %s; the library says: %s\n", what, mp_last_error_message());
        failures++;
    }
}

static mp_tensor* matrix(mp_context* context, int32_t dtype, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = dtype;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    expect(mp_tensor_create(context, &desc, &tensor) == MP_STATUS_OK, "mp_tensor_create");
    return tensor;
}

/* Small integers: every format and every order of the sums gives the exact product. */
static void multiply(mp_context* context) {
    enum { kM = 3, kN = 4, kK = 5 };
    float a[kM * kK], b[kK * kN], d[kM * kN], wanted[kM * kN] = {0};
    for (int i = 0; i < kM * kK; i++)
        a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < kK * kN; i++)
        b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < kM; i++)
        for (int j = 0; j < kN; j++)
            for (int k = 0; k < kK; k++)
                wanted[i * kN + j] += a[i * kK + k] * b[k * kN + j];

    mp_tensor *ta = matrix(context, MP_DTYPE_FP32, kM, kK),
              *tb = matrix(context, MP_DTYPE_FP32, kK, kN);
    mp_tensor *la = matrix(context, MP_DTYPE_BF16, kM, kK),
              *lb = matrix(context, MP_DTYPE_BF16, kK, kN);
    mp_tensor* td = matrix(context, MP_DTYPE_FP32, kM, kN);
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = kM;
    desc.n = kN;
    desc.k = kK;
    desc.dtype_a = desc.dtype_b = MP_DTYPE_BF16;
    mp_gemm* gemm = NULL;
    expect(mp_tensor_write(ta, NULL, a, sizeof a) == MP_STATUS_OK, "mp_tensor_write a");
    expect(mp_tensor_write(tb, NULL, b, sizeof b) == MP_STATUS_OK, "mp_tensor_write b");
    expect(mp_tensor_cast(ta, NULL, la, NULL) == MP_STATUS_OK, "mp_tensor_cast a");
    expect(mp_tensor_cast(tb, NULL, lb, NULL) == MP_STATUS_OK, "mp_tensor_cast b");
    expect(mp_gemm_create(context, &desc, &gemm) == MP_STATUS_OK, "mp_gemm_create");
    expect(mp_gemm_run(gemm, NULL, la, lb, NULL, NULL, td) == MP_STATUS_OK, "mp_gemm_run");
    expect(mp_tensor_read(td, NULL, d, sizeof d) == MP_STATUS_OK, "mp_tensor_read");
    expect(memcmp(d, wanted, sizeof d) == 0, "the product of small integers is exact");
    mp_gemm_destroy(gemm);
    mp_tensor* all[] = {ta, tb, la, lb, td};
    for (int i = 0; i < 5; i++)
        mp_tensor_destroy(all[i]);
}

/* Three steps on the caller's own arrays, against AdamW in double. */
static void step_pointers(mp_context* context) {
    enum { kCount = 8 };
    float param[kCount], grad[kCount], m[kCount] = {0}, v[kCount] = {0};
    double p64[kCount], m64[kCount] = {0}, v64[kCount] = {0};
    mp_step_slot slot;
    memset(&slot, 0, sizeof slot);
    slot.struct_size = sizeof slot;
    slot.count = kCount;
    slot.param.data = param;
    slot.grad.data = grad;
    slot.states[0].data = m;
    slot.states[1].data = v;
    slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
        MP_DTYPE_FP32;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 0.01;
    args.weight_decay = 0.1;
    for (int i = 0; i < kCount; i++)
        param[i] = 0.25f * (float)(i - 4), p64[i] = param[i];

    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < kCount; i++)
            grad[i] = 0.5f * (float)(i + step) - 1.75f;
        for (int i = 0; i < kCount; i++) {
            m64[i] = 0.9 * m64[i] + 0.1 * grad[i];
            v64[i] = 0.999 * v64[i] + 0.001 * (double)grad[i] * grad[i];
            p64[i] *= 1 - 0.01 * 0.1;
            p64[i] -= 0.01 / (1 - pow(0.9, step)) * m64[i] /
                      (sqrt(v64[i]) / sqrt(1 - pow(0.999, step)) + 1e-8);
        }
        args.step = step;
        expect(mp_optimizer_step_pointers(context, NULL, &args, &slot, 1, NULL, NULL) ==
                   MP_STATUS_OK,
               "mp_optimizer_step_pointers");
    }
    for (int i = 0; i < kCount; i++)
        expect(fabs(param[i] - p64[i]) < 2e-6, "three steps of AdamW");
}

static void recipes(mp_context* context) {
    mp_recipe* recipe = NULL;
    expect(mp_recipe_create(context, "bf16_pure_kahan", &recipe) == MP_STATUS_OK,
           "mp_recipe_create");
    mp_recipe_destroy(recipe);
    expect(mp_recipe_create(context, "no_such_recipe", &recipe) == MP_STATUS_UNKNOWN_NAME &&
               recipe == NULL,
           "an unknown recipe is refused and gives NULL");
    expect(strstr(mp_last_error_message(), "no_such_recipe") != NULL,
           "the message names the unknown recipe");
}

int main(void) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_context* context = NULL;
    desc.num_threads = 1;
    expect(mp_library_version() >= MP_VERSION, "the library is at least as new as this program");
    expect(mp_context_create(&desc, &context) == MP_STATUS_OK, "mp_context_create");
    if (context != NULL) {
        multiply(context);
        step_pointers(context);
        recipes(context);
    }
    mp_context_destroy(context);
    printf("client of %d.%d: %d failures\n", MP_VERSION_MAJOR, MP_VERSION_MINOR, failures);
    return failures != 0;
}
