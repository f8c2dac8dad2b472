// SPDX-License-Identifier: Apache-2.0
// MP_OPTIMIZER_OFFLOAD_GRADS: when a gradient has memory on the device, what is added to it, or to ranks' sums, after it has
// left, what travels, and what is refused. Bits of whole trainings: optimizer_offload.cpp, equal_bits.cpp.
#include "optimizers.hpp"
#include "sharded_model.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr uint32_t kAll = MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS;
constexpr int64_t kCounts[] = {40000, 5};

struct Model {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "bf16_mixed_dual"); // fp32 gradients
    Optimizer optimizer;
    std::vector<Tensor> params;

    explicit Model(uint32_t flags, mp_comm* comm = nullptr,
                   const mp_sharding_desc& sharding = MP_SHARDING_DESC_INIT) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        desc.max_grad_norm = 1.0;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
        for (const int64_t count : kCounts) {
            params.push_back(make_tensor(context, MP_DTYPE_BF16, {count},
                                         numbers(static_cast<std::size_t>(count), 3)));
            const std::string name = std::to_string(count);
            EXPECT_TRUE(succeeded(add_param(optimizer, 0, name.c_str(), params.back())));
        }
        EXPECT_TRUE(comm == nullptr || succeeded(mp_optimizer_shard(optimizer, nullptr)));
    }
    [[nodiscard]] bool has_memory(int32_t i) const {
        void* data = nullptr;
        return mp_tensor_get_data(state_of(optimizer, i, "grad"), &data) == MP_STATUS_OK;
    }
    void acquire(int32_t i) const { MP_OK(mp_optimizer_acquire_grad(optimizer, nullptr, i)); }
    void ready(int32_t i) const { MP_OK(mp_optimizer_grad_ready(optimizer, nullptr, i)); }
    void add(int32_t i, uint64_t seed) const {
        auto* const to = static_cast<float*>(data_of(state_of(optimizer, i, "grad")));
        const std::vector<float> values = numbers(static_cast<std::size_t>(kCounts[i]), seed);
        for (std::size_t k = 0; k < values.size(); ++k) {
            to[k] += values[k] / 3.0F; // rounds
        }
    }
    void step() const { MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr)); }
    [[nodiscard]] mp_offload_traffic traffic() const {
        mp_offload_traffic moved = MP_OFFLOAD_TRAFFIC_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_offload_traffic(optimizer, &moved)));
        return moved;
    }
    [[nodiscard]] mp_memory_report held() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }
};

void expect_equal(const Model& a, const Model& b) {
    for (int32_t i = 0; i < 2; ++i) {
        for (const char* name : {"param", "exp_avg", "exp_avg_sq", "master"}) {
            EXPECT_EQ(bytes_of(state_of(a.optimizer, i, name)),
                      bytes_of(state_of(b.optimizer, i, name)))
                << name << " of parameter " << i;
        }
    }
}

} // namespace

TEST(OffloadGradients, MicroBatchesAddUpAsOnTheDevice) {
    for (const uint32_t zeroes : {0U, MP_OPTIMIZER_ZERO_GRAD}) {
        const Model ordinary(zeroes);
        const Model offloaded(kAll | zeroes);
        for (uint64_t step = 1; step <= 3; ++step) {
            for (const Model* model : {&ordinary, &offloaded}) {
                for (uint64_t micro = 0; micro < 3; ++micro) {
                    for (const int32_t i : {1, 0}) {
                        model->acquire(i);
                        model->add(i, step * 10 + micro);
                        if (micro != 1 || i == 0) { // or it stays where it is
                            model->ready(i);
                        }
                    }
                }
                model->step();
            }
            expect_equal(ordinary, offloaded);
        }
    }
}

// Each contribution of a step is added to the sums that are on the host already: in fp32, and as codes under shared scales.
TEST(OffloadGradients, SumsOverRanksAddUpAsOnTheDevice) {
    for (const bool has_codes : {false, true}) {
        for (const int32_t stage : {1, 2, 3}) {
            run_sharded(3, [&](mp_comm* comm, int32_t rank) {
                mp_sharding_desc sharding = stage_desc(stage);
                sharding.wire_dtype = has_codes ? MP_DTYPE_FP8_E4M3 : MP_DTYPE_NONE;
                sharding.wire_scale = has_codes ? MP_COMM_SCALE_SHARED : MP_COMM_SCALE_DEFAULT;
                const Model ordinary(MP_OPTIMIZER_ZERO_GRAD, comm, sharding);
                const Model offloaded(kAll | MP_OPTIMIZER_ZERO_GRAD, comm, sharding);
                std::vector<mp_optimizer_stats> stats;
                for (const Model* model : {&ordinary, &offloaded}) {
                    for (uint64_t step = 1; step <= 2; ++step) {
                        for (uint64_t micro = 0; micro < 3; ++micro) {
                            for (const int32_t i : {1, 0}) {
                                model->acquire(i);
                                model->add(i,
                                           step * 100 + micro * 10 + static_cast<uint64_t>(rank));
                                model->ready(i);
                            }
                        }
                        model->step();
                        stats.push_back(stats_of(model->optimizer));
                    }
                    const int32_t all[] = {0, 1};
                    MP_OK(mp_optimizer_gather_begin(model->optimizer, nullptr, all, 2));
                    MP_OK(mp_optimizer_gather_wait(model->optimizer, nullptr, all, 2));
                }
                for (std::size_t step = 0; step < 2; ++step) {
                    EXPECT_EQ(stats[step].grad_norm, stats[step + 2].grad_norm);
                    EXPECT_GT(stats[step].grad_norm, 0.0F);
                }
                for (std::size_t i = 0; i < 2; ++i) {
                    EXPECT_EQ(bytes_of(ordinary.params[i]), bytes_of(offloaded.params[i]))
                        << "stage " << stage << ", codes " << has_codes;
                }
                EXPECT_GT(offloaded.traffic().to_host_bytes, 0);
                const int32_t all[] = {0, 1};
                for (const Model* model : {&ordinary, &offloaded}) {
                    MP_OK(mp_optimizer_gather_free(model->optimizer, nullptr, all, 2));
                }
            });
        }
    }
}

TEST(OffloadGradients, HaveMemoryOnTheDeviceBetweenAcquireAndReady) {
    const Model model(kAll);
    EXPECT_FALSE(model.has_memory(0));
    model.acquire(0);
    EXPECT_TRUE(model.has_memory(0));
    const mp_memory_report acquired = model.held();
    model.add(0, 1);
    model.ready(0);
    EXPECT_FALSE(model.has_memory(0));
    const mp_memory_report left = model.held();
    EXPECT_EQ(acquired.grad_bytes - left.grad_bytes, kCounts[0] * 4);
    EXPECT_EQ(acquired.host_bytes, left.host_bytes);
    model.ready(0); // there is nothing to send
    model.acquire(1);
    model.step(); // takes it
    EXPECT_FALSE(model.has_memory(1));
    EXPECT_EQ(model.held().grad_bytes, kCounts[0] * 4 + 64); // lines of 64 bytes, on the host
}

TEST(OffloadGradients, TravelOnce) {
    const Model model(kAll | MP_OPTIMIZER_ZERO_GRAD);
    for (int64_t step = 1; step <= 2; ++step) {
        for (const int32_t i : {0, 1}) {
            model.acquire(i); // of zeros: nothing comes back
            model.ready(i);
        }
        EXPECT_EQ(model.traffic().to_host_bytes, step * (kCounts[0] + kCounts[1]) * 4);
        model.step();
        EXPECT_EQ(model.traffic().to_host_bytes, step * (kCounts[0] + kCounts[1]) * 4);
        EXPECT_EQ(model.traffic().to_device_bytes, step * (kCounts[0] + kCounts[1]) * 2);
    }
}

// Zeros by call, by mark, and by the step; of a gradient that nobody acquires before the next one.
TEST(OffloadGradients, ThatAreZeroAreSo) {
    const Model ordinary(0);
    const Model offloaded(kAll);
    for (const Model* model : {&ordinary, &offloaded}) {
        for (const int32_t i : {0, 1}) {
            model->acquire(i);
            model->add(i, 5);
            model->ready(i);
        }
        model->step();
        model->step(); // the same ones again
        MP_OK(mp_optimizer_zero_grad(model->optimizer, nullptr));
        model->step();
        model->acquire(0);
        model->add(0, 6);
        model->ready(0);
        const int32_t first = 0;
        MP_OK(mp_optimizer_mark_unused(model->optimizer, nullptr, &first, 1));
        model->step();
        model->step();
    }
    expect_equal(ordinary, offloaded);
}

TEST(OffloadGradients, StayWhenTheListChanges) {
    const Model ordinary(0);
    const Model offloaded(kAll);
    for (const Model* model : {&ordinary, &offloaded}) {
        model->acquire(0);
        model->add(0, 5);
        model->ready(0);
        const Tensor late = make_tensor(model->context, MP_DTYPE_BF16, {300}, numbers(300, 3));
        MP_OK(add_param(model->optimizer, 0, "late", late));
        MP_OK(mp_optimizer_set_group_step(model->optimizer, nullptr, 0, 7)); // makes tables
        model->acquire(0);
        model->add(0, 6);
        model->step();
    }
    expect_equal(ordinary, offloaded);
}

TEST(OffloadGradients, WhatIsRefused) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    mp_optimizer* made = nullptr;
    desc.flags = MP_OPTIMIZER_OFFLOAD_GRADS;
    MP_FAILS(mp_optimizer_create(context, recipe, &desc, &made), MP_STATUS_INVALID_ARGUMENT,
             "MP_OPTIMIZER_OFFLOAD with it");
    const Model model(kAll);
    const Tensor param = make_tensor(model.context, MP_DTYPE_BF16, {10});
    const Tensor grad = make_tensor(model.context, MP_DTYPE_FP32, {10});
    MP_FAILS(add_param(model.optimizer, 0, "given", param, grad), MP_STATUS_INVALID_ARGUMENT,
             "leave it NULL");
    mp_optimizer_desc told = MP_OPTIMIZER_DESC_INIT;
    MP_OK(mp_optimizer_get_desc(model.optimizer, &told));
    EXPECT_EQ(told.flags, kAll);
    run_sharded(2, [&](mp_comm* comm, int32_t /*rank*/) {
        const Context own = make_context(1);
        const Recipe own_recipe = make_recipe(own, "fp32");
        mp_optimizer_desc own_desc = MP_OPTIMIZER_DESC_INIT;
        own_desc.flags = kAll;
        const mp_sharding_desc sharding = stage_desc(0);
        mp_optimizer* none = nullptr;
        MP_FAILS(mp_optimizer_create_sharded(own, own_recipe, &own_desc, comm, &sharding, &none),
                 MP_STATUS_INVALID_ARGUMENT, "not for stage 0");
    });
}
