// SPDX-License-Identifier: Apache-2.0
// What a forward keeps, in the caller's hands: pipelines, shared weights, recompute. The bits are those of the simple calls.
#include "saved.hpp"
#include "layers.hpp"
#include "optimizers.hpp"

using namespace mp_test;
using namespace mp_test::saved;

namespace {

// Two stages of a pipeline; every step has four micro-batches.
constexpr std::size_t kMicrobatches = 4;
struct Pipeline {
    Layer first, second;
    std::vector<Saved> of_first, of_second;
    std::vector<Tensor> x, dy, h, y, dh, dx; // of a step, micro-batch by micro-batch

    Pipeline(mp_context* context, const char* recipe)
        : first(context, recipe, 1), second(context, recipe, 2) {}
    void begin_step(const SavedTest& test, uint64_t step) {
        for (std::vector<Tensor>* all : {&x, &dy, &h, &y, &dh, &dx}) {
            all->clear();
        }
        for (uint64_t i = 0; i < kMicrobatches; ++i) {
            x.push_back(test.activation(100 * step + i, static_cast<float>(step + i + 1)));
            dy.push_back(test.activation(100 * step + 50 + i));
            for (std::vector<Tensor>* all : {&h, &y, &dh, &dx}) {
                all->push_back(test.empty());
            }
        }
    }
    static uint32_t flags_of(std::size_t i) { return i == 0 ? 0 : MP_BACKWARD_ACCUMULATE; }
    void one_after_another() const {
        for (std::size_t i = 0; i < kMicrobatches; ++i) {
            MP_OK(mp_linear_forward(first.linear, nullptr, x[i], h[i]));
            MP_OK(mp_linear_forward(second.linear, nullptr, h[i], y[i]));
            MP_OK(mp_linear_backward(second.linear, nullptr, dy[i], dh[i], second.dw, nullptr,
                                     flags_of(i)));
            MP_OK(mp_linear_backward(first.linear, nullptr, dh[i], dx[i], first.dw, nullptr,
                                     flags_of(i)));
        }
    }
    void make_slots() {
        for (std::size_t i = 0; i < kMicrobatches; ++i) {
            of_first.push_back(make_saved(first.linear));
            of_second.push_back(make_saved(second.linear));
        }
    }
    // One forward, one backward: the first stage runs one micro-batch ahead.
    void one_ahead() const {
        forward_first(0);
        forward_first(1);
        for (std::size_t i = 0; i < kMicrobatches; ++i) {
            both_second(i);
            backward_first(i);
            if (i + 2 < kMicrobatches) {
                forward_first(i + 2);
            }
        }
    }
    void forward_first(std::size_t i) const {
        MP_OK(mp_linear_forward_saved(first.linear, nullptr, x[i], h[i], of_first[i], 0));
    }
    void both_second(std::size_t i) const {
        MP_OK(mp_linear_forward_saved(second.linear, nullptr, h[i], y[i], of_second[i], 0));
        MP_OK(mp_linear_backward_saved(second.linear, nullptr, of_second[i], dy[i], dh[i],
                                       second.dw, nullptr, flags_of(i)));
    }
    void backward_first(std::size_t i) const {
        MP_OK(mp_linear_backward_saved(first.linear, nullptr, of_first[i], dh[i], dx[i], first.dw,
                                       nullptr, flags_of(i)));
    }
    // Every y and dx of the step, micro-batch by micro-batch.
    [[nodiscard]] std::vector<Bytes> results() const {
        std::vector<Bytes> all;
        for (std::size_t i = 0; i < kMicrobatches; ++i) {
            all.insert(all.end(), {bytes_of(y[i]), bytes_of(dx[i])});
        }
        return all;
    }
    [[nodiscard]] std::vector<Bytes> state() const {
        return {bytes_of(first.dw), bytes_of(second.dw), scaling_of(first.linear),
                scaling_of(second.linear)};
    }
    void end_step() const {
        first.end_step();
        second.end_step();
    }
};

} // namespace

TEST_F(SavedTest, APipelineHasTheBitsOfOneMicrobatchAfterAnother) {
    for (const char* recipe : kRecipes) {
        SCOPED_TRACE(recipe);
        Pipeline plain(context, recipe), piped(context, recipe);
        piped.make_slots();
        for (uint64_t step = 0; step < 3; ++step) {
            plain.begin_step(*this, step);
            plain.one_after_another();
            piped.begin_step(*this, step);
            piped.one_ahead();
            EXPECT_EQ(plain.results(), piped.results());
            EXPECT_EQ(plain.state(), piped.state());
            plain.end_step();
            piped.end_step();
        }
    }
}

TEST_F(SavedTest, TwoLayersShareAWeight) {
    for (const char* name : {"fp32", "bf16_mixed", "fp8_current", "mxfp8"}) {
        SCOPED_TRACE(name);
        std::vector<std::vector<Bytes>> results;
        for (const bool is_tied : {false, true}) {
            const Recipe recipe = make_recipe(context, name);
            const Tensor w =
                make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, numbers(kSize * kSize, 5));
            const Tensor dw = empty_weight();
            const Tensor x = activation(6), dy = activation(7), other = activation(8);
            const Tensor h = empty(), y = empty(), dx = empty();
            const Linear first = make_linear(context, recipe, linear_desc(kSize, kSize), w);
            const Linear second = make_linear(context, recipe, linear_desc(kSize, kSize), w);
            if (is_tied) { // both forwards wait, in layers of their own
                MP_OK(mp_linear_forward(first, nullptr, x, h));
                MP_OK(mp_linear_forward(second, nullptr, other, y));
                MP_OK(mp_linear_backward(second, nullptr, dy, dx, dw, nullptr, 0));
                MP_OK(mp_linear_backward(first, nullptr, dy, dx, dw, nullptr,
                                         MP_BACKWARD_ACCUMULATE));
            } else { // one layer, one after the other
                MP_OK(mp_linear_forward(first, nullptr, other, y));
                MP_OK(mp_linear_backward(first, nullptr, dy, dx, dw, nullptr, 0));
                MP_OK(mp_linear_forward(first, nullptr, x, h));
                MP_OK(mp_linear_backward(first, nullptr, dy, dx, dw, nullptr,
                                         MP_BACKWARD_ACCUMULATE));
            }
            // The optimizer has it once.
            const Recipe step_recipe = make_recipe(context, "fp32");
            const Optimizer optimizer = make_optimizer(context, step_recipe);
            int32_t group = 0;
            MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = "embedding";
            param.param = w;
            param.grad = dw;
            MP_OK(mp_optimizer_add_param(optimizer, group, &param, nullptr));
            param.name = "head";
            EXPECT_NE(mp_optimizer_add_param(optimizer, group, &param, nullptr), MP_STATUS_OK);
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
            results.push_back({bytes_of(h), bytes_of(y), bytes_of(dw), bytes_of(w)});
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

TEST_F(SavedTest, ALayerUsedTwiceInAPass) {
    for (const char* name : kRecipes) {
        if (is_stochastic(name)) {
            continue;
        }
        SCOPED_TRACE(name);
        const Layer twice(context, name, 3), plain(context, name, 3);
        const Saved a = make_saved(twice.linear), b = make_saved(twice.linear);
        const Tensor x = activation(1), other = activation(2), dy = activation(4), dx = empty();
        const Tensor y = empty(), z = empty();
        MP_OK(mp_linear_forward_saved(twice.linear, nullptr, x, y, a, 0));
        MP_OK(mp_linear_forward_saved(twice.linear, nullptr, other, z, b, 0));
        MP_OK(mp_linear_backward_saved(twice.linear, nullptr, b, dy, dx, twice.dw, nullptr, 0));
        MP_OK(mp_linear_backward_saved(twice.linear, nullptr, a, dy, dx, twice.dw, nullptr,
                                       MP_BACKWARD_ACCUMULATE));
        MP_OK(mp_linear_forward(plain.linear, nullptr, other, z));
        MP_OK(mp_linear_backward(plain.linear, nullptr, dy, dx, plain.dw, nullptr, 0));
        MP_OK(mp_linear_forward(plain.linear, nullptr, x, y));
        MP_OK(mp_linear_backward(plain.linear, nullptr, dy, dx, plain.dw, nullptr,
                                 MP_BACKWARD_ACCUMULATE));
        EXPECT_EQ(bytes_of(twice.dw), bytes_of(plain.dw));
        EXPECT_EQ(scaling_of(twice.linear), scaling_of(plain.linear));
    }
}

TEST_F(SavedTest, RecomputedInputsAreTheSameAndCountOnce) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3, MP_LINEAR_STATS),
            again(context, name, 3, MP_LINEAR_STATS);
        const Saved saved = make_saved(again.linear);
        const Tensor x = activation(1, 3.0F), dy = activation(2);
        const Tensor y = empty(), dx = empty(), repeated = empty();
        const auto expected = simple(plain.linear, x, dy);
        MP_OK(mp_linear_forward_saved(again.linear, nullptr, x, y, saved, MP_FORWARD_DROP));
        EXPECT_EQ(bytes_of(y), expected.y);
        EXPECT_TRUE(fails(
            mp_linear_backward_saved(again.linear, nullptr, saved, dy, dx, again.dw, nullptr, 0),
            MP_STATUS_BAD_STATE, {"MP_FORWARD_RECOMPUTE"}));
        MP_OK(mp_linear_forward_saved(again.linear, nullptr, x, repeated, saved,
                                      MP_FORWARD_RECOMPUTE));
        EXPECT_EQ(bytes_of(repeated), expected.y);
        MP_OK(mp_linear_backward_saved(again.linear, nullptr, saved, dy, dx, again.dw, nullptr, 0));
        EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(again.dw)}), expected);
        for (const int32_t operand : {MP_OPERAND_WEIGHT, MP_OPERAND_GRAD_OUTPUT}) {
            EXPECT_EQ(stats_of(plain.linear, operand).elements,
                      stats_of(again.linear, operand).elements);
        }
        // Of x the plain forward makes the forms of two products, the dropped one those of one.
        EXPECT_LE(stats_of(again.linear, MP_OPERAND_INPUT).elements,
                  stats_of(plain.linear, MP_OPERAND_INPUT).elements);
        EXPECT_EQ(scaling_of(plain.linear), scaling_of(again.linear));
    }
}

TEST_F(SavedTest, RecomputedInputsHaveTheScaleOfTheFirstTime) {
    const Layer plain(context, "fp8_delayed", 3), again(context, "fp8_delayed", 3);
    const Tensor first = activation(1), x = activation(2, 9.0F), dy = activation(3), y = empty();
    for (const Layer* layer : {&plain, &again}) { // a step, after which scales are delayed
        MP_OK(mp_linear_forward(layer->linear, nullptr, first, y));
        layer->end_step();
    }
    MP_OK(mp_linear_forward(plain.linear, nullptr, x, y)); // saturates under the scale of `first`
    MP_OK(mp_linear_backward_weight(plain.linear, nullptr, dy, plain.dw, nullptr, 0));
    const Saved saved = make_saved(again.linear);
    MP_OK(mp_linear_forward_saved(again.linear, nullptr, x, y, saved, MP_FORWARD_DROP));
    again.end_step(); // the scale of x moves; dy had no amax yet, and goes by its own
    const Bytes moved = scaling_of(again.linear);
    MP_OK(mp_linear_forward_saved(again.linear, nullptr, x, nullptr, saved, MP_FORWARD_RECOMPUTE));
    EXPECT_EQ(scaling_of(again.linear), moved);
    MP_OK(
        mp_linear_backward_saved(again.linear, nullptr, saved, dy, nullptr, again.dw, nullptr, 0));
    EXPECT_EQ(bytes_of(again.dw), bytes_of(plain.dw));
    // The new scale gives another gradient: the test can tell.
    MP_OK(mp_linear_forward_saved(again.linear, nullptr, x, y, saved, 0));
    EXPECT_TRUE(done(
        mp_linear_backward_saved(again.linear, nullptr, saved, dy, nullptr, again.dw, nullptr, 0)));
    EXPECT_NE(bytes_of(again.dw), bytes_of(plain.dw));
}

TEST_F(SavedTest, AFrozenWeightIsRoundedOnce) {
    for (const char* name : {"bf16_mixed", "fp8_delayed", "mxfp8"}) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3), frozen(context, name, 3, MP_LINEAR_FROZEN);
        const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
        const auto expected = simple(plain.linear, x, dy);
        MP_OK(mp_linear_forward(frozen.linear, nullptr, x, y));
        MP_OK(mp_linear_backward_data(frozen.linear, nullptr, dy, dx));
        EXPECT_EQ(bytes_of(y), expected.y);
        EXPECT_EQ(bytes_of(dx), expected.dx);
        EXPECT_TRUE(fails(mp_linear_backward(frozen.linear, nullptr, dy, dx, frozen.dw, nullptr, 0),
                          MP_STATUS_BAD_STATE, {"MP_LINEAR_FROZEN"}));
        mp_saved* saved = nullptr;
        EXPECT_TRUE(fails(mp_saved_create(frozen.linear, &saved), MP_STATUS_BAD_STATE, {"FROZEN"}));
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        MP_OK(mp_linear_get_desc(frozen.linear, &desc));
        EXPECT_EQ(desc.flags, MP_LINEAR_FROZEN);
        // Behind the library's back nothing is noticed; a write of the library's is.
        void* data = data_of(frozen.w);
        std::memset(data, 0, sizeof(float) * kSize * kSize);
        frozen.end_step();
        MP_OK(mp_linear_backward_data(frozen.linear, nullptr, dy, dx));
        if (std::string(name) == "bf16_mixed") { // delayed scales of dy have moved on
            EXPECT_EQ(bytes_of(dx), expected.dx);
        }
        EXPECT_NE(bytes_of(dx), Bytes(bytes_of(dx).size()));
        MP_OK(mp_tensor_zero(frozen.w, nullptr));
        MP_OK(mp_linear_backward_data(frozen.linear, nullptr, dy, dx));
        for (const float value : values_of(context, dx)) {
            ASSERT_EQ(value, 0.0F);
        }
    }
}

TEST_F(SavedTest, SixteenBitGradientsAreRoundedStochastically) {
    const Tensor x = activation(1), dy = activation(2), y = empty();
    for (const int32_t dtype : {MP_DTYPE_BF16, MP_DTYPE_FP16}) {
        for (const uint32_t flags : {0U, MP_BACKWARD_ACCUMULATE}) {
            const Layer layer(context, "bf16_mixed", 3);
            const Tensor old =
                make_tensor(context, dtype, {kSize, kSize}, numbers(kSize * kSize, 11));
            const Tensor dw = make_tensor(context, dtype, {kSize, kSize}),
                         expected = empty_weight(dtype);
            const Tensor wide = empty_weight();
            MP_OK(mp_tensor_copy(old, nullptr, dw));
            MP_OK(mp_tensor_cast(old, nullptr, wide, nullptr));
            MP_OK(mp_linear_forward(layer.linear, nullptr, x, y));
            MP_OK(mp_linear_backward_weight(layer.linear, nullptr, dy, wide, nullptr, flags));
            mp_cast_desc rounding = MP_CAST_DESC_INIT;
            rounding.rounding = MP_ROUND_STOCHASTIC;
            rounding.seed = 5;
            rounding.uid = 6;
            rounding.step = 7;
            rounding.microbatch = 3;
            MP_OK(mp_tensor_cast(wide, nullptr, expected, &rounding));
            MP_OK(mp_linear_set_gradient_rounding(layer.linear, &rounding));
            mp_cast_desc told = MP_CAST_DESC_INIT;
            MP_OK(mp_linear_get_gradient_rounding(layer.linear, &told));
            EXPECT_EQ(std::memcmp(&told, &rounding, sizeof told), 0);
            MP_OK(mp_linear_backward_weight(layer.linear, nullptr, dy, dw, nullptr, flags));
            EXPECT_EQ(bytes_of(dw), bytes_of(expected));
            MP_OK(mp_linear_set_gradient_rounding(layer.linear, nullptr));
            MP_OK(mp_linear_backward_weight(layer.linear, nullptr, dy, dw, nullptr, 0));
            EXPECT_NE(bytes_of(dw), bytes_of(expected));
        }
    }
}

// The handle keeps its layer, and the layer's scale its tensor.
TEST_F(SavedTest, ParentsStayAlive) {
    mp_tensor* multiply = nullptr;
    Saved saved;
    {
        const Layer layer(context, "fp8_delayed", 3);
        saved = make_saved(layer.linear);
        MP_OK(mp_linear_get_multiply_tensor(layer.linear, MP_OPERAND_WEIGHT, &multiply));
    }
    EXPECT_EQ(values_of(context, Tensor(multiply))[0], 1.0F);
    void* memory = nullptr;
    MP_OK(mp_saved_get_memory(saved, &memory, nullptr));
    EXPECT_EQ(memory, nullptr);
}
