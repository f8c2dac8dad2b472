// SPDX-License-Identifier: Apache-2.0
// Some steps of an optimizer that ranks share, or that nobody does, through the C ABI: the same on any device and transport.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "../capi/ranks.hpp"

namespace mp_test {

inline constexpr int64_t kCount = 100003;

// Values that every type on the wire has.
inline std::vector<float> some_values() {
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0.125F * static_cast<float>(static_cast<int>(i % 61) - 30);
    }
    return values;
}

struct RankOptions {
    std::string recipe; // its name, or JSON
    int32_t stage = 1;
    uint32_t flags = 0; // of the optimizer
    int64_t bucket_elements = 1 << 14;
    int32_t order = MP_COMM_ORDER_RANK;
    int32_t check_every = 0;
    bool shares_scales = false; // gradients travel as E4M3 under scales that ranks share
    double max_grad_norm = 0.0;
    bool has_scaler = false;
    bool has_idle_group = false; // whose parameter takes no part
    bool lends = false;          // weights lie in one tensor, and gradients in another
    int32_t more_groups = 0;     // without parameters
};

class RankTraining {
  public:
    // `comm` null: nobody shares it.
    RankTraining(mp_context* context, mp_comm* comm, const RankOptions& options)
        : context_(context), comm_(comm), recipe_(recipe_of(context, options.recipe)) {
        mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
        zero.stage = options.stage == 0 ? MP_SHARDING_STAGE_0 : options.stage;
        zero.bucket_elements = options.bucket_elements;
        zero.order = options.order;
        zero.check_every = options.check_every;
        zero.wire_dtype = options.shares_scales ? MP_DTYPE_FP8_E4M3 : 0;
        zero.wire_scale = options.shares_scales ? MP_COMM_SCALE_SHARED : 0;
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = options.flags;
        desc.max_grad_norm = options.max_grad_norm;
        mp_optimizer* raw = nullptr;
        EXPECT_TRUE(succeeded(comm == nullptr ? mp_optimizer_create(context, recipe_, &desc, &raw)
                                              : mp_optimizer_create_sharded(context, recipe_, &desc,
                                                                            comm, &zero, &raw)));
        optimizer_ = Optimizer(raw);
        if (options.has_scaler) {
            mp_scaler* scaler = nullptr;
            EXPECT_TRUE(succeeded(mp_scaler_create_from_recipe(context, recipe_, &scaler)));
            scaler_ = Scaler(scaler);
        }
        mp_param_group_desc group_desc = MP_PARAM_GROUP_DESC_INIT;
        group_desc.beta2 = 0.95;
        std::array<int32_t, 2> groups{};
        for (int32_t& group : groups) {
            EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer_, &group_desc, &group)));
        }
        for (int32_t i = 0; i < options.more_groups; ++i) {
            EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer_, &group_desc, nullptr)));
        }
        EXPECT_TRUE(succeeded(
            mp_optimizer_set_enabled(optimizer_, groups[1], options.has_idle_group ? 0 : 1)));
        const char* weight = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe_, MP_RECIPE_WEIGHT_DTYPE, &weight)));
        const std::string type = weight;
        dtype_ = type == "fp32" ? MP_DTYPE_FP32 : type == "fp16" ? MP_DTYPE_FP16 : MP_DTYPE_BF16;
        if (options.lends) {
            lend();
        }
        add_parameter(groups[1], 5);
        add_parameter(groups[0], 40000);
        add_parameter(groups[1], 4097);
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer_, nullptr)));
        }
    }
    RankTraining(mp_context* context, mp_comm* comm, const char* name, int32_t stage,
                 uint32_t flags = 0, int64_t bucket_elements = 1 << 14)
        : RankTraining(context, comm, {name, stage, flags, bucket_elements}) {}

    void step(int32_t rank, mp_queue* queue = nullptr) {
        acquire(queue);
        fill(rank, queue);
        send(queue);
        update(queue);
    }

    // In stage 2 gradients have no memory between steps.
    void acquire(mp_queue* queue = nullptr) {
        for (int32_t i = 0; comm_ != nullptr && i < count(); ++i) {
            EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer_, queue, i)));
        }
    }
    // The gradients are of the rank, and of nothing else.
    void fill(int32_t rank, mp_queue* queue = nullptr) {
        for (int32_t i = 0; i < count(); ++i) {
            mp_tensor* raw = nullptr;
            EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer_, i, "grad", &raw)));
            const Tensor grad(raw);
            mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
            EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
            const Tensor source = make_tensor(context_, MP_DTYPE_FP32, {desc.shape[0]},
                                              values(desc.shape[0], rank + 1));
            EXPECT_TRUE(succeeded(mp_context_sync(context_))); // for any queue
            EXPECT_TRUE(succeeded(desc.dtype == MP_DTYPE_FP32
                                      ? mp_tensor_copy(source, queue, grad)
                                      : mp_tensor_cast(source, queue, grad, nullptr)));
        }
    }
    void send(mp_queue* queue = nullptr) { send(queue, 0, count()); }
    void send(mp_queue* queue, int32_t first, int32_t end) {
        for (int32_t i = first; comm_ != nullptr && i < end; ++i) {
            EXPECT_TRUE(succeeded(mp_optimizer_grad_ready(optimizer_, queue, i)));
        }
    }
    void update(mp_queue* queue = nullptr) {
        EXPECT_TRUE(succeeded(try_update(queue)));
        if (static_cast<mp_scaler*>(scaler_) != nullptr) {
            EXPECT_TRUE(succeeded(mp_scaler_update(scaler_, queue)));
        }
    }
    [[nodiscard]] mp_status try_update(mp_queue* queue = nullptr) {
        return mp_optimizer_step(optimizer_, queue, scaler_);
    }
    void end() { optimizer_ = Optimizer(); }
    [[nodiscard]] mp_optimizer* optimizer() const { return optimizer_; }
    [[nodiscard]] mp_tensor* weight(std::size_t index) const { return params_[index]; }

    // Of all weights. Of stage 3, which has none between steps, they are gathered first.
    [[nodiscard]] std::vector<unsigned char> weights() const {
        const std::array<int32_t, 3> all = {0, 1, 2};
        if (comm_ != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer_, nullptr, all.data(), 3)));
            EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer_, nullptr, all.data(), 3)));
        }
        const std::vector<unsigned char> bits = held_weights();
        if (comm_ != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_gather_free(optimizer_, nullptr, all.data(), 3)));
        }
        return bits;
    }

    // Of all weights, as they are.
    [[nodiscard]] std::vector<unsigned char> held_weights() const {
        std::vector<unsigned char> bits;
        for (const Tensor& param : params_) {
            const std::vector<unsigned char> bytes = bytes_of(param);
            bits.insert(bits.end(), bytes.begin(), bytes.end());
        }
        return bits;
    }

  private:
    [[nodiscard]] int32_t count() const { return static_cast<int32_t>(params_.size()); }
    static std::vector<float> values(int64_t count, int32_t times) {
        std::vector<float> all = some_values();
        all.resize(static_cast<std::size_t>(count));
        for (float& value : all) {
            value *= static_cast<float>(times);
        }
        return all;
    }
    void lend() {
        const char* grad = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe_, MP_RECIPE_GRAD_DTYPE, &grad)));
        lent_weights_ = make_tensor(context_, dtype_, {kCount});
        lent_gradients_ = make_tensor(
            context_, std::string(grad) == "fp32" ? MP_DTYPE_FP32 : MP_DTYPE_BF16, {kCount});
    }
    // Behind what was lent before.
    Tensor lent_part(mp_tensor* whole, int64_t count) const {
        return view_of(whole, lent_, {count});
    }
    void add_parameter(int32_t group, int64_t count) {
        params_.push_back(make_tensor(context_, dtype_, {count}, values(count, 1)));
        Tensor grad;
        if (lent_weights_ != nullptr) {
            Tensor part = lent_part(lent_weights_, count);
            EXPECT_TRUE(succeeded(mp_tensor_copy(params_.back(), nullptr, part)));
            EXPECT_TRUE(succeeded(mp_context_sync(context_)));
            params_.back() = std::move(part);
            grad = lent_part(lent_gradients_, count);
            lent_ += (count + 127) / 128 * 128;
        }
        const std::string name = "p" + std::to_string(count);
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = name.c_str();
        desc.param = params_.back();
        desc.grad = grad;
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer_, group, &desc, nullptr)));
    }

    mp_context* context_;
    mp_comm* comm_;
    Recipe recipe_;
    int32_t dtype_ = MP_DTYPE_FP32;
    Tensor lent_weights_, lent_gradients_;
    int64_t lent_ = 0; // elements
    std::vector<Tensor> params_;
    Optimizer optimizer_;
    Scaler scaler_;
};

// Everything after three steps of a rank's.
inline std::vector<unsigned char> train(mp_context* context, mp_comm* comm,
                                        const RankOptions& options, int32_t rank) {
    RankTraining training(context, comm, options);
    for (int step = 0; step < 3; ++step) {
        training.step(rank);
    }
    return training.weights();
}
inline std::vector<unsigned char> train(mp_context* context, mp_comm* comm, const char* recipe,
                                        int32_t stage, int32_t rank = 0, uint32_t flags = 0) {
    return train(context, comm, {recipe, stage, flags}, rank);
}

} // namespace mp_test
