// SPDX-License-Identifier: Apache-2.0
// Values of optimizer states in and out, over every way to store them; and the ways in which other libraries lose
// them: hyperparameters in the state's type, state types taken from the parameter, a compensation that is dropped.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kCount =
    5000; // above the 4096 elements from which blocks are used, and no multiple of 256

// What an import may lose of a number, relative to the largest of its block or tensor.
struct Form {
    const char* recipe; // JSON
    const char* what;
    double first;  // of exp_avg
    double second; // of exp_avg_sq
};

// Half a unit in the last place of the type for numbers near the largest: 2^-9 for bf16, 2^-12 for fp16 under a
// power-of-two scale that may leave half of the range unused, 2^-4 for E4M3 (2^-5 within 448's binade, which ends at
// 1.75). The widest gaps of the maps: 8-bit signed 0.0141, unsigned 0.0070; 4-bit signed 0.6625 - 0.4375 and linear
// 1/16, halved each.
const Form kForms[] = {
    {R"({"recipe": "fp32"})", "fp32", 0.0, 0.0},
    {R"({"recipe": "fp32", "optimizer.exp_avg.dtype": "bf16", "optimizer.exp_avg_sq.dtype": "bf16"})",
     "bf16", 0x1p-9, 0x1p-9},
    {R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "fp8_e4m3_scaled", "optimizer.exp_avg_sq.dtype": "fp16_scaled"})",
     "scaled", 0x1p-4, 0x1p-11},
    {R"({"recipe": "fp32", "optimizer.exp_avg.dtype": "fp8_e4m3_block256", "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block256"})",
     "fp8 blocks", 0x1p-4, 0x1p-4},
    {R"({"recipe": "fp32", "optimizer.exp_avg.dtype": "int8_block256", "optimizer.exp_avg_sq.dtype": "int8_block256"})",
     "int8 blocks", 0.0071, 0.0036},
    {R"({"recipe": "fp32", "optimizer.exp_avg.dtype": "int4_block128", "optimizer.exp_avg_sq.dtype": "int4_block128"})",
     "int4 blocks", 0.1126, 1.0 / 16.0},
};

// One parameter "w" with its optimizer.
struct One {
    Context context;
    Optimizer optimizer;
    Tensor param;

    One(const char* json, int64_t count, int32_t weight, const std::vector<float>& init = {},
        double lr = 1e-3, double beta2 = 0.999)
        : context(make_context()) {
        const Recipe recipe = recipe_of(context, json);
        optimizer = make_optimizer(context, recipe);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        group.lr = lr;
        group.beta2 = beta2;
        int32_t index = 0;
        EXPECT_GE(mp_optimizer_add_group(optimizer, &group, &index), 0);
        param = make_tensor(context, weight, {count});
        Tensor exact;
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = "w";
        desc.param = param;
        if (!init.empty()) {
            exact = make_tensor(context, MP_DTYPE_FP32, {count}, init);
            desc.init_fp32 = exact;
        }
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &desc, nullptr)));
    }

    Tensor state(const char* name) { return state_of(optimizer, 0, name); }
    mp_status read(const char* name, std::vector<float>& values, int32_t dtype = MP_DTYPE_FP32) {
        const Tensor tensor = make_tensor(context, dtype, {static_cast<int64_t>(values.size())});
        const mp_status status = mp_optimizer_read_state(optimizer, nullptr, 0, name, tensor);
        if (status == MP_STATUS_OK) { // else the message is still to be read
            values = values_of(context, tensor);
        }
        return status;
    }
    std::vector<float> values(const char* name, int64_t count, int32_t dtype = MP_DTYPE_FP32) {
        std::vector<float> result(static_cast<std::size_t>(count));
        EXPECT_TRUE(succeeded(read(name, result, dtype)));
        return result;
    }
    mp_status write(const char* name, const std::vector<float>& values,
                    int32_t dtype = MP_DTYPE_FP32) {
        const Tensor tensor =
            make_tensor(context, dtype, {static_cast<int64_t>(values.size())}, values);
        return mp_optimizer_write_state(optimizer, nullptr, 0, name, tensor);
    }
    void set_grad(float value) {
        const Tensor grad = state("grad");
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
        const std::vector<float> all(static_cast<std::size_t>(desc.shape[0]), value);
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {desc.shape[0]}, all);
        round_into(exact, grad);
    }
    void steps(int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
        }
    }
};

std::vector<float> squares(std::vector<float> values) {
    for (float& value : values) {
        value *= value;
    }
    return values;
}

bool is_bf16(const Form& form) { return std::string(form.what) == "scaled"; }

} // namespace

TEST(OptimizerStates, ValuesGoInAndOutOfEveryForm) {
    for (const Form& form : kForms) {
        SCOPED_TRACE(form.what);
        One one(form.recipe, kCount, is_bf16(form) ? MP_DTYPE_BF16 : MP_DTYPE_FP32);
        const std::vector<float> m = numbers(kCount, 3);
        const std::vector<float> v = squares(numbers(kCount, 4));
        MP_OK(one.write("exp_avg", m));
        MP_OK(one.write("exp_avg_sq", v));
        const std::vector<float> m_read = one.values("exp_avg", kCount);
        const std::vector<float> v_read = one.values("exp_avg_sq", kCount);
        for (std::size_t i = 0; i < m.size(); ++i) {
            ASSERT_NEAR(m_read[i], m[i], form.first) << i;
            ASSERT_NEAR(v_read[i], v[i], form.second) << i;
        }
        if (form.second > 0.0 && !is_bf16(form) && std::string(form.what) != "bf16") {
            EXPECT_NE(m_read, m); // it was rounded at all
            for (std::size_t i = 0; i < v.size(); ++i) {
                ASSERT_TRUE(v_read[i] > 0.0F || v[i] == 0.0F) << i; // never a zero that was none
            }
        }
        // Nothing more is lost by reading into a narrower type than its own rounding.
        const std::vector<float> narrow = one.values("exp_avg", kCount, MP_DTYPE_BF16);
        for (std::size_t i = 0; i < m.size(); ++i) {
            ASSERT_NEAR(narrow[i], m_read[i], std::fabs(m_read[i]) * 0x1p-8) << i;
        }
    }
}

// A step's codes read as numbers are the numbers that the next step computes with: m' = 0.9 m where g = 0.
TEST(OptimizerStates, ValuesReadAreThoseThatAStepUses) {
    for (const Form& form : kForms) {
        SCOPED_TRACE(form.what);
        One one(form.recipe, kCount, is_bf16(form) ? MP_DTYPE_BF16 : MP_DTYPE_FP32);
        MP_OK(one.write("exp_avg", numbers(kCount, 5)));
        MP_OK(one.write("exp_avg_sq", squares(numbers(kCount, 6))));
        const std::vector<float> before = one.values("exp_avg", kCount);
        one.set_grad(0.0F);
        one.steps(1);
        const std::vector<float> after = one.values("exp_avg", kCount);
        for (std::size_t i = 0; i < after.size(); ++i) {
            ASSERT_NEAR(after[i], 0.9F * before[i], form.first + 1e-7) << i;
        }
    }
}

// The same codes and scales as a step stores for these values: with beta1 = beta2 = 0 moments become g and g g.
TEST(OptimizerStates, AnImportStoresWhatAStepWouldStore) {
    for (const Form& form : kForms) {
        SCOPED_TRACE(form.what);
        const int32_t weight = is_bf16(form) ? MP_DTYPE_BF16 : MP_DTYPE_FP32;
        One imported(form.recipe, kCount, weight);
        One stepped(form.recipe, kCount, weight);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        const mp_hyper zeros[] = {{"lr", 0.0}, {"beta1", 0.0}, {"beta2", 0.0}};
        group.hypers = zeros;
        group.hyper_count = 3;
        int32_t index = 0;
        MP_OK(mp_optimizer_add_group(stepped.optimizer, &group, &index));
        const Tensor param = make_tensor(stepped.context, weight, {kCount});
        MP_OK(add_param(stepped.optimizer, index, "x", param));
        const Tensor grad = state_of(stepped.optimizer, 1, "grad");
        mp_tensor_desc grad_desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(grad, &grad_desc));
        const Tensor values =
            make_tensor(stepped.context, grad_desc.dtype, {kCount}, numbers(kCount, 7));
        MP_OK(mp_tensor_copy(values, nullptr, grad));
        MP_OK(mp_optimizer_step(stepped.optimizer, nullptr, nullptr));

        const std::vector<float> g = values_of(stepped.context, values);
        MP_OK(imported.write("exp_avg", g));
        MP_OK(imported.write("exp_avg_sq", squares(g)));
        for (const char* name :
             {"exp_avg", "exp_avg_scale_inv", "exp_avg_sq", "exp_avg_sq_scale_inv"}) {
            mp_tensor* expected = nullptr;
            if (mp_optimizer_get_state(stepped.optimizer, 1, name, &expected) != MP_STATUS_OK) {
                continue;
            }
            const Tensor owned(expected);
            EXPECT_EQ(bytes_of(imported.state(name)), bytes_of(expected)) << name;
        }
    }
}

TEST(OptimizerStates, TheWeightKeepsAllBitsThatTheRecipeHolds) {
    struct Case {
        const char* recipe;
        double lost; // relative
    };
    // Kahan in bf16: c holds what the bf16 parameter lost, 2^-9 at most, to 2^-9 of itself.
    const Case cases[] = {{R"({"recipe": "bf16_mixed_dual"})", 0.0},
                          {R"({"recipe": "bf16_pure_remainder"})", 0.0},
                          {R"({"recipe": "bf16_pure_kahan"})", 0x1p-17},
                          {R"({"recipe": "bf16_pure"})", 0x1p-8}};
    const std::vector<float> exact = numbers(kCount, 8);
    for (const Case& c : cases) {
        SCOPED_TRACE(c.recipe);
        One late(c.recipe, kCount, MP_DTYPE_BF16, numbers(kCount, 9));
        late.set_grad(1.0F);
        late.steps(2); // so that there is something to be replaced
        MP_OK(late.write("fp32_param", exact));
        const std::vector<float> read = late.values("fp32_param", kCount);
        for (std::size_t i = 0; i < exact.size(); ++i) {
            ASSERT_NEAR(read[i], exact[i], std::fabs(exact[i]) * c.lost) << i;
        }
        One early(c.recipe, kCount, MP_DTYPE_BF16, exact);
        EXPECT_EQ(bytes_of(late.param), bytes_of(early.param));
        EXPECT_EQ(read, early.values("fp32_param", kCount));
        if (c.lost == 0x1p-8) {
            EXPECT_NE(read, exact);
        }
    }
}

// Rounded alike where they begin, where values are written, and by steps, a master kept whole and one kept as a
// remainder have the same weights to the bit, at halves too.
TEST(OptimizerStates, AWholeMasterRoundsAsARemainderDoesWhereAsked) {
    const char* whole =
        R"({"recipe": "bf16_mixed_dual", "optimizer.weight.rounding": "nearest_away"})";
    const auto with_halves = [](uint64_t seed) {
        std::vector<float> values = numbers(kCount, seed);
        for (std::size_t i = 0; i < values.size(); i += 3) {
            values[i] = (i % 2 == 0 ? 0x1.01p+0F : -0x1.03p-3F); // below an even and an odd one
        }
        return values;
    };
    One a(whole, kCount, MP_DTYPE_BF16, with_halves(8));
    One b(R"({"recipe": "bf16_pure_remainder"})", kCount, MP_DTYPE_BF16, with_halves(8));
    One even(R"({"recipe": "bf16_mixed_dual"})", kCount, MP_DTYPE_BF16, with_halves(8));
    EXPECT_EQ(bytes_of(a.param), bytes_of(b.param));
    EXPECT_NE(bytes_of(a.param), bytes_of(even.param));
    for (One* each : {&a, &b}) {
        each->set_grad(0.5F);
        each->steps(3);
    }
    EXPECT_EQ(bytes_of(a.param), bytes_of(b.param));
    for (One* each : {&a, &b}) {
        MP_OK(each->write("fp32_param", with_halves(9)));
    }
    EXPECT_EQ(bytes_of(a.param), bytes_of(b.param));
    EXPECT_EQ(a.values("fp32_param", kCount), b.values("fp32_param", kCount));
}

// optimi's issue 7: an fp32 checkpoint into bf16 with Kahan's sum lost its low bits. And a compensation that comes
// with a bf16 parameter stays with it.
TEST(OptimizerStates, ACompensationIsNotLost) {
    const std::vector<float> exact = numbers(kCount, 10);
    const char* json = R"({"recipe": "bf16_pure_kahan"})";
    One source(json, kCount, MP_DTYPE_BF16, exact);
    const std::vector<float> c = source.values("compensation", kCount);
    EXPECT_NE(c, std::vector<float>(kCount, 0.0F));
    One target(json, kCount, MP_DTYPE_BF16);
    MP_OK(mp_tensor_copy(source.param, nullptr, target.param));
    MP_OK(mp_optimizer_sync_master(target.optimizer, nullptr, 0));
    MP_OK(target.write("compensation", c, MP_DTYPE_BF16));
    const std::vector<float> sum = target.values("fp32_param", kCount);
    EXPECT_EQ(sum, source.values("fp32_param", kCount));
    for (std::size_t i = 0; i < exact.size(); ++i) {
        ASSERT_NEAR(sum[i], exact[i], std::fabs(exact[i]) * 0x1p-16) << i;
    }
    for (One* one : {&source, &target}) {
        one->set_grad(0.25F);
        one->steps(3);
    }
    EXPECT_EQ(bytes_of(source.param), bytes_of(target.param));
    EXPECT_EQ(bytes_of(source.state("compensation")), bytes_of(target.state("compensation")));
}

// Where a library multiplies by beta2 in the state's type, bf16(0.999) is 1: v from constant gradients g = 0.01 reached
// 3.05e-5 of 1e-4 and never shrank again. Here the product is made in fp32 and rounded once, stochastically.
TEST(OptimizerStates, Bf16SecondMomentsConvergeAndDecay) {
    constexpr int64_t kElements = 256;
    One one(R"({"recipe": "bf16_pure_sr", "optimizer.exp_avg_sq.dtype": "bf16",
                "optimizer.exp_avg_sq.rounding": "stochastic"})",
            kElements, MP_DTYPE_BF16, {}, 0.0);
    one.set_grad(0.01F);
    one.steps(20000);
    const auto mean = [&] {
        double sum = 0.0;
        for (const float v : one.values("exp_avg_sq", kElements)) {
            sum += static_cast<double>(v);
        }
        return sum / static_cast<double>(kElements);
    };
    // g is the bf16 nearest to 0.01, 0.01000977: v = 1.00195e-4. One rounding has a standard deviation of at most half
    // an ulp, 2^-22.3 of 2^-13.3; over 1 / (1 - beta2^2) steps of memory and 256 elements the mean's is 0.035 %.
    EXPECT_NEAR(mean(), 1.00195e-4, 5.0 * 0.00035 * 1e-4);
    one.set_grad(0.0F);
    one.steps(5000);
    // 0.999^5000 = 6.72e-3. Elements differ by the roundings of the way down, each of half an ulp of 2^-8 at most:
    // sqrt(5000) * 2^-9 = 14 % for one, 0.9 % for the mean.
    EXPECT_NEAR(mean(), 1.00195e-4 * 6.72e-3, 5.0 * 0.009 * 6.73e-7);
    EXPECT_LT(mean(), 1e-6);
}

// A framework that gave moments the parameter's type trained three times worse. What types there are is the recipe's
// choice alone, and can be read.
TEST(OptimizerStates, StateTypesAreTheRecipesNotTheParameters) {
    struct Case {
        const char* recipe;
        int32_t weight;
        int32_t first;
        int32_t second;
    };
    const Case cases[] = {
        {R"({"recipe": "bf16_mixed_dual"})", MP_DTYPE_BF16, MP_DTYPE_FP32, MP_DTYPE_FP32},
        {R"({"recipe": "bf16_pure_remainder"})", MP_DTYPE_BF16, MP_DTYPE_FP32, MP_DTYPE_FP32},
        {R"({"recipe": "fp32", "optimizer.exp_avg.dtype": "bf16"})", MP_DTYPE_FP32, MP_DTYPE_BF16,
         MP_DTYPE_FP32}};
    for (const Case& c : cases) {
        SCOPED_TRACE(c.recipe);
        One one(c.recipe, 100, c.weight);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(one.state("exp_avg"), &desc));
        EXPECT_EQ(desc.dtype, c.first);
        MP_OK(mp_tensor_get_desc(one.state("exp_avg_sq"), &desc));
        EXPECT_EQ(desc.dtype, c.second);
        // Values in another type do not change that.
        MP_OK(one.write("exp_avg_sq", std::vector<float>(100, 0.5F), MP_DTYPE_BF16));
        MP_OK(mp_tensor_get_desc(one.state("exp_avg_sq"), &desc));
        EXPECT_EQ(desc.dtype, c.second);
        EXPECT_EQ(one.values("exp_avg_sq", 100), std::vector<float>(100, 0.5F));
    }
}

TEST(OptimizerStates, WrongCalls) {
    One one(R"({"recipe": "bf16_pure_kahan"})", 10, MP_DTYPE_BF16);
    One plain(R"({"recipe": "fp32"})", 10, MP_DTYPE_FP32);
    std::vector<float> ten(10);
    std::vector<float> nine(9);
    MP_FAILS(one.read("max_exp_avg_sq", ten), MP_STATUS_UNKNOWN_NAME, "'w'", "max_exp_avg_sq",
             "exp_avg_sq", "fp32_param", "compensation");
    MP_FAILS(plain.write("compensation", ten), MP_STATUS_UNKNOWN_NAME, "compensation");
    MP_FAILS(one.read("exp_avg", nine), MP_STATUS_INVALID_SHAPE, "[10]", "[9]");
    MP_FAILS(one.write("exp_avg", nine), MP_STATUS_INVALID_SHAPE, "[10]", "[9]");
    const Tensor integers = make_tensor(one.context, MP_DTYPE_INT32, {10});
    MP_FAILS(mp_optimizer_read_state(one.optimizer, nullptr, 0, "exp_avg", integers),
             MP_STATUS_INVALID_DTYPE, "int32", "bf16");
    const Tensor good = make_tensor(one.context, MP_DTYPE_FP32, {10});
    MP_FAILS(mp_optimizer_read_state(one.optimizer, nullptr, 1, "exp_avg", good),
             MP_STATUS_INVALID_ARGUMENT, "parameter 1");
    MP_FAILS(mp_optimizer_write_state(one.optimizer, nullptr, -1, "exp_avg", good),
             MP_STATUS_INVALID_ARGUMENT, "parameter -1");
    MP_FAILS(mp_optimizer_read_state(one.optimizer, nullptr, 0, nullptr, good),
             MP_STATUS_NULL_ARGUMENT, "state");
    MP_FAILS(mp_optimizer_write_state(one.optimizer, nullptr, 0, "exp_avg", nullptr),
             MP_STATUS_NULL_ARGUMENT, "values");
}
