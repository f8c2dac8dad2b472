// SPDX-License-Identifier: Apache-2.0
// Adapters (adapter.h): against their parts as plain products, against numbers in double, and all ways to run a pass.
#include <cmath>

#include "adapters.hpp"
#include "coded.hpp"
#include "memory.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

constexpr const char* kRecipes[] = {"fp32",        "fp16_mixed",  "bf16_mixed",
                                    "fp8_delayed", "fp8_current", "fp8_rowwise",
                                    "fp8_block",   "mxfp8",       "fp8_rowwise_gw_hp"};

// D = alpha op(A) op(B) + beta D of fp32 matrices.
struct Product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    float alpha, beta;

    void run(mp_context* context, mp_tensor* a, mp_tensor* b, mp_tensor* d) const {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.m = m, desc.n = n, desc.k = k;
        desc.alpha = static_cast<double>(alpha);
        desc.beta = static_cast<double>(beta);
        desc.flags =
            MP_GEMM_HAS_ALPHA | (trans_a ? MP_GEMM_TRANS_A : 0U) | (trans_b ? MP_GEMM_TRANS_B : 0U);
        desc.dtype_a = desc.dtype_b = desc.dtype_d = MP_DTYPE_FP32;
        const Gemm gemm = make_gemm(context, desc);
        mp_tensor* const c = beta != 0 ? static_cast<mp_tensor*>(d) : nullptr;
        EXPECT_TRUE(succeeded(mp_gemm_run(gemm, nullptr, a, b, nullptr, c, d)));
    }
};

std::vector<double> in_double(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

// A layer with an adapter whose scale is 1.5.
struct InDouble {
    std::vector<double> x, dy, w, bias, a, b;

    static double dot(const std::vector<double>& one, int64_t row, const std::vector<double>& other,
                      int64_t other_row, int64_t length) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i) {
            sum += one[static_cast<std::size_t>(row * length + i)] *
                   other[static_cast<std::size_t>(other_row * length + i)];
        }
        return sum;
    }
    // The sum of dy * y over some rows.
    [[nodiscard]] double loss(int64_t first, int64_t last) const {
        double sum = 0;
        for (int64_t i = first; i < last; ++i) {
            std::vector<double> t(kRank);
            for (int64_t r = 0; r < kRank; ++r) {
                t[static_cast<std::size_t>(r)] = dot(x, i, a, r, kIn);
            }
            for (int64_t j = 0; j < kOut; ++j) {
                const double value = bias[static_cast<std::size_t>(j)] + dot(x, i, w, j, kIn) +
                                     1.5 * dot(t, 0, b, j, kRank);
                sum += value * dy[static_cast<std::size_t>(i * kOut + j)];
            }
        }
        return sum;
    }
    // Along one of the numbers above.
    double slope(double& variable, int64_t first, int64_t last) const {
        const double old = variable;
        variable = old + 0.5;
        const double above = loss(first, last);
        variable = old - 0.5;
        const double below = loss(first, last);
        variable = old;
        return above - below;
    }
};

} // namespace

// Under fp32 nothing is rounded but each product's result: the same products by themselves have the same bits.
TEST(Adapter, IsItsProducts) {
    for (const char* backend : kHostBackends) {
        SCOPED_TRACE(backend);
        const Model model("fp32", backend);
        const Linear alone = make_base(model.context, model.recipe, model.w, model.bias);
        const Lora lora(model.context, model.layer, model.recipe, 24.0, 10);
        const Outcome outcome = model.pass(lora);
        const float scale = 24.0F / kRank;
        const Tensor t = make_tensor(model.context, MP_DTYPE_FP32, {kRows, kRank}),
                     dt = make_tensor(model.context, MP_DTYPE_FP32, {kRows, kRank});
        EXPECT_TRUE(succeeded(mp_linear_forward(alone, nullptr, model.x, model.y)));
        Product{kRows, kRank, kIn, false, true, 1, 0}.run(model.context, model.x, lora.a, t);
        Product{kRows, kOut, kRank, false, true, scale, 1}.run(model.context, t, lora.b, model.y);
        EXPECT_TRUE(succeeded(mp_linear_backward_data(alone, nullptr, model.dy, model.dx)));
        Product{kRows, kRank, kOut, false, false, scale, 0}.run(model.context, model.dy, lora.b,
                                                                dt);
        Product{kOut, kRank, kRows, true, false, scale, 0}.run(model.context, model.dy, t, lora.db);
        Product{kRank, kIn, kRows, true, false, 1, 0}.run(model.context, dt, model.x, lora.da);
        Product{kRows, kIn, kRank, false, false, 1, 1}.run(model.context, dt, lora.a, model.dx);
        EXPECT_EQ(outcome, model.outcome(lora));
    }
}

namespace {

Outcome in_halves(const Model& m, const Lora& l) {
    EXPECT_TRUE(succeeded(mp_linear_forward(m.layer, nullptr, m.x, m.y)));
    EXPECT_TRUE(succeeded(mp_linear_backward_data(m.layer, nullptr, m.dy, m.dx)));
    EXPECT_TRUE(done(mp_linear_backward_weight(m.layer, nullptr, m.dy, nullptr, nullptr, 0)));
    return m.outcome(l);
}

Outcome backward_of(const Model& m, const Lora& l, mp_saved* saved) {
    EXPECT_TRUE(
        done(mp_linear_backward_saved(m.layer, nullptr, saved, m.dy, m.dx, nullptr, nullptr, 0)));
    return m.outcome(l);
}

Outcome made_again(const Model& m, const Lora& l) {
    const Saved saved = make_saved(m.layer);
    EXPECT_TRUE(
        succeeded(mp_linear_forward_saved(m.layer, nullptr, m.x, m.y, saved, MP_FORWARD_DROP)));
    EXPECT_TRUE(succeeded(
        mp_linear_forward_saved(m.layer, nullptr, m.x, nullptr, saved, MP_FORWARD_RECOMPUTE)));
    return backward_of(m, l, saved);
}

Outcome in_lent_memory(const Model& m, const Lora& l) {
    size_t bytes = 0;
    EXPECT_TRUE(succeeded(mp_linear_get_saved_bytes(m.layer, kRows, &bytes)));
    const Block memory(bytes), moved(bytes);
    const Saved saved = make_saved(m.layer);
    EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, memory.memory.get(), bytes)));
    EXPECT_TRUE(succeeded(mp_linear_forward_saved(m.layer, nullptr, m.x, m.y, saved, 0)));
    std::memcpy(moved.memory.get(), memory.memory.get(), bytes);
    std::memset(memory.memory.get(), 0xFF, bytes);
    EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, moved.memory.get(), bytes)));
    return backward_of(m, l, saved);
}

} // namespace

// Whole or in halves, kept by the layer, by the caller, or made again, in lent memory, with other threads.
TEST(Adapter, AllWaysHaveTheSameBits) {
    for (const char* const recipe : kRecipes) {
        for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16}) {
            SCOPED_TRACE(std::string(recipe) + ", " + mp_dtype_name(dtype));
            const auto made = [&](int32_t threads, const auto& body) {
                const Model model(recipe, nullptr, dtype, threads);
                const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
                return body(model, lora);
            };
            const auto whole = [](const Model& m, const Lora& l) { return m.pass(l); };
            const Outcome expected = made(2, whole);
            EXPECT_EQ(made(1, whole), expected);
            EXPECT_EQ(made(2, in_halves), expected);
            EXPECT_EQ(made(2, made_again), expected);
            EXPECT_EQ(made(2, in_lent_memory), expected);
            EXPECT_EQ(made(2,
                           [](const Model& m, const Lora& l) {
                               const Saved saved = make_saved(m.layer);
                               return m.pass(l, saved);
                           }),
                      expected);
        }
    }
}

// Numbers in double, and the gradients of a function of them by finite differences: it is bilinear, so these are exact.
TEST(Adapter, HasTheGradientsOfItsFunction) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 24.0, 30);
    (void)model.pass(lora);
    const auto floats = [&](mp_tensor* tensor) { return values_of(model.context, tensor); };
    InDouble exact{in_double(floats(model.x)), in_double(floats(model.dy)),
                   in_double(floats(model.w)), in_double(floats(model.bias)),
                   in_double(floats(lora.a)),  in_double(floats(lora.b))};
    double y_sum = 0;
    const std::vector<double> y = in_double(floats(model.y));
    for (std::size_t i = 0; i < y.size(); ++i) {
        y_sum += y[i] * exact.dy[i];
    }
    EXPECT_NEAR(y_sum, exact.loss(0, kRows), 1e-4);
    const std::vector<float> da = floats(lora.da), db = floats(lora.db), dx = floats(model.dx);
    for (std::size_t i = 0; i < exact.a.size(); i += 7) {
        EXPECT_NEAR(static_cast<double>(da[i]), exact.slope(exact.a[i], 0, kRows), 2e-5);
    }
    for (std::size_t i = 0; i < exact.b.size(); i += 5) {
        EXPECT_NEAR(static_cast<double>(db[i]), exact.slope(exact.b[i], 0, kRows), 2e-5);
    }
    for (std::size_t i = 0; i < exact.x.size(); i += 11) {
        const int64_t row = static_cast<int64_t>(i) / kIn;
        EXPECT_NEAR(static_cast<double>(dx[i]), exact.slope(exact.x[i], row, row + 1), 2e-5);
    }
}

// An adapter whose b is zero changes nothing, over any weight: codes too.
TEST(Adapter, OfZeroChangesNothingOverAnyWeight) {
    for (const coded::Blocks& type : coded::block_types()) {
        SCOPED_TRACE(mp_dtype_name(type.dtype));
        const Context context = make_context();
        const Recipe recipe = make_recipe(context, "bf16_mixed");
        const int64_t in = 256;
        const Tensor w = coded::make_blocks(context, type, kOut, in, 4);
        const mp_linear_desc desc = linear_desc(in, kOut, MP_LINEAR_FROZEN);
        const Linear layer = make_linear(context, recipe, desc, w);
        const Tensor x = make_tensor(context, MP_DTYPE_BF16, {kRows, in}, numbers(kRows * in, 1)),
                     y = make_tensor(context, MP_DTYPE_BF16, {kRows, kOut}),
                     a = make_tensor(context, MP_DTYPE_BF16, {kRank, in}, numbers(kRank * in, 2)),
                     b = make_tensor(context, MP_DTYPE_BF16, {kOut, kRank}),
                     db = make_tensor(context, MP_DTYPE_FP32, {kOut, kRank});
        MP_OK(mp_linear_forward(layer, nullptr, x, y));
        const auto before = bytes_of(y);
        const Adapter adapter = make_adapter(layer, recipe, adapter_desc(0), a, b);
        MP_OK(mp_adapter_set_grads(adapter, nullptr, db));
        MP_OK(mp_linear_forward(layer, nullptr, x, y));
        EXPECT_EQ(bytes_of(y), before);
        MP_OK(mp_linear_backward_weight(layer, nullptr, y, nullptr, nullptr, 0));
        EXPECT_NE(values_of(context, db), std::vector<float>(kOut * kRank, 0.0F));
    }
}

// Two adapters are the sum; one that is off, or destroyed, is as if it were not there.
TEST(Adapter, SeveralAddUp) {
    const Model model("bf16_mixed", nullptr, MP_DTYPE_BF16);
    const Lora one(model.context, model.layer, model.recipe, 8.0, 40, "one");
    const Outcome alone = model.pass(one);
    {
        const Lora two(model.context, model.layer, model.recipe, 4.0, 50, "two");
        const Outcome both = model.pass(one);
        EXPECT_NE(both.y, alone.y);
        EXPECT_NE(both.dx, alone.dx);
        EXPECT_EQ(both.da, alone.da); // each gets its own gradient of the same dy and x
        EXPECT_EQ(both.db, alone.db);
        MP_OK(mp_adapter_set_active(two.adapter, 0));
        int32_t active = 1;
        MP_OK(mp_adapter_get_active(two.adapter, &active));
        EXPECT_EQ(active, 0);
        EXPECT_EQ(model.pass(one), alone);
        MP_OK(mp_adapter_set_active(two.adapter, 1));
        // What it kept of the forward before it was off is for no backward.
        MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
                 MP_STATUS_BAD_STATE, "before any forward");
        EXPECT_EQ(model.pass(one), both);
    }
    EXPECT_EQ(model.pass(one), alone);
}

TEST(Adapter, AddsToGradients) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 60);
    const Outcome once = model.pass(lora);
    const std::vector<float> first = values_of(model.context, lora.da);
    EXPECT_EQ(model.pass(lora), once); // without the flag they are written
    EXPECT_NE(model.pass(lora, MP_BACKWARD_ACCUMULATE).da, once.da);
    const std::vector<float> second = values_of(model.context, lora.da);
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_NEAR(second[i], 2 * first[i], 1e-5F + std::fabs(first[i]) * 1e-5F);
    }
}

// A forward without a place for what it keeps changes nothing of training, under delayed scales too.
TEST(Adapter, EvaluationLeavesTrainingAlone) {
    for (const bool evaluates : {false, true}) {
        static Outcome expected;
        const Model model("fp8_delayed");
        const Lora lora(model.context, model.layer, model.recipe, 8.0, 70);
        const Tensor other = make_tensor(model.context, MP_DTYPE_FP32, {kRows, kIn},
                                         numbers(kRows * kIn, 9, 100.0F));
        Outcome outcome;
        for (int step = 0; step < 3; ++step) {
            if (evaluates) {
                MP_OK(mp_linear_forward_saved(model.layer, nullptr, other, model.y, nullptr, 0));
            }
            outcome = model.pass(lora);
            model.end_step();
        }
        if (evaluates) {
            EXPECT_EQ(outcome, expected);
        }
        expected = outcome;
    }
}

// x lies where the caller has it; what a makes of it is [rows, r].
TEST(Adapter, KeepsTheSmallMatrixAlone) {
    Counter counted;
    const Context context = make_counted_context(&counted, 0);
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const int64_t rows = 512, size = 512;
    const auto matrix = [&](int64_t m, int64_t n) {
        return make_tensor(context, MP_DTYPE_BF16, {m, n});
    };
    const Tensor w = matrix(size, size), a = matrix(8, size), b = matrix(size, 8),
                 x = matrix(rows, size), y = matrix(rows, size);
    const Linear layer = make_linear(context, recipe, linear_desc(size, size, MP_LINEAR_FROZEN), w);
    const Adapter adapter = make_adapter(layer, recipe, adapter_desc(0), a, b);
    const Queue queue = make_queue(context);
    MP_OK(mp_linear_forward_saved(layer, queue, x, y, nullptr, 0)); // scratch memory
    const int64_t before = counted.live;
    MP_OK(mp_linear_forward(layer, queue, x, y));
    EXPECT_EQ(counted.live - before, rows * 8 * 2);
}
