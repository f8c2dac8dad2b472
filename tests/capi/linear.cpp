// SPDX-License-Identifier: Apache-2.0
// Linear: forward and both gradients against products in double of the rounded operands, for every recipe.
#include <cmath>

#include "layers.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 37;
constexpr int64_t kIn = 24;
constexpr int64_t kOut = 40;

struct LinearTest : ::testing::Test {
    Context context = make_context();
    std::vector<float> x_values = numbers(kRows * kIn, 1);
    std::vector<float> w_values = numbers(kOut * kIn, 2);
    std::vector<float> bias_values = numbers(kOut, 3);
    std::vector<float> dy_values = numbers(kRows * kOut, 4);

    // The values after rounding to `dtype`.
    std::vector<float> rounded(const std::vector<float>& values, int32_t dtype) {
        const Tensor tensor =
            make_tensor(context, dtype, {static_cast<int64_t>(values.size())}, values);
        return values_of(context, tensor);
    }
    Linear make(mp_recipe* recipe, mp_tensor* weight, mp_tensor* bias, uint32_t flags = 0) {
        return make_linear(context, recipe, linear_desc(kIn, kOut, flags), weight, bias);
    }
};

std::size_t at(int64_t row, int64_t column, int64_t columns) {
    return static_cast<std::size_t>(row * columns + column);
}

// A row or a column of a matrix.
struct Line {
    const std::vector<float>& values;
    int64_t first, step;
    double operator[](int64_t l) const {
        return static_cast<double>(values[static_cast<std::size_t>(first + l * step)]);
    }
};
double product(const Line& a, const Line& b, int64_t count, double sum = 0.0) {
    for (int64_t l = 0; l < count; ++l) {
        sum += a[l] * b[l];
    }
    return sum;
}

// sum over l of f(l), compared with `got` within the bound of an fp32 sum of `terms` products below 1.
void expect_sum(float got, double expected, int64_t terms) {
    ASSERT_NEAR(static_cast<double>(got), expected,
                static_cast<double>(terms) * static_cast<double>(terms) * 0x1p-24);
}

} // namespace

TEST_F(LinearTest, EveryRecipeAgainstDouble) {
    for (const char* name :
         {"fp32", "fp16_mixed", "bf16_mixed", "bf16_mixed_dual", "bf16_mixed_fp32_compute",
          "bf16_pure", "bf16_pure_kahan", "bf16_pure_sr"}) {
        const Recipe recipe = make_recipe(context, name);
        const int32_t stored = weight_dtype(recipe);
        const int32_t operand = recipe_dtype(recipe, MP_RECIPE_GEMM_FPROP_DTYPE);
        const Tensor w = make_tensor(context, stored, {kOut, kIn}, w_values);
        const Tensor bias = make_tensor(context, stored, {kOut}, bias_values);
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, x_values);
        const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, dy_values);
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
        const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
        const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
        const Tensor dbias = make_tensor(context, MP_DTYPE_FP32, {kOut});
        const Linear linear = make(recipe, w, bias);
        MP_OK(mp_linear_forward(linear, nullptr, x, y));
        MP_OK(mp_linear_backward_data(linear, nullptr, dy, dx));
        MP_OK(mp_linear_backward_weight(linear, nullptr, dy, dw, dbias, 0));

        const auto xr = rounded(x_values, operand),
                   wr = rounded(rounded(w_values, stored), operand);
        const auto dyr = rounded(dy_values, operand), br = rounded(bias_values, stored);
        const auto vy = values_of(context, y), vdx = values_of(context, dx),
                   vdw = values_of(context, dw);
        const auto vdb = values_of(context, dbias);
        for (int64_t i = 0; i < kRows; ++i) {
            for (int64_t o = 0; o < kOut; ++o) {
                const double sum = product({xr, i * kIn, 1}, {wr, o * kIn, 1}, kIn,
                                           br[static_cast<std::size_t>(o)]);
                expect_sum(vy[at(i, o, kOut)], sum, kIn + 2);
            }
            for (int64_t l = 0; l < kIn; ++l) {
                const double sum = product({dyr, i * kOut, 1}, {wr, l, kIn}, kOut);
                expect_sum(vdx[at(i, l, kIn)], sum, kOut);
            }
        }
        for (int64_t o = 0; o < kOut; ++o) {
            double column = 0;
            for (int64_t i = 0; i < kRows; ++i) {
                column += static_cast<double>(dy_values[at(i, o, kOut)]);
            }
            expect_sum(vdb[static_cast<std::size_t>(o)], column, kRows);
            for (int64_t l = 0; l < kIn; ++l) {
                const double sum = product({dyr, o, kOut}, {xr, l, kIn}, kRows);
                expect_sum(vdw[at(o, l, kIn)], sum, kRows);
            }
        }
    }
}

TEST_F(LinearTest, AccumulatesIntoTheMainGradient) {
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
    const Tensor bias = make_tensor(context, MP_DTYPE_FP32, {kOut}, bias_values);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, x_values);
    const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, dy_values);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Tensor db = make_tensor(context, MP_DTYPE_FP32, {kOut});
    const Linear linear = make(recipe, w, bias);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, dw, db, 0));
    const auto once = values_of(context, dw), bias_once = values_of(context, db);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, dw, db, MP_BACKWARD_ACCUMULATE));
    const auto twice = values_of(context, dw), bias_twice = values_of(context, db);
    for (std::size_t i = 0; i < once.size(); ++i) {
        ASSERT_NEAR(twice[i], 2 * once[i], 1e-5);
    }
    for (std::size_t i = 0; i < bias_once.size(); ++i) {
        ASSERT_EQ(bias_twice[i], 2 * bias_once[i]); // the sum of the rows, then one addition
    }
}

TEST_F(LinearTest, BothGradientsAtOnceGiveTheSameBits) {
    for (const char* name : {"fp32", "bf16_mixed"}) {
        const Recipe recipe = make_recipe(context, name);
        const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, x_values);
        const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, dy_values);
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
        const Linear linear = make(recipe, w, nullptr);
        MP_OK(mp_linear_forward(linear, nullptr, x, y));
        std::vector<std::vector<unsigned char>> results;
        for (const bool together : {false, true}) {
            const Tensor dx = make_tensor(context, MP_DTYPE_BF16, {kRows, kIn});
            const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
            if (together) {
                MP_OK(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, 0));
            } else {
                MP_OK(mp_linear_backward_weight(linear, nullptr, dy, dw, nullptr, 0));
                MP_OK(mp_linear_backward_data(linear, nullptr, dy, dx));
            }
            results.push_back(bytes_of(dx));
            results.push_back(bytes_of(dw));
        }
        EXPECT_EQ(results[0], results[2]);
        EXPECT_EQ(results[1], results[3]);
    }
}

TEST_F(LinearTest, KeptInputIsACopyUnlessItHasTheRightType) {
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, dy_values);
    const Tensor before = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Tensor after = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Linear linear = make(recipe, w, nullptr);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, x_values);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, before, nullptr, 0));
    MP_OK(mp_tensor_zero(x, nullptr));
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, after, nullptr, 0));
    EXPECT_EQ(bytes_of(before), bytes_of(after));
    char text[2048] = {};
    MP_OK(mp_linear_describe(linear, text, sizeof text, nullptr));
    EXPECT_NE(std::string(text).find("copy in bf16"), std::string::npos) << text;

    Tensor narrow = make_tensor(context, MP_DTYPE_BF16, {kRows, kIn}, x_values);
    MP_OK(mp_linear_forward(linear, nullptr, narrow, y));
    MP_OK(mp_linear_describe(linear, text, sizeof text, nullptr));
    EXPECT_NE(std::string(text).find("caller's own bf16"), std::string::npos) << text;
    narrow = Tensor(); // the layer keeps it alive
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, after, nullptr, 0));
    EXPECT_EQ(bytes_of(before), bytes_of(after));
}

TEST_F(LinearTest, SixteenBitActivationsAndGradients) {
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Tensor w = make_tensor(context, MP_DTYPE_BF16, {kOut, kIn}, w_values);
    const Tensor x = make_tensor(context, MP_DTYPE_BF16, {1, kRows, kIn}, x_values);
    const Tensor dy = make_tensor(context, MP_DTYPE_BF16, {1, kRows, kOut}, dy_values);
    const Tensor y = make_tensor(context, MP_DTYPE_BF16, {1, kRows, kOut});
    const Tensor dw = make_tensor(context, MP_DTYPE_BF16, {kOut, kIn});
    const Linear linear = make(recipe, w, nullptr);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    MP_OK(mp_linear_backward_weight(linear, nullptr, dy, dw, nullptr, MP_BACKWARD_ACCUMULATE));
    double energy = 0;
    for (const float value : values_of(context, dw)) {
        energy += static_cast<double>(value) * static_cast<double>(value);
    }
    EXPECT_GT(energy, 1.0);
}

TEST_F(LinearTest, RowsMayChangeAndBeNone) {
    const Recipe recipe = make_recipe(context, "fp32");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
    const Tensor bias = make_tensor(context, MP_DTYPE_FP32, {kOut}, bias_values);
    const Linear linear = make(recipe, w, bias);
    for (int64_t rows = 0; rows < 80; ++rows) { // more shapes than the layer remembers plans for
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {rows, kIn});
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {rows, kOut});
        const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
        MP_OK(mp_linear_forward(linear, nullptr, x, y));
        for (std::size_t i = 0; i < static_cast<std::size_t>(rows * kOut); ++i) {
            ASSERT_EQ(values_of(context, y)[i], bias_values[i % kOut]);
        }
        MP_OK(mp_linear_backward_weight(linear, nullptr, y, dw, nullptr, 0));
        ASSERT_EQ(values_of(context, dw)[5], 0.0F);
    }
}

TEST_F(LinearTest, WrongCalls) {
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, w_values);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, x_values);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Linear linear = make(recipe, w, nullptr);
    MP_FAILS(mp_linear_backward_weight(linear, nullptr, y, w, nullptr, 0), MP_STATUS_BAD_STATE,
             "forward");
    MP_FAILS(mp_linear_forward(linear, nullptr, y, y), MP_STATUS_INVALID_SHAPE, "x is [37, 40]",
             "24");
    const Tensor short_y = make_tensor(context, MP_DTYPE_FP32, {kRows - 1, kOut});
    MP_FAILS(mp_linear_forward(linear, nullptr, x, short_y), MP_STATUS_INVALID_SHAPE, "rows");
    const Tensor integers = make_tensor(context, MP_DTYPE_INT8, {kRows, kIn});
    MP_FAILS(mp_linear_forward(linear, nullptr, integers, y), MP_STATUS_INVALID_DTYPE, "int8");
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    MP_FAILS(mp_linear_backward_weight(linear, nullptr, short_y, w, nullptr, 0),
             MP_STATUS_INVALID_SHAPE, "37 rows");
    MP_FAILS(mp_linear_backward_weight(linear, nullptr, y, x, nullptr, 0), MP_STATUS_INVALID_SHAPE,
             "dw is");
    const Tensor db = make_tensor(context, MP_DTYPE_FP32, {kOut});
    MP_FAILS(mp_linear_backward_weight(linear, nullptr, y, w, db, 0), MP_STATUS_INVALID_ARGUMENT,
             "no bias");
    MP_FAILS(mp_linear_backward_weight(linear, nullptr, y, w, nullptr, 99),
             MP_STATUS_INVALID_ARGUMENT, "flags");

    const Linear inference = make(recipe, w, nullptr, MP_LINEAR_INFERENCE);
    MP_OK(mp_linear_forward(inference, nullptr, x, y));
    MP_FAILS(mp_linear_backward_weight(inference, nullptr, y, w, nullptr, 0), MP_STATUS_BAD_STATE,
             "INFERENCE");

    mp_linear* raw = nullptr;
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = kIn;
    desc.out_features = kOut + 1;
    MP_FAILS(mp_linear_create(context, recipe, &desc, w, nullptr, &raw), MP_STATUS_INVALID_SHAPE,
             "weight", "[41, 24]");
    desc.out_features = 0;
    MP_FAILS(mp_linear_create(context, recipe, &desc, w, nullptr, &raw), MP_STATUS_INVALID_SHAPE,
             "positive");
    EXPECT_EQ(raw, nullptr);
}
