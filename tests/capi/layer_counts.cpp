// SPDX-License-Identifier: Apache-2.0
// What layers count of their operands, in every precision and however an operand is given, and what they say of sums in codes.
#include <cmath>
#include <limits>

#include "layers.hpp"
#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

Linear layer_of(mp_context* context, mp_recipe* recipe, mp_tensor* weight, int64_t size,
                uint32_t flags) {
    return make_noted_linear(context, recipe, linear_desc(size, size, flags), weight);
}

// Ones, but for the sixth.
std::vector<float> ones_but(float value, int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
    values[5] = value;
    return values;
}

struct Layer {
    static constexpr int64_t kN = 16;
    Context context = make_context(1);
    Recipe recipe;
    Tensor weight, x, dy, y, dx, dw;
    Linear linear;

    explicit Layer(const char* text, uint32_t flags = MP_LINEAR_STATS)
        : recipe(recipe_of(context, text)) {
        const std::vector<float> ones(kN * kN, 1.0F);
        for (Tensor* tensor : {&weight, &x, &dy}) {
            *tensor = make_tensor(context, MP_DTYPE_FP32, {kN, kN}, ones);
        }
        for (Tensor* tensor : {&y, &dx, &dw}) {
            *tensor = make_tensor(context, MP_DTYPE_FP32, {kN, kN});
        }
        linear = layer_of(context, recipe, weight, kN, flags);
    }
    void set(mp_tensor* tensor, float value) const {
        const std::vector<float> values = ones_but(value, kN * kN);
        EXPECT_TRUE(succeeded(
            mp_tensor_write(tensor, nullptr, values.data(), values.size() * sizeof(float))));
    }
    void run() const {
        MP_OK(mp_linear_forward(linear, nullptr, x, y));
        MP_OK(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, 0));
        mp_linear* const layers[] = {linear};
        MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    }
    [[nodiscard]] mp_linear_stats stats(int32_t operand) const {
        mp_linear_stats found = MP_LINEAR_STATS_INIT;
        EXPECT_TRUE(succeeded(mp_linear_get_stats(linear, operand, &found)));
        return found;
    }
};

} // namespace

// In every precision, each operand.
TEST(LayerCounts, WhatIsNotFinite) {
    for (
        const char* text :
        {"fp32", "bf16_mixed", "fp16_mixed", "fp8_current", "fp8_delayed", "mxfp8",
         R"({"recipe": "fp8_current", "gemm.dgrad.quantized": "off"})",
         R"({"recipe": "fp8_current", "gemm.dgrad.quantized": "off", "gemm.wgrad.quantized": "off"})",
         R"({"recipe": "fp8_current", "gemm.fprop.quantized": "off"})"}) {
        for (const float value :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            const Layer layer(text);
            mp_tensor* const tensors[] = {layer.x, layer.weight, layer.dy};
            for (int32_t operand = 0; operand < MP_OPERAND_COUNT; ++operand) {
                SCOPED_TRACE(std::string(text) + ", operand " + std::to_string(operand));
                layer.set(tensors[operand], 1.0F);
                MP_OK(mp_linear_clear_stats(layer.linear, nullptr));
                layer.run();
                mp_linear_stats found = layer.stats(operand);
                EXPECT_GE(found.elements, Layer::kN * Layer::kN);
                EXPECT_EQ(found.non_finite, 0);
                EXPECT_EQ(found.underflowed + found.saturated, 0);
                EXPECT_EQ(found.amax, 1.0);
                layer.set(tensors[operand], value);
                layer.run();
                found = layer.stats(operand);
                EXPECT_GE(found.non_finite, 1);
                char advice[256];
                MP_OK(mp_linear_get_advice(layer.linear, operand, advice, sizeof advice, nullptr));
                EXPECT_NE(std::string(advice).find("not finite"), std::string::npos) << advice;
                layer.set(tensors[operand], 1.0F);
            }
        }
    }
    const Layer layer("bf16_mixed", 0);
    mp_linear_stats found = MP_LINEAR_STATS_INIT;
    MP_FAILS(mp_linear_get_stats(layer.linear, 0, &found), MP_STATUS_BAD_STATE, "MP_LINEAR_STATS");
}

// A monitor counts in high precision, too.
TEST(LayerCounts, MonitorsInHighPrecision) {
    const Layer layer("bf16_mixed", 0);
    std::vector<mp_linear_stats> told;
    const auto keep = [](void* payload, const char*, const mp_linear_stats* stats, const char*) {
        static_cast<std::vector<mp_linear_stats>*>(payload)->push_back(*stats);
    };
    MP_OK(mp_linear_set_monitor(layer.linear, "l", 1, keep, &told));
    layer.set(layer.dy, std::numeric_limits<float>::infinity());
    layer.run();
    ASSERT_EQ(told.size(), std::size_t{MP_OPERAND_COUNT});
    EXPECT_EQ(told[MP_OPERAND_INPUT].non_finite, 0);
    EXPECT_EQ(told[MP_OPERAND_GRAD_OUTPUT].non_finite, 1);
}

// Micro-batches are added into codes: said once, at the first that is added. Not where a gradient begins.
TEST(LayerCounts, MicroBatchesInCodesAreToldOf) {
    for (const char* text : {"msamp_o1", "msamp_o2", "fp8_current"}) {
        Layer layer(text, 0);
        const Optimizer optimizer = make_optimizer(layer.context, layer.recipe);
        MP_OK(mp_optimizer_add_group(optimizer, nullptr, nullptr));
        const int64_t shape[] = {Layer::kN, Layer::kN};
        mp_tensor* weight = nullptr;
        MP_OK(mp_recipe_create_weight(layer.context, layer.recipe, 2, shape, nullptr, &weight));
        const Tensor owned(weight);
        MP_OK(add_param(optimizer, 0, "w", weight));
        const Tensor grad = state_of(optimizer, 0, "grad");
        const auto backward = [&](uint32_t flags) {
            EXPECT_TRUE(succeeded(mp_linear_forward(layer.linear, nullptr, layer.x, layer.y)));
            return mp_linear_backward(layer.linear, nullptr, layer.dy, nullptr, grad, nullptr,
                                      flags);
        };
        MP_OK(backward(0));
        const mp_status added = backward(MP_BACKWARD_ACCUMULATE);
        if (std::string(text) == "fp8_current") {
            EXPECT_TRUE(succeeded(added));
        } else {
            MP_FAILS(added, MP_STATUS_WARNING, "micro-batches", "grad.dtype");
        }
        MP_OK(backward(MP_BACKWARD_ACCUMULATE));
    }
}

// ---- however an operand is given -----------------------------------------------------------------

namespace {

constexpr const char* kRecipes[] = {"fp32",
                                    "bf16_mixed",
                                    "fp8_current",
                                    "fp8_delayed",
                                    "fp8_block",
                                    "mxfp8",
                                    "msamp_o2",
                                    R"({"recipe": "fp8_current", "gemm.fprop.quantized": "off"})",
                                    R"({"recipe": "fp8_current", "gemm.dgrad.quantized": "off"})",
                                    R"({"recipe": "fp8_delayed", "gemm.wgrad.quantized": "off"})"};
constexpr uint32_t kKinds[] = {0, MP_LINEAR_CACHE_WEIGHT, MP_LINEAR_FROZEN, MP_LINEAR_INFERENCE};

constexpr int64_t kRows = 32;
constexpr int64_t kElements = kRows * kRows;

enum class Given { as_numbers, in_the_products_form, as_e4m3, as_e5m2, as_mx, count };

Tensor form_for(mp_context* context, mp_linear* layer, int32_t operand, Given given) {
    const std::vector<int64_t> shape = {kRows, kRows};
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    int32_t dtype = given == Given::as_e5m2 ? MP_DTYPE_FP8_E5M2 : MP_DTYPE_FP8_E4M3;
    if (given == Given::in_the_products_form) {
        const int32_t product =
            operand == MP_OPERAND_GRAD_OUTPUT ? MP_PRODUCT_DGRAD : MP_PRODUCT_FPROP;
        EXPECT_TRUE(
            succeeded(mp_linear_get_operand_format(layer, product, operand, &dtype, &quant)));
    } else if (given == Given::as_mx) {
        quant.scaling = MP_SCALING_MX_1X32;
    }
    const bool is_numbers = given == Given::as_numbers || dtype < MP_DTYPE_FP8_E4M3;
    return is_numbers ? make_tensor(context, MP_DTYPE_FP32, shape)
                      : make_quantized(context, dtype, shape, &quant);
}

void fill(mp_tensor* tensor, mp_context* context, float value) {
    const Tensor exact =
        make_tensor(context, MP_DTYPE_FP32, {kRows, kRows}, ones_but(value, kElements));
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
    EXPECT_TRUE(
        succeeded(desc.dtype == MP_DTYPE_FP32
                      ? mp_tensor_cast(exact, nullptr, tensor, nullptr)
                      : mp_tensor_quantize(exact, nullptr, tensor, nullptr, nullptr, nullptr)));
}

// One forward, and what the layer has of a backward.
void run(mp_context* context, mp_linear* layer, uint32_t kind, mp_tensor* x, mp_tensor* dy) {
    const std::vector<int64_t> shape = {kRows, kRows};
    const Tensor out = make_tensor(context, MP_DTYPE_FP32, shape);
    const Tensor dw = make_tensor(context, MP_DTYPE_FP32, shape);
    const bool is_whole = (kind & (MP_LINEAR_FROZEN | MP_LINEAR_INFERENCE)) == 0;
    MP_OK(mp_linear_forward(layer, nullptr, x, out));
    MP_OK(is_whole ? mp_linear_backward(layer, nullptr, dy, out, dw, nullptr, 0)
                   : mp_linear_backward_data(layer, nullptr, dy, out));
    MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
}

void expect_counts(mp_linear* layer, int32_t operand, bool is_finite) {
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    MP_OK(mp_linear_get_stats(layer, operand, &stats));
    EXPECT_GE(stats.elements, kElements);
    EXPECT_EQ(stats.elements % kElements, 0);
    EXPECT_EQ(stats.non_finite > 0, !is_finite);
    EXPECT_EQ(stats.saturated + stats.underflowed, 0);
    EXPECT_EQ(std::isnan(stats.amax), !is_finite);
}

} // namespace

// Each call counts each of its operands: rounded by a product, high precision, or codes already, in its form or in another.
TEST(LayerCounts, AreOfEveryOperandHoweverItIsGiven) {
    const Context context = make_context(1);
    int cases = 0;
    for (const char* text : kRecipes) {
        const Recipe recipe = recipe_of(context, text);
        const Tensor numbers = make_tensor(context, MP_DTYPE_FP32, {kRows, kRows});
        const Linear asked = layer_of(context, recipe, numbers, kRows, MP_LINEAR_STATS);
        for (const uint32_t kind : kKinds) {
            for (int which = 0; which < MP_OPERAND_COUNT * static_cast<int>(Given::count);
                 ++which, ++cases) {
                const int32_t operand = which % MP_OPERAND_COUNT;
                const auto given = static_cast<Given>(which / MP_OPERAND_COUNT);
                SCOPED_TRACE(std::string(text) + ", flags " + std::to_string(kind) + ", operand " +
                             std::to_string(operand) + ", given " +
                             std::to_string(static_cast<int>(given)));
                Tensor tensors[MP_OPERAND_COUNT];
                for (int32_t i = 0; i < MP_OPERAND_COUNT; ++i) {
                    tensors[i] =
                        form_for(context, asked, i, i == operand ? given : Given::as_numbers);
                    fill(tensors[i], context, 1.0F);
                }
                const Linear layer = layer_of(context, recipe, tensors[MP_OPERAND_WEIGHT], kRows,
                                              MP_LINEAR_STATS | kind);
                const auto pass = [&] {
                    run(context, layer, kind, tensors[MP_OPERAND_INPUT],
                        tensors[MP_OPERAND_GRAD_OUTPUT]);
                };
                pass();
                expect_counts(layer, operand, true);
                fill(tensors[operand], context, std::numeric_limits<float>::quiet_NaN());
                pass();
                expect_counts(layer, operand, false);
            }
        }
    }
    std::printf("%d layers\n", cases);
}

// Codes that serve as the weight (mp_linear_set_weight_codes) count as it does.
TEST(LayerCounts, AreOfTheWeightsCodes) {
    const Context context = make_context(1);
    const Recipe recipe = recipe_of(context, "fp8_current");
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {kRows, kRows});
    const Linear layer = layer_of(context, recipe, weight, kRows, MP_LINEAR_STATS);
    const Tensor codes = form_for(context, layer, MP_OPERAND_WEIGHT, Given::in_the_products_form);
    fill(codes, context, std::numeric_limits<float>::infinity());
    MP_OK(mp_linear_set_weight_codes(layer, codes, nullptr));
    run(context, layer, 0, weight, weight);
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    MP_OK(mp_linear_get_stats(layer, MP_OPERAND_WEIGHT, &stats));
    EXPECT_EQ(stats.elements, kElements);
    EXPECT_EQ(stats.non_finite, 1);
}
