// SPDX-License-Identifier: Apache-2.0
// A frozen layer with an adapter, for tests of adapter.h.
#pragma once

#include "layers.hpp"

namespace mp_test::adapters {

inline constexpr int64_t kRows = 33;
inline constexpr int64_t kIn = 64;
inline constexpr int64_t kOut = 48;
inline constexpr int64_t kRank = 16;

inline mp_adapter_desc adapter_desc(double alpha, const char* name = nullptr) {
    mp_adapter_desc desc = MP_ADAPTER_DESC_INIT;
    desc.alpha = alpha;
    desc.name = name;
    return desc;
}

inline Adapter make_adapter(mp_linear* layer, mp_recipe* recipe, const mp_adapter_desc& desc,
                            mp_tensor* a, mp_tensor* b) {
    mp_adapter* made = nullptr;
    EXPECT_TRUE(done(mp_adapter_create(layer, recipe, &desc, a, b, &made)));
    return Adapter(made);
}

inline Linear make_base(mp_context* context, mp_recipe* recipe, mp_tensor* weight,
                        mp_tensor* bias = nullptr, uint32_t flags = MP_LINEAR_FROZEN) {
    mp_linear_desc desc = linear_desc(kIn, kOut, flags);
    desc.name = "base";
    return make_noted_linear(context, recipe, desc, weight, bias);
}

// a, b, their gradients and the adapter over them.
struct Lora {
    Tensor a, b, da, db;
    Adapter adapter;

    Lora(mp_context* context, mp_linear* layer, mp_recipe* recipe, double alpha, uint64_t seed,
         const char* name = nullptr, int32_t dtype = MP_DTYPE_FP32)
        : a(make_tensor(context, dtype, {kRank, kIn}, numbers(kRank * kIn, seed, 0.25F))),
          b(make_tensor(context, dtype, {kOut, kRank}, numbers(kOut * kRank, seed + 1, 0.25F))),
          da(make_tensor(context, MP_DTYPE_FP32, {kRank, kIn})),
          db(make_tensor(context, MP_DTYPE_FP32, {kOut, kRank})),
          adapter(make_adapter(layer, recipe, adapter_desc(alpha, name), a, b)) {
        EXPECT_TRUE(succeeded(mp_adapter_set_grads(adapter, da, db)));
    }
};

using Bytes = std::vector<unsigned char>;
struct Outcome {
    Bytes y, dx, da, db;
    bool operator==(const Outcome&) const = default;
};

// A base layer and what goes through it.
struct Model {
    Context context;
    Recipe recipe;
    Tensor w, bias, x, dy, y, dx;
    Linear layer;

    explicit Model(const std::string& recipe_text, const char* backend = nullptr,
                   int32_t dtype = MP_DTYPE_FP32, int32_t threads = 2)
        : context(make_context(threads, backend)), recipe(recipe_of(context, recipe_text)),
          w(make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, numbers(kOut * kIn, 1, 0.25F))),
          bias(make_tensor(context, MP_DTYPE_FP32, {kOut}, numbers(kOut, 2))),
          x(make_tensor(context, dtype, {kRows, kIn}, numbers(kRows * kIn, 3))),
          dy(make_tensor(context, dtype, {kRows, kOut}, numbers(kRows * kOut, 4))),
          y(make_tensor(context, dtype, {kRows, kOut})),
          dx(make_tensor(context, dtype, {kRows, kIn})),
          layer(make_base(context, recipe, w, bias)) {}

    [[nodiscard]] Outcome outcome(const Lora& lora) const {
        return {bytes_of(y), bytes_of(dx), bytes_of(lora.da), bytes_of(lora.db)};
    }
    // A pass by the simple calls.
    [[nodiscard]] Outcome pass(const Lora& lora, uint32_t flags = 0) const {
        EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
        EXPECT_TRUE(done(mp_linear_backward(layer, nullptr, dy, dx, nullptr, nullptr, flags)));
        return outcome(lora);
    }
    // Likewise, with what is kept in `saved`.
    [[nodiscard]] Outcome pass(const Lora& lora, mp_saved* saved) const {
        EXPECT_TRUE(succeeded(mp_linear_forward_saved(layer, nullptr, x, y, saved, 0)));
        EXPECT_TRUE(
            done(mp_linear_backward_saved(layer, nullptr, saved, dy, dx, nullptr, nullptr, 0)));
        return outcome(lora);
    }
    void end_step() const {
        mp_linear* const one = layer;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    }
};

} // namespace mp_test::adapters
