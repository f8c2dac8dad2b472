// SPDX-License-Identifier: Apache-2.0
// What a layer keeps of its weight is never older than the weight: whatever of the library writes there, through the weight's
// tensor, a view, another tensor over the memory or a pointer, the next product is that of a layer made then.
#include <cmath>
#include <cstdlib>

#include "layers.hpp"
#include "optimizers.hpp"
#include "writer_table_steps.hpp"

using namespace mp_test;

namespace {

using Bytes = std::vector<unsigned char>;

constexpr const char* kRecipes[] = {"bf16_mixed", "fp8_current", "fp8_delayed", "mxfp8"};
// How the weight and what is written to are connected.
enum class Way { same, view, two_wraps, pointers };
constexpr Way kWays[] = {Way::same, Way::view, Way::two_wraps, Way::pointers};

// The weight's memory with tensors over it. Contents are the same in every case.
struct Weight {
    std::unique_ptr<float, decltype(&std::free)> memory{
        static_cast<float*>(std::aligned_alloc(256, kAreaBytes)), &std::free};
    Tensor own, target;

    Weight(mp_context* context, Way way) : own(wrap(context)) {
        const std::vector<float> values = numbers(static_cast<std::size_t>(kArea), 77);
        std::copy(values.begin(), values.end(), memory.get());
        const int64_t shape[] = {kSide, kSide};
        mp_tensor* view = nullptr;
        if (way == Way::view) {
            EXPECT_TRUE(succeeded(mp_tensor_create_view(own, 0, 2, shape, &view)));
            target = Tensor(view);
        } else {
            target = wrap(context);
        }
        if (way == Way::same) {
            target = Tensor();
        }
    }
    [[nodiscard]] mp_tensor* written() const { return target.owned ? target : own; }
    Tensor wrap(mp_context* context) const {
        return wrap_tensor(context, MP_DTYPE_FP32, {kSide, kSide}, memory.get());
    }
    Linear layer(mp_context* context, mp_recipe* recipe, uint32_t flags, bool by_pointers) const {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = desc.out_features = kSide;
        desc.flags = flags;
        mp_linear* made = nullptr;
        EXPECT_TRUE(succeeded(
            by_pointers ? mp_linear_create_pointers(context, recipe, &desc, memory.get(),
                                                    MP_DTYPE_FP32, nullptr, MP_DTYPE_NONE, &made)
                        : mp_linear_create(context, recipe, &desc, own, nullptr, &made)));
        return Linear(made);
    }
};

// y and dx of the same x and dy.
Bytes products(mp_context* context, mp_linear* layer) {
    const std::vector<float> values = numbers(static_cast<std::size_t>(kArea), 78);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kSide, kSide}, values);
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kSide, kSide});
    const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kSide, kSide});
    EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
    EXPECT_TRUE(succeeded(mp_linear_backward_data(layer, nullptr, x, dx)));
    Bytes both = bytes_of(y);
    const Bytes second = bytes_of(dx);
    both.insert(both.end(), second.begin(), second.end());
    return both;
}

void check_writer(mp_context* context, mp_recipe* recipe, uint32_t flags, Way way,
                  const Writer& writer) {
    const Weight weight(context, way);
    const Linear layer = weight.layer(context, recipe, flags, way == Way::pointers);
    const Bytes before = products(context, layer);
    EXPECT_EQ(products(context, layer), before);
    const std::vector<float> old(weight.memory.get(), weight.memory.get() + kArea);
    ASSERT_TRUE(done(writer.write({context, weight.written(), weight.memory.get()})));
    ASSERT_NE(std::memcmp(old.data(), weight.memory.get(), kAreaBytes), 0) << "nothing was written";
    const Linear fresh = weight.layer(context, recipe, flags, way == Way::pointers);
    EXPECT_EQ(products(context, layer), products(context, fresh));
}

} // namespace

class WritersTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(WritersTest, ACopyOfAWeightIsNeverOlderThanTheWeight) {
    const Context context = make_context(1);
    int cases = 0;
    const std::vector<Writer> writers = all_writers();
    for (const char* name : kRecipes) {
        const Recipe recipe = make_recipe(context, name);
        for (const Way way : kWays) {
            for (std::size_t i = 0; i < writers.size(); ++i) {
                SCOPED_TRACE(std::string(name) + ", way " + std::to_string(static_cast<int>(way)) +
                             ", " + writers[i].function + ", row " + std::to_string(i));
                check_writer(context, recipe, GetParam(), way, writers[i]);
                ++cases;
            }
        }
    }
    std::printf("%d cases\n", cases);
}

namespace {

// A weight of the library's: codes with scales, or a state of an optimizer, and ways to write it.
struct OtherWeight {
    const char* name;
    std::function<Tensor(const Place&, mp_optimizer*)> make;
    std::function<mp_status(const Place&, mp_optimizer*, mp_tensor*)> write;
};

std::vector<OtherWeight> other_weights() {
    std::vector<OtherWeight> all;
    const auto codes = [&all](const char* name, auto write) {
        all.push_back(
            {name, [](const Place& p, mp_optimizer*) { return p.codes(); },
             [write](const Place& p, mp_optimizer*, mp_tensor* w) { return write(p, w); }});
    };
    codes("mp_tensor_quantize", [](const Place& p, mp_tensor* w) {
        return mp_tensor_quantize(p.matrix(50), nullptr, w, nullptr, nullptr, nullptr);
    });
    codes("mp_tensor_zero", [](const Place&, mp_tensor* w) { return mp_tensor_zero(w, nullptr); });
    codes("mp_tensor_write of scales", [](const Place&, mp_tensor* w) {
        const float scale = 0.25F;
        return mp_tensor_write(scales_of(w), nullptr, &scale, sizeof scale);
    });
    codes("mp_tensor_copy to scales", [](const Place& p, mp_tensor* w) {
        return mp_tensor_copy(make_tensor(p.context, MP_DTYPE_FP32, {1}, {0.5F}), nullptr,
                              scales_of(w));
    });
    for (const char* state : {"param", "master", "exp_avg", "grad"}) {
        all.push_back({state,
                       [state](const Place&, mp_optimizer* o) { return state_of(o, 0, state); },
                       [](const Place&, mp_optimizer* o, mp_tensor*) {
                           EXPECT_TRUE(succeeded(mp_optimizer_step(o, nullptr, nullptr)));
                           return mp_optimizer_zero_grad(o, nullptr);
                       }});
    }
    all.push_back({"mp_optimizer_sync_master",
                   [](const Place&, mp_optimizer* o) { return state_of(o, 0, "master"); },
                   [](const Place& p, mp_optimizer* o, mp_tensor*) {
                       const Tensor param = state_of(o, 0, "param");
                       EXPECT_TRUE(
                           succeeded(mp_tensor_cast(p.matrix(51), nullptr, param, nullptr)));
                       return mp_optimizer_sync_master(o, nullptr, 0);
                   }});
    return all;
}

} // namespace

TEST_P(WritersTest, LikewiseOfCodesAndOfStates) {
    const Context context = make_context(1);
    const Recipe bf16_weights =
        recipe_of(context, R"({"recipe": "bf16_mixed", "weight.dtype": "bf16",
                                         "master.dtype": "fp32"})");
    for (const char* name : {"bf16_mixed", "fp8_current", "fp8_delayed"}) {
        const Recipe recipe = make_recipe(context, name);
        for (const OtherWeight& other : other_weights()) {
            SCOPED_TRACE(std::string(name) + ", " + other.name);
            const Place place{context, nullptr, nullptr};
            const Tensor grad = place.matrix(20);
            const Optimizer optimizer =
                place.optimizer("w", bf16_weights, place.matrix(21, MP_DTYPE_BF16), grad);
            const Tensor weight = other.make(place, optimizer);
            const auto layer_of = [&] {
                return make_linear(context, recipe, linear_desc(kSide, kSide, GetParam()), weight);
            };
            const Linear layer = layer_of();
            const Bytes before = products(context, layer);
            ASSERT_TRUE(done(other.write(place, optimizer, weight)));
            const Bytes after = products(context, layer_of());
            EXPECT_NE(after, before);
            EXPECT_EQ(products(context, layer), after);
        }
    }
}

// A frozen weight is scaled by its own amax, whatever the layer's delayed scales were when it was written: the bits of a layer
// that is not frozen once its scale has followed.
TEST(Writers, AFrozenWeightIsScaledByItself) {
    const Context context = make_context(1);
    for (const char* name : {"fp8_delayed", "fp8_current", "fp8_rowwise", "mxfp8", "msamp_o1"}) {
        for (const int warm_up : {0, 1}) {
            const Recipe recipe = make_recipe(context, name);
            MP_OK(mp_recipe_set_int(recipe, MP_RECIPE_GEMM_WARM_UP, warm_up));
            for (const float first : {1.0F, 1e-3F, 300.0F}) {
                for (const float factor : {1.0F, 3.0F, 100.0F, 1e-3F}) {
                    SCOPED_TRACE(std::string(name) + ", warm-up " + std::to_string(warm_up) +
                                 ", weights of " + std::to_string(first) + " and then times " +
                                 std::to_string(factor));
                    const Weight weight(context, Way::same), later(context, Way::same);
                    for (int64_t i = 0; i < kArea; ++i) {
                        weight.memory.get()[i] *= first;
                        later.memory.get()[i] = weight.memory.get()[i] * factor;
                    }
                    const auto steps = [&](mp_linear* layer, int count) {
                        Bytes last;
                        for (int i = 0; i < count; ++i) {
                            last = products(context, layer);
                            EXPECT_TRUE(succeeded(mp_linear_end_step(&layer, 1, nullptr, nullptr)));
                        }
                        return last;
                    };
                    const Linear frozen = weight.layer(context, recipe, MP_LINEAR_FROZEN, false);
                    (void)steps(frozen, 3);
                    MP_OK(mp_tensor_copy(later.own, nullptr, weight.own));
                    const Bytes y = steps(frozen, 3);
                    EXPECT_EQ(y, steps(later.layer(context, recipe, 0, false), 6));
                }
            }
        }
    }
}

// What is kept of x: a copy is that of the forward, whatever is written to x since; a reference is x as it is.
TEST(Writers, ACopyOfXIsThatOfTheForward) {
    const Context context = make_context(1);
    for (const char* name : {"fp32", "bf16_mixed", "fp8_current"}) {
        const bool refers = std::string(name) == "fp32";
        const Recipe recipe = make_recipe(context, name);
        for (const Writer& writer : all_writers()) {
            SCOPED_TRACE(std::string(name) + ", " + writer.function);
            const Weight x(context, Way::two_wraps);
            const Place place{context, x.written(), x.memory.get()};
            const Tensor weight = place.matrix(30), dy = place.matrix(31);
            const Tensor y = place.matrix(32), dw = place.matrix(33), right = place.matrix(33);
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            desc.in_features = desc.out_features = kSide;
            mp_linear *made = nullptr, *made_too = nullptr;
            MP_OK(mp_linear_create(context, recipe, &desc, weight, nullptr, &made));
            const Linear layer(made);
            MP_OK(mp_linear_create(context, recipe, &desc, weight, nullptr, &made_too));
            const Linear other(made_too);
            MP_OK(mp_linear_forward(layer, nullptr, x.own, y));
            MP_OK(mp_linear_forward(other, nullptr, x.own, y));
            if (!refers) {
                MP_OK(mp_linear_backward_weight(other, nullptr, dy, right, nullptr, 0));
            }
            ASSERT_TRUE(done(writer.write(place)));
            MP_OK(mp_linear_backward_weight(layer, nullptr, dy, dw, nullptr, 0));
            if (refers) {
                MP_OK(mp_linear_forward(other, nullptr, x.own, y));
                MP_OK(mp_linear_backward_weight(other, nullptr, dy, right, nullptr, 0));
            }
            EXPECT_EQ(bytes_of(dw), bytes_of(right));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Kept, WritersTest,
                         ::testing::Values(MP_LINEAR_CACHE_WEIGHT, MP_LINEAR_FROZEN));
