// SPDX-License-Identifier: Apache-2.0
// Recipes as JSON: there and back, impossible combinations with their reasons, former names of keys, hostile text.
#include "support.hpp"

using namespace mp_test;

namespace {

std::string json_of(mp_recipe* recipe) {
    return written_by([&](char* to, size_t capacity, size_t* needed) {
        return mp_recipe_to_json(recipe, to, capacity, needed);
    });
}

// As JSON has it.
std::string value_text(const mp_recipe* recipe, const char* key) {
    const char* text = nullptr;
    if (mp_recipe_get_string(recipe, key, &text) == MP_STATUS_OK) {
        return std::string("\"") + text + "\"";
    }
    int64_t whole = 0;
    if (mp_recipe_get_int(recipe, key, &whole) == MP_STATUS_OK) {
        return std::to_string(whole);
    }
    double number = 0.0;
    EXPECT_TRUE(succeeded(mp_recipe_get_float(recipe, key, &number)));
    return std::to_string(number);
}

mp_status from_json(mp_context* context, const std::string& text, mp_recipe** out) {
    return mp_recipe_create_from_json(context, text.data(), text.size(), out);
}

struct RecipeJson : ::testing::Test {
    Context context = make_context(1);
    mp_recipe* raw = nullptr;
};

} // namespace

TEST_F(RecipeJson, EveryPresetIsValidAndSurvivesJson) {
    ASSERT_GE(mp_recipe_preset_count(), 8);
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        const char* text = nullptr;
        MP_OK(mp_recipe_get_preset_info(i, &name, &text));
        EXPECT_GT(std::strlen(text), 10U);
        const Recipe recipe = make_recipe(context, name);
        EXPECT_GE(mp_recipe_validate(recipe), 0) << name << ": " << mp_last_error_message();
        const std::string json = json_of(recipe);
        MP_OK(from_json(context, json, &raw));
        const Recipe back(raw);
        EXPECT_EQ(json_of(back), json);
    }
    const char* name = nullptr;
    MP_FAILS(mp_recipe_get_preset_info(999, &name, nullptr), MP_STATUS_INVALID_ARGUMENT, "999");
}

TEST_F(RecipeJson, ImpossibleCombinationsEachHaveAReason) {
    const struct {
        const char* json;
        const char* reason;
    } rows[] = {
        {R"({"master.dtype": "fp32"})", "their own master"},
        {R"({"optimizer.compensation.dtype": "bf16"})", "16-bit weights only"},
        {R"({"recipe": "bf16_pure_kahan", "master.dtype": "fp32"})", "choose one"},
        {R"({"recipe": "bf16_pure_kahan", "optimizer.weight.rounding": "stochastic"})",
         "average out"},
        {R"({"optimizer.weight.rounding": "stochastic"})", "nothing is rounded"},
        {R"({"recipe": "bf16_mixed_dual", "optimizer.weight.rounding": "stochastic"})",
         "beside master"},
        {R"({"recipe": "bf16_mixed", "optimizer.weight.rounding": "nearest_away"})",
         "bf16 weights made from fp32 masters"},
        {R"({"recipe": "fp16_mixed", "optimizer.weight.rounding": "nearest_away"})",
         "set weight.dtype to bf16"},
        {R"({"recipe": "bf16_pure", "optimizer.weight.rounding": "nearest_away"})",
         "master.dtype to fp32 or remainder16"},
        {R"({"recipe": "bf16_mixed", "gemm.input.rounding": "stochastic"})",
         "gemm.input.rounding is stochastic, but no product takes codes of it"},
        {R"({"recipe": "fp8_rowwise_gw_hp", "gemm.dgrad.quantized": "off",
             "gemm.grad_output.rounding": "stochastic"})",
         "gemm.grad_output.rounding is stochastic, but no product takes codes of it"},
        {R"({"recipe": "bf16_with_fp8_mixed", "gemm.weight.rounding": "stochastic"})",
         "gemm.weight.rounding is stochastic, but products take weights that are codes"},
        {R"({"recipe": "msamp_o3", "gemm.weight.rounding": "stochastic"})",
         "gemm.weight.rounding is stochastic, but products take weights that are codes"},
        {R"({"optimizer.exp_avg.rounding": "nearest_away"})", "nearest|stochastic"},
        {R"({"optimizer.exp_avg.rounding": "stochastic"})", "exp_avg.rounding"},
        {R"({"optimizer.exp_avg_sq.rounding": "stochastic"})", "exp_avg_sq.rounding"},
        {R"({"recipe": "fp16_mixed", "scaler.min_scale": 8, "scaler.max_scale": 4})",
         "max_scale is below"},
        {R"({"recipe": "fp16_mixed", "scaler.min_scale": 1e6})", "below scaler.min_scale"},
        {R"({"recipe": "fp16_mixed", "scaler.max_scale": 16})", "above scaler.max_scale"},
        {R"({"weight.gather.codes": "on"})", "no codes to gather"},
        {R"({"recipe": "fp8_block", "weight.gather.codes": "on"})", "cut between ranks"},
        {R"({"recipe": "fp8_current", "gemm.fprop.quantized": "off", )"
         R"("gemm.dgrad.quantized": "off", "gemm.wgrad.quantized": "off"})",
         "no product is fp8"},
        {R"({"recipe": "mxfp8", "gemm.scale_rule": "current"})", "e8m0 scales need"},
        {R"({"recipe": "fp8_current", "gemm.scale_rule": "mx_floor"})", "blocks of 32"},
        {R"({"recipe": "fp8_block", "gemm.scale_rule": "msamp", "gemm.power_of_two_scale": "off"})",
         "one scale for a tensor"},
        {R"({"recipe": "fp8_delayed", "gemm.scale_rule": "deepseek"})", "block's own amax"},
        {R"({"recipe": "mxfp8", "gemm.power_of_two_scale": "on"})", "powers of two anyway"},
        {R"({"recipe": "mxfp8", "gemm.amax_epsilon": 1e-6})", "has none"},
        {R"({"recipe": "mxfp8", "gemm.margin": 1})", "fixes the exponent"},
        {R"({"recipe": "fp8_current", "gemm.interval": 4})", "made anew"},
    };
    for (const auto& row : rows) {
        MP_FAILS(from_json(context, row.json, &raw), MP_STATUS_INVALID_ARGUMENT, row.reason);
        EXPECT_EQ(raw, nullptr) << row.json;
    }
    // All problems are reported at once.
    MP_FAILS(from_json(context,
                       R"({"master.dtype": "fp32", "optimizer.exp_avg.rounding": "stochastic"})",
                       &raw),
             MP_STATUS_INVALID_ARGUMENT, "their own master", "exp_avg.rounding");
}

// Keys that are not about fp8 alone were called so: recipes of before are read, and written by the names of now.
TEST_F(RecipeJson, KeysHaveTheirFormerNamesToo) {
    const struct {
        const char* before;
        const char* now;
    } names[] = {
        {"fp8.scaling", "gemm.scaling"},
        {"fp8.scale_rule", "gemm.scale_rule"},
        {"fp8.power_of_two_scale", "gemm.power_of_two_scale"},
        {"fp8.amax_epsilon", "gemm.amax_epsilon"},
        {"fp8.margin", "gemm.margin"},
        {"fp8.interval", "gemm.interval"},
        {"fp8.amax_history_len", "gemm.amax_history_len"},
        {"fp8.amax_compute_algo", "gemm.amax_compute_algo"},
        {"fp8.warm_up", "gemm.warm_up"},
        {"fp8.reduce_amax", "gemm.reduce_amax"},
        {"fp8.fast_accumulation", "gemm.fast_accumulation"},
        {"fp8.weight_copy", "gemm.weight_copy"},
        {"fp8.filter.multiple_of", "gemm.filter.multiple_of"},
        {"fp8.filter.first_last", "gemm.filter.first_last"},
        {"fp8.filter.size", "gemm.filter.size"},
        {"fp8.filter.names", "layers"},
        {"fp8.fprop", "gemm.fprop.quantized"},
        {"fp8.dgrad", "gemm.dgrad.quantized"},
        {"fp8.wgrad", "gemm.wgrad.quantized"},
        {"fp8.all_gather", "weight.gather.codes"},
    };
    const Recipe recipe = make_recipe(context, "fp8_delayed");
    std::string text = "{\"recipe\": \"fp8_delayed\"";
    for (const auto& name : names) {
        SCOPED_TRACE(name.before);
        const std::string value = value_text(recipe, name.now);
        EXPECT_EQ(value_text(recipe, name.before), value);
        text += std::string(", \"") + name.before + "\": " + value;
        const std::string twice = std::string("{\"") + name.before + "\": " + value + ", \"" +
                                  name.now + "\": " + value + "}";
        MP_FAILS(from_json(context, twice.c_str(), &raw), MP_STATUS_PARSE_ERROR, "appears twice");
    }
    MP_OK(from_json(context, (text + "}").c_str(), &raw));
    const Recipe read(raw);
    MP_OK(mp_recipe_set_string(read, "gemm.filter.names", "a*,b")); // between the two
    EXPECT_EQ(value_text(read, "layers"), "\"a*,b\"");
    MP_OK(mp_recipe_set_string(read, "layers", ""));
    EXPECT_EQ(json_of(read), json_of(recipe));
    EXPECT_EQ(json_of(read).find("\"fp8.scaling\""), std::string::npos);
}

// Every pair of a scaling and a rule: accepted, or refused with words that name both keys' home.
TEST_F(RecipeJson, ScalingsAndRulesEitherFitOrSayWhyNot) {
    const std::vector<std::string> scalings = {"delayed",       "tensorwise", "rowwise",
                                               "rowwise_gw_hp", "block",      "mx"};
    const std::vector<std::string> rules = {"current",  "float64",  "msamp",   "deepseek",
                                            "mx_rceil", "mx_floor", "mx_ceil", "mx_even"};
    int accepted = 0;
    for (const std::string& scaling : scalings) {
        for (const std::string& rule : rules) {
            const std::string json = R"({"recipe": "bf16_mixed", "gemm.scaling": ")" + scaling +
                                     R"(", "gemm.scale_rule": ")" + rule + "\"}";
            const bool is_mx = rule.starts_with("mx_");
            const bool fits =
                (scaling == "mx") == is_mx &&
                (rule != "msamp" || scaling == "delayed" || scaling == "tensorwise") &&
                (rule != "deepseek" || scaling != "delayed");
            if (fits) {
                MP_OK(from_json(context, json, &raw));
                mp_recipe_destroy(raw);
                ++accepted;
            } else {
                MP_FAILS(from_json(context, json, &raw), MP_STATUS_INVALID_ARGUMENT, "gemm.scal");
            }
        }
    }
    EXPECT_EQ(accepted, 5 * 4 - 3 - 1 + 4);
}

TEST_F(RecipeJson, AutoChoosesAndSaysWhy) {
    const auto reason = [](mp_recipe* recipe) {
        return written_by([&](char* to, size_t capacity, size_t* needed) {
            return mp_recipe_get_reason(recipe, to, capacity, needed);
        });
    };
    const Recipe chosen = make_recipe(context, "auto");
    EXPECT_NE(reason(chosen).find("host ("), std::string::npos) << reason(chosen);
    const char* value = nullptr;
    MP_OK(mp_recipe_get_string(chosen, MP_RECIPE_GEMM_SCALING, &value));
    EXPECT_STREQ(value, "none") << "fp8 only on request";
    const Recipe fp8 = make_recipe(context, "auto_fp8");
    MP_OK(mp_recipe_get_string(fp8, MP_RECIPE_GEMM_SCALING, &value));
    EXPECT_STRNE(value, "none");
    MP_OK(from_json(context, R"({"recipe": "auto", "grad.dtype": "fp32"})", &raw));
    const Recipe from_text(raw);
    EXPECT_EQ(reason(from_text), reason(chosen));
    EXPECT_EQ(json_of(from_text).find("auto"), std::string::npos) << "JSON names what was chosen";
    EXPECT_EQ(reason(make_recipe(context, "fp32")), "");
}

TEST_F(RecipeJson, HostileJson) {
    const std::string deep(200000, '[');
    std::string many = "{";
    for (int i = 0; i < 200000; ++i) {
        many += "\"k" + std::to_string(i) + "\":1,";
    }
    const struct {
        std::string json;
        mp_status status;
        const char* word;
    } rows[] = {
        {"", MP_STATUS_PARSE_ERROR, "parse error"},
        {"{", MP_STATUS_PARSE_ERROR, "line 1"},
        {"[]", MP_STATUS_PARSE_ERROR, "object"},
        {"null", MP_STATUS_PARSE_ERROR, "object"},
        {deep, MP_STATUS_PARSE_ERROR, "must be an object"},
        {"{\"recipe\": " + deep, MP_STATUS_PARSE_ERROR, "objects or arrays"},
        {many, MP_STATUS_PARSE_ERROR, "at most"},
        {R"({"recipe": {"a": 1}})", MP_STATUS_PARSE_ERROR, "objects or arrays"},
        {R"({"grad.dtype": "bf16", "grad.dtype": "fp32"})", MP_STATUS_PARSE_ERROR, "twice"},
        {R"({"recipe": 3})", MP_STATUS_INVALID_ARGUMENT, "name of a preset"},
        {R"({"grad.dtype": true})", MP_STATUS_INVALID_ARGUMENT, "boolean"},
        {R"({"scaler.init_scale": 1e999})", MP_STATUS_PARSE_ERROR, "1e999"},
        {R"({"color": "red"})", MP_STATUS_UNKNOWN_NAME, "color"},
        {std::string("{\"\0\": 1}", 8), MP_STATUS_PARSE_ERROR, "parse error"},
        {"{\"\xff\": 1}", MP_STATUS_PARSE_ERROR, "UTF-8"},
        {std::string("{}\0", 3), MP_STATUS_PARSE_ERROR, "NUL"},
        {std::string("{} \0 x", 6), MP_STATUS_PARSE_ERROR, "NUL"},
        {std::string("\0{}", 3), MP_STATUS_PARSE_ERROR, "parse error"},
        {std::string("{\0}", 3), MP_STATUS_PARSE_ERROR, "parse error"},
        {std::string("{\"recipe\"\0: \"fp32\"}", 19), MP_STATUS_PARSE_ERROR, "parse error"},
    };
    for (const auto& row : rows) {
        MP_FAILS(from_json(context, row.json, &raw), row.status, row.word);
    }
}
