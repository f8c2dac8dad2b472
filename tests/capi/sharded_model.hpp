// SPDX-License-Identifier: Apache-2.0
// A small model with fp32 weights under a sharded optimizer, and gradients that differ by step.
#pragma once

#include "optimizers.hpp"
#include "ranks.hpp"

namespace mp_test {

inline constexpr int64_t kModelSizes[] = {40000, 7, 0, 20000};
inline constexpr int32_t kParams = 4;

struct ShardedModel {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    std::vector<Tensor> params;

    // `comm` NULL: an ordinary optimizer.
    ShardedModel(mp_comm* comm, const mp_sharding_desc& sharding) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, &group)));
        for (int32_t i = 0; i < kParams; ++i) {
            const auto count = static_cast<std::size_t>(kModelSizes[i]);
            params.push_back(make_tensor(context, MP_DTYPE_FP32, {kModelSizes[i]},
                                         numbers(count, static_cast<uint64_t>(i + 1))));
            const std::string name = 'p' + std::to_string(i);
            EXPECT_TRUE(succeeded(add_param(optimizer, group, name.c_str(), params.back())));
        }
    }

    // The weights to every rank.
    mp_status gather() {
        constexpr int32_t kAll[] = {0, 1, 2, 3};
        const mp_status status = mp_optimizer_gather_begin(optimizer, nullptr, kAll, kParams);
        return status == MP_STATUS_OK ? mp_optimizer_gather_wait(optimizer, nullptr, kAll, kParams)
                                      : status;
    }

    // The mean over the ranks is the same as one rank's gradient: whole numbers, the same on each.
    mp_status backward(int64_t step, bool says_ready = true) {
        mp_status status = MP_STATUS_OK;
        for (int32_t i = kParams; i-- > 0 && status == MP_STATUS_OK;) {
            status = write_gradient(i, step);
            if (status == MP_STATUS_OK && says_ready) {
                status = mp_optimizer_grad_ready(optimizer, nullptr, i);
            }
        }
        return status;
    }

    // Steps from `first` to before `end`.
    void train(int64_t first, int64_t end) {
        for (int64_t step = first; step < end; ++step) {
            MP_OK(backward(step));
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
    }

    // The bytes of all weights, gathered.
    std::vector<std::vector<unsigned char>> weights() {
        EXPECT_TRUE(succeeded(gather()));
        std::vector<std::vector<unsigned char>> bytes;
        for (const Tensor& param : params) {
            bytes.push_back(bytes_of(param));
        }
        return bytes;
    }

    Checkpoint checkpoint(mp_comm* comm) const { return checkpoint_of(context, optimizer, comm); }

  private:
    mp_status write_gradient(int32_t i, int64_t step) {
        mp_status status = mp_optimizer_acquire_grad(optimizer, nullptr, i);
        mp_tensor* raw = nullptr;
        if (status == MP_STATUS_OK) {
            status = mp_optimizer_get_state(optimizer, i, "grad", &raw);
        }
        if (status != MP_STATUS_OK) {
            return status;
        }
        const Tensor grad(raw);
        std::vector<float> values(static_cast<std::size_t>(kModelSizes[i]));
        for (std::size_t k = 0; k < values.size(); ++k) {
            values[k] = static_cast<float>((static_cast<int64_t>(k) * 7 + step + i) % 15 - 7);
        }
        return mp_tensor_write(grad, nullptr, values.data(), values.size() * sizeof(float));
    }
};

// Of a stage as people count them, from 0.
inline mp_sharding_desc stage_desc(int32_t stage) {
    mp_sharding_desc desc = MP_SHARDING_DESC_INIT;
    desc.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
    return desc;
}

// A rank that does not come is not waited for as long as usual.
inline const mp_comm_desc kSoon = [] {
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = 20000;
    return desc;
}();

inline void run_sharded(int32_t count, const std::function<void(mp_comm*, int32_t)>& body) {
    run_ranks(count, body, &kSoon);
}

} // namespace mp_test
