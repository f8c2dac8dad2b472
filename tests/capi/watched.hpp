// SPDX-License-Identifier: Apache-2.0
// A training of four numbers, for the guard that skips steps and the history of steps (guard.cpp, history.cpp).
#pragma once

#include <cmath>
#include <limits>

#include "optimizers.hpp"

namespace mp_test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One parameter of four elements, whose gradient is what a test wants; the norm is that of its first element.
struct Watched {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    Tensor param, grad;

    explicit Watched(const char* backend = nullptr, mp_comm* comm = nullptr,
                     const char* recipe_name = "fp32", int32_t stage = 1)
        : context(make_context(1, backend)), recipe(make_recipe(context, recipe_name)),
          param(make_tensor(context, weight_dtype(recipe), {4}, {1.0F, 2.0F, 3.0F, 4.0F})) {
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        optimizer = make_optimizer_on(comm, context, recipe, nullptr, &sharding);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        group.lr = 0.125;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, nullptr)));
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "wheel", param)));
        grad = state_of(optimizer, 0, "grad");
    }

    mp_status guard(int32_t window, double norm_z, double loss_z) const {
        mp_guard_desc desc = MP_GUARD_DESC_INIT;
        desc.window = window;
        desc.max_grad_norm_z = norm_z;
        desc.max_loss_z = loss_z;
        return mp_optimizer_set_guard(optimizer, nullptr, &desc);
    }
    mp_status step(double norm, double loss = kNaN, mp_scaler* scaler = nullptr) const {
        const float values[] = {static_cast<float>(norm), 0.0F, 0.0F, 0.0F};
        EXPECT_TRUE(succeeded(mp_tensor_write(grad, nullptr, values, sizeof values)));
        if (!std::isnan(loss)) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_loss(optimizer, loss)));
        }
        return mp_optimizer_step(optimizer, nullptr, scaler);
    }
    [[nodiscard]] mp_optimizer_stats stats() const { return stats_of(optimizer); }
    [[nodiscard]] std::string bad_tensor() const {
        char text[200];
        EXPECT_TRUE(succeeded(mp_optimizer_get_bad_tensor(optimizer, text, sizeof text, nullptr)));
        return text;
    }
    [[nodiscard]] mp_step_record record(int32_t index) const {
        mp_step_record record = MP_STEP_RECORD_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_record(optimizer, index, &record)));
        return record;
    }
    [[nodiscard]] int32_t records() const {
        int32_t count = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_record_count(optimizer, &count)));
        return count;
    }
};

} // namespace mp_test
