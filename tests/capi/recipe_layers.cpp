// SPDX-License-Identifier: Apache-2.0
// Policy by layer, the key "layers": every preset over every other, what a layer then computes, and rules that say nothing.
#include <map>
#include <sstream>

#include "linear_fp8.hpp"

using namespace mp_test;
using namespace mp_test::fp8;

namespace {

using Text = std::string;

mp_status set_layers(mp_recipe* recipe, const Text& rules) {
    return mp_recipe_set_string(recipe, MP_RECIPE_LAYERS, rules.c_str());
}

Recipe with_layers(mp_context* context, const char* preset, const Text& rules) {
    Recipe recipe = make_recipe(context, preset);
    EXPECT_TRUE(succeeded(set_layers(recipe, rules))) << rules;
    return recipe;
}

Recipe for_layer(const mp_recipe* recipe, const char* name) {
    mp_recipe* own = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_clone_for_layer(recipe, name, &own)));
    return Recipe(own);
}

// Lines of JSON by their keys.
std::map<Text, Text> values_of_keys(const mp_recipe* recipe) {
    std::istringstream json(written_by([&](char* to, size_t capacity, size_t* needed) {
        return mp_recipe_to_json(recipe, to, capacity, needed);
    }));
    std::map<Text, Text> values;
    for (Text line; std::getline(json, line);) {
        const std::size_t colon = line.find(':');
        if (colon != Text::npos) {
            values[line.substr(0, colon)] =
                line.substr(colon, line.find_last_not_of(',') + 1 - colon);
        }
    }
    return values;
}

bool is_of_layers(const Text& key) {
    return key.find("\"gemm.") != Text::npos || key.find("\"fp8.format") != Text::npos;
}

std::vector<Text> presets() {
    std::vector<Text> names;
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_preset_info(i, &name, nullptr)));
        names.emplace_back(name);
    }
    return names;
}

Text text_of(const mp_recipe* recipe, const char* key) {
    const char* value = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, key, &value)));
    return value;
}

struct RecipeLayers : Fp8Linear {
    Pass run_named(mp_recipe* recipe, const char* name) {
        const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
        mp_linear_desc desc = linear_desc(sizes.in, sizes.out);
        desc.name = name;
        const Linear linear = make_noted_linear(context, recipe, desc, weight);
        Pass last;
        for (int step = 0; step < 2; ++step) { // the second has scales of the first
            last = run(context, linear);
            mp_linear* const layers[] = {linear};
            EXPECT_TRUE(succeeded(mp_linear_end_step(layers, 1, nullptr, nullptr)));
        }
        return last;
    }
};

} // namespace

TEST_F(RecipeLayers, EveryPresetOverEveryOther) {
    for (const Text& base : presets()) {
        const std::map<Text, Text> of_base = values_of_keys(make_recipe(context, base.c_str()));
        for (const Text& other : presets()) {
            SCOPED_TRACE(base + ", head: " + other);
            const std::map<Text, Text> of_other =
                values_of_keys(make_recipe(context, other.c_str()));
            const Recipe recipe = with_layers(context, base.c_str(), "head: recipe=" + other);
            EXPECT_GE(mp_recipe_validate(recipe), 0) << mp_last_error_message();
            EXPECT_EQ(values_of_keys(for_layer(recipe, "tail")), of_base);
            const Recipe own = for_layer(recipe, "head");
            const Text scaling = text_of(own, MP_RECIPE_GEMM_SCALING);
            for (const auto& [key, value] : values_of_keys(own)) {
                if (key.find(MP_RECIPE_WEIGHT_GATHER_CODES) != Text::npos && scaling != "delayed" &&
                    scaling != "tensorwise") {
                    EXPECT_EQ(value, ": \"off\""); // its weight has no codes under one scale
                    continue;
                }
                EXPECT_EQ(value, is_of_layers(key) ? of_other.at(key) : of_base.at(key)) << key;
            }
        }
    }
}

TEST_F(RecipeLayers, ALayerComputesUnderItsOwn) {
    use({64, 96, 64});
    for (const char* base : {"fp32", "fp8_delayed", "mxfp8"}) {
        const Pass others = run_named(make_recipe(context, base), "block.0.mlp");
        for (const Text& own : presets()) {
            SCOPED_TRACE(Text(base) + ", head: " + own);
            const Recipe mixed =
                with_layers(context, base, "lm_*,head: recipe=" + own + "; *attn*: recipe=fp32");
            EXPECT_EQ(difference(run_named(mixed, "head"),
                                 run_named(make_recipe(context, own.c_str()), nullptr)),
                      "");
            EXPECT_EQ(difference(run_named(mixed, "block.0.mlp"), others), "");
            EXPECT_EQ(difference(run_named(mixed, nullptr), others), "");
        }
    }
}

TEST_F(RecipeLayers, LaterRulesGoOverEarlierOnes) {
    const Recipe recipe = with_layers(context, "fp8_current",
                                      "*: recipe=fp32 ; a*, b* : gemm.fprop.dtype = "
                                      "bf16,gemm.margin=3;ab: gemm.fprop.dtype=fp16");
    const struct {
        const char *name, *fprop;
        int64_t margin;
    } rows[] = {{"c", "fp32", 0}, {"a", "bf16", 3}, {"b.1", "bf16", 3}, {"ab", "fp16", 3}};
    for (const auto& row : rows) {
        const Recipe own = for_layer(recipe, row.name);
        EXPECT_EQ(text_of(own, MP_RECIPE_GEMM_FPROP_DTYPE), row.fprop) << row.name;
        EXPECT_EQ(text_of(own, MP_RECIPE_GEMM_SCALING), "none");
        EXPECT_EQ(text_of(own, MP_RECIPE_LAYERS), "");
        int64_t margin = 0;
        MP_OK(mp_recipe_get_int(own, MP_RECIPE_GEMM_MARGIN, &margin));
        EXPECT_EQ(margin, row.margin) << row.name;
    }
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {32, 32});
    mp_linear_desc desc = linear_desc(32, 32);
    desc.name = "ab";
    const Linear linear = make_linear(context, recipe, desc, weight);
    EXPECT_NE(description_of(linear).find("layers '*,a*,ab'; in high precision"), Text::npos)
        << description_of(linear);
}

// * stands for any characters, ? for one. Patterns alone keep their layers in high precision.
TEST_F(RecipeLayers, PatternsOfNames) {
    const auto fits = [&](const char* patterns, const char* name) {
        const Recipe own = for_layer(with_layers(context, "fp8_current", patterns), name);
        return text_of(own, MP_RECIPE_GEMM_SCALING) == "none";
    };
    const char* const patterns = "lm_head*,h0.?,*.router,a*b*c";
    for (const char* name : {"lm_head", "lm_head.weight", "h0.1", "h11.router", ".router",
                             "lm_head,h0.?", "abc", "aXbXbXc", "h0.,"}) {
        EXPECT_TRUE(fits(patterns, name)) << name;
    }
    for (const char* name :
         {"lm_hea", "xlm_head", "h0.12", "h0.", "router", "h1.router2", "aXcXb", "ab"}) {
        EXPECT_FALSE(fits(patterns, name)) << name;
    }
    EXPECT_TRUE(fits("h?", "h\xc3\xa9") && fits("*??", "h\xe2\x82\xac")); // of UTF-8
    EXPECT_FALSE(fits("h??", "h\xc3\xa9") || fits("*??", "\xe2\x82\xac"));
    EXPECT_TRUE(fits("?", "x") && fits("**", "x") && !fits("", "x") && !fits("??", "x"));
}

TEST_F(RecipeLayers, RulesThatSayNothingAreRefused) {
    const struct {
        Text rules;
        mp_status status;
        const char* words;
    } rows[] = {
        {";", MP_STATUS_INVALID_ARGUMENT, "patterns of names"},
        {"a;", MP_STATUS_INVALID_ARGUMENT, "patterns of names"},
        {":", MP_STATUS_INVALID_ARGUMENT, "patterns of names"},
        {"a,,b", MP_STATUS_INVALID_ARGUMENT, "patterns of names"},
        {"a=b", MP_STATUS_INVALID_ARGUMENT, "patterns of names"},
        {"a:", MP_STATUS_INVALID_ARGUMENT, "key=value"},
        {"a: gemm.margin", MP_STATUS_INVALID_ARGUMENT, "'gemm.margin' is not key=value"},
        {"a: recipe=fp32,", MP_STATUS_INVALID_ARGUMENT, "key=value"},
        {"a: weight.dtype=bf16", MP_STATUS_INVALID_ARGUMENT, "the same for all layers"},
        {"a: layers=b", MP_STATUS_INVALID_ARGUMENT, "the same for all layers"},
        {"a: gemm.margim=1", MP_STATUS_UNKNOWN_NAME, "gemm.margin"},
        {"a: recipe=mxfp9", MP_STATUS_UNKNOWN_NAME, "mxfp8"},
        {"a: gemm.margin=", MP_STATUS_INVALID_ARGUMENT, "must be a number"},
        {"a: gemm.margin=1x", MP_STATUS_INVALID_ARGUMENT, "must be a number"},
        {"a: gemm.margin=1.5", MP_STATUS_INVALID_ARGUMENT, "holds an integer"},
        {"a: gemm.margin=21", MP_STATUS_INVALID_ARGUMENT, "0..20"},
        {"a: gemm.amax_epsilon=nan", MP_STATUS_INVALID_ARGUMENT, "gemm.amax_epsilon"},
        {"b; a: gemm.scaling=rows", MP_STATUS_INVALID_ARGUMENT, "rule 'a: gemm.scaling=rows'"},
        {"a\n", MP_STATUS_INVALID_ARGUMENT, "'layers' is not UTF-8 of one line"},
        {"a\xff", MP_STATUS_INVALID_ARGUMENT, "'layers' is not UTF-8 of one line"},
        {Text(4097, 'a'), MP_STATUS_INVALID_ARGUMENT, "4097 bytes; at most 4096"},
    };
    const Recipe recipe = with_layers(context, "fp8_current", "kept");
    for (const auto& row : rows) {
        MP_FAILS(set_layers(recipe, row.rules), row.status, row.words);
        EXPECT_EQ(text_of(recipe, MP_RECIPE_LAYERS), "kept") << row.rules;
    }
    mp_recipe* raw = nullptr;
    MP_FAILS(mp_recipe_clone_for_layer(recipe, "", &raw), MP_STATUS_INVALID_ARGUMENT, "name");
    MP_FAILS(mp_recipe_clone_for_layer(recipe, nullptr, &raw), MP_STATUS_NULL_ARGUMENT, "name");
    EXPECT_EQ(raw, nullptr);
}

// What rules make of the recipe is judged where a layer has them: alone a rule may be what no layer has.
TEST_F(RecipeLayers, CombinationsAreJudgedByLayer) {
    const Recipe recipe =
        with_layers(context, "fp8_delayed",
                    "a*: recipe=mxfp8; b*: recipe=fp8_block; ?1: gemm.scale_rule=mx_floor");
    EXPECT_GE(mp_recipe_validate(recipe), 0) << mp_last_error_message();
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {32, 32});
    mp_linear_desc desc = linear_desc(32, 32);
    for (const char* name : {"a", "a1", "b", "c"}) {
        desc.name = name;
        const Linear good = make_linear(context, recipe, desc, weight);
    }
    desc.name = "b1";
    mp_linear* linear = nullptr;
    mp_recipe* clone = nullptr;
    MP_FAILS(mp_linear_create(context, recipe, &desc, weight, nullptr, &linear),
             MP_STATUS_INVALID_ARGUMENT, "layer 'b1'", "'b*,?1'", "gemm.scaling is not mx");
    MP_FAILS(mp_recipe_clone_for_layer(recipe, "b1", &clone), MP_STATUS_INVALID_ARGUMENT,
             "layer 'b1'");
    EXPECT_TRUE(linear == nullptr && clone == nullptr);
}

// Codes on the wire are those of weights that have them, whatever rules said on the way.
TEST_F(RecipeLayers, CodesAreGatheredWhereTheyAre) {
    const Recipe recipe =
        with_layers(context, "fp8_current", "*: recipe=bf16_mixed; h*: recipe=fp8_delayed");
    MP_OK(mp_recipe_set_string(recipe, MP_RECIPE_WEIGHT_GATHER_CODES, "on"));
    EXPECT_EQ(text_of(for_layer(recipe, "h1"), MP_RECIPE_WEIGHT_GATHER_CODES), "on");
    EXPECT_EQ(text_of(for_layer(recipe, "lm"), MP_RECIPE_WEIGHT_GATHER_CODES), "off");
}
