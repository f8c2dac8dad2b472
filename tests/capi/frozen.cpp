// SPDX-License-Identifier: Apache-2.0
// Parameters that are not trained: what they do not have, what a step does not do to them, and what ranks do not send of them.
// That their bits and those of the others are the same in every stage, placement and checkpoint: equal_bits.cpp.
#include <cmath>

#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kBase = 40000; // three chunks
constexpr int64_t kTrained = 5000;

mp_sharding_desc sharding_of(int32_t stage) {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
    return sharding;
}

// A frozen base in fp16, though the recipe's weights are bf16, and a vector that is trained.
struct Model {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "bf16_pure");
    Tensor base = make_tensor(context, MP_DTYPE_FP16, {200, 200}, numbers(kBase, 1));
    Tensor trained = make_tensor(context, MP_DTYPE_BF16, {kTrained}, numbers(kTrained, 2));
    Optimizer optimizer;

    explicit Model(mp_comm* comm = nullptr, int32_t stage = 0) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        const mp_sharding_desc sharding = sharding_of(stage);
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        add_group(optimizer, 1e-3, 0.5);
        add("base", base, MP_PARAM_FROZEN);
        add("trained", trained, 0);
    }
    void add(const char* name, mp_tensor* param, uint32_t flags) {
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = name;
        desc.param = param;
        desc.flags = flags;
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &desc, nullptr)));
    }
    void step() const {
        EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer, nullptr, 1)));
        const Tensor grad = state_of(optimizer, 1, "grad");
        const Tensor source = make_tensor(context, MP_DTYPE_BF16, {kTrained}, numbers(kTrained, 3));
        EXPECT_TRUE(succeeded(mp_tensor_copy(source, nullptr, grad)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    [[nodiscard]] mp_memory_report memory() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }
};

mp_planned_tensor planned(int64_t count, int32_t dtype, uint32_t flags, int32_t ndim) {
    mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
    tensor.count = count;
    tensor.weight_dtype = dtype;
    tensor.flags = flags;
    tensor.ndim = ndim;
    return tensor;
}

} // namespace

TEST(Frozen, HasNoStatesAndDoesNotMove) {
    const Model model;
    const auto before = bytes_of(model.base);
    const auto trained = bytes_of(model.trained);
    model.step();
    EXPECT_EQ(bytes_of(model.base), before);
    EXPECT_NE(bytes_of(model.trained), trained);
    mp_tensor* out = nullptr;
    for (const char* state : {"grad", "exp_avg", "exp_avg_sq"}) {
        MP_FAILS(mp_optimizer_get_state(model.optimizer, 0, state, &out), MP_STATUS_UNKNOWN_NAME,
                 state, "param");
    }
    MP_FAILS(mp_optimizer_read_state(model.optimizer, nullptr, 0, "fp32_param", model.base),
             MP_STATUS_BAD_STATE, "'base' is frozen");
    MP_FAILS(mp_optimizer_acquire_grad(model.optimizer, nullptr, 0), MP_STATUS_BAD_STATE,
             "'base' is frozen");
    MP_OK(mp_optimizer_zero_grad(model.optimizer, nullptr));
    MP_OK(mp_optimizer_sync_master(model.optimizer, nullptr, -1));
    const mp_memory_report memory = model.memory();
    EXPECT_EQ(memory.weight_bytes, kBase * 2 + kTrained * 2);
    EXPECT_EQ(memory.grad_bytes, kTrained * 2);
}

// The norm is that of the gradients there are.
TEST(Frozen, HasNoPartInTheNorm) {
    const Model model;
    model.step();
    double squares = 0.0;
    for (const float x : values_of(model.context, state_of(model.optimizer, 1, "grad"))) {
        squares += static_cast<double>(x) * static_cast<double>(x);
    }
    EXPECT_NEAR(stats_of(model.optimizer).grad_norm, std::sqrt(squares), 1e-6);
}

// Nothing travels but what is trained; and what is planned is what is held and sent.
TEST(Frozen, RanksSendAndHoldWhatIsPlanned) {
    constexpr int32_t kRanks = 2;
    for (const int32_t stage : {0, 1, 2, 3}) {
        SCOPED_TRACE("stage " + std::to_string(stage));
        run_ranks(kRanks, [&](mp_comm* comm, int32_t rank) {
            const Model model(comm, stage);
            MP_OK(mp_optimizer_shard(model.optimizer, nullptr));
            MP_FAILS(mp_optimizer_grad_ready(model.optimizer, nullptr, 0), MP_STATUS_BAD_STATE,
                     "'base' is frozen");
            model.step();
            const mp_planned_tensor tensors[] = {planned(kBase, MP_DTYPE_FP16, MP_PARAM_FROZEN, 2),
                                                 planned(kTrained, MP_DTYPE_NONE, 0, 1)};
            const mp_sharding_desc sharding = sharding_of(stage);
            mp_memory_report plan = MP_MEMORY_REPORT_INIT;
            mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
            MP_OK(mp_recipe_plan_tensors(model.recipe, nullptr, tensors, 2, &sharding, rank, kRanks,
                                         &plan, &traffic));
            const mp_memory_report held = model.memory();
            EXPECT_EQ(held.weight_bytes, plan.weight_bytes);
            EXPECT_EQ(held.grad_bytes, plan.grad_bytes);
            EXPECT_EQ(held.total_bytes, plan.total_bytes);
            const int32_t both[] = {0, 1};
            MP_OK(mp_optimizer_gather_begin(model.optimizer, nullptr, both, 2));
            MP_OK(mp_optimizer_gather_wait(model.optimizer, nullptr, both, 2));
            EXPECT_EQ(values_of(model.context, model.base),
                      values_of(model.context, make_tensor(model.context, MP_DTYPE_FP16, {200, 200},
                                                           numbers(kBase, 1))));
        });
    }
}
