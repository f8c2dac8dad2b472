// SPDX-License-Identifier: Apache-2.0
// Mistakes found in two engines that train in fp8 (LLMQ and Surogate), as tests that would fail if this library made them.
// What else of that list is tested where it belongs:
//
//   indices of 32 bits                     EngineIndices (engine_indices.cpp)
//   clipping by the square of the norm     Optimizer.NormAndClip (optimizer.cpp) and OptimizerPrepareValues.UnscalesAndClips
//                                          (tests/backends/optimizer_prepare.cpp), by torch's formula, of norms above 1
//   random numbers shared by neighbours,   SrStatistics.UniformAndUncorrelatedAlongEveryAxis (tests/numerics/sr_statistics.cpp),
//   steps, tensors or micro-batches        SrStream.EveryPartOfTheAddressMatters (philox.cpp there; a micro-batch is the upper 16
//                                          bits of a step), AdamwProperties.RandomBitsAreKeyedByParameterAndStep
//                                          (tests/backends/adamw.cpp)
//   the same noise on every rank           ReduceScatter.RoundsToTheWireByTheLogicalElement (tests/comm/reduce.cpp)
//   an average that has no memory          AdamwProperties.FollowsTheWrittenFormula, and torch's trajectories in AdamwOracles
//                                          (tests/backends/adamw_fixtures.cpp)
//   scales chosen before they are rounded  ScaleRules.Nvfp4GivesTransformerEnginesBlocks (tests/numerics/scale_rules.cpp)
//   approximate divisions                  every backend against the reference bit by bit, and tests/machines
//   gradient shards read from elsewhere    EqualBits (equal_bits.cpp): stages 2 and 3 on ranks above 0, with gradients that
//                                          differ everywhere; Zero tests (tests/comm/zero.cpp)
//   codes that are never stored            Quantize.EqualsTheReferenceForEverySize (tests/backends/quantize.cpp)
//
// Not here to be wrong: NorMuon, whose column means are read while row 0 writes them (there is no Muon); the choice of 4/6
// by its error (NVFP4 has one scale, by Transformer Engine's rule); int8 activations.
#include <cmath>
#include <cstdio>

#include "layers.hpp"
#include "optimizers.hpp"

using namespace mp_test;

namespace {

struct EngineMistakes : ::testing::Test {
    Context context = make_context(1);

    Tensor matrix(int64_t rows, int64_t columns, uint64_t seed, float scale = 1.0F) const {
        return make_tensor(context, MP_DTYPE_FP32, {rows, columns},
                           numbers(static_cast<std::size_t>(rows * columns), seed, scale));
    }
};

// ---- noise ---------------------------------------------------------------------------------------

// A moment that is rounded stochastically, under gradients that never change: the mean over elements of
// |mean over steps / what it converges to - 1|.
double mean_bias(mp_context* context, const char* state, const char* format,
                 bool noise_is_the_same) {
    constexpr std::size_t kCount = 1024;
    constexpr int kSteps = 2200;
    constexpr int kFirst = 200; // moments have come to rest
    const std::string key = std::string("optimizer.") + state;
    const std::string text = R"({"recipe": "fp32", "optimizer.block_min_elements": 1, ")" + key +
                             R"(.dtype": ")" + format + R"(", ")" + key +
                             R"(.rounding": "stochastic"})";
    const Recipe recipe = recipe_of(context, text);
    const Optimizer optimizer = make_optimizer(context, recipe);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.beta1 = group.beta2 = 0.9;
    int32_t index = 0;
    EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, &index)));
    std::vector<float> grads = numbers(kCount, 3);
    for (float& g : grads) {
        g = std::copysign(0.5F + 0.5F * std::fabs(g),
                          g); // none is small beside its block's largest
    }
    const Tensor param = make_tensor(context, MP_DTYPE_FP32, {kCount});
    const Tensor grad = make_tensor(context, MP_DTYPE_FP32, {kCount}, grads);
    EXPECT_TRUE(succeeded(add_param(optimizer, 0, "p", param, grad)));
    const Tensor values = make_tensor(context, MP_DTYPE_FP32, {kCount});
    std::vector<double> sums(kCount);
    for (int step = 0; step < kSteps; ++step) {
        if (noise_is_the_same) { // the number of steps is part of the key
            EXPECT_TRUE(succeeded(mp_optimizer_set_step(optimizer, nullptr, 0)));
        }
        EXPECT_TRUE(done(mp_optimizer_step(optimizer, nullptr, nullptr)));
        EXPECT_TRUE(succeeded(mp_optimizer_read_state(optimizer, nullptr, 0, state, values)));
        void* data = data_of(values);
        for (std::size_t i = 0; i < kCount && step >= kFirst; ++i) {
            sums[i] += static_cast<double>(static_cast<const float*>(data)[i]);
        }
    }
    double bias = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) {
        const auto g = static_cast<double>(grads[i]);
        const double rests = std::strcmp(state, "exp_avg") == 0 ? g : g * g;
        bias += std::fabs(sums[i] / (kSteps - kFirst) / rests - 1.0);
    }
    return bias / kCount;
}

} // namespace

// LLMQ's kernel has a literal for a seed, so an element of m is always rounded the same way.
TEST_F(EngineMistakes, MomentsGetOtherNoiseInEveryStep) {
    const struct {
        const char* state;
        const char* format;
    } rows[] = {{"exp_avg", "bf16"}, {"exp_avg_sq", "bf16"}, {"exp_avg", "fp8_e4m3_block128"}};
    for (const auto& row : rows) {
        SCOPED_TRACE(std::string(row.state) + " in " + row.format);
        const double fresh = mean_bias(context, row.state, row.format, false);
        const double same = mean_bias(context, row.state, row.format, true);
        std::printf("%s in %s: mean bias %.3f %%; with the same noise in every step %.1f %%\n",
                    row.state, row.format, 100 * fresh, 100 * same);
        EXPECT_LT(fresh, same / 5);
    }
}

// Theirs counts steps only (LLMQ) or micro-batches only (Surogate), and gives eight neighbours one number.
TEST_F(EngineMistakes, EveryMicrobatchGetsOtherNoise) {
    constexpr int64_t kSize = 64;
    constexpr int kMicrobatches = 128;
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor w = matrix(kSize, kSize, 1), x = matrix(kSize, kSize, 2),
                 dy = matrix(kSize, kSize, 3);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize});
    const Linear linear = make_linear(context, recipe, linear_desc(kSize, kSize), w);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    // The sum of as many equal gradients, each added in the type of dw.
    const auto sum = [&](int32_t dtype, bool counts, uint64_t step) {
        Tensor dw = make_tensor(context, dtype, {kSize, kSize});
        for (int32_t i = 0; i < kMicrobatches; ++i) {
            mp_cast_desc rounding = MP_CAST_DESC_INIT;
            rounding.rounding = MP_ROUND_STOCHASTIC;
            rounding.step = step;
            rounding.microbatch = counts ? i : 0;
            EXPECT_TRUE(succeeded(mp_linear_set_gradient_rounding(linear, &rounding)));
            EXPECT_TRUE(done(mp_linear_backward_weight(linear, nullptr, dy, dw, nullptr,
                                                       MP_BACKWARD_ACCUMULATE)));
        }
        return dw;
    };
    const std::vector<float> exact = values_of(context, sum(MP_DTYPE_FP32, true, 0));
    const auto error = [&](const std::vector<float>& values) {
        double squares = 0.0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double e = static_cast<double>(values[i]) - static_cast<double>(exact[i]);
            squares += e * e;
        }
        return std::sqrt(squares / static_cast<double>(values.size()));
    };
    const std::vector<float> fresh = values_of(context, sum(MP_DTYPE_BF16, true, 0));
    const std::vector<float> same = values_of(context, sum(MP_DTYPE_BF16, false, 0));
    // No rounding has a standard deviation above half a unit in the last place of what it ends with, and fresh ones are
    // independent.
    double bound = 0.0;
    for (const float value : exact) {
        const double half = std::ldexp(1.0, std::ilogb(value) - 7) / 2;
        bound += half * half * kMicrobatches;
    }
    bound = std::sqrt(bound / static_cast<double>(exact.size()));
    std::printf("bf16 sum of %d micro-batches: rms error %.3g; with the same noise in each %.3g; "
                "at most %.3g\n",
                kMicrobatches, error(fresh), error(same), bound);
    EXPECT_LT(error(fresh), bound);
    EXPECT_GT(error(same), 3 * error(fresh)) << "the comparison sees nothing";
    EXPECT_NE(fresh, values_of(context, sum(MP_DTYPE_BF16, true, 1))) << "every step repeats";
    // Neighbours' errors have nothing to do with each other.
    double products = 0.0;
    for (std::size_t i = 1; i < fresh.size(); ++i) {
        products += static_cast<double>(fresh[i] - exact[i]) *
                    static_cast<double>(fresh[i - 1] - exact[i - 1]);
    }
    const double correlation =
        products / (static_cast<double>(fresh.size()) * error(fresh) * error(fresh));
    EXPECT_LT(std::fabs(correlation), 5.0 / std::sqrt(static_cast<double>(fresh.size())));
}

// ---- scales --------------------------------------------------------------------------------------

// LLMQ multiplies the bias gradient of an fp8 layer by the scale of its input as well.
TEST_F(EngineMistakes, ABiasGradientHasNothingOfTheInput) {
    constexpr int64_t kSize = 64;
    for (const char* name : {"fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_rowwise_gw_hp",
                             "fp8_block", "mxfp8", "bf16_with_fp8_mixed"}) {
        SCOPED_TRACE(name);
        const Recipe recipe = make_recipe(context, name);
        const Tensor w = matrix(kSize, kSize, 1), bias = matrix(1, kSize, 4);
        const Tensor flat = make_tensor(context, MP_DTYPE_FP32, {kSize}, values_of(context, bias));
        const Tensor dy = matrix(kSize, kSize, 3, 0.01F);
        const std::vector<float> dy_values = values_of(context, dy);
        std::vector<std::vector<unsigned char>> results;
        for (const float scale : {1.0F, 1000.0F}) {
            const Tensor x = matrix(kSize, kSize, 2, scale);
            const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize});
            const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize});
            const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize});
            const Tensor dbias = make_tensor(context, MP_DTYPE_FP32, {kSize});
            const Linear linear = make_linear(context, recipe, linear_desc(kSize, kSize), w, flat);
            for (int step = 0; step < 2; ++step) { // delayed scales are there in the second
                MP_OK(mp_linear_forward(linear, nullptr, x, y));
                MP_OK(mp_linear_backward(linear, nullptr, dy, dx, dw, dbias, 0));
                mp_linear* const layers[] = {linear};
                MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
            }
            results.push_back(bytes_of(dbias));
            const std::vector<float> sums = values_of(context, dbias);
            for (std::size_t column = 0; column < sums.size(); ++column) {
                double sum = 0.0;
                for (std::size_t row = 0; row < kSize; ++row) {
                    sum += static_cast<double>(dy_values[row * kSize + column]);
                }
                EXPECT_NEAR(sums[column], sum, 0.01 * kSize * 0x1p-23 * kSize);
            }
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

// Approximate reciprocals decide codes there. Here a scale is what IEEE division makes it, for every amax.
TEST_F(EngineMistakes, ScalesAreExactQuotients) {
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {16}, nullptr);
    const Tensor scale_inv = scales_of(codes);
    const std::vector<float> amaxes = numbers(2000, 5);
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
        const float amax = std::ldexp(std::fabs(amaxes[i]), static_cast<int>(i % 60) - 30);
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {16}, std::vector<float>(16, amax));
        MP_OK(mp_tensor_quantize(x, nullptr, codes, nullptr, nullptr, nullptr));
        const volatile float multiply = 448.0F / amax; // not folded, not contracted
        ASSERT_EQ(values_of(context, scale_inv)[0], 1.0F / multiply) << amax;
    }
}

// Surogate floors the stored scale of an NVFP4 block and chooses codes by another, so that small blocks grow.
TEST_F(EngineMistakes, SmallNvfp4BlocksDoNotGrow) {
    constexpr int64_t kBlock = 16;
    std::vector<float> values;
    for (int block = 0; block < 64; ++block) {
        const std::vector<float> unit = numbers(kBlock, 100 + static_cast<uint64_t>(block));
        for (int64_t i = 0; i < kBlock; ++i) { // amaxes from 1 down to 2^-31.5
            values.push_back((i == 0 ? 1.0F : unit[static_cast<std::size_t>(i)]) *
                             std::exp2(-0.5F * static_cast<float>(block)));
        }
    }
    const auto count = static_cast<int64_t>(values.size());
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = MP_SCALING_NVFP4;
    quant.rule = MP_SCALE_RULE_NVFP4;
    const Tensor codes = make_quantized(context, MP_DTYPE_FP4_E2M1, {1, count}, &quant);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {1, count}, values);
    const Tensor back = make_tensor(context, MP_DTYPE_FP32, {1, count});
    MP_OK(mp_tensor_quantize(x, nullptr, codes, nullptr, nullptr, nullptr));
    MP_OK(mp_tensor_dequantize(codes, nullptr, back));
    const std::vector<float> decoded = values_of(context, back);
    int zeros = 0;
    for (std::size_t i = 0; i < values.size(); i += kBlock) { // each block's largest
        const float ratio = decoded[i] / values[i];
        zeros += ratio == 0.0F ? 1 : 0;
        EXPECT_TRUE(ratio == 0.0F || (ratio > 0.74F && ratio < 1.26F)) << values[i] << " " << ratio;
        for (std::size_t k = i; k < i + kBlock; ++k) {
            EXPECT_LE(std::fabs(decoded[k]), std::fabs(values[i]) * 1.26F);
        }
    }
    EXPECT_GT(zeros, 10);
    EXPECT_LT(zeros, 40);
}

// ---- codes ---------------------------------------------------------------------------------------

// NorMuon's map is uniform at half steps, so an idle momentum beside a large one becomes something.
TEST_F(EngineMistakes, ZeroIsACodeOfEveryMoment) {
    constexpr std::size_t kCount = 4098;
    for (const char* format : {"int8_block256", "int4_block128", "int8_companded32",
                               "fp8_e4m3_block256", "fp8_e4m3_block128"}) {
        SCOPED_TRACE(format);
        const std::string text = std::string(R"({"recipe": "fp32", "optimizer.exp_avg.dtype": ")") +
                                 format + R"(", "optimizer.exp_avg_sq.dtype": ")" + format + "\"}";
        const Recipe recipe = recipe_of(context, text);
        const Optimizer optimizer = make_optimizer(context, recipe);
        int32_t group = 0;
        MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
        const std::vector<float> before = numbers(kCount, 1);
        std::vector<float> grads = numbers(kCount, 2);
        for (std::size_t i = 0; i < kCount; i += 3) {
            grads[i] = 0.0F;
        }
        const Tensor param = make_tensor(context, MP_DTYPE_FP32, {kCount}, before);
        const Tensor grad = make_tensor(context, MP_DTYPE_FP32, {kCount}, grads);
        const Tensor values = make_tensor(context, MP_DTYPE_FP32, {kCount});
        MP_OK(add_param(optimizer, group, "p", param, grad));
        for (int step = 0; step < 5; ++step) {
            EXPECT_TRUE(done(mp_optimizer_step(optimizer, nullptr, nullptr)));
        }
        const std::vector<float> after = values_of(context, param);
        for (const char* state : {"exp_avg", "exp_avg_sq"}) {
            MP_OK(mp_optimizer_read_state(optimizer, nullptr, 0, state, values));
            const std::vector<float> moments = values_of(context, values);
            // The second moments of 4 bits are torchao's, whose least is a sixteenth: an idle weight does not move for it.
            const bool has_zero =
                std::strcmp(format, "int4_block128") != 0 || std::strcmp(state, "exp_avg") == 0;
            for (std::size_t i = 0; i < kCount; i += 3) {
                ASSERT_TRUE(moments[i] == 0.0F || !has_zero) << state << " " << i;
                ASSERT_EQ(after[i], before[i]) << i;
                ASSERT_NE(after[i + 1], before[i + 1]) << i;
            }
        }
    }
}
