// SPDX-License-Identifier: Apache-2.0
// Every preset, key by key, against what its original publishes. The table was typed from the originals, not from the
// presets; where we differ on purpose a comment says why.
#include <map>
#include <set>

#include "support.hpp"

using namespace mp_test;

namespace {

using Keys = std::map<std::string, std::string>;

Keys operator+(Keys keys, const Keys& changed) {
    for (const auto& [name, value] : changed) {
        keys[name] = value;
    }
    return keys;
}

// All fp32. Numbers that only count where fp8 or a loss scale is used are Transformer Engine's (DelayedScaling: margin 0,
// HYBRID, amax_history_len 1024, "max", reduce_amax, no override) and torch's (GradScaler: 65536, 2, 0.5, 2000).
const Keys kFp32 = {
    {"gemm.fprop.dtype", "fp32"},
    {"gemm.dgrad.dtype", "fp32"},
    {"gemm.wgrad.dtype", "fp32"},
    {"weight.dtype", "fp32"},
    {"master.dtype", "none"},
    {"grad.dtype", "fp32"},
    {"grad.reduce.dtype", "fp32"},
    {"grad.reduce.scale", "shared"},
    {"weight.gather.dtype", "fp32"},
    {"optimizer.exp_avg.dtype", "fp32"},
    {"optimizer.exp_avg_sq.dtype", "fp32"},
    {"optimizer.compensation.dtype", "none"},
    {"optimizer.block_min_elements", "4096"}, // torchao, bitsandbytes
    {"optimizer.weight.rounding", "nearest"},
    {"optimizer.exp_avg.rounding", "nearest"},
    {"optimizer.exp_avg_sq.rounding", "nearest"},
    {"gemm.scaling", "none"},
    {"fp8.format", "hybrid"},
    {"gemm.fprop.quantized", "on"},
    {"gemm.dgrad.quantized", "on"},
    {"gemm.wgrad.quantized", "on"},
    {"gemm.input.rounding", "nearest"},
    {"gemm.weight.rounding", "nearest"},
    {"gemm.grad_output.rounding", "nearest"},
    {"gemm.scale_rule", "current"},
    {"gemm.power_of_two_scale", "off"},
    {"gemm.amax_epsilon", "0"},
    {"gemm.margin", "0"},
    {"gemm.interval", "1"},
    {"gemm.amax_history_len", "1024"},
    {"gemm.amax_compute_algo", "max"},
    {"gemm.warm_up", "1"}, // Transformer Engine begins with a scale of 1: 0 here
    {"gemm.reduce_amax", "on"},
    {"gemm.fast_accumulation", "on"},
    {"weight.gather.codes", "off"},
    {"gemm.weight_copy", "keep"},
    {"gemm.filter.multiple_of", "16"},
    {"gemm.filter.first_last", "off"},
    {"gemm.filter.size", "none"},
    {"layers", ""},
    {"scaler.kind", "none"},
    {"scaler.init_scale", "65536"},
    {"scaler.growth_factor", "2"},
    {"scaler.backoff_factor", "0.5"},
    {"scaler.growth_interval", "2000"},
    {"scaler.hysteresis", "1"},
    {"scaler.hysteresis_refill", "growth"},
    {"scaler.min_scale", "0"},
    {"scaler.max_scale", "0"},
    {"scaler.at_min", "clamp"},
    {"scaler.count_offset", "0"},
};

Keys products(const char* dtype) {
    return {{"gemm.fprop.dtype", dtype}, {"gemm.dgrad.dtype", dtype}, {"gemm.wgrad.dtype", dtype}};
}

// Transformer Engine issue 950: fp32 weights that autocast rounds; FSDP's param_dtype bf16, reduce_dtype fp32.
const Keys kBf16Mixed = kFp32 + products("bf16") + Keys{{"weight.gather.dtype", "bf16"}};
// NeMo's bf16_mixed: params_dtype bf16, fp32 masters in the optimizer, grad_reduce_in_fp32=True.
const Keys kDual = kBf16Mixed + Keys{{"weight.dtype", "bf16"}, {"master.dtype", "fp32"}};
// NeMo's fp16_mixed: params_dtype half. It reduces in fp16 (grad_reduce_in_fp32=False); we sum in fp32 of fp32, and
// grad.reduce.dtype fp16 is NeMo's wire.
const Keys kFp16Mixed = kFp32 + products("fp16") +
                        Keys{{"weight.dtype", "fp16"},
                             {"master.dtype", "fp32"},
                             {"weight.gather.dtype", "fp16"},
                             {"scaler.kind", "dynamic"}};
// NeMo: fp8 "hybrid", margin 0, history 1024, "max", fp8_params=True (later fp8_param_gather).
const Keys kNemoFp8 = {{"gemm.scaling", "delayed"}, {"weight.gather.codes", "on"}};
// torchdistx's user documents: a bf16 model, and its gradients are bf16 as autograd makes them.
const Keys kBf16Model = kBf16Mixed + Keys{{"weight.dtype", "bf16"}, {"grad.dtype", "bf16"}};
const Keys kBf16Pure =
    kBf16Model + Keys{{"optimizer.exp_avg.dtype", "bf16"}, {"optimizer.exp_avg_sq.dtype", "bf16"}};
// torchao, Float8LinearConfig.from_recipe_name: E4M3 everywhere, scales to powers of two, an amax of at least 1e-12 in
// double.
const Keys kRowwise = kBf16Mixed + Keys{{"gemm.scaling", "rowwise"},
                                        {"fp8.format", "e4m3"},
                                        {"gemm.scale_rule", "float64"},
                                        {"gemm.power_of_two_scale", "on"}};
// MS-AMP's table of levels and its code: windows of 16 steps, powers of two, E4M3 gradients also between ranks.
const Keys kMsampO1 = kFp32 + products("fp16") +
                      Keys{{"weight.dtype", "fp16_scaled"},   {"weight.gather.dtype", "fp16"},
                           {"grad.dtype", "fp8_e4m3_scaled"}, {"grad.reduce.dtype", "fp8_e4m3"},
                           {"gemm.scaling", "delayed"},       {"gemm.scale_rule", "msamp"},
                           {"gemm.amax_history_len", "16"},   {"gemm.warm_up", "16"},
                           {"scaler.kind", "dynamic"}};
const Keys kMsampO2 = kMsampO1 + Keys{{"optimizer.exp_avg.dtype", "fp8_e4m3_scaled"},
                                      {"optimizer.exp_avg_sq.dtype", "fp16_scaled"}};
const Keys kMsampO3 =
    kMsampO2 + Keys{{"weight.dtype", "fp8_e4m3_scaled"}, {"master.dtype", "fp16_scaled"}};
// Accelerate's combination: Transformer Engine's products over MS-AMP's optimizer.
const Keys kDelayedProducts = {{"gemm.scaling", "delayed"},
                               {"gemm.scale_rule", "current"},
                               {"gemm.amax_history_len", "1024"},
                               {"gemm.warm_up", "1"}};

const std::map<std::string, Keys> kPublished = {
    {"fp32", kFp32},
    {"fp16_mixed", kFp16Mixed},
    // MS-AMP's table, row "FP16 AMP": GEMM fp16; communication, weights, gradients and moments fp32; no master.
    {"fp16_amp", kFp32 + products("fp16") + Keys{{"scaler.kind", "dynamic"}}},
    {"bf16_mixed", kBf16Mixed},
    {"bf16_mixed_dual", kDual},
    {"bf16_mixed_fp32_compute", kFp32 + Keys{{"weight.gather.dtype", "bf16"}}},
    {"bf16_with_fp8_mixed", kDual + kNemoFp8},
    {"fp16_with_fp8_mixed", kFp16Mixed + kNemoFp8},
    {"fp8_delayed", kBf16Mixed + Keys{{"gemm.scaling", "delayed"}}},
    // Transformer Engine, Float8CurrentScaling: HYBRID, no powers of two, amax_epsilon 0.
    {"fp8_current", kBf16Mixed + Keys{{"gemm.scaling", "tensorwise"}}},
    {"fp8_inference", kBf16Mixed + Keys{{"weight.dtype", "bf16"},
                                        {"gemm.scaling", "tensorwise"},
                                        {"gemm.dgrad.quantized", "off"},
                                        {"gemm.wgrad.quantized", "off"}}},
    {"fp8_rowwise", kRowwise},
    {"fp8_rowwise_gw_hp", kRowwise + Keys{{"gemm.scaling", "rowwise_gw_hp"}}},
    // DeepSeek-V3: 1x128 and 128x128, E4M3 everywhere, promotion to fp32 every 128; powers of two as in Transformer
    // Engine's Float8BlockScaling.
    {"fp8_block", kBf16Mixed + Keys{{"gemm.scaling", "block"},
                                    {"fp8.format", "e4m3"},
                                    {"gemm.scale_rule", "deepseek"},
                                    {"gemm.power_of_two_scale", "on"},
                                    {"gemm.fast_accumulation", "off"}}},
    // Transformer Engine, MXFP8BlockScaling: E4M3, margin 0, blocks of 32, the exponent rounded up.
    {"mxfp8", kBf16Mixed + Keys{{"gemm.scaling", "mx"},
                                {"fp8.format", "e4m3"},
                                {"gemm.scale_rule", "mx_rceil"},
                                {"gemm.filter.multiple_of", "32"},
                                {"gemm.fast_accumulation", "off"}}},
    {"msamp_o1", kMsampO1},
    {"msamp_o2", kMsampO2},
    {"msamp_o3", kMsampO3},
    {"msamp_o1_fp8_delayed", kMsampO1 + kDelayedProducts},
    {"msamp_o2_fp8_delayed", kMsampO2 + kDelayedProducts},
    {"msamp_o3_fp8_delayed", kMsampO3 + kDelayedProducts},
    {"bf16_pure", kBf16Pure},
    {"bf16_full", kBf16Pure}, // Axolotl's bf16: full
    // torchdistx, AnyPrecisionAdamW(): momentum_dtype fp32, variance_dtype bf16, use_kahan_summation False.
    {"bf16_any_precision", kBf16Model + Keys{{"optimizer.exp_avg_sq.dtype", "bf16"}}},
    // The setting its author recommends for bf16: all three in bf16, with Kahan summation.
    {"bf16_pure_kahan", kBf16Pure + Keys{{"optimizer.compensation.dtype", "bf16"}}},
    // Apex's and Megatron's store_param_remainders: bf16 parameters, fp32 gradients and moments.
    {"bf16_pure_remainder", kDual + Keys{{"master.dtype", "remainder16"}}},
    // torchao's bf16_stochastic_round. Second moments too: rounded to nearest, those of bf16 never fall at beta2 0.999.
    {"bf16_pure_sr", kBf16Pure + Keys{{"optimizer.weight.rounding", "stochastic"},
                                      {"optimizer.exp_avg_sq.rounding", "stochastic"}}},
};

std::string value_of(const mp_recipe* recipe, const char* name) {
    const char* text = nullptr;
    if (mp_recipe_get_string(recipe, name, &text) == MP_STATUS_OK) {
        return text;
    }
    int64_t integer = 0;
    if (mp_recipe_get_int(recipe, name, &integer) == MP_STATUS_OK) {
        return std::to_string(integer);
    }
    double number = 0;
    EXPECT_TRUE(succeeded(mp_recipe_get_float(recipe, name, &number)));
    char digits[32];
    (void)std::snprintf(digits, sizeof digits, "%g", number);
    return digits;
}

} // namespace

TEST(Presets, AreWhatTheirOriginalsPublish) {
    const Context context = make_context(1);
    std::set<std::string> seen;
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        MP_OK(mp_recipe_get_preset_info(i, &name, nullptr));
        seen.insert(name);
        const auto published = kPublished.find(name);
        ASSERT_NE(published, kPublished.end()) << name << " is in no table";
        const Recipe recipe = make_recipe(context, name);
        EXPECT_EQ(static_cast<std::size_t>(mp_recipe_key_count()), published->second.size());
        for (int32_t k = 0; k < mp_recipe_key_count(); ++k) {
            mp_recipe_key_desc key{};
            key.struct_size = sizeof key;
            MP_OK(mp_recipe_get_key_info(k, &key));
            const auto expected = published->second.find(key.name);
            ASSERT_NE(expected, published->second.end()) << key.name;
            EXPECT_EQ(value_of(recipe, key.name), expected->second) << name << ", " << key.name;
        }
    }
    EXPECT_EQ(seen.size(), kPublished.size());
}
