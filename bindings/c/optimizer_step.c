// SPDX-License-Identifier: Apache-2.0
// The program that every folder of bindings/ writes in its own language: AdamW on its own arrays, by tensors, straight
// on pointers, and in bf16 with Kahan compensation. It prints every bit, and all of them must print the same.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mixedprec.h>

enum { kSteps = 10, kCount = 37, kKahanCount = 300, kColumns = 15 };

// Stops at the first failure; hands a positive status, success with a note, back.
static mp_status check(mp_status status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, mp_status_string(status), mp_last_error_message());
        exit(1);
    }
    return status;
}
#define CHECK(call) check((call), #call)

#define LAYOUT(type, ...)                                                                          \
    do {                                                                                           \
        const size_t offsets_[] = {__VA_ARGS__};                                                   \
        printf("layout " #type " %zu:", sizeof(type));                                             \
        for (size_t i_ = 0; i_ < sizeof offsets_ / sizeof *offsets_; ++i_) {                       \
            printf(" %zu", offsets_[i_]);                                                          \
        }                                                                                          \
        putchar('\n');                                                                             \
    } while (0)
#define AT(field) offsetof(S, field)

static void print_layouts(void) {
#define S mp_context_desc
    LAYOUT(mp_context_desc, AT(struct_size), AT(flags), AT(api_version), AT(device_kind),
           AT(device_index), AT(num_threads), AT(log_level), AT(reserved), AT(backend),
           AT(allocate), AT(release), AT(allocator_payload), AT(log), AT(log_payload), AT(parallel),
           AT(parallel_payload));
#undef S
#define S mp_tensor_desc
    LAYOUT(mp_tensor_desc, AT(struct_size), AT(flags), AT(dtype), AT(ndim), AT(shape),
           AT(device_kind), AT(device_index));
#undef S
#define S mp_optimizer_desc
    LAYOUT(mp_optimizer_desc, AT(struct_size), AT(flags), AT(seed), AT(max_grad_norm));
#undef S
#define S mp_param_group_desc
    LAYOUT(mp_param_group_desc, AT(struct_size), AT(flags), AT(lr), AT(beta1), AT(beta2), AT(eps),
           AT(weight_decay), AT(rule), AT(reserved), AT(exp_avg_format), AT(exp_avg_sq_format));
#undef S
#define S mp_param_desc
    LAYOUT(mp_param_desc, AT(struct_size), AT(flags), AT(name), AT(param), AT(grad), AT(init_fp32));
#undef S
#define S mp_optimizer_stats
    LAYOUT(mp_optimizer_stats, AT(struct_size), AT(found_inf), AT(step), AT(skipped_steps),
           AT(grad_norm), AT(grad_mul));
#undef S
#define S mp_step_slot
    LAYOUT(mp_step_slot, AT(struct_size), AT(flags), AT(count), AT(uid), AT(param), AT(grad),
           AT(exp_avg), AT(exp_avg_sq), AT(compensation), AT(master), AT(param_dtype),
           AT(grad_dtype), AT(exp_avg_dtype), AT(exp_avg_sq_dtype), AT(compensation_dtype),
           AT(master_dtype), AT(param_scale_inv), AT(grad_scale_inv), AT(exp_avg_scale_inv),
           AT(exp_avg_sq_scale_inv), AT(master_scale_inv), AT(exp_avg_coding),
           AT(exp_avg_sq_coding), AT(master_coding), AT(compensation_coding),
           AT(compensation_scale_inv), AT(first_element), AT(param_amax));
#undef S
#define S mp_step_args
    LAYOUT(mp_step_args, AT(struct_size), AT(flags), AT(step), AT(seed), AT(lr), AT(beta1),
           AT(beta2), AT(eps), AT(weight_decay), AT(max_grad_norm), AT(grad_scale), AT(lr_pointer),
           AT(grad_scale_pointer), AT(rule), AT(reserved), AT(step_pointer), AT(hyper_pointer),
           AT(grad_mul_pointer));
#undef S
}

static mp_context* open_context(void) {
    mp_context* context = NULL;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    CHECK(mp_context_create(&desc, &context));
    return context;
}

static mp_tensor* wrap(mp_context* context, int32_t dtype, int64_t count, void* data) {
    mp_tensor* tensor = NULL;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = 1;
    desc.shape[0] = count;
    CHECK(mp_tensor_wrap(context, &desc, data, NULL, NULL, &tensor));
    return tensor;
}

static mp_optimizer* make_optimizer(mp_context* context, const char* recipe_name) {
    mp_recipe* recipe = NULL;
    mp_optimizer* optimizer = NULL;
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = -1;
    CHECK(mp_recipe_create(context, recipe_name, &recipe));
    CHECK(mp_optimizer_create(context, recipe, NULL, &optimizer));
    mp_recipe_destroy(recipe); // the optimizer keeps what it needs
    group.weight_decay = 0.01;
    if (CHECK(mp_optimizer_add_group(optimizer, &group, &index)) > 0) {
        printf("note %s: %s\n", recipe_name, mp_last_error_message());
    }
    return optimizer;
}

static void add_param(mp_optimizer* optimizer, const char* name, mp_tensor* param, mp_tensor* grad,
                      mp_tensor* init_fp32) {
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = name;
    desc.param = param;
    desc.grad = grad;
    desc.init_fp32 = init_fp32;
    CHECK(mp_optimizer_add_param(optimizer, 0, &desc, NULL));
}

static void read_state(mp_optimizer* optimizer, const char* state, void* data, size_t bytes) {
    mp_tensor* tensor = NULL;
    CHECK(mp_optimizer_get_state(optimizer, 0, state, &tensor));
    CHECK(mp_tensor_read(tensor, NULL, data, bytes));
    mp_tensor_destroy(tensor);
}

static void fill(float* values, float value) {
    for (int i = 0; i < kCount; ++i) {
        values[i] = value;
    }
}

// All elements of the fp32 runs are the same; one that is not shows as a missing line.
static void print_step(const char* run, int step, float* const arrays[4]) {
    uint32_t bits[4];
    for (int a = 0; a < 4; ++a) {
        for (int i = 1; i < kCount; ++i) {
            if (memcmp(&arrays[a][i], &arrays[a][0], sizeof(float)) != 0) {
                return;
            }
        }
        memcpy(&bits[a], arrays[a], sizeof(float));
    }
    printf("%s step %d grad %08" PRIx32 " param %08" PRIx32 " exp_avg %08" PRIx32
           " exp_avg_sq %08" PRIx32 "\n",
           run, step, bits[0], bits[1], bits[2], bits[3]);
}

static void run_tensors(mp_context* context) {
    float p[kCount], g[kCount], m[kCount], v[kCount];
    mp_optimizer* optimizer = make_optimizer(context, "fp32");
    mp_tensor* param = wrap(context, MP_DTYPE_FP32, kCount, p);
    mp_tensor* grad = wrap(context, MP_DTYPE_FP32, kCount, g);
    mp_optimizer_stats stats = {0};
    fill(p, 1.0F);
    add_param(optimizer, "p", param, grad, NULL);
    for (int t = 1; t <= kSteps; ++t) {
        fill(g, (float)sin(t));
        CHECK(mp_optimizer_step(optimizer, NULL, NULL));
        CHECK(mp_context_sync(context));
        read_state(optimizer, "exp_avg", m, sizeof m);
        read_state(optimizer, "exp_avg_sq", v, sizeof v);
        print_step("tensors", t, (float* const[]){g, p, m, v});
    }
    stats.struct_size = sizeof stats;
    CHECK(mp_optimizer_get_stats(optimizer, NULL, &stats));
    printf("stats step %" PRId64 " skipped %" PRId64 "\n", stats.step, stats.skipped_steps);
    mp_tensor_destroy(grad);
    mp_tensor_destroy(param);
    mp_optimizer_destroy(optimizer);
}

static void run_pointers(mp_context* context) {
    float p[kCount], g[kCount], m[kCount], v[kCount];
    mp_step_args args = MP_STEP_ARGS_INIT;
    mp_step_slot slot = {0};
    slot.struct_size = sizeof slot;
    slot.count = kCount;
    slot.param = p;
    slot.grad = g;
    slot.exp_avg = m;
    slot.exp_avg_sq = v;
    slot.param_dtype = slot.grad_dtype = MP_DTYPE_FP32;
    slot.exp_avg_dtype = slot.exp_avg_sq_dtype = MP_DTYPE_FP32;
    args.weight_decay = 0.01;
    fill(p, 1.0F);
    fill(m, 0.0F);
    fill(v, 0.0F);
    for (int t = 1; t <= kSteps; ++t) {
        fill(g, (float)sin(t));
        args.step = t;
        CHECK(mp_optimizer_step_pointers(context, NULL, &args, &slot, 1, NULL, NULL));
        print_step("pointers", t, (float* const[]){g, p, m, v});
    }
}

static uint32_t next_random(uint32_t* state) { return *state = *state * 1664525U + 1013904223U; }

// 24 bits, so exact in fp32, in [-1, 1).
static float next_fp32(uint32_t* state) {
    return (float)((int32_t)(next_random(state) >> 8) - 8388608) / 8388608.0F;
}

// 8 bits, so exact in bf16, whose code is then the upper half of fp32's; in [-0.125, 0.125).
static uint16_t next_bf16(uint32_t* state) {
    const float value = (float)((int32_t)(next_random(state) >> 24) - 128) / 1024.0F;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void print_kahan(mp_optimizer* optimizer, const char* state) {
    uint16_t bits[kKahanCount];
    read_state(optimizer, state, bits, sizeof bits);
    for (int i = 0; i < kKahanCount; i += kColumns) {
        printf("kahan %s %d", state, i);
        for (int j = i; j < i + kColumns; ++j) {
            printf(" %04x", (unsigned)bits[j]);
        }
        putchar('\n');
    }
}

static void run_kahan(mp_context* context) {
    uint16_t p[kKahanCount] = {0}, g[kKahanCount] = {0};
    float start[kKahanCount];
    uint32_t state = 1;
    mp_optimizer* optimizer = make_optimizer(context, "bf16_pure_kahan");
    mp_tensor* param = wrap(context, MP_DTYPE_BF16, kKahanCount, p);
    mp_tensor* grad = wrap(context, MP_DTYPE_BF16, kKahanCount, g);
    mp_tensor* init = wrap(context, MP_DTYPE_FP32, kKahanCount, start);
    for (int i = 0; i < kKahanCount; ++i) {
        start[i] = next_fp32(&state);
    }
    add_param(optimizer, "p", param, grad, init);
    mp_tensor_destroy(init);
    for (int t = 1; t <= kSteps; ++t) {
        for (int i = 0; i < kKahanCount; ++i) {
            g[i] = next_bf16(&state);
        }
        CHECK(mp_optimizer_step(optimizer, NULL, NULL));
        CHECK(mp_context_sync(context));
    }
    print_kahan(optimizer, "param");
    print_kahan(optimizer, "compensation");
    print_kahan(optimizer, "exp_avg");
    print_kahan(optimizer, "exp_avg_sq");
    mp_tensor_destroy(grad);
    mp_tensor_destroy(param);
    mp_optimizer_destroy(optimizer);
}

int main(void) {
    const uint32_t version = mp_library_version();
    mp_context* context = open_context();
    mp_recipe* recipe = NULL;
    printf("library %" PRIu32 ".%" PRIu32 ".%" PRIu32 "\n", version / 10000, version / 100 % 100,
           version % 100);
    print_layouts();
    const mp_status status = mp_recipe_create(context, "bf16_pure_kahn", &recipe);
    printf("error %" PRId32 " %s: %s\n", status, mp_status_string(status), mp_last_error_message());
    run_tensors(context);
    run_pointers(context);
    run_kahan(context);
    mp_context_destroy(context);
    return 0;
}
