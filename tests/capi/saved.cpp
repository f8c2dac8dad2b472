// SPDX-License-Identifier: Apache-2.0
// What a forward keeps, in the caller's hands: pipelines, shared weights, recompute, memory and codes of the caller's. The
// bits are those of the simple calls.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kSize = 96; // of every layer, in and out
constexpr const char* kRecipes[] = {"fp32",        "fp16_mixed",  "bf16_mixed",
                                    "fp8_delayed", "fp8_current", "fp8_rowwise",
                                    "fp8_block",   "mxfp8",       "fp8_rowwise_gw_hp"};

using Bytes = std::vector<unsigned char>;

Saved make_saved(mp_linear* linear) {
    mp_saved* saved = nullptr;
    EXPECT_TRUE(succeeded(mp_saved_create(linear, &saved)));
    return Saved(saved);
}

Bytes scaling_of(mp_linear* linear) {
    size_t needed = 0;
    EXPECT_TRUE(succeeded(mp_linear_get_scaling(linear, nullptr, 0, &needed)));
    Bytes bytes(needed);
    EXPECT_TRUE(succeeded(mp_linear_get_scaling(linear, bytes.data(), bytes.size(), nullptr)));
    return bytes;
}

mp_linear_stats stats_of(mp_linear* linear, int32_t operand) {
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    EXPECT_TRUE(succeeded(mp_linear_get_stats(linear, operand, &stats)));
    return stats;
}

// A layer with its weight and main gradient.
struct Layer {
    Recipe recipe;
    Tensor w;
    Tensor dw;
    Linear linear;

    Layer(mp_context* context, const char* name, uint64_t seed, uint32_t flags = 0)
        : recipe(make_recipe(context, name)),
          w(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, numbers(kSize * kSize, seed))),
          dw(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize})),
          linear(make(context, recipe, w, flags)) {}

    static Linear make(mp_context* context, mp_recipe* recipe, mp_tensor* weight, uint32_t flags) {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = kSize;
        desc.out_features = kSize;
        desc.flags = flags;
        mp_linear* made = nullptr;
        EXPECT_TRUE(succeeded(mp_linear_create(context, recipe, &desc, weight, nullptr, &made)));
        return Linear(made);
    }
    void end_step() const {
        mp_linear* const one = linear;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    }
};

struct SavedTest : ::testing::Test {
    Context context = make_context();

    Tensor activation(uint64_t seed, float scale = 1.0F) const {
        std::vector<float> values = numbers(kRows * kSize, seed);
        for (float& value : values) {
            value *= scale;
        }
        return make_tensor(context, MP_DTYPE_FP32, {kRows, kSize}, values);
    }
    Tensor empty() const { return make_tensor(context, MP_DTYPE_FP32, {kRows, kSize}); }
    Tensor empty_weight(int32_t dtype = MP_DTYPE_FP32) const {
        return make_tensor(context, dtype, {kSize, kSize});
    }
    // Forward and backward by the simple calls.
    struct Pass {
        Bytes y, dx, dw;
        bool operator==(const Pass&) const = default;
    };
    Pass simple(mp_linear* linear, mp_tensor* x, mp_tensor* dy) const {
        const Tensor y = empty(), dx = empty(), dw = empty_weight();
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
        EXPECT_TRUE(done(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, 0)));
        return {bytes_of(y), bytes_of(dx), bytes_of(dw)};
    }
};

// Two stages of a pipeline; every step has four micro-batches.
constexpr int kMicrobatches = 4;
struct Pipeline {
    Layer first, second;
    Bytes results; // every y and dx of the step, micro-batch by micro-batch

    Pipeline(mp_context* context, const char* recipe)
        : first(context, recipe, 1), second(context, recipe, 2) {}
    [[nodiscard]] std::vector<Bytes> state() const {
        return {bytes_of(first.dw), bytes_of(second.dw), scaling_of(first.linear),
                scaling_of(second.linear)};
    }
    void end_step() const {
        first.end_step();
        second.end_step();
    }
};

// The memory that an allocator of the test's has given out.
struct Counted {
    int64_t calls = 0;
};
void* count_allocate(std::size_t bytes, std::size_t alignment, void* payload) {
    ++static_cast<Counted*>(payload)->calls;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void count_release(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/,
                   void* /*payload*/) {
    std::free(memory);
}

// Memory as mp_saved_set_memory wants it.
struct Lent {
    std::unique_ptr<void, decltype(&std::free)> memory;
    std::size_t bytes;
    explicit Lent(std::size_t size)
        : memory(std::aligned_alloc(256, (size + 255) / 256 * 256), &std::free), bytes(size) {}
};

} // namespace

TEST_F(SavedTest, APipelineHasTheBitsOfOneMicrobatchAfterAnother) {
    for (const char* recipe : kRecipes) {
        SCOPED_TRACE(recipe);
        const Pipeline plain(context, recipe), piped(context, recipe);
        const Saved slots[2][kMicrobatches] = {
            {make_saved(piped.first.linear), make_saved(piped.first.linear),
             make_saved(piped.first.linear), make_saved(piped.first.linear)},
            {make_saved(piped.second.linear), make_saved(piped.second.linear),
             make_saved(piped.second.linear), make_saved(piped.second.linear)}};
        for (uint64_t step = 0; step < 3; ++step) {
            std::vector<Bytes> expected(kMicrobatches), got(kMicrobatches);
            std::vector<Tensor> x, dy;
            for (uint64_t i = 0; i < kMicrobatches; ++i) {
                x.push_back(activation(100 * step + i, static_cast<float>(step + i + 1)));
                dy.push_back(activation(100 * step + 50 + i));
            }
            for (int i = 0; i < kMicrobatches; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
                const Tensor h = empty(), y = empty(), dh = empty(), dx = empty();
                MP_OK(mp_linear_forward(plain.first.linear, nullptr, x[at], h));
                MP_OK(mp_linear_forward(plain.second.linear, nullptr, h, y));
                MP_OK(mp_linear_backward(plain.second.linear, nullptr, dy[at], dh, plain.second.dw,
                                         nullptr, flags));
                MP_OK(mp_linear_backward(plain.first.linear, nullptr, dh, dx, plain.first.dw,
                                         nullptr, flags));
                expected[at] = bytes_of(y);
                const Bytes gradient = bytes_of(dx);
                expected[at].insert(expected[at].end(), gradient.begin(), gradient.end());
            }
            // One forward, one backward: the first stage runs one micro-batch ahead.
            std::vector<Tensor> h, y, dh, dx;
            for (int i = 0; i < kMicrobatches; ++i) {
                h.push_back(empty()), y.push_back(empty());
                dh.push_back(empty()), dx.push_back(empty());
            }
            const auto forward_first = [&](std::size_t i) {
                MP_OK(mp_linear_forward_saved(piped.first.linear, nullptr, x[i], h[i], slots[0][i],
                                              0));
            };
            const auto both_second = [&](std::size_t i) {
                MP_OK(mp_linear_forward_saved(piped.second.linear, nullptr, h[i], y[i], slots[1][i],
                                              0));
                MP_OK(mp_linear_backward_saved(piped.second.linear, nullptr, slots[1][i], dy[i],
                                               dh[i], piped.second.dw, nullptr,
                                               i == 0 ? 0 : MP_BACKWARD_ACCUMULATE));
            };
            const auto backward_first = [&](std::size_t i) {
                MP_OK(mp_linear_backward_saved(piped.first.linear, nullptr, slots[0][i], dh[i],
                                               dx[i], piped.first.dw, nullptr,
                                               i == 0 ? 0 : MP_BACKWARD_ACCUMULATE));
            };
            forward_first(0);
            forward_first(1);
            for (std::size_t i = 0; i < kMicrobatches; ++i) {
                both_second(i);
                backward_first(i);
                if (i + 2 < kMicrobatches) {
                    forward_first(i + 2);
                }
            }
            for (std::size_t i = 0; i < kMicrobatches; ++i) {
                got[i] = bytes_of(y[i]);
                const Bytes gradient = bytes_of(dx[i]);
                got[i].insert(got[i].end(), gradient.begin(), gradient.end());
            }
            EXPECT_EQ(expected, got);
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
            const Linear first = Layer::make(context, recipe, w, 0);
            const Linear second = Layer::make(context, recipe, w, 0);
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
            mp_optimizer* made = nullptr;
            MP_OK(mp_optimizer_create(context, step_recipe, nullptr, &made));
            const Optimizer optimizer(made);
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

TEST_F(SavedTest, WhatIsKeptMayBeMovedAwayAndBack) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3), moving(context, name, 3);
        const Tensor dy = activation(2);
        for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16}) {
            const Tensor x = make_tensor(context, dtype, {kRows, kSize}, numbers(kRows * kSize, 9));
            const auto expected = simple(plain.linear, x, dy);
            size_t bytes = 0;
            MP_OK(mp_linear_get_saved_bytes(moving.linear, kRows, &bytes));
            const Lent here(bytes), there(bytes);
            const Saved saved = make_saved(moving.linear);
            MP_OK(mp_saved_set_memory(saved, here.memory.get(), bytes));
            void* memory = nullptr;
            size_t got = 0;
            MP_OK(mp_saved_get_memory(saved, &memory, &got));
            EXPECT_EQ(memory, here.memory.get());
            EXPECT_EQ(got, bytes);
            const Tensor y = empty(), dx = empty();
            MP_OK(mp_linear_forward_saved(moving.linear, nullptr, x, y, saved, 0));
            MP_OK(mp_tensor_zero(x, nullptr)); // memory of the caller's has a copy always
            std::memcpy(there.memory.get(), here.memory.get(), bytes);
            std::memset(here.memory.get(), 0x5a, bytes);
            EXPECT_TRUE(fails(mp_saved_set_memory(saved, there.memory.get(), bytes - 1),
                              MP_STATUS_INVALID_ARGUMENT, {std::to_string(bytes)}));
            MP_OK(mp_saved_set_memory(saved, there.memory.get(), bytes));
            EXPECT_TRUE(done(mp_linear_backward_saved(moving.linear, nullptr, saved, dy, dx,
                                                      moving.dw, nullptr, 0)));
            EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(moving.dw)}), expected);
            MP_OK(mp_saved_set_memory(saved, nullptr, 0)); // drops x
            EXPECT_TRUE(fails(mp_linear_backward_saved(moving.linear, nullptr, saved, dy, dx,
                                                       moving.dw, nullptr, 0),
                              MP_STATUS_BAD_STATE, {"drop"}));
        }
    }
}

TEST_F(SavedTest, CodesOfTheCallersGiveTheSameBits) {
    for (const char* name : {"fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_block", "mxfp8"}) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3), given(context, name, 3);
        const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
        const auto expected = simple(plain.linear, x, dy);
        const auto codes = [&](int32_t product, int32_t operand, mp_tensor* source,
                               const std::vector<int64_t>& shape) {
            int32_t dtype = 0;
            mp_quant_desc quant = MP_QUANT_DESC_INIT;
            EXPECT_TRUE(succeeded(
                mp_linear_get_operand_format(given.linear, product, operand, &dtype, &quant)));
            EXPECT_NE(quant.scaling, 0);
            Tensor result = make_quantized(context, dtype, shape, &quant);
            EXPECT_TRUE(succeeded(
                mp_linear_quantize(given.linear, nullptr, product, operand, source, result)));
            return result;
        };
        const std::vector<int64_t> matrix = {kRows, kSize}, square = {kSize, kSize};
        const Tensor x_codes = codes(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, matrix);
        const Tensor w_fprop = codes(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT, given.w, square);
        const Tensor w_dgrad = codes(MP_PRODUCT_DGRAD, MP_OPERAND_WEIGHT, given.w, square);
        const Tensor dy_codes = codes(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT, dy, matrix);
        MP_OK(mp_linear_set_weight_codes(given.linear, w_fprop, w_dgrad));
        mp_tensor* held = nullptr;
        MP_OK(mp_linear_get_weight_codes(given.linear, MP_PRODUCT_DGRAD, &held));
        EXPECT_EQ(bytes_of(Tensor(held)), bytes_of(w_dgrad));
        MP_OK(mp_tensor_zero(given.w, nullptr)); // the codes serve
        MP_OK(mp_linear_forward_saved(given.linear, nullptr, x_codes, y, nullptr, 0));
        MP_OK(mp_linear_backward_saved(given.linear, nullptr, nullptr, dy_codes, dx, nullptr,
                                       nullptr, 0));
        EXPECT_EQ(bytes_of(y), expected.y);
        EXPECT_EQ(bytes_of(dx), expected.dx);
        EXPECT_EQ(scaling_of(plain.linear), scaling_of(given.linear));
        MP_OK(mp_linear_set_weight_codes(given.linear, nullptr, nullptr));
        MP_OK(mp_linear_get_weight_codes(given.linear, MP_PRODUCT_FPROP, &held));
        EXPECT_EQ(held, nullptr);
    }
}

// One scale for a tensor: the codes of a forward are those of the weight gradient.
TEST_F(SavedTest, CodesServeTheWeightGradientToo) {
    const Layer plain(context, "fp8_delayed", 3), given(context, "fp8_delayed", 3);
    const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
    const auto expected = simple(plain.linear, x, dy);
    const Tensor x_codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kSize}, nullptr);
    const Tensor dy_codes = make_quantized(context, MP_DTYPE_FP8_E5M2, {kRows, kSize}, nullptr);
    MP_OK(
        mp_linear_quantize(given.linear, nullptr, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, x, x_codes));
    MP_OK(mp_linear_quantize(given.linear, nullptr, MP_PRODUCT_WGRAD, MP_OPERAND_GRAD_OUTPUT, dy,
                             dy_codes));
    const Saved saved = make_saved(given.linear);
    MP_OK(mp_linear_forward_saved(given.linear, nullptr, x_codes, y, saved, 0));
    MP_OK(
        mp_linear_backward_saved(given.linear, nullptr, saved, dy_codes, dx, given.dw, nullptr, 0));
    EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(given.dw)}), expected);
    EXPECT_EQ(scaling_of(plain.linear), scaling_of(given.linear));
}

// Codes that somebody else made count by the amax that lies beside them.
TEST_F(SavedTest, TheAmaxOfForeignCodesCounts) {
    const Layer layer(context, "fp8_delayed", 3, MP_LINEAR_STATS);
    const Tensor x = activation(1, 5.0F), y = empty();
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kSize}, nullptr);
    MP_OK(mp_tensor_quantize(x, nullptr, codes, nullptr, nullptr, nullptr));
    mp_tensor* held = nullptr;
    MP_OK(mp_tensor_get_quantized_amax(codes, &held));
    const double amax = static_cast<double>(values_of(context, Tensor(held))[0]);
    EXPECT_GT(amax, 4.0);
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, codes, y, nullptr, 0));
    layer.end_step();
    EXPECT_EQ(stats_of(layer.linear, MP_OPERAND_INPUT).history_amax, 0.0); // an evaluation
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, codes, y, make_saved(layer.linear), 0));
    layer.end_step();
    EXPECT_EQ(stats_of(layer.linear, MP_OPERAND_INPUT).history_amax, amax);
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
        void* data = nullptr;
        MP_OK(mp_tensor_get_data(frozen.w, &data));
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

TEST_F(SavedTest, PlainMemoryGivesTheSameBits) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        const Layer layer(context, name, 3);
        const Tensor x = activation(1), dy = activation(2);
        const auto expected = simple(layer.linear, x, dy);
        const std::vector<float> weight = values_of(context, layer.w),
                                 input = values_of(context, x), gradient = values_of(context, dy);
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = kSize;
        desc.out_features = kSize;
        mp_linear* made = nullptr;
        ASSERT_TRUE(done(mp_linear_create_pointers(context, make_recipe(context, name), &desc,
                                                   weight.data(), MP_DTYPE_FP32, nullptr,
                                                   MP_DTYPE_NONE, &made)));
        const Linear plain(made);
        std::vector<float> y(input.size()), dx(input.size()), dw(weight.size());
        MP_OK(mp_linear_forward_pointers(plain, nullptr, kRows, input.data(), y.data(),
                                         MP_DTYPE_FP32));
        MP_OK(mp_linear_backward_pointers(plain, nullptr, kRows, gradient.data(), dx.data(),
                                          MP_DTYPE_FP32, dw.data(), nullptr, MP_DTYPE_FP32, 0));
        const auto raw = [](const std::vector<float>& values) {
            Bytes bytes(values.size() * sizeof(float));
            std::memcpy(bytes.data(), values.data(), bytes.size());
            return bytes;
        };
        EXPECT_EQ((Pass{raw(y), raw(dx), raw(dw)}), expected);
        EXPECT_TRUE(fails(
            mp_linear_forward_pointers(plain, nullptr, -1, input.data(), y.data(), MP_DTYPE_FP32),
            MP_STATUS_INVALID_SHAPE, {"rows"}));
        EXPECT_TRUE(fails(
            mp_linear_forward_pointers(plain, nullptr, kRows, nullptr, y.data(), MP_DTYPE_FP32),
            MP_STATUS_NULL_ARGUMENT, {"x"}));
        const auto* const odd = reinterpret_cast<const unsigned char*>(input.data()) + 1;
        EXPECT_TRUE(
            fails(mp_linear_forward_pointers(plain, nullptr, kRows, odd, y.data(), MP_DTYPE_FP32),
                  MP_STATUS_INVALID_ARGUMENT, {"x", "aligned"}));
        EXPECT_TRUE(fails(mp_linear_forward_pointers(plain, nullptr, kRows, input.data(), y.data(),
                                                     MP_DTYPE_FP8_E4M3),
                          MP_STATUS_INVALID_DTYPE, {"x"}));
        EXPECT_TRUE(
            fails(mp_linear_backward_pointers(plain, nullptr, kRows, gradient.data(), nullptr,
                                              MP_DTYPE_FP32, nullptr, nullptr, MP_DTYPE_FP32, 0),
                  MP_STATUS_INVALID_ARGUMENT, {"dx", "dw"}));
        MP_OK(mp_linear_forward_pointers(plain, nullptr, 0, nullptr, nullptr, MP_DTYPE_FP32));
    }
}

TEST_F(SavedTest, WorkInTheCallersMemoryTakesNoOther) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        Counted counted;
        mp_context_desc context_desc = MP_CONTEXT_DESC_INIT;
        context_desc.allocate = count_allocate;
        context_desc.release = count_release;
        context_desc.allocator_payload = &counted;
        mp_context* made = nullptr;
        MP_OK(mp_context_create(&context_desc, &made));
        const Context own(made);
        mp_queue* queue_made = nullptr;
        MP_OK(mp_queue_create(own, &queue_made));
        const Queue queue(queue_made);
        const Layer layer(own, name, 3);
        const auto tensor = [&](uint64_t seed) {
            return make_tensor(own, MP_DTYPE_FP32, {kRows, kSize}, numbers(kRows * kSize, seed));
        };
        const Tensor x = tensor(1), dy = tensor(2), y = tensor(3), dx = tensor(4);
        const auto pass = [&]() -> mp_status {
            const mp_status status = mp_linear_forward(layer.linear, queue, x, y);
            return status < 0
                       ? status
                       : mp_linear_backward(layer.linear, queue, dy, dx, layer.dw, nullptr, 0);
        };
        EXPECT_TRUE(done(pass()));
        const Pass expected = {bytes_of(y), bytes_of(dx), bytes_of(layer.dw)};
        size_t bytes = 0;
        MP_OK(mp_queue_get_workspace_peak(queue, &bytes));
        const Lent memory(std::max<size_t>(bytes, 1));
        MP_OK(mp_queue_set_workspace(queue, memory.memory.get(), bytes));
        void* told = nullptr;
        size_t told_bytes = 0;
        MP_OK(mp_queue_get_workspace(queue, &told, &told_bytes));
        EXPECT_EQ(told, memory.memory.get());
        EXPECT_EQ(told_bytes, bytes);
        EXPECT_TRUE(done(pass()));
        const int64_t before = counted.calls;
        EXPECT_TRUE(done(pass()));
        EXPECT_EQ(counted.calls, before);
        EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(layer.dw)}), expected);
        if (bytes > 0) {
            MP_OK(mp_queue_set_workspace(queue, memory.memory.get(), 0));
            EXPECT_TRUE(fails(pass(), MP_STATUS_OUT_OF_MEMORY, {"workspace", "needed"}));
        }
        MP_OK(mp_queue_set_workspace(queue, nullptr, 0));
        EXPECT_TRUE(done(pass()));
        EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(layer.dw)}), expected);
    }
}

TEST_F(SavedTest, WrongCalls) {
    const Layer layer(context, "fp8_current", 3), other(context, "bf16_mixed", 4);
    const Saved saved = make_saved(layer.linear), foreign = make_saved(other.linear);
    const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, foreign, 0),
                      MP_STATUS_INVALID_ARGUMENT, {"another layer"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 4),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved,
                                              MP_FORWARD_DROP | MP_FORWARD_RECOMPUTE),
                      MP_STATUS_INVALID_ARGUMENT, {"exclude"}));
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, nullptr, MP_FORWARD_DROP),
              MP_STATUS_INVALID_ARGUMENT, {"saved is NULL"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, nullptr, saved, 0),
                      MP_STATUS_NULL_ARGUMENT, {"y"}));
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, MP_FORWARD_RECOMPUTE),
              MP_STATUS_BAD_STATE, {"before any forward"}));
    EXPECT_TRUE(
        fails(mp_linear_backward_saved(layer.linear, nullptr, saved, dy, dx, layer.dw, nullptr, 0),
              MP_STATUS_BAD_STATE, {"before any forward"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, nullptr, dy, dx, layer.dw, nullptr, 0),
        MP_STATUS_NULL_ARGUMENT, {"saved"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, nullptr, dy, nullptr, nullptr, nullptr, 0),
        MP_STATUS_INVALID_ARGUMENT, {"dx", "dw"}));
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 0));
    const Tensor few = make_tensor(context, MP_DTYPE_FP32, {kRows / 2, kSize});
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, few, few, saved, MP_FORWARD_RECOMPUTE),
              MP_STATUS_INVALID_SHAPE, {"rows"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, saved, few, nullptr, layer.dw, nullptr, 0),
        MP_STATUS_INVALID_SHAPE, {"rows"}));
    const Lent memory(64 * 1024);
    EXPECT_TRUE(fails(mp_saved_set_memory(saved, memory.memory.get(), memory.bytes),
                      MP_STATUS_BAD_STATE, {"library's memory"}));
    const Saved fresh = make_saved(layer.linear);
    EXPECT_TRUE(
        fails(mp_saved_set_memory(fresh, static_cast<char*>(memory.memory.get()) + 64, 1024),
              MP_STATUS_INVALID_ARGUMENT, {"256"}));
    EXPECT_TRUE(
        fails(mp_saved_set_memory(fresh, nullptr, 8), MP_STATUS_INVALID_ARGUMENT, {"NULL"}));
    MP_OK(mp_saved_set_memory(fresh, memory.memory.get(), 16));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, fresh, 0),
                      MP_STATUS_INVALID_ARGUMENT, {"16", "mp_linear_get_saved_bytes"}));
    size_t bytes = 0;
    EXPECT_TRUE(fails(mp_linear_get_saved_bytes(layer.linear, -1, &bytes), MP_STATUS_INVALID_SHAPE,
                      {"rows"}));
    int32_t dtype = 0;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    EXPECT_TRUE(
        fails(mp_linear_get_operand_format(layer.linear, 3, MP_OPERAND_INPUT, &dtype, &quant),
              MP_STATUS_INVALID_ARGUMENT, {"product"}));
    EXPECT_TRUE(fails(mp_linear_get_operand_format(layer.linear, MP_PRODUCT_FPROP,
                                                   MP_OPERAND_GRAD_OUTPUT, &dtype, &quant),
                      MP_STATUS_INVALID_ARGUMENT, {"fprop", "grad_output"}));
    MP_OK(mp_linear_get_operand_format(other.linear, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, &dtype,
                                       &quant));
    EXPECT_EQ(dtype, MP_DTYPE_BF16);
    EXPECT_EQ(quant.scaling, 0);
    const Tensor e5m2 = make_quantized(context, MP_DTYPE_FP8_E5M2, {kSize, kSize}, nullptr);
    EXPECT_TRUE(fails(mp_linear_set_weight_codes(layer.linear, e5m2, nullptr),
                      MP_STATUS_INVALID_DTYPE, {"fp8_e5m2", "fp8_e4m3"}));
    EXPECT_TRUE(fails(
        mp_linear_quantize(other.linear, nullptr, MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, e5m2),
        MP_STATUS_INVALID_ARGUMENT, {"mp_tensor_cast"}));
    EXPECT_TRUE(fails(
        mp_linear_quantize(layer.linear, nullptr, MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, e5m2),
        MP_STATUS_INVALID_DTYPE, {"fp8_e5m2"}));
    mp_tensor* none = nullptr;
    EXPECT_TRUE(fails(mp_linear_get_multiply_tensor(layer.linear, MP_OPERAND_INPUT, &none),
                      MP_STATUS_BAD_STATE, {"delayed"}));
    mp_cast_desc rounding = MP_CAST_DESC_INIT;
    rounding.rounding = 9;
    EXPECT_TRUE(fails(mp_linear_set_gradient_rounding(layer.linear, &rounding),
                      MP_STATUS_INVALID_ARGUMENT, {"rounding"}));
    rounding = MP_CAST_DESC_INIT;
    rounding.flags = MP_CAST_SATURATE;
    EXPECT_TRUE(fails(mp_linear_set_gradient_rounding(layer.linear, &rounding),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    rounding = MP_CAST_DESC_INIT;
    rounding.rounding = MP_ROUND_STOCHASTIC;
    MP_OK(mp_linear_set_gradient_rounding(layer.linear, &rounding));
    EXPECT_TRUE(
        fails(mp_linear_backward_saved(layer.linear, nullptr, saved, dy, nullptr, e5m2, nullptr, 0),
              MP_STATUS_UNSUPPORTED, {"quantized", "nearest"}));
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
