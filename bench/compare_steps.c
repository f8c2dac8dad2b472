/* SPDX-License-Identifier: Apache-2.0
 * Times steps of the optimizer on memory in many layouts, when asked: half of compare_steps.py, which runs two of these,
 * built against two versions of the library, in turns. It uses what both versions have. */
#include "compare.h"

#include <string.h>

#define FP32 MP_DTYPE_FP32
#define FP16 MP_DTYPE_FP16
#define BF16 MP_DTYPE_BF16
#define FP8 MP_DTYPE_FP8_E4M3
#define U8 MP_DTYPE_UINT8
#define I16 MP_DTYPE_INT16
#define NONE MP_DTYPE_NONE
#ifndef MP_STEP_SR_STATE /* before, each state had a name */
#define MP_STEP_SR_STATE MP_STEP_SR_EXP_AVG
#endif

typedef struct Mix {
    const char* name;
    int32_t dtypes[6]; /* param, grad, exp_avg, exp_avg_sq, compensation, master */
    int32_t coding;    /* of both moments */
    int32_t master_coding;
    int is_scaled; /* one scale for each array that may have one */
    uint32_t flags;
} Mix;

/* Arrays in the order of Mix.dtypes. */
#ifdef MP_ARRAY_INIT
static void set_arrays(mp_step_slot* slot, const Mix* mix, void** at, float** scale_invs) {
    mp_array* const arrays[6] = {&slot->param,     &slot->grad,         &slot->states[0],
                                 &slot->states[1], &slot->compensation, &slot->master};
    for (int i = 0; i < 6; ++i) {
        arrays[i]->data = at[i];
        arrays[i]->scale_inv = scale_invs[i];
        arrays[i]->dtype = mix->dtypes[i];
        arrays[i]->coding = i == 2 || i == 3 ? mix->coding : i == 5 ? mix->master_coding : 0;
    }
}
#else /* before the arrays of a slot were one type */
static void set_arrays(mp_step_slot* slot, const Mix* mix, void** at, float** scale_invs) {
    slot->param = at[0], slot->param_dtype = mix->dtypes[0], slot->param_scale_inv = scale_invs[0];
    slot->grad = at[1], slot->grad_dtype = mix->dtypes[1], slot->grad_scale_inv = scale_invs[1];
    slot->exp_avg = at[2], slot->exp_avg_dtype = mix->dtypes[2];
    slot->exp_avg_sq = at[3], slot->exp_avg_sq_dtype = mix->dtypes[3];
    slot->exp_avg_scale_inv = scale_invs[2], slot->exp_avg_sq_scale_inv = scale_invs[3];
    slot->compensation = at[4], slot->compensation_dtype = mix->dtypes[4];
    slot->master = at[5], slot->master_dtype = mix->dtypes[5];
    slot->exp_avg_coding = slot->exp_avg_sq_coding = mix->coding;
    slot->master_coding = mix->master_coding;
}
#endif

static const Mix kMixes[] = {
    {"fp32", {FP32, FP32, FP32, FP32, NONE, NONE}, 0, 0, 0, 0},
    {"fp32, bf16 v", {FP32, FP32, FP32, BF16, NONE, NONE}, 0, 0, 0, 0},
    {"bf16 p, g", {BF16, BF16, FP32, FP32, NONE, NONE}, 0, 0, 0, 0},
    {"bf16 p, g, fp32 master", {BF16, BF16, FP32, FP32, NONE, FP32}, 0, 0, 0, 0},
    {"bf16", {BF16, BF16, BF16, BF16, NONE, NONE}, 0, 0, 0, 0},
    {"bf16 Kahan", {BF16, BF16, BF16, BF16, BF16, NONE}, 0, 0, 0, 0},
    {"bf16 SR",
     {BF16, BF16, BF16, BF16, NONE, NONE},
     0,
     0,
     0,
     MP_STEP_SR_PARAM | MP_STEP_SR_STATE << 1},
    {"bf16 p, g, remainder", {BF16, BF16, FP32, FP32, NONE, I16}, 0, MP_CODING_REMAINDER, 0, 0},
    {"bf16 p, g, fp8 blocks", {BF16, BF16, FP8, FP8, NONE, NONE}, MP_CODING_FP8_BLOCK, 0, 0, 0},
    {"bf16 p, g, int8 blocks", {BF16, BF16, U8, U8, NONE, NONE}, MP_CODING_DYNAMIC8, 0, 0, 0},
    {"remainder, int8 blocks",
     {BF16, BF16, U8, U8, NONE, I16},
     MP_CODING_DYNAMIC8,
     MP_CODING_REMAINDER,
     0,
     0},
    {"fp32 p, g, int4 blocks", {FP32, FP32, U8, U8, NONE, NONE}, MP_CODING_DYNAMIC4, 0, 0, 0},
    {"msamp_o2", {FP16, FP8, FP8, FP16, NONE, NONE}, 0, 0, 1, 0},
};

typedef struct Size {
    const char* name;
    int tensors;
    int64_t count; /* of each */
} Size;

static const Size kSizes[] = {{"4 Mi elements", 1, 4 << 20},
                              {"16 Ki elements", 1, 16 << 10},
                              {"148 tensors of 857", 148, 857}};

enum {
    kMixCount = sizeof kMixes / sizeof kMixes[0],
    kSizeCount = sizeof kSizes / sizeof kSizes[0]
};

typedef struct Steps {
    mp_step_args args;
    mp_step_slot* slots;
    int count;
    void* memory[8];
} Steps;

static void* zeros(int64_t bytes) {
    void* memory = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    if (memory == NULL) {
        exit(1);
    }
    memset(memory, 0, (size_t)bytes);
    return memory;
}

static Steps make_steps(const Mix* mix, const Size* size) {
    const mp_step_args args = MP_STEP_ARGS_INIT;
    const int64_t all = (int64_t)size->tensors * size->count;
    Steps s;
    unsigned char* arrays[6];
    int64_t bytes[6];
    memset(&s, 0, sizeof s);
    s.args = args;
    s.args.flags |= mix->flags;
    s.args.seed = 1;
    s.args.lr = 1e-3;
    s.args.step = 1;
    s.count = size->tensors;
    s.slots = calloc((size_t)s.count, sizeof *s.slots);
    for (int i = 0; i < 6; ++i) {
        bytes[i] = mix->dtypes[i] == NONE ? 0 : (int64_t)mp_dtype_size(mix->dtypes[i]);
        arrays[i] = s.memory[i] = mix->dtypes[i] == NONE ? NULL : zeros(bytes[i] * all);
    }
    for (int64_t i = 0; i < all * bytes[1]; ++i) {
        arrays[1][i] = (unsigned char)(0x38 + i % 5); /* normal numbers of any type, 2^-15 to 2 */
    }
    float* scales = s.memory[6] = zeros((int64_t)sizeof(float) * (2 * (all / 32) + 64 * s.count));
    for (int t = 0; t < s.count; ++t) {
        mp_step_slot* slot = &s.slots[t];
        void* at[6];
        for (int i = 0; i < 6; ++i) {
            at[i] = arrays[i] == NULL ? NULL : arrays[i] + bytes[i] * size->count * t;
        }
        slot->struct_size = sizeof *slot;
        slot->count = size->count;
        slot->uid = (uint64_t)t;
        float* scale_invs[6] = {NULL};
        if (mix->coding != 0) {
            scale_invs[2] = scales;
            scale_invs[3] = scales + size->count / 32 + 16;
            scales += 2 * (size->count / 32 + 16);
        } else if (mix->is_scaled) {
            for (int i = 0; i < 4; ++i) {
                scale_invs[i] = scales + i;
            }
            scales[0] = scales[1] = 1.0F;
            scales += 4;
        }
        set_arrays(slot, mix, at, scale_invs);
    }
    return s;
}

static Steps rows[kMixCount * kSizeCount];

static void print_name(int row) {
    printf("%s; %s", kMixes[row % kMixCount].name, kSizes[row / kMixCount].name);
}

static void prepare(mp_context* context, int row) {
    (void)context;
    rows[row] = make_steps(&kMixes[row % kMixCount], &kSizes[row / kMixCount]);
}

static void run(mp_context* context, int row) {
    Steps* s = &rows[row];
    check(mp_optimizer_step_pointers(context, NULL, &s->args, s->slots, s->count, NULL, NULL),
          kMixes[row % kMixCount].name);
    s->args.step += 1;
}

int main(int argc, char** argv) {
    const Program program = {kMixCount * kSizeCount, print_name, prepare, run};
    const int code = serve(&program, argc, argv);
    for (int i = 0; i < kMixCount * kSizeCount; ++i) {
        for (int k = 0; k < 8; ++k) {
            free(rows[i].memory[k]);
        }
        free(rows[i].slots);
    }
    return code;
}
