// SPDX-License-Identifier: Apache-2.0
// Recipes: presets, keys, files, freezing, what they plan. As JSON: recipe_json.cpp.
#include <cstdio>
#include <fstream>

#include "support.hpp"

using namespace mp_test;

namespace {

struct RecipeTest : ::testing::Test {
    Context context = make_context(1);
    mp_recipe* raw = nullptr;
};

} // namespace

TEST_F(RecipeTest, EveryKeyIsDescribedAndReadable) {
    const Recipe recipe = make_recipe(context, "fp32");
    for (int32_t i = 0; i < mp_recipe_key_count(); ++i) {
        mp_recipe_key_desc key{};
        key.struct_size = sizeof key;
        MP_OK(mp_recipe_get_key_info(i, &key));
        EXPECT_GT(std::strlen(key.text), 5U) << key.name;
        const char* text = nullptr;
        double number = 0;
        int64_t integer = 0;
        switch (key.type) {
        case MP_RECIPE_TYPE_STRING:
            MP_OK(mp_recipe_get_string(recipe, key.name, &text));
            EXPECT_STREQ(text, key.fp32_value);
            MP_FAILS(mp_recipe_get_int(recipe, key.name, &integer), MP_STATUS_INVALID_ARGUMENT,
                     key.name);
            break;
        case MP_RECIPE_TYPE_FLOAT:
            MP_OK(mp_recipe_get_float(recipe, key.name, &number));
            EXPECT_EQ(number, std::stod(key.fp32_value));
            break;
        case MP_RECIPE_TYPE_INT:
            MP_OK(mp_recipe_get_int(recipe, key.name, &integer));
            EXPECT_EQ(integer, std::stoll(key.fp32_value));
            break;
        default:
            ADD_FAILURE() << key.name << " has type " << key.type;
        }
    }
}

TEST_F(RecipeTest, PresetsAreWhatTheirNamesSay) {
    const struct {
        const char* recipe;
        const char* key;
        const char* value;
    } rows[] = {
        {"fp16_mixed", MP_RECIPE_GEMM_FPROP_DTYPE, "fp16"},
        {"fp16_mixed", MP_RECIPE_MASTER_DTYPE, "fp32"},
        {"fp16_mixed", MP_RECIPE_SCALER_KIND, "dynamic"},
        {"bf16_mixed", MP_RECIPE_WEIGHT_DTYPE, "fp32"},
        {"bf16_mixed", MP_RECIPE_GEMM_WGRAD_DTYPE, "bf16"},
        {"bf16_mixed", MP_RECIPE_SCALER_KIND, "none"},
        {"bf16_mixed_dual", MP_RECIPE_MASTER_DTYPE, "fp32"},
        {"bf16_mixed_dual", MP_RECIPE_WEIGHT_DTYPE, "bf16"},
        {"bf16_mixed_fp32_compute", MP_RECIPE_GEMM_DGRAD_DTYPE, "fp32"},
        {"bf16_mixed_fp32_compute", MP_RECIPE_WEIGHT_GATHER_DTYPE, "bf16"},
        {"bf16_pure", MP_RECIPE_EXP_AVG_SQ_DTYPE, "bf16"},
        {"bf16_pure", MP_RECIPE_COMPENSATION_DTYPE, "none"},
        {"bf16_pure_kahan", MP_RECIPE_COMPENSATION_DTYPE, "bf16"},
        {"bf16_pure_sr", MP_RECIPE_WEIGHT_ROUNDING, "stochastic"},
        {"bf16_pure_sr", MP_RECIPE_EXP_AVG_SQ_ROUNDING, "stochastic"},
        {"fp8_delayed", MP_RECIPE_GEMM_SCALING, "delayed"},
        {"fp8_delayed", MP_RECIPE_FP8_FORMAT, "hybrid"},
        {"fp8_delayed", MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO, "max"},
        {"fp8_current", MP_RECIPE_GEMM_SCALING, "tensorwise"},
        {"fp8_rowwise", MP_RECIPE_FP8_FORMAT, "e4m3"},
        {"fp8_rowwise", MP_RECIPE_GEMM_POWER_OF_TWO_SCALE, "on"},
        {"fp8_rowwise_gw_hp", MP_RECIPE_GEMM_SCALING, "rowwise_gw_hp"},
        {"fp8_block", MP_RECIPE_GEMM_SCALE_RULE, "deepseek"},
        {"mxfp8", MP_RECIPE_GEMM_SCALE_RULE, "mx_rceil"},
        {"bf16_with_fp8_mixed", MP_RECIPE_MASTER_DTYPE, "fp32"},
        {"bf16_with_fp8_mixed", MP_RECIPE_WEIGHT_DTYPE, "bf16"},
        {"fp16_with_fp8_mixed", MP_RECIPE_SCALER_KIND, "dynamic"},
        {"msamp_o1", MP_RECIPE_WEIGHT_DTYPE, "fp16_scaled"},
        {"msamp_o1", MP_RECIPE_GRAD_DTYPE, "fp8_e4m3_scaled"},
        {"msamp_o1", MP_RECIPE_EXP_AVG_DTYPE, "fp32"},
        {"msamp_o1", MP_RECIPE_MASTER_DTYPE, "none"},
        {"msamp_o1", MP_RECIPE_GEMM_SCALE_RULE, "msamp"},
        {"msamp_o2", MP_RECIPE_EXP_AVG_DTYPE, "fp8_e4m3_scaled"},
        {"msamp_o2", MP_RECIPE_EXP_AVG_SQ_DTYPE, "fp16_scaled"},
        {"msamp_o3", MP_RECIPE_WEIGHT_DTYPE, "fp8_e4m3_scaled"},
        {"msamp_o3", MP_RECIPE_MASTER_DTYPE, "fp16_scaled"},
        {"msamp_o3_fp8_delayed", MP_RECIPE_GEMM_SCALE_RULE, "current"},
        {"msamp_o3_fp8_delayed", MP_RECIPE_WEIGHT_DTYPE, "fp8_e4m3_scaled"},
    };
    for (const auto& row : rows) {
        const Recipe recipe = make_recipe(context, row.recipe);
        const char* value = nullptr;
        MP_OK(mp_recipe_get_string(recipe, row.key, &value));
        EXPECT_STREQ(value, row.value) << row.recipe << " " << row.key;
    }
}

TEST_F(RecipeTest, WrongNamesGetTheNearestOnes) {
    MP_FAILS(mp_recipe_create(context, "bf16_mixt", &raw), MP_STATUS_UNKNOWN_NAME, "bf16_mixt",
             "bf16_mixed");
    const Recipe recipe = make_recipe(context, "fp32");
    MP_FAILS(mp_recipe_set_string(recipe, "grad.dtyp", "bf16"), MP_STATUS_UNKNOWN_NAME, "grad.dtyp",
             "grad.dtype");
    MP_FAILS(mp_recipe_set_string(recipe, "grad.dtype", "bf17"), MP_STATUS_INVALID_ARGUMENT, "bf17",
             "fp32|fp16|bf16");
    MP_FAILS(mp_recipe_set_string(recipe, "grad.dtype", "fp32|fp16"), MP_STATUS_INVALID_ARGUMENT,
             "one of");
    MP_FAILS(mp_recipe_set_int(recipe, "grad.dtype", 3), MP_STATUS_INVALID_ARGUMENT, "string");
    MP_FAILS(mp_recipe_set_string(recipe, "scaler.init_scale", "big"), MP_STATUS_INVALID_ARGUMENT,
             "number");
    MP_FAILS(mp_recipe_set_float(recipe, "scaler.init_scale", -1), MP_STATUS_INVALID_ARGUMENT,
             "-1");
    MP_FAILS(mp_recipe_set_float(recipe, "scaler.growth_interval", 2.5), MP_STATUS_INVALID_ARGUMENT,
             "integer");
    MP_FAILS(mp_recipe_set_int(recipe, "scaler.growth_interval", 0), MP_STATUS_INVALID_ARGUMENT,
             "1..");
    const std::string huge(100000, 'x');
    MP_FAILS(mp_recipe_create(context, huge.c_str(), &raw), MP_STATUS_UNKNOWN_NAME, "nearest");
    MP_FAILS(mp_recipe_create(context, "bf16", &raw), MP_STATUS_UNKNOWN_NAME,
             "nearest: bf16_mixed,");
    MP_FAILS(mp_recipe_create(context, "FP8", &raw), MP_STATUS_UNKNOWN_NAME, "nearest: fp8_");
    MP_FAILS(mp_recipe_create(context, "fp8_delay", &raw), MP_STATUS_UNKNOWN_NAME,
             "nearest: fp8_delayed");
}

TEST_F(RecipeTest, FileIsReadAndItsAbsenceReported) {
    const std::string path = ::testing::TempDir() + "recipe_test.json";
    std::ofstream(path) << R"({"recipe": "bf16_pure", "grad.dtype": "fp32"})";
    MP_OK(mp_recipe_create_from_file(context, path.c_str(), &raw));
    const Recipe recipe(raw);
    const char* value = nullptr;
    MP_OK(mp_recipe_get_string(recipe, MP_RECIPE_GRAD_DTYPE, &value));
    EXPECT_STREQ(value, "fp32");
    std::remove(path.c_str());
    MP_FAILS(mp_recipe_create_from_file(context, path.c_str(), &raw), MP_STATUS_IO_ERROR, path,
             "No such file");
    MP_FAILS(mp_recipe_create_from_file(context, "/", &raw), MP_STATUS_IO_ERROR, "regular");
}

TEST_F(RecipeTest, FirstUseFreezes) {
    const Recipe recipe = make_recipe(context, "fp16_mixed");
    MP_OK(mp_recipe_set_int(recipe, MP_RECIPE_SCALER_GROWTH_INTERVAL, 100));
    mp_scaler* scaler = nullptr;
    MP_OK(mp_scaler_create_from_recipe(context, recipe, &scaler));
    mp_scaler_destroy(scaler);
    MP_FAILS(mp_recipe_set_int(recipe, MP_RECIPE_SCALER_GROWTH_INTERVAL, 200), MP_STATUS_BAD_STATE,
             "in use");
    int64_t value = 0;
    MP_OK(mp_recipe_get_int(recipe, MP_RECIPE_SCALER_GROWTH_INTERVAL, &value));
    EXPECT_EQ(value, 100);
}

TEST_F(RecipeTest, InvalidRecipeCannotBeUsed) {
    const Recipe recipe = make_recipe(context, "fp32");
    MP_OK(mp_recipe_set_string(recipe, MP_RECIPE_MASTER_DTYPE, "fp32"));
    mp_optimizer* optimizer = nullptr;
    MP_FAILS(mp_optimizer_create(context, recipe, nullptr, &optimizer), MP_STATUS_INVALID_ARGUMENT,
             "their own master");
    MP_OK(mp_recipe_set_string(recipe, MP_RECIPE_MASTER_DTYPE, "none")); // and it did not freeze
}

TEST_F(RecipeTest, CodesOfAWeightNeedAProductInFp8) {
    const int64_t shape[] = {16, 16};
    for (const char* json :
         {R"({"recipe": "fp32"})", R"({"recipe": "fp8_current", "gemm.fprop.quantized": "off"})",
          R"({"recipe": "mxfp8"})"}) {
        const Recipe recipe = recipe_of(context, json);
        mp_tensor* weight = nullptr;
        MP_FAILS(mp_recipe_create_weight_codes(context, recipe, 2, shape, nullptr, &weight),
                 MP_STATUS_UNSUPPORTED, "gemm.scaling");
    }
}

TEST_F(RecipeTest, AdviceIsAWarning) {
    const Recipe recipe = make_recipe(context, "bf16_pure");
    EXPECT_EQ(mp_recipe_validate(recipe), MP_STATUS_WARNING);
    EXPECT_NE(std::string(mp_last_error_message()).find("beta2"), std::string::npos);
}

TEST_F(RecipeTest, PlannedBytesPerParameter) {
    // OPT-1.3B and OPT-125M, parameter counts of the published shapes.
    const struct {
        const char* recipe;
        int64_t bytes_per_parameter;
    } rows[] = {
        {"fp32", 16},     {"bf16_mixed", 16},         {"bf16_mixed_dual", 18}, {"fp16_mixed", 18},
        {"bf16_pure", 8}, {"bf16_pure_sr", 8},        {"bf16_pure_kahan", 10}, {"fp8_delayed", 16},
        {"mxfp8", 16},    {"bf16_with_fp8_mixed", 18}};
    for (const auto& row : rows) {
        const Recipe recipe = make_recipe(context, row.recipe);
        for (const int64_t count : {int64_t{1315758080}, int64_t{125239296}, int64_t{0}}) {
            mp_memory_report report{};
            report.struct_size = sizeof report;
            MP_OK(mp_recipe_plan_memory(recipe, MP_RULE_ADAMW, count, &report));
            EXPECT_EQ(report.total_bytes, count * row.bytes_per_parameter) << row.recipe;
        }
    }
    // MS-AMP's levels, each tensor with four bytes for each of its scales: 11, 6 and 1 + 1 + 5 bytes.
    const struct {
        const char* recipe;
        int64_t bytes_per_parameter;
        int64_t scales;
    } levels[] = {{"msamp_o1", 11, 2}, {"msamp_o2", 6, 4}, {"msamp_o3", 7, 5}};
    for (const auto& level : levels) {
        const int64_t counts[] = {50272 * 768, 768 * 768, 0};
        mp_memory_report planned{};
        planned.struct_size = sizeof planned;
        MP_OK(mp_recipe_plan_memory_of_tensors(make_recipe(context, level.recipe), MP_RULE_ADAMW,
                                               counts, 3, &planned));
        EXPECT_EQ(planned.total_bytes,
                  (counts[0] + counts[1]) * level.bytes_per_parameter + 3 * 4 * level.scales)
            << level.recipe;
    }
    mp_memory_report report{};
    report.struct_size = sizeof report;
    // One state less.
    MP_OK(mp_recipe_plan_memory(make_recipe(context, "bf16_pure"), MP_RULE_LION, 1000, &report));
    EXPECT_EQ(report.total_bytes, 6000);
    EXPECT_EQ(report.state_bytes[MP_STATE_EXP_AVG_SQ], 0);
    MP_OK(mp_recipe_plan_memory(make_recipe(context, "fp32"), MP_RULE_LION, 1000, &report));
    EXPECT_EQ(report.total_bytes, 12000);
    MP_FAILS(mp_recipe_plan_memory(make_recipe(context, "fp32"), 17, 1, &report),
             MP_STATUS_INVALID_ARGUMENT, "rule is 17");
    MP_FAILS(mp_recipe_plan_memory(make_recipe(context, "fp32"), MP_RULE_ADAMW, -1, &report),
             MP_STATUS_INVALID_ARGUMENT, "-1");
}
