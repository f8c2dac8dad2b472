// SPDX-License-Identifier: Apache-2.0
// Dropout of adapters. Where the base is zero and both matrices are one, y is what is left of x and dx what is left of dy.
#include <cmath>

#include "adapters.hpp"
#include "optimizers.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kSize = 64;
constexpr int64_t kRows = 128;
constexpr double kP = 0.3;

std::vector<float> identity() {
    std::vector<float> values(kSize * kSize, 0.0F);
    for (int64_t i = 0; i < kSize; ++i) {
        values[static_cast<std::size_t>(i * (kSize + 1))] = 1.0F;
    }
    return values;
}

struct Dropping {
    Context context;
    Recipe recipe;
    Tensor w, a, b, da, x, y, dy, dx;
    Linear layer;
    Adapter adapter;

    explicit Dropping(const char* recipe_name, double p = kP, const char* backend = nullptr,
                      int32_t dtype = MP_DTYPE_FP32, const char* name = "base", int32_t threads = 2)
        : context(make_context(threads, backend)), recipe(make_recipe(context, recipe_name)),
          w(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize})),
          a(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, identity())),
          b(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, identity())),
          da(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize})),
          x(make_tensor(context, dtype, {kRows, kSize}, numbers(kRows * kSize, 1))),
          y(make_tensor(context, dtype, {kRows, kSize})),
          dy(make_tensor(context, dtype, {kRows, kSize}, std::vector<float>(kRows * kSize, 1.0F))),
          dx(make_tensor(context, dtype, {kRows, kSize})) {
        mp_linear_desc desc = linear_desc(kSize, kSize, MP_LINEAR_FROZEN);
        desc.name = name;
        layer = make_linear(context, recipe, desc, w);
        mp_adapter_desc lora = adapters::adapter_desc(0);
        lora.dropout = p;
        adapter = adapters::make_adapter(layer, recipe, lora, a, b);
        EXPECT_TRUE(succeeded(mp_adapter_set_grads(adapter, da, nullptr)));
    }

    struct Outcome {
        std::vector<float> y, dx, da;
        bool operator==(const Outcome&) const = default;
    };
    [[nodiscard]] Outcome outcome() const {
        return {values_of(context, y), values_of(context, dx), values_of(context, da)};
    }
    [[nodiscard]] Outcome pass() const {
        EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
        EXPECT_TRUE(done(mp_linear_backward(layer, nullptr, dy, dx, nullptr, nullptr, 0)));
        return outcome();
    }
};

double share_of_zeros(const std::vector<float>& values) {
    double zeros = 0;
    for (const float value : values) {
        zeros += value == 0.0F ? 1.0 : 0.0;
    }
    return zeros / static_cast<double>(values.size());
}

} // namespace

TEST(AdapterDropout, DropsTheSameElementsForwardAndBack) {
    for (const char* backend : kHostBackends) {
        SCOPED_TRACE(backend);
        const Dropping model("fp32", kP, backend);
        const Dropping::Outcome outcome = model.pass();
        const std::vector<float> x = values_of(model.context, model.x);
        const auto below = static_cast<float>(std::nearbyint(kP * 65536));
        const float scale = 65536.0F / (65536.0F - below);
        std::vector<double> da(kSize * kSize, 0.0);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const bool is_kept = outcome.dx[i] != 0.0F;
            EXPECT_EQ(outcome.dx[i], is_kept ? scale : 0.0F);
            EXPECT_EQ(outcome.y[i], is_kept ? x[i] * scale : 0.0F);
            for (std::size_t r = 0; r < kSize; ++r) { // dt is one everywhere
                da[r * kSize + i % kSize] += static_cast<double>(outcome.y[i]);
            }
        }
        for (std::size_t i = 0; i < da.size(); ++i) {
            EXPECT_NEAR(static_cast<double>(outcome.da[i]), da[i], 1e-4);
        }
        // Six deviations of so many draws.
        const double deviation = std::sqrt(kP * (1 - kP) / (kRows * kSize));
        EXPECT_NEAR(share_of_zeros(outcome.dx), kP, 6 * deviation);
    }
}

TEST(AdapterDropout, HasTheSameBitsEverywhere) {
    for (const auto& [recipe, dtype] : {std::pair{"fp32", MP_DTYPE_FP32},
                                        {"bf16_mixed", MP_DTYPE_BF16},
                                        {"bf16_mixed", MP_DTYPE_FP32},
                                        {"fp8_current", MP_DTYPE_FP32},
                                        {"fp8_rowwise_gw_hp", MP_DTYPE_BF16}}) {
        SCOPED_TRACE(std::string(recipe) + ", " + mp_dtype_name(dtype));
        const Dropping first(recipe, kP, nullptr, dtype),
            other(recipe, kP, nullptr, dtype, "base", 1);
        const Dropping::Outcome expected = first.pass();
        EXPECT_EQ(other.pass(), expected);
        for (const char* backend : kHostBackends) {
            const Dropping same(recipe, kP, backend, dtype);
            const Dropping::Outcome outcome = same.pass();
            EXPECT_EQ(outcome.y, expected.y) << backend; // products by one are exact
            EXPECT_EQ(outcome.dx, expected.dx) << backend;
        }
        // Made again from the pass that was remembered.
        const Dropping again(recipe, kP, nullptr, dtype);
        const Saved saved = make_saved(again.layer);
        MP_OK(mp_linear_forward_saved(again.layer, nullptr, again.x, again.y, saved,
                                      MP_FORWARD_DROP));
        MP_OK(mp_linear_forward_saved(again.layer, nullptr, again.x, again.y, saved,
                                      MP_FORWARD_RECOMPUTE));
        EXPECT_TRUE(done(mp_linear_backward_saved(again.layer, nullptr, saved, again.dy, again.dx,
                                                  nullptr, nullptr, 0)));
        EXPECT_EQ(again.outcome(), expected);
    }
}

TEST(AdapterDropout, DiffersByPassNameSeedAndStep) {
    const Dropping model("fp32");
    const Dropping::Outcome first = model.pass();
    EXPECT_NE(model.pass().dx, first.dx); // the next micro-batch
    EXPECT_NE(Dropping("fp32", kP, nullptr, MP_DTYPE_FP32, "other").pass().dx, first.dx);
    const Dropping stepped("fp32");
    mp_linear* const layer = stepped.layer;
    MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
    EXPECT_NE(stepped.pass().dx, first.dx);
    const Dropping seeded("fp32");
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = 7;
    const Optimizer optimizer = make_optimizer(seeded.context, seeded.recipe, desc);
    mp_linear* const followed = seeded.layer;
    MP_OK(mp_optimizer_set_linears(optimizer, &followed, 1));
    EXPECT_NE(seeded.pass().dx, first.dx);
    // Which pass comes next is part of what is saved.
    mp_linear *a = nullptr, *b = nullptr;
    MP_OK(mp_adapter_get_linears(model.adapter, &a, &b));
    const Linear owned_a(a), owned_b(b);
    const std::vector<unsigned char> state = scaling_of(a);
    const Dropping resumed("fp32");
    mp_linear *other_a = nullptr, *other_b = nullptr;
    MP_OK(mp_adapter_get_linears(resumed.adapter, &other_a, &other_b));
    const Linear owned_other_a(other_a), owned_other_b(other_b);
    MP_OK(mp_linear_set_scaling(other_a, state.data(), state.size()));
    EXPECT_EQ(resumed.pass(), model.pass());
}

TEST(AdapterDropout, AnEvaluationDropsNothing) {
    const Dropping model("fp32"), other("fp32");
    MP_OK(mp_linear_forward_saved(model.layer, nullptr, model.x, model.y, nullptr, 0));
    EXPECT_EQ(values_of(model.context, model.y), values_of(model.context, model.x));
    EXPECT_EQ(model.pass(), other.pass());
}

TEST(AdapterDropout, KeepsNoCopyOfX) {
    const Dropping model("fp32");
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    mp_linear *a = nullptr, *b = nullptr;
    MP_OK(mp_adapter_get_linears(model.adapter, &a, &b));
    const Linear owned_a(a), owned_b(b);
    EXPECT_NE(description_of(a).find("the caller's own fp32 tensor, 0 bytes"), std::string::npos)
        << description_of(a);
}

TEST(AdapterDropout, IsRefusedWhereItCannotBe) {
    const Dropping model("fp8_current");
    mp_adapter* made = nullptr;
    mp_adapter_desc desc = adapters::adapter_desc(0, "second");
    for (const double p : {-0.1, 1.0, std::nan("")}) {
        desc.dropout = p;
        MP_FAILS(mp_adapter_create(model.layer, model.recipe, &desc, model.a, model.b, &made),
                 MP_STATUS_INVALID_ARGUMENT, "desc.dropout");
    }
    desc.dropout = 0.5;
    const Linear nameless = make_linear(model.context, model.recipe,
                                        linear_desc(kSize, kSize, MP_LINEAR_FROZEN), model.w);
    MP_FAILS(mp_adapter_create(nameless, model.recipe, &desc, model.a, model.b, &made),
             MP_STATUS_INVALID_ARGUMENT, "mp_linear_desc.name");
    const Tensor codes = make_quantized(model.context, MP_DTYPE_FP8_E4M3, {kRows, kSize}, nullptr);
    MP_FAILS(mp_linear_forward(model.layer, nullptr, codes, model.y), MP_STATUS_INVALID_DTYPE,
             "dropout");
}
