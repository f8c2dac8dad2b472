// SPDX-License-Identifier: Apache-2.0
// A small training through the C API: two groups over three parameters, a scaler, a delayed-scaling layer, eight bytes of
// the caller's, and a checkpoint of all of it.
#pragma once

#include <filesystem>
#include <unistd.h>

#include "layers.hpp"
#include "optimizers.hpp"
#include "support.hpp"

namespace mp_test {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
    fs::path path;
    explicit Folder(const char* name)
        : path(fs::path(::testing::TempDir()) /
               ("mp_checkpoint_" + std::string(name) + std::to_string(::getpid()))) {
        fs::remove_all(path);
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] const char* c_str() const { return path.c_str(); }
    [[nodiscard]] std::size_t entries() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(path), fs::directory_iterator()));
    }
};

inline constexpr int64_t kSizes[] = {1, 129, 6000};
inline const char* const kStates[] = {
    "param",  "exp_avg",           "exp_avg_sq",          "compensation",
    "master", "exp_avg_scale_inv", "exp_avg_sq_scale_inv"};

struct Training {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    Scaler scaler;
    Recipe layer_recipe;
    Tensor weight;
    Linear linear;
    int64_t position = 0;
    Checkpoint checkpoint; // first to go: it has the position's address

    explicit Training(const std::string& name, uint64_t seed = 3, mp_comm* comm = nullptr,
                      const mp_checkpoint_desc* checkpoint_desc = nullptr,
                      int32_t second_rule = MP_RULE_ADAMW)
        : Training(make_context(1), name, seed, comm, checkpoint_desc, second_rule) {}

    Training(Context owned, const std::string& name, uint64_t seed, mp_comm* comm,
             const mp_checkpoint_desc* checkpoint_desc, int32_t second_rule = MP_RULE_ADAMW)
        : context(std::move(owned)), recipe(recipe_of(context, name)),
          layer_recipe(recipe_of(context, "fp8_delayed")),
          weight(make_tensor(context, MP_DTYPE_FP32, {32, 32}, numbers(1024, 77))) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = seed;
        optimizer = make_optimizer(context, recipe, desc);
        scaler = make_scaler(context);
        for (int32_t group = 0; group < 2; ++group) {
            mp_param_group_desc group_desc = MP_PARAM_GROUP_DESC_INIT;
            group_desc.lr = 1e-2 * (group + 1);
            group_desc.rule = group == 1 ? second_rule : MP_RULE_ADAMW;
            int32_t index = 0;
            EXPECT_TRUE(mp_optimizer_add_group(optimizer, &group_desc, &index) >= 0);
        }
        for (const int64_t size : kSizes) {
            const std::string param_name = "layer." + std::to_string(size);
            const Tensor param = make_tensor(context, weight_dtype(recipe), {size});
            const Tensor init = make_tensor(context, MP_DTYPE_FP32, {size},
                                            numbers(static_cast<std::size_t>(size), 5));
            EXPECT_TRUE(succeeded(add_param(optimizer, size == 129 ? 1 : 0, param_name.c_str(),
                                            param, nullptr, init)));
        }
        make_layer();
        mp_checkpoint* made_checkpoint = nullptr;
        EXPECT_TRUE(
            succeeded(mp_checkpoint_create(context, comm, checkpoint_desc, &made_checkpoint)));
        checkpoint = Checkpoint(made_checkpoint);
        EXPECT_TRUE(succeeded(mp_checkpoint_add_optimizer(checkpoint, optimizer)));
        EXPECT_TRUE(succeeded(mp_checkpoint_add_scaler(checkpoint, scaler)));
        EXPECT_TRUE(succeeded(mp_checkpoint_add_linear(checkpoint, "layer", linear)));
        EXPECT_TRUE(
            succeeded(mp_checkpoint_add_data(checkpoint, "position", &position, sizeof position)));
    }

    void make_layer() { linear = make_linear(context, layer_recipe, linear_desc(32, 32), weight); }

    void step() {
        ++position;
        for (int32_t i = 0; i < static_cast<int32_t>(std::size(kSizes)); ++i) {
            const Tensor grad = state_of(optimizer, i, "grad");
            std::vector<float> values = numbers(static_cast<std::size_t>(kSizes[i]),
                                                static_cast<uint64_t>(position * 10 + i));
            if (position == 4) {
                values[0] = 1e38F * 100.0F; // a step that is skipped
            }
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kSizes[i]}, values);
            EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, grad, nullptr)));
        }
        EXPECT_TRUE(
            succeeded(mp_optimizer_set_lr(optimizer, 0, 1e-2 / static_cast<double>(position))));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, scaler)));
        EXPECT_TRUE(succeeded(mp_scaler_update(scaler, nullptr)));
        const Tensor x = make_tensor(context, MP_DTYPE_BF16, {16, 32},
                                     numbers(512, static_cast<uint64_t>(position)));
        const Tensor y = make_tensor(context, MP_DTYPE_BF16, {16, 32});
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
        mp_linear* const layers[] = {linear};
        EXPECT_TRUE(succeeded(mp_linear_end_step(layers, 1, nullptr, nullptr)));
    }

    // Everything that the checkpoint promises to keep.
    [[nodiscard]] std::vector<unsigned char> everything() {
        std::vector<unsigned char> all;
        const auto add = [&all](const void* data, std::size_t bytes) {
            const auto* begin = static_cast<const unsigned char*>(data);
            all.insert(all.end(), begin, begin + bytes);
        };
        for (int32_t i = 0; i < static_cast<int32_t>(std::size(kSizes)); ++i) {
            for (const char* state : kStates) {
                mp_tensor* tensor = nullptr;
                if (mp_optimizer_get_state(optimizer, i, state, &tensor) == MP_STATUS_OK) {
                    const Tensor owned(tensor);
                    const std::vector<unsigned char> bytes = bytes_of(tensor);
                    add(bytes.data(), bytes.size());
                }
            }
        }
        mp_scaler_state state{};
        state.struct_size = sizeof state;
        EXPECT_TRUE(succeeded(mp_scaler_get_state(scaler, nullptr, &state)));
        add(&state, sizeof state);
        const mp_optimizer_stats stats = stats_of(optimizer);
        add(&stats.step, sizeof stats.step);
        add(&stats.skipped_steps, sizeof stats.skipped_steps);
        const std::vector<unsigned char> scaling = scaling_of(linear);
        add(scaling.data(), scaling.size());
        add(&position, sizeof position);
        return all;
    }
};

} // namespace mp_test
