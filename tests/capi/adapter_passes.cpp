// SPDX-License-Identifier: Apache-2.0
// Passes of layers with adapters that differ from the plain one: other sizes, plain memory, gradients apart, adapters that come
// and go between calls, calls that fail between a forward and its backward.
#include <cmath>
#include <optional>

#include "adapters.hpp"
#include "memory.hpp"
#include "optimizers.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

struct Parts {
    Linear a, b;
    explicit Parts(mp_adapter* adapter) {
        mp_linear *first = nullptr, *second = nullptr;
        EXPECT_TRUE(succeeded(mp_adapter_get_linears(adapter, &first, &second)));
        a = Linear(first);
        b = Linear(second);
    }
};

} // namespace

TEST(AdapterPasses, PlainMemoryHasTheSameBits) {
    const Model model("bf16_mixed");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Outcome expected = model.pass(lora);
    const Linear base = make_base(model.context, model.recipe, model.w, model.bias);
    mp_adapter_desc desc = adapter_desc(8.0);
    mp_adapter* raw = nullptr;
    MP_FAILS(mp_adapter_create_pointers(base, model.recipe, &desc, data_of(lora.a), data_of(lora.b),
                                        MP_DTYPE_FP32, &raw),
             MP_STATUS_INVALID_SHAPE, "desc.rank");
    desc.rank = kRank;
    MP_OK(mp_adapter_create_pointers(base, model.recipe, &desc, data_of(lora.a), data_of(lora.b),
                                     MP_DTYPE_FP32, &raw));
    const Adapter adapter(raw);
    std::vector<float> y(kRows * kOut), dx(kRows * kIn), da(kRank * kIn), db(kOut * kRank);
    MP_OK(mp_adapter_set_grads_pointers(adapter, da.data(), db.data(), MP_DTYPE_FP32));
    MP_OK(mp_linear_forward_pointers(base, nullptr, kRows, data_of(model.x), y.data(),
                                     MP_DTYPE_FP32));
    MP_OK(mp_linear_backward_pointers(base, nullptr, kRows, data_of(model.dy), dx.data(),
                                      MP_DTYPE_FP32, nullptr, nullptr, MP_DTYPE_FP32, 0));
    const auto bytes = [](const std::vector<float>& values) {
        const auto* const first = reinterpret_cast<const unsigned char*>(values.data());
        return Bytes(first, first + values.size() * sizeof(float));
    };
    EXPECT_EQ((Outcome{bytes(y), bytes(dx), bytes(da), bytes(db)}), expected);
}

TEST(AdapterPasses, SaysWhatItWasMadeWith) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 1.0, 20, "one");
    mp_adapter_desc desc = MP_ADAPTER_DESC_INIT;
    MP_OK(mp_adapter_get_desc(lora.adapter, &desc));
    EXPECT_EQ(desc.alpha, 1.0);
    EXPECT_EQ(desc.rank, kRank);
    EXPECT_STREQ(desc.name, "one");
    const std::string text = description_of(model.layer);
    EXPECT_NE(text.find("adapter 'one', of rank 16"), std::string::npos) << text;
    MP_OK(mp_adapter_set_active(lora.adapter, 0));
    EXPECT_NE(description_of(model.layer).find("switched off"), std::string::npos);
}

// No row at all, and a rank above both sides.
TEST(AdapterPasses, OtherSizes) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {3, 2}, numbers(6, 1));
    const Linear layer = make_linear(context, recipe, linear_desc(2, 3, MP_LINEAR_FROZEN), w);
    const Tensor a = make_tensor(context, MP_DTYPE_FP32, {9, 2}, numbers(18, 2)),
                 b = make_tensor(context, MP_DTYPE_FP32, {3, 9}, numbers(27, 3)),
                 da = make_tensor(context, MP_DTYPE_FP32, {9, 2}, numbers(18, 4));
    const Adapter adapter = make_adapter(layer, recipe, adapter_desc(0), a, b);
    MP_OK(mp_adapter_set_grads(adapter, da, nullptr));
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {0, 2}),
                 y = make_tensor(context, MP_DTYPE_FP32, {0, 3});
    MP_OK(mp_linear_forward(layer, nullptr, x, y));
    MP_OK(mp_linear_backward_weight(layer, nullptr, y, nullptr, nullptr, 0));
    EXPECT_EQ(values_of(context, da), std::vector<float>(18, 0.0F));
    const Tensor one = make_tensor(context, MP_DTYPE_FP32, {1, 2}, {1, 0}),
                 out = make_tensor(context, MP_DTYPE_FP32, {1, 3});
    MP_OK(mp_linear_forward(layer, nullptr, one, out));
    const std::vector<float> wide = numbers(6, 1), first = numbers(18, 2), second = numbers(27, 3);
    for (std::size_t j = 0; j < 3; ++j) {
        float expected = wide[2 * j];
        for (std::size_t r = 0; r < 9; ++r) {
            expected += first[2 * r] * second[9 * j + r];
        }
        EXPECT_NEAR(values_of(context, out)[j], expected, 1e-5F);
    }
}

// Codes as x and dy are their numbers.
TEST(AdapterPasses, CodesAreTheirNumbers) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const auto coded = [&](mp_tensor* source, int64_t columns) {
        Tensor codes = make_quantized(model.context, MP_DTYPE_FP8_E4M3, {kRows, columns}, nullptr);
        EXPECT_TRUE(
            succeeded(mp_tensor_quantize(source, nullptr, codes, nullptr, nullptr, nullptr)));
        EXPECT_TRUE(succeeded(mp_tensor_dequantize(codes, nullptr, source)));
        return codes;
    };
    const Tensor x = coded(model.x, kIn), dy = coded(model.dy, kOut);
    const Outcome expected = model.pass(lora);
    MP_OK(mp_linear_forward(model.layer, nullptr, x, model.y));
    MP_OK(mp_linear_backward(model.layer, nullptr, dy, model.dx, nullptr, nullptr, 0));
    EXPECT_EQ(model.outcome(lora), expected);
}

// What nobody wants a gradient of has been in a pass all the same: its scales move on.
TEST(AdapterPasses, ScalesMoveOnWithoutGradients) {
    const Model model("fp8_delayed");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Parts parts(lora.adapter);
    MP_OK(mp_adapter_set_grads(lora.adapter, nullptr, lora.db));
    const Bytes before = scaling_of(parts.a);
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    EXPECT_TRUE(
        done(mp_linear_backward_weight(model.layer, nullptr, model.dy, nullptr, nullptr, 0)));
    // Named by itself, too, it ends its step once.
    mp_linear* const named[] = {model.layer, parts.a};
    MP_OK(mp_linear_end_step(named, 2, nullptr, nullptr));
    const Bytes once = scaling_of(parts.a);
    EXPECT_NE(once, before);
    // As with all gradients, but for what only they are made of.
    const Model other("fp8_delayed");
    const Lora same(other.context, other.layer, other.recipe, 8.0, 20);
    MP_OK(mp_linear_forward(other.layer, nullptr, other.x, other.y));
    EXPECT_TRUE(
        done(mp_linear_backward_weight(other.layer, nullptr, other.dy, nullptr, nullptr, 0)));
    other.end_step();
    EXPECT_EQ(scaling_of(model.layer), scaling_of(other.layer));
    EXPECT_EQ(scaling_of(parts.b), scaling_of(Parts(same.adapter).b));
}

// A forward that is refused leaves what an earlier one keeps, in lent memory too, where parts lie by rows.
TEST(AdapterPasses, AFailedForwardLosesNothing) {
    const Model model("bf16_mixed");
    const Lora one(model.context, model.layer, model.recipe, 8.0, 20, "one"),
        two(model.context, model.layer, model.recipe, 8.0, 30, "two");
    size_t bytes = 0;
    MP_OK(mp_linear_get_saved_bytes(model.layer, kRows, &bytes));
    const Block memory(bytes), moved(bytes);
    const Saved saved = make_saved(model.layer);
    MP_OK(mp_saved_set_memory(saved, memory.memory.get(), bytes));
    const Outcome expected = model.pass(one, saved);
    const Bytes other = bytes_of(two.db);
    const Tensor few = view_of(model.x, 0, {kRows / 2, kIn});
    MP_FAILS(mp_linear_forward_saved(model.layer, nullptr, few, model.y, saved, 0),
             MP_STATUS_INVALID_SHAPE, "same rows");
    std::memcpy(moved.memory.get(), memory.memory.get(), bytes);
    std::memset(memory.memory.get(), 0xFF, bytes);
    MP_OK(mp_saved_set_memory(saved, moved.memory.get(), bytes));
    MP_OK(mp_linear_backward_saved(model.layer, nullptr, saved, model.dy, model.dx, nullptr,
                                   nullptr, 0));
    EXPECT_EQ(model.outcome(one), expected);
    EXPECT_EQ(bytes_of(two.db), other);
    // dx over what b keeps, of which no gradient is wanted now: a later backward may want it.
    MP_OK(mp_adapter_set_grads(one.adapter, one.da, nullptr));
    const Tensor over = wrap_tensor(model.context, MP_DTYPE_FP32, {kRows, kIn}, moved.memory.get());
    MP_FAILS(
        mp_linear_backward_saved(model.layer, nullptr, saved, model.dy, over, nullptr, nullptr, 0),
        MP_STATUS_INVALID_ARGUMENT, "mp_saved_set_memory");
}

// Where nothing is kept, none of the memory is needed; a smaller place that suffices is one.
TEST(AdapterPasses, LentMemoryIsAsLargeAsWhatIsKept) {
    const Model model("bf16_mixed");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Linear trained = make_base(model.context, model.recipe, model.w, nullptr, 0);
    for (mp_linear* const layer :
         {static_cast<mp_linear*>(model.layer), static_cast<mp_linear*>(trained)}) {
        size_t bytes = 0;
        MP_OK(mp_linear_get_saved_bytes(layer, kRows, &bytes));
        const Block small(256), wide(2 * bytes), exact(bytes);
        const Saved saved = make_saved(layer);
        if (layer != trained) { // it keeps nothing: the scale alone
            MP_OK(mp_saved_set_memory(saved, small.memory.get(), 256));
            MP_OK(
                mp_linear_forward_saved(layer, nullptr, model.x, model.y, saved, MP_FORWARD_DROP));
        }
        MP_OK(mp_saved_set_memory(saved, wide.memory.get(), 2 * bytes));
        MP_OK(mp_linear_forward_saved(layer, nullptr, model.x, model.y, saved, 0));
        std::memcpy(exact.memory.get(), wide.memory.get(), bytes);
        MP_FAILS(mp_saved_set_memory(saved, exact.memory.get(), bytes - 1),
                 MP_STATUS_INVALID_ARGUMENT, std::to_string(bytes) + " are kept");
        MP_OK(mp_saved_set_memory(saved, exact.memory.get(), bytes));
        std::memset(wide.memory.get(), 0xFF, bytes);
        const Tensor dw = make_tensor(model.context, MP_DTYPE_FP32, {kOut, kIn});
        mp_tensor* const wanted = layer == trained ? static_cast<mp_tensor*>(dw) : nullptr;
        EXPECT_TRUE(done(mp_linear_backward_saved(layer, nullptr, saved, model.dy, model.dx, wanted,
                                                  nullptr, 0)));
        const float one = values_of(model.context, layer == trained ? dw : lora.da)[7];
        EXPECT_TRUE(std::isfinite(one));
    }
}

// The base's scales move once a pass, whichever way it is run.
TEST(AdapterPasses, ABaseCountsOnce) {
    std::vector<Bytes> scales;
    for (const int way : {0, 1, 2}) {
        const Model model("fp8_delayed");
        const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
        const Saved saved = make_saved(model.layer);
        for (int step = 0; step < 3; ++step) {
            if (way == 0) {
                (void)model.pass(lora);
            } else if (way == 1) {
                (void)model.pass(lora, saved);
            } else {
                MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
                MP_OK(mp_linear_forward_saved(model.layer, nullptr, model.dx, model.y, nullptr, 0));
                EXPECT_TRUE(done(mp_linear_backward_weight(model.layer, nullptr, model.dy, nullptr,
                                                           nullptr, 0)));
                MP_OK(mp_linear_backward_data(model.layer, nullptr, model.dy, model.dx));
                EXPECT_TRUE(done(mp_linear_backward(model.layer, nullptr, model.dy, model.dx,
                                                    nullptr, nullptr, 0)));
            }
            model.end_step();
        }
        const Parts parts(lora.adapter);
        Bytes all = scaling_of(model.layer);
        for (mp_linear* const part :
             {static_cast<mp_linear*>(parts.a), static_cast<mp_linear*>(parts.b)}) {
            const Bytes own = scaling_of(part);
            all.insert(all.end(), own.begin(), own.end());
        }
        scales.push_back(all);
    }
    EXPECT_EQ(scales[1], scales[0]);
    EXPECT_EQ(scales[2], scales[0]);
}

// An adapter of an adapter is none.
TEST(AdapterPasses, AnAdapterHasNone) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Parts parts(lora.adapter);
    mp_adapter* made = nullptr;
    MP_FAILS(mp_adapter_create(parts.a, model.recipe, nullptr, lora.a, lora.b, &made),
             MP_STATUS_INVALID_ARGUMENT, "half of an adapter");
}

// Adapters may go before what was kept for them.
TEST(AdapterPasses, AnAdapterMayGoFirst) {
    const Model model("bf16_mixed");
    const Lora one(model.context, model.layer, model.recipe, 8.0, 20, "one");
    const Outcome alone = model.pass(one);
    const Saved saved = make_saved(model.layer);
    std::optional<Lora> two;
    two.emplace(model.context, model.layer, model.recipe, 8.0, 30, "two");
    const Outcome both = model.pass(one, saved);
    EXPECT_NE(both.y, alone.y);
    two.reset();
    EXPECT_EQ(model.pass(one, saved), alone);
    two.emplace(model.context, model.layer, model.recipe, 8.0, 30, "two");
    EXPECT_EQ(model.pass(one, saved), both);
    MP_FAILS(mp_linear_backward_saved(model.layer, nullptr, nullptr, model.dy, model.dx, nullptr,
                                      nullptr, 0),
             MP_STATUS_NULL_ARGUMENT, "adapter 'one'", "mp_linear_backward_data");
}

// Memory that is not there now.
TEST(AdapterPasses, GradientsNeedMemory) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Tensor deferred = make_deferred(model.context, MP_DTYPE_FP32, {kRank, kIn});
    MP_OK(mp_adapter_set_grads(lora.adapter, deferred, lora.db));
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
             MP_STATUS_BAD_STATE, "dw");
    MP_OK(mp_adapter_set_grads(lora.adapter, lora.da, lora.db));
    const Tensor magnitude = make_deferred(model.context, MP_DTYPE_FP32, {kOut});
    MP_OK(mp_adapter_set_magnitude(lora.adapter, magnitude, nullptr));
    MP_FAILS(mp_linear_forward(model.layer, nullptr, model.x, model.y), MP_STATUS_BAD_STATE,
             "magnitude");
    const Tensor target = make_tensor(model.context, MP_DTYPE_FP32, {kOut, kIn});
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, 0, target, 0, nullptr),
             MP_STATUS_BAD_STATE, "magnitude");
    MP_OK(mp_adapter_set_magnitude(lora.adapter, nullptr, nullptr));
    const Tensor over = wrap_tensor(model.context, MP_DTYPE_FP32, {kOut / 4, kIn}, data_of(lora.b));
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, 0, over, 0, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "target", "b");
}

// u of a forward with a magnitude is for no backward after one without.
TEST(AdapterPasses, AMagnitudeThatWentAndCameBack) {
    const Model model("fp32");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
    const Tensor m = make_tensor(model.context, MP_DTYPE_FP32, {kOut}, numbers(kOut, 5)),
                 dm = make_tensor(model.context, MP_DTYPE_FP32, {kOut});
    MP_OK(mp_adapter_set_magnitude(lora.adapter, m, dm));
    (void)model.pass(lora);
    const std::vector<float> once = values_of(model.context, dm);
    EXPECT_TRUE(done(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr,
                                        MP_BACKWARD_ACCUMULATE)));
    const std::vector<float> twice = values_of(model.context, dm);
    for (std::size_t i = 0; i < once.size(); ++i) {
        EXPECT_EQ(twice[i], 2 * once[i]);
    }
    MP_OK(mp_adapter_set_magnitude(lora.adapter, nullptr, nullptr));
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    MP_OK(mp_adapter_set_magnitude(lora.adapter, m, dm));
    MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
             MP_STATUS_BAD_STATE, "magnitude's gradient");
}
