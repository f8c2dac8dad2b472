// SPDX-License-Identifier: Apache-2.0
// Weights of fp8 layers: cached, made again at each use, kept as codes alone; and gradients that are codes.
#include "linear_fp8.hpp"
#include "optimizers.hpp"

using namespace mp_test;
using namespace mp_test::fp8;

namespace {
struct Fp8LinearWeights : Fp8Linear {};
} // namespace

TEST_F(Fp8LinearWeights, CachedWeightServesUntilTheStepEnds) {
    use({32, 64, 32});
    for (const char* name : {"fp8_current", "fp8_rowwise", "bf16_mixed"}) {
        const Recipe recipe = make_recipe(context, name);
        const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
        const Linear cached = make(context, recipe, weight, sizes, MP_LINEAR_CACHE_WEIGHT);
        const Linear fresh = make(context, recipe, weight, sizes);
        mp_linear* const layers[] = {cached};
        const Pass first = run(context, cached);
        void* memory = data_of(weight);
        for (std::size_t i = 0; i < w.size(); ++i) {
            static_cast<float*>(memory)[i] *= 3.0F; // behind the library's back
        }
        EXPECT_EQ(difference(run(context, cached), first), "") << name << ": quantized only once";
        EXPECT_EQ(difference(run(context, fresh), first), "y dx ") << name << ": read at each use";
        MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
        const Pass second = run(context, cached);
        EXPECT_EQ(difference(second, run(context, fresh)), "") << name;
        MP_OK(mp_tensor_write(weight, nullptr, w.data(), w.size() * sizeof(float)));
        EXPECT_EQ(difference(run(context, cached), first), "") << name << ": the library knows";
    }
}

TEST_F(Fp8LinearWeights, RecomputedWeightCopiesAreTheSameAndKeepNothing) {
    use({32, 64, 32});
    for (const char* name : {"fp8_current", "fp8_rowwise", "fp8_block", "mxfp8"}) {
        const Recipe recipe = make_recipe(context, name);
        MP_OK(mp_recipe_set_string(recipe, MP_RECIPE_GEMM_WEIGHT_COPY, "recompute"));
        const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
        const Linear linear = make(context, recipe, weight, sizes);
        EXPECT_EQ(difference(run(context, linear), run_preset(name)), "") << name;
        EXPECT_NE(description_of(linear).find("at each use, nothing kept"), std::string::npos);
    }
}

// The codes are the only copy of the weight.
TEST_F(Fp8LinearWeights, QuantizedWeightIsUsedAsItIs) {
    use({32, 64, 32});
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {sizes.out, sizes.in}, nullptr);
    MP_OK(mp_tensor_quantize(source, nullptr, codes, nullptr, nullptr, nullptr));
    const Linear linear = make(context, make_recipe(context, "fp8_current"), codes, sizes);
    EXPECT_EQ(difference(run(context, linear), run_preset("fp8_current")), "");
    // Another recipe reads its values.
    MP_OK(mp_tensor_dequantize(codes, nullptr, source));
    w = values_of(context, source);
    const Linear block = make(context, make_recipe(context, "fp8_block"), codes, sizes);
    EXPECT_EQ(difference(run(context, block), run_preset("fp8_block")), "");
    const Linear plain = make(context, make_recipe(context, "fp32"), codes, sizes);
    EXPECT_EQ(difference(run(context, plain), run_preset("fp32")), "");
}

// fp8 codes as the only copy that products read, fp32 masters in the optimizer: after each step the codes are the
// masters' own, and the layer needs no copy of them.
TEST_F(Fp8LinearWeights, Fp8ParametersTrain) {
    use({64, 64, 32});
    const std::string json = R"({"recipe": "fp8_current", "weight.dtype": "fp8_e4m3_scaled",
                                 "master.dtype": "fp32"})";
    const Recipe recipe = recipe_of(context, json);
    const Optimizer optimizer = make_optimizer(context, recipe);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = 0.01;
    int32_t index = 0;
    MP_OK(mp_optimizer_add_group(optimizer, &group, &index));
    const Tensor weight = msamp_codes();
    const Tensor expected = msamp_codes();
    const Tensor initial = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
    MP_OK(add_param(optimizer, 0, "w", weight, nullptr, initial, &index));
    const Tensor gradient = state_of(optimizer, index, "grad");
    const Tensor masters = state_of(optimizer, index, "master");
    const Linear linear = make(context, recipe, weight, sizes, MP_LINEAR_CACHE_WEIGHT);
    EXPECT_EQ(description_of(linear).find("rounded to"), std::string::npos)
        << description_of(linear);
    mp_linear* const layers[] = {linear};
    const Tensor input = make_tensor(context, MP_DTYPE_FP32, {sizes.rows, sizes.in}, x);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {sizes.rows, sizes.out});
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) { // half the sum of y^2, whose gradient is y
        MP_OK(mp_linear_forward(linear, nullptr, input, y));
        double loss = 0.0;
        for (const float value : values_of(context, y)) {
            loss += 0.5 * static_cast<double>(value) * static_cast<double>(value);
        }
        losses.push_back(loss);
        MP_OK(mp_linear_backward_weight(linear, nullptr, y, gradient, nullptr, 0));
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
        MP_OK(mp_tensor_quantize(masters, nullptr, expected, nullptr, nullptr, nullptr));
        ASSERT_EQ(bytes_of(weight), bytes_of(expected)) << step;
    }
    EXPECT_LT(losses.back(), 0.8 * losses.front());
}

// Adding to a quantized gradient is cast(dequantized + product), with one rounding.
TEST_F(Fp8LinearWeights, QuantizedGradientIsSummedInFp32) {
    use({32, 64, 32});
    const Recipe recipe = make_recipe(context, "fp8_current");
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
    const Linear linear = make(context, recipe, weight, sizes);
    const Tensor gradient = msamp_codes();
    const Tensor expected = msamp_codes();
    const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in});
    const Tensor input = make_tensor(context, MP_DTYPE_FP32, {sizes.rows, sizes.in}, x);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {sizes.rows, sizes.out});
    const Tensor dy_tensor = make_tensor(context, MP_DTYPE_FP32, {sizes.rows, sizes.out}, dy);
    for (int pass = 0; pass < 3; ++pass) {
        const uint32_t flags = pass > 0 ? MP_BACKWARD_ACCUMULATE : 0;
        MP_OK(mp_linear_forward(linear, nullptr, input, y));
        if (pass > 0) {
            MP_OK(mp_tensor_dequantize(expected, nullptr, wide));
        }
        MP_OK(mp_linear_backward_weight(linear, nullptr, dy_tensor, wide, nullptr, flags));
        MP_OK(mp_tensor_quantize(wide, nullptr, expected, nullptr, nullptr, nullptr));
        // A sum in codes is told of.
        ASSERT_TRUE(
            done(mp_linear_backward_weight(linear, nullptr, dy_tensor, gradient, nullptr, flags)));
        EXPECT_EQ(bytes_of(gradient), bytes_of(expected)) << pass;
    }
}
