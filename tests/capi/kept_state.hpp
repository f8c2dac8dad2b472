// SPDX-License-Identifier: Apache-2.0
// A small training with what a program may set, one choice of each, and what it must have again after a load.
#pragma once

#include <limits>

#include "kept_choices.hpp"
#include "layers.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

namespace mp_test {

// Names of parameters and the group of each, by what the group is for.
struct Planned {
    const char* name;
    int group; // 0: the first, 1: the second, 2: one of its own
    int64_t count;
};
inline constexpr int kBefore = 6; // steps before the save
inline constexpr int kAfter = 4;

class Kept {
  public:
    // `is_first`: it trains from the start, and its late parameter is late.
    Kept(const Choice& choice, bool is_first, mp_comm* comm = nullptr)
        : c_(choice), context_(make_context(1)),
          recipe_(recipe_of(context_, levels(kRecipe)[c_[kRecipe]])), is_first_(is_first),
          is_rank_(comm != nullptr) {
        make_optimizer(comm);
        make_groups();
        for (const Planned& p :
             {Planned{"a", 0, 600}, {"b", 0, 5000}, {"c", 1, 700}, {"d", 1, 5000}}) {
            add(p);
        }
        if (!is_first) {
            add_late();
        }
        make_checkpoint(comm);
        if (is_first || (c_[kWhen] == 0 && !is_rank_)) {
            set_all();
        }
    }

    // What is not saved but set by the program: the guard's bounds, the history, the ranks of the norm.
    void set_all() {
        mp_guard_desc guard = MP_GUARD_DESC_INIT;
        guard.window = 3;
        guard.max_grad_norm_z = (c_[kGuard] & 1) != 0 ? 3.0 : 0.0;
        guard.max_loss_z = (c_[kGuard] & 2) != 0 ? 3.0 : 0.0;
        if (c_[kGuard] != 0) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_guard(optimizer_, nullptr, &guard)));
        }
        if (c_[kExtras] == 2) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_history(optimizer_, 3, nullptr)));
            mp_comm* alone = nullptr;
            EXPECT_TRUE(succeeded(mp_comm_create_threads(nullptr, 1, &alone)));
            norm_ = Comm(alone);
            EXPECT_TRUE(succeeded(mp_optimizer_set_norm_comm(optimizer_, norm_)));
        }
    }

    // The number of the step decides all: gradients, the loss, a gradient that is not finite, an outlier, who comes and goes.
    void step(int number) {
        if (is_first_ && number == 3) {
            add_late();
        }
        if (c_[kSwitch] == 2 && (number == 2 || number == 4)) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_enabled(optimizer_, numbers_[1], number == 4)));
        }
        if (c_[kSwitch] == 1 && number == 5) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_enabled(optimizer_, numbers_[1], 0)));
        }
        const bool stands_out = number == 5 || number == kBefore + 1;
        for (int32_t i = 0; i < static_cast<int32_t>(names_.size()); ++i) {
            write_gradient(i, number,
                           stands_out ? 40.0F : 1.0F + 0.01F * static_cast<float>(number));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_set_lr(optimizer_, numbers_[0], 1e-2 / number)));
        EXPECT_TRUE(
            succeeded(mp_optimizer_set_loss(optimizer_, (stands_out ? 90.0 : 3.0) + 1.0 / number)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer_, nullptr, scaler_)));
        if (scaler_.owned != nullptr) {
            EXPECT_TRUE(succeeded(mp_scaler_update(scaler_, nullptr)));
        }
        pass_through_layer(number);
    }
    mp_status save(const std::string& path) {
        return mp_checkpoint_save(checkpoint_, path.c_str(), 1, 0);
    }
    mp_status load(const std::string& path, uint32_t flags = 0) {
        return mp_checkpoint_load(checkpoint_, path.c_str(), flags, nullptr);
    }

    // By parameter: its arrays, and what its group says. Then all counts.
    [[nodiscard]] std::vector<double> kept() const;
    // And what the last step found.
    [[nodiscard]] std::vector<double> found() const {
        const mp_optimizer_stats s = stats();
        return {s.grad_norm, s.grad_mul, s.grad_norm_z, s.loss_z, static_cast<double>(s.found_inf)};
    }
    [[nodiscard]] mp_optimizer_stats stats() const { return stats_of(optimizer_); }
    [[nodiscard]] mp_optimizer* optimizer() const { return optimizer_; }

  private:
    void make_optimizer(mp_comm* comm) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = MP_OPTIMIZER_CHECK_FINITE;
        desc.seed = is_first_ ? 11 : 12; // comes with the checkpoint
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        optimizer_ = make_optimizer_on(comm, context_, recipe_, &desc, &sharding);
    }
    void make_groups() {
        std::vector<int> order = {0, 1};
        if (c_[kOrder] == 2) {
            order = is_first_ ? std::vector<int>{0, 3, 1} : std::vector<int>{0, 1, 3};
        }
        if (c_[kLate] == 3 && !is_first_) {
            order.push_back(2);
        }
        if (c_[kOrder] == 1 && !is_first_) {
            std::reverse(order.begin(), order.end());
        }
        for (const int kind : order) {
            add_group(kind);
        }
    }
    void add_group(int kind);
    void add(const Planned& planned);
    void add_late() {
        if (is_first_ && c_[kLate] == 3) {
            add_group(2);
        }
        if (c_[kLate] != 0) {
            add({"late", c_[kLate] - 1, 5000});
        }
    }
    void make_checkpoint(mp_comm* comm);
    void write_gradient(int32_t index, int number, float scale);
    void pass_through_layer(int number);
    void pass(uint64_t seed, bool is_trained);

    Choice c_;
    Context context_;
    Recipe recipe_;
    Optimizer optimizer_;
    Scaler scaler_;
    Recipe layer_recipe_;
    Tensor weight_;
    Linear layer_;
    Comm norm_;
    std::array<int32_t, 4> numbers_{}; // of groups, by kind
    std::vector<std::string> names_;
    std::vector<Tensor> params_;
    bool is_first_;
    bool is_rank_;
    Checkpoint checkpoint_;
};

inline void Kept::add_group(int kind) {
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
    desc.lr = is_first_ ? 1e-2 * (kind + 1) : 1.0; // comes with the checkpoint
    desc.weight_decay = is_first_ && kind != 1 ? 0.1 : 0.0;
    if (kind == 1 && c_[kSecond] == 1) {
        desc.rule = MP_RULE_LION;
    } else if (kind == 1 && c_[kSecond] == 2) {
        desc.state_formats[0] = "int8_block256";
        desc.state_formats[1] = "fp32";
    }
    EXPECT_TRUE(
        done(mp_optimizer_add_group(optimizer_, &desc, &numbers_[static_cast<size_t>(kind)])));
}

inline void Kept::add(const Planned& planned) {
    const auto count = static_cast<std::size_t>(planned.count);
    const std::vector<float> values = mp_test::numbers(count, is_first_ ? names_.size() + 1 : 99);
    mp_tensor* weight = nullptr;
    EXPECT_TRUE(succeeded(
        mp_recipe_create_weight(context_, recipe_, 1, &planned.count, values.data(), &weight)));
    params_.emplace_back(weight);
    const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, {planned.count}, values);
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = planned.name;
    desc.param = weight;
    desc.init_fp32 = exact;
    names_.emplace_back(planned.name);
    const int32_t group = numbers_[static_cast<std::size_t>(planned.group)];
    EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer_, group, &desc, nullptr)));
}

inline void Kept::make_checkpoint(mp_comm* comm) {
    checkpoint_ = checkpoint_of(context_, optimizer_, comm);
    if (c_[kExtras] == 1) {
        mp_scaler* scaler = nullptr;
        EXPECT_TRUE(succeeded(mp_scaler_create_from_recipe(context_, recipe_, &scaler)));
        scaler_ = Scaler(scaler);
        EXPECT_TRUE(succeeded(mp_checkpoint_add_scaler(checkpoint_, scaler_)));
    }
    if (c_[kLayer] != 0) {
        layer_recipe_ = recipe_of(context_, c_[kWay] >= 3 ? levels(kRecipe)[c_[kRecipe]]
                                                          : std::string("fp8_delayed"));
        weight_ = make_tensor(context_, weight_dtype(layer_recipe_), {32, 32},
                              mp_test::numbers(1024, 77));
        layer_ = make_linear(context_, layer_recipe_, linear_desc(32, 32), weight_);
        EXPECT_TRUE(succeeded(mp_checkpoint_add_linear(checkpoint_, "layer", layer_)));
    }
}

inline void Kept::write_gradient(int32_t index, int number, float scale) {
    const std::string& name = names_[static_cast<std::size_t>(index)];
    const Tensor grad = state_of(optimizer_, index, "grad");
    const std::size_t count = bytes_of(params_[static_cast<std::size_t>(index)]).size(); // at least
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
    std::vector<float> values =
        mp_test::numbers(static_cast<std::size_t>(desc.shape[0]),
                         count + static_cast<uint64_t>(number * 100 + name[0]), scale);
    if (number == 2 && index == 0) {
        values[0] = std::numeric_limits<float>::infinity(); // skipped, but its loss counts
    }
    const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, {desc.shape[0]}, values);
    EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, grad, nullptr)));
}

inline void Kept::pass(uint64_t seed, bool is_trained) {
    std::vector<float> values =
        mp_test::numbers(512, seed, static_cast<float>(seed)); // so that amaxes differ
    const Tensor x = make_tensor(context_, MP_DTYPE_BF16, {16, 32}, values);
    const Tensor y = make_tensor(context_, MP_DTYPE_BF16, {16, 32});
    EXPECT_TRUE(done(mp_linear_forward(layer_, nullptr, x, y)));
    if (is_trained) {
        const Tensor dx = make_tensor(context_, MP_DTYPE_BF16, {16, 32});
        const Tensor dw = make_tensor(context_, MP_DTYPE_FP32, {32, 32});
        EXPECT_TRUE(done(mp_linear_backward(layer_, nullptr, y, dx, dw, nullptr, 0)));
    }
}

inline void Kept::pass_through_layer(int number) {
    if (layer_.owned == nullptr) {
        return;
    }
    pass(static_cast<uint64_t>(number), true);
    mp_linear* const layers[] = {layer_};
    EXPECT_TRUE(succeeded(mp_linear_end_step(layers, 1, nullptr, nullptr)));
    if (c_[kLayer] == 2 && number == kBefore) {
        pass(50, true); // the next step has begun
        pass(90, false);
    }
}

inline std::vector<double> Kept::kept() const {
    std::vector<double> all;
    const auto add_bytes = [&all](const std::vector<unsigned char>& bytes) {
        uint64_t hash = 1469598103934665603ULL;
        for (const unsigned char byte : bytes) {
            hash = (hash ^ byte) * 1099511628211ULL;
        }
        all.push_back(static_cast<double>(hash >> 11));
    };
    for (int32_t i = 0; i < static_cast<int32_t>(names_.size()); ++i) {
        for (const char* state : kStates) {
            mp_tensor* tensor = nullptr;
            if (mp_optimizer_get_state(optimizer_, i, state, &tensor) == MP_STATUS_OK) {
                const Tensor owned(tensor);
                add_bytes(bytes_of(tensor));
            }
        }
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_param_group(optimizer_, i, &group)));
        mp_param_group_desc d = MP_PARAM_GROUP_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group(optimizer_, group, &d)));
        int64_t step = 0;
        int32_t enabled = 0;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group_step(optimizer_, nullptr, group, &step)));
        EXPECT_TRUE(succeeded(mp_optimizer_get_enabled(optimizer_, group, &enabled)));
        all.insert(all.end(), {d.lr, d.beta1, d.beta2, d.eps, d.weight_decay, double(d.rule),
                               static_cast<double>(step), static_cast<double>(enabled)});
    }
    const mp_optimizer_stats s = stats();
    all.insert(all.end(), {static_cast<double>(s.step), static_cast<double>(s.skipped_steps),
                           static_cast<double>(s.outlier_steps)});
    if (scaler_.owned != nullptr) {
        double scale = 0.0;
        EXPECT_TRUE(succeeded(mp_scaler_get_scale(scaler_, nullptr, &scale)));
        all.push_back(scale);
    }
    if (layer_.owned != nullptr) {
        add_bytes(scaling_of(layer_));
    }
    return all;
}

} // namespace mp_test
