/* SPDX-License-Identifier: Apache-2.0
 * Steps of the optimizer: straight on memory in many types and codings, and by every recipe. */
#include "bits.h"

#include <stdio.h>
#include <string.h>

enum { kCount = 5003, kSteps = 6 }; /* more than a block of codes, not a multiple of one */

typedef struct Row {
    const char* name;
    int32_t param, grad, exp_avg, exp_avg_sq, compensation, master;
    int32_t exp_avg_coding, exp_avg_sq_coding, master_coding;
    uint32_t flags;
    int32_t compensation_coding;
} Row;

#define FP32 MP_DTYPE_FP32
#define FP16 MP_DTYPE_FP16
#define BF16 MP_DTYPE_BF16
#define FP8 MP_DTYPE_FP8_E4M3
#define U8 MP_DTYPE_UINT8
#define I16 MP_DTYPE_INT16
#define NONE MP_DTYPE_NONE

static const Row kRows[] = {
    {"fp32", FP32, FP32, FP32, FP32, NONE, NONE, 0, 0, 0, 0, 0},
    {"fp32_clipped", FP32, FP32, FP32, FP32, NONE, NONE, 0, 0, 0, MP_OPTIMIZER_CHECK_FINITE, 0},
    {"fp32_l2", FP32, BF16, FP32, FP32, NONE, NONE, 0, 0, 0, MP_RULE_MAXIMIZE, 0},
    {"bf16", BF16, BF16, BF16, BF16, NONE, NONE, 0, 0, 0, 0, 0},
    {"bf16_kahan", BF16, BF16, BF16, BF16, BF16, NONE, 0, 0, 0, 0, 0},
    {"bf16_kahan_fp32_states", BF16, FP32, FP32, FP32, FP32, NONE, 0, 0, 0, 0, 0},
    {"fp16_kahan", FP16, FP16, FP16, FP32, FP16, NONE, 0, 0, 0, 0, 0},
    {"bf16_sr", BF16, BF16, BF16, BF16, NONE, NONE, 0, 0, 0,
     MP_STEP_SR_PARAM | MP_STEP_SR_STATE | MP_STEP_SR_STATE << 1, 0},
    {"fp16_sr", FP16, FP16, FP16, FP16, NONE, NONE, 0, 0, 0, MP_STEP_SR_PARAM, 0},
    {"bf16_kahan_sr", BF16, BF16, BF16, BF16, BF16, NONE, 0, 0, 0, MP_STEP_SR_STATE << 1, 0},
    {"bf16_master", BF16, BF16, FP32, FP32, NONE, FP32, 0, 0, 0, 0, 0},
    {"fp16_master", FP16, FP16, FP32, FP32, NONE, FP32, 0, 0, 0, MP_OPTIMIZER_ZERO_GRAD, 0},
    {"bf16_remainder", BF16, BF16, FP32, BF16, NONE, I16, 0, 0, MP_CODING_REMAINDER, 0, 0},
    {"fp8_blocks", BF16, BF16, FP8, FP8, BF16, NONE, MP_CODING_FP8_BLOCK, MP_CODING_FP8_BLOCK, 0, 0,
     0},
    {"dynamic8", FP32, FP32, U8, U8, NONE, NONE, MP_CODING_DYNAMIC8, MP_CODING_DYNAMIC8, 0, 0, 0},
    {"dynamic4", FP32, BF16, U8, U8, NONE, NONE, MP_CODING_DYNAMIC4, MP_CODING_DYNAMIC4, 0, 0, 0},
    {"dynamic8_remainder", BF16, FP32, U8, U8, NONE, I16, MP_CODING_DYNAMIC8, MP_CODING_DYNAMIC8,
     MP_CODING_REMAINDER, 0, 0},
    {"fp8_blocks_of_128", BF16, BF16, FP8, FP8, NONE, NONE, MP_CODING_FP8_BLOCK128,
     MP_CODING_FP8_BLOCK128, 0, MP_STEP_SR_STATE | MP_STEP_SR_STATE << 1, 0},
    {"companded8", BF16, BF16, U8, U8, NONE, NONE, MP_CODING_COMPANDED8, MP_CODING_COMPANDED8, 0, 0,
     0},
    {"kahan_int8", BF16, BF16, BF16, BF16, U8, NONE, 0, 0, 0, 0, MP_CODING_DYNAMIC8},
    {"kahan_fp8", BF16, FP32, FP32, U8, FP8, NONE, 0, MP_CODING_COMPANDED8, 0, 0,
     MP_CODING_FP8_BLOCK128},
};

/* The memory of one state: NULL where there is none. */
static mp_tensor* make_state(Bits* bits, int32_t dtype) {
    return dtype == NONE ? NULL : make(bits, dtype, 1, kCount);
}

static void* data_or_null(const mp_tensor* tensor) {
    return tensor == NULL ? NULL : data_of(tensor);
}

typedef struct States {
    mp_tensor* all[6]; /* param, grad, exp_avg, exp_avg_sq, compensation, master */
    mp_tensor* scales[3];
    mp_step_slot slot;
} States;

static void open_states(Bits* bits, const Row* row, States* s) {
    mp_step_slot* slot = &s->slot;
    memset(s, 0, sizeof *s);
    s->all[0] = make_numbers(bits, row->param, 1, kCount, 31, 1.0F);
    s->all[1] = make_state(bits, row->grad);
    s->all[2] = make_state(bits, row->exp_avg);
    s->all[3] = make_state(bits, row->exp_avg_sq);
    s->all[4] = make_state(bits, row->compensation);
    s->all[5] = row->master == FP32 ? make_numbers(bits, FP32, 1, kCount, 31, 1.0F)
                                    : make_state(bits, row->master);
    for (int i = 0; i < 3; ++i) {
        s->scales[i] = make(bits, FP32, 1, kCount / 32 + 1); /* enough for every coding */
    }
    slot->struct_size = sizeof *slot;
    slot->count = kCount;
    slot->uid = 4;
    slot->param.data = data_of(s->all[0]);
    slot->grad.data = data_of(s->all[1]);
    slot->states[0].data = data_of(s->all[2]);
    slot->states[1].data = data_of(s->all[3]);
    slot->compensation.data = data_or_null(s->all[4]);
    slot->master.data = data_or_null(s->all[5]);
    slot->param.dtype = row->param;
    slot->grad.dtype = row->grad;
    slot->states[0].dtype = row->exp_avg;
    slot->states[1].dtype = row->exp_avg_sq;
    slot->compensation.dtype = row->compensation;
    slot->master.dtype = row->master;
    slot->states[0].coding = row->exp_avg_coding;
    slot->states[1].coding = row->exp_avg_sq_coding;
    slot->master.coding = row->master_coding;
    slot->states[0].scale_inv = row->exp_avg_coding != 0 ? data_of(s->scales[0]) : NULL;
    slot->states[1].scale_inv = row->exp_avg_sq_coding != 0 ? data_of(s->scales[1]) : NULL;
    slot->compensation.coding = row->compensation_coding;
    slot->compensation.scale_inv = row->compensation_coding != 0 ? data_of(s->scales[2]) : NULL;
}

static void show_pointer_step(Bits* bits, const Row* row) {
    static const char* const kNames[] = {"param",      "grad",         "exp_avg",
                                         "exp_avg_sq", "compensation", "master"};
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    mp_optimizer_stats stats;
    States s;
    char name[64];
    int i = 0;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    open_states(bits, row, &s);
    args.flags |= row->flags;
    args.rule = row->flags == MP_RULE_MAXIMIZE ? MP_RULE_ADAM : MP_RULE_ADAMW;
    args.weight_decay = 0.1;
    args.seed = 3;
    args.max_grad_norm = (row->flags & MP_OPTIMIZER_CHECK_FINITE) != 0 ? 1.0 : 0.0;
    for (args.step = 1; args.step <= kSteps; ++args.step) {
        mp_tensor* grad = make_numbers(bits, FP32, 1, kCount, (uint32_t)(100 + args.step), 0.125F);
        OK(mp_tensor_cast(grad, NULL, s.all[1], NULL));
        mp_tensor_destroy(grad);
        OK(mp_optimizer_step_pointers(bits->context, NULL, &args, &s.slot, 1, NULL, &stats));
    }
    (void)snprintf(name, sizeof name, "step_pointers.%s", row->name);
    for (i = 0; i < 6; ++i) {
        if (s.all[i] != NULL) {
            show_tensor(name, kNames[i], s.all[i]);
        }
        mp_tensor_destroy(s.all[i]);
    }
    show_tensor(name, "exp_avg_scales", s.scales[0]);
    show_tensor(name, "exp_avg_sq_scales", s.scales[1]);
    show(&stats.grad_norm, sizeof stats.grad_norm, "%s.norm", name);
    if (row->compensation_coding != 0) {
        show_tensor(name, "compensation_scales", s.scales[2]);
    }
    for (i = 0; i < 3; ++i) {
        mp_tensor_destroy(s.scales[i]);
    }
}

void show_pointer_steps(Bits* bits) {
    size_t i = 0;
    for (i = 0; i < sizeof kRows / sizeof kRows[0]; ++i) {
        show_pointer_step(bits, &kRows[i]);
    }
}

/* A parameter in the type that the recipe wants; with a scale for its codes where the name says so. */
static mp_tensor* make_weight(Bits* bits, const mp_recipe* recipe, int64_t rows, int64_t columns) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    const char* type = NULL;
    OK(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &type));
    quant.rule = MP_SCALE_RULE_MSAMP;
    if (strcmp(type, "fp16_scaled") == 0) {
        return make_quantized(bits, FP16, rows, columns, &quant);
    }
    if (strcmp(type, "fp8_e4m3_scaled") == 0) {
        return make_quantized(bits, FP8, rows, columns, &quant);
    }
    return make(bits,
                strcmp(type, "fp16") == 0   ? FP16
                : strcmp(type, "bf16") == 0 ? BF16
                                            : FP32,
                rows, columns);
}

static const int64_t kShapes[][2] = {{67, 131}, {1, 129}, {1, 1}};
enum { kParams = 3 };

static void add_params(Bits* bits, const mp_recipe* recipe, mp_optimizer* optimizer) {
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = 0;
    int32_t i = 0;
    group.lr = 1e-2;
    group.weight_decay = 0.1;
    OK(mp_optimizer_add_group(optimizer, &group, &index));
    for (i = 0; i < kParams; ++i) {
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        mp_tensor* init =
            make_numbers(bits, FP32, kShapes[i][0], kShapes[i][1], 40U + (uint32_t)i, 1.0F);
        char name[16];
        (void)snprintf(name, sizeof name, "p%d", (int)i);
        desc.name = name;
        desc.param = make_weight(bits, recipe, kShapes[i][0], kShapes[i][1]);
        desc.init_fp32 = init;
        OK(mp_optimizer_add_param(optimizer, index, &desc, NULL));
        mp_tensor_destroy(desc.param);
        mp_tensor_destroy(init);
    }
}

/* One infinite gradient in the third step, which must then change nothing. */
static void set_gradients(Bits* bits, mp_optimizer* optimizer, int step, double scale) {
    int32_t i = 0;
    for (i = 0; i < kParams; ++i) {
        mp_tensor* grad = NULL;
        mp_tensor* numbers = make_numbers(bits, FP32, kShapes[i][0], kShapes[i][1],
                                          (uint32_t)(50 * step + i), 0.125F);
        float* at = data_of(numbers);
        int64_t k = 0;
        for (k = 0; k < kShapes[i][0] * kShapes[i][1]; ++k) {
            at[k] *= (float)scale; /* a power of two */
        }
        if (step == 3 && i == 1) {
            const uint32_t infinity = 0x7f800000U;
            memcpy(at, &infinity, sizeof infinity);
        }
        OK(mp_optimizer_get_state(optimizer, i, "grad", &grad));
        assign(grad, numbers);
        mp_tensor_destroy(grad);
        mp_tensor_destroy(numbers);
    }
}

static void show_states(const char* name, mp_optimizer* optimizer) {
    static const char* const kStates[] = {
        "param",
        "exp_avg",
        "exp_avg_sq",
        "compensation",
        "master",
        "grad",
        "param_scale_inv",
        "grad_scale_inv",
        "master_scale_inv",
        "exp_avg_scale_inv",
        "exp_avg_sq_scale_inv",
    };
    char group[160];
    int32_t i = 0;
    size_t state = 0;
    for (i = 0; i < kParams; ++i) {
        (void)snprintf(group, sizeof group, "recipe.%s.p%d", name, (int)i);
        for (state = 0; state < sizeof kStates / sizeof kStates[0]; ++state) {
            mp_tensor* tensor = NULL;
            const mp_status status = mp_optimizer_get_state(optimizer, i, kStates[state], &tensor);
            if (status == MP_STATUS_UNKNOWN_NAME) {
                continue; /* this recipe has none of it */
            }
            OK(status);
            show_tensor(group, kStates[state], tensor);
            mp_tensor_destroy(tensor);
        }
    }
}

static void show_recipe(Bits* bits, const char* name, mp_recipe* recipe) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    mp_scaler_state state;
    mp_optimizer* optimizer = NULL;
    mp_scaler* scaler = NULL;
    int step = 0;
    memset(&state, 0, sizeof state);
    state.struct_size = sizeof state;
    desc.seed = 17;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE;
    OK(mp_optimizer_create(bits->context, recipe, &desc, &optimizer));
    OK(mp_scaler_create_from_recipe(bits->context, recipe, &scaler));
    add_params(bits, recipe, optimizer);
    for (step = 1; step <= kSteps; ++step) {
        double scale = 1.0;
        OK(mp_scaler_get_scale(scaler, NULL, &scale));
        set_gradients(bits, optimizer, step, scale < 1024.0 ? scale : 1024.0);
        OK(mp_optimizer_step(optimizer, NULL, scaler));
        OK(mp_scaler_update(scaler, NULL));
    }
    OK(mp_scaler_get_state(scaler, NULL, &state));
    show(&state, sizeof state, "recipe.%s.scaler", name);
    show_states(name, optimizer);
    mp_scaler_destroy(scaler);
    mp_optimizer_destroy(optimizer);
}

static void show_json(Bits* bits, const char* name, const char* json) {
    mp_recipe* recipe = NULL;
    OK(mp_recipe_create_from_json(bits->context, json, SIZE_MAX, &recipe));
    show_recipe(bits, name, recipe);
    mp_recipe_destroy(recipe);
}

void show_recipe_steps(Bits* bits) {
    int32_t i = 0;
    for (i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = NULL;
        mp_recipe* recipe = NULL;
        OK(mp_recipe_get_preset_info(i, &name, NULL));
        OK(mp_recipe_create(bits->context, name, &recipe));
        show_recipe(bits, name, recipe);
        mp_recipe_destroy(recipe);
    }
    show_json(bits, "int8_kahan",
              "{\"recipe\": \"bf16_pure_kahan\", \"optimizer.exp_avg.dtype\": \"int8_block256\", "
              "\"optimizer.exp_avg_sq.dtype\": \"int8_block256\"}");
    show_json(bits, "fp8_int4_remainder",
              "{\"recipe\": \"bf16_pure_remainder\", \"optimizer.exp_avg.dtype\": "
              "\"fp8_e4m3_block256\", \"optimizer.exp_avg_sq.dtype\": \"int4_block128\"}");
    show_json(bits, "nearest_away",
              "{\"recipe\": \"bf16_mixed_dual\", \"optimizer.weight.rounding\": \"nearest_away\"}");
    show_json(bits, "all_stochastic",
              "{\"recipe\": \"bf16_pure_sr\", \"optimizer.exp_avg.rounding\": \"stochastic\"}");
    show_json(bits, "scaled_moments",
              "{\"recipe\": \"fp16_mixed\", \"optimizer.exp_avg.dtype\": \"fp16_scaled\", "
              "\"optimizer.exp_avg_sq.dtype\": \"fp16_scaled\"}");
}
