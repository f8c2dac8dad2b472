// SPDX-License-Identifier: Apache-2.0
// Tensors of several kinds as plans know them, and live optimizers of the same.
#pragma once

#include <deque>

#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace mp_test {

struct Kind {
    int64_t rows, columns; // columns 0: a vector
    int32_t dtype;         // as in mp_planned_tensor
    int32_t group;
    bool lends_grad = false; // fp32, wrapped as it is
};
// Larger than a bucket, small, empty; kept in fp32; of a group with formats and a rule of its own.
inline const std::vector<Kind> kPlain = {
    {300, 256, MP_DTYPE_NONE, 0}, {256, 0, MP_DTYPE_FP32, 0}, {0, 0, MP_DTYPE_NONE, 0},
    {64, 128, MP_DTYPE_NONE, 1},  {7, 0, MP_DTYPE_FP32, 2},   {129, 64, MP_DTYPE_NONE, 2},
};

inline std::vector<mp_planned_tensor> planned(const std::vector<Kind>& kinds) {
    std::vector<mp_planned_tensor> tensors;
    for (const Kind& kind : kinds) {
        mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
        const bool is_as_by_default = (kind.columns == 0) == (kind.dtype == MP_DTYPE_FP32);
        tensor.ndim = is_as_by_default ? 0 : kind.columns == 0 ? 1 : 2;
        tensor.count = kind.rows * (kind.columns == 0 ? 1 : kind.columns);
        tensor.weight_dtype = kind.dtype;
        tensor.rule = kind.group == 2 ? MP_RULE_LION : MP_RULE_ADAMW;
        tensor.state_formats[0] = kind.group == 1 ? "fp32" : nullptr;
        tensor.state_formats[1] = kind.group == 1 ? "fp32" : nullptr;
        tensor.flags = kind.lends_grad ? MP_PLANNED_GRAD_LENT : 0;
        tensors.push_back(tensor);
    }
    return tensors;
}

inline Tensor weight_of(mp_context* context, mp_recipe* recipe, const Kind& kind) {
    const std::vector<int64_t> shape = kind.columns == 0
                                           ? std::vector<int64_t>{kind.rows}
                                           : std::vector<int64_t>{kind.rows, kind.columns};
    const auto count = static_cast<std::size_t>(kind.rows * (kind.columns == 0 ? 1 : kind.columns));
    const std::vector<float> values = numbers(count, 7);
    if (kind.dtype == MP_DTYPE_FP32) {
        return make_tensor(context, MP_DTYPE_FP32, shape, values);
    }
    mp_tensor* made = nullptr;
    EXPECT_TRUE(succeeded(
        kind.dtype == MP_DTYPE_NONE
            ? mp_recipe_create_weight(context, recipe, static_cast<int32_t>(shape.size()),
                                      shape.data(), values.data(), &made)
            : mp_recipe_create_weight_codes(context, recipe, static_cast<int32_t>(shape.size()),
                                            shape.data(), values.data(), &made)));
    return Tensor(made);
}

struct Live {
    Context context = make_context(1);
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> weights;
    std::deque<std::vector<float>> lent;
    std::vector<mp_planned_tensor> plans;

    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;

    Live(const char* name, const std::vector<Kind>& kinds, mp_comm* comm,
         const mp_sharding_desc& sharding, uint32_t flags = 0)
        : recipe(make_recipe(context, name)), plans(planned(kinds)) {
        desc.flags = flags;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        for (int32_t group = 0; group < 3; ++group) {
            mp_param_group_desc of_group = MP_PARAM_GROUP_DESC_INIT;
            of_group.rule = group == 2 ? MP_RULE_LION : MP_RULE_ADAMW;
            of_group.state_formats[0] = group == 1 ? "fp32" : nullptr;
            of_group.state_formats[1] = group == 1 ? "fp32" : nullptr;
            EXPECT_TRUE(done(mp_optimizer_add_group(optimizer, &of_group, nullptr)));
        }
        for (std::size_t i = 0; i < kinds.size(); ++i) {
            weights.push_back(weight_of(context, recipe, kinds[i]));
            const std::string param_name = 'p' + std::to_string(i);
            const Tensor grad = kinds[i].lends_grad ? grad_over(kinds[i]) : Tensor();
            EXPECT_TRUE(succeeded(
                add_param(optimizer, kinds[i].group, param_name.c_str(), weights.back(), grad)));
        }
    }
    // A matrix in memory of the program's.
    Tensor grad_over(const Kind& kind) {
        lent.emplace_back(static_cast<std::size_t>(kind.rows * kind.columns));
        const mp_tensor_desc of = tensor_desc(MP_DTYPE_FP32, {kind.rows, kind.columns});
        mp_tensor* grad = nullptr;
        EXPECT_TRUE(
            succeeded(mp_tensor_wrap(context, &of, lent.back().data(), nullptr, nullptr, &grad)));
        return Tensor(grad);
    }
    [[nodiscard]] mp_memory_report held() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }
    mp_status plan(const mp_sharding_desc* sharding, int32_t rank, int32_t ranks,
                   mp_memory_report* memory, mp_comm_traffic* traffic) const {
        return mp_recipe_plan_tensors(recipe, &desc, plans.data(),
                                      static_cast<int64_t>(plans.size()), sharding, rank, ranks,
                                      memory, traffic);
    }
};

inline void expect_equal(const mp_memory_report& planned, const mp_memory_report& held,
                         const std::string& where) {
    EXPECT_EQ(planned.parameter_count, held.parameter_count) << where;
    EXPECT_EQ(planned.weight_bytes, held.weight_bytes) << where;
    EXPECT_EQ(planned.master_bytes, held.master_bytes) << where;
    EXPECT_EQ(planned.grad_bytes, held.grad_bytes) << where;
    EXPECT_EQ(planned.state_bytes[MP_STATE_EXP_AVG], held.state_bytes[MP_STATE_EXP_AVG]) << where;
    EXPECT_EQ(planned.state_bytes[MP_STATE_EXP_AVG_SQ], held.state_bytes[MP_STATE_EXP_AVG_SQ])
        << where;
    EXPECT_EQ(planned.compensation_bytes, held.compensation_bytes) << where;
    EXPECT_EQ(planned.reduced_grad_bytes, held.reduced_grad_bytes) << where;
    EXPECT_EQ(planned.offload_bytes, held.offload_bytes) << where;
    EXPECT_EQ(planned.host_bytes, held.host_bytes) << where;
    EXPECT_EQ(planned.total_bytes, held.total_bytes) << where;
}

struct Case {
    const char* recipe;
    std::vector<Kind> kinds;
    int32_t kind;
};
inline std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const char* name : {"fp32", "bf16_mixed", "bf16_mixed_dual", "bf16_pure_kahan",
                             "bf16_pure_remainder", "fp16_mixed"}) {
        cases.push_back({name, kPlain, MP_SHARD_FLAT});
        cases.push_back({name, kPlain, MP_SHARD_PER_PARAMETER});
    }
    for (const char* name : {"msamp_o1", "msamp_o2", "msamp_o3"}) {
        std::vector<Kind> kinds = kPlain;
        for (Kind& kind : kinds) {
            kind.group = 0; // formats with a scale belong to AdamW's
        }
        cases.push_back({name, kinds, MP_SHARD_GREEDY});
    }
    // Vectors in the recipe's type, and a matrix kept in fp32, which here are the same type.
    std::vector<Kind> mixed = kPlain;
    mixed.push_back({20000, 0, MP_DTYPE_NONE, 0});
    mixed.push_back({50, 40, MP_DTYPE_FP32, 1});
    for (const char* name : {"fp32", "bf16_mixed", "fp8_delayed"}) {
        cases.push_back({name, mixed, MP_SHARD_FLAT});
    }
    std::vector<Kind> codes = kPlain;
    codes[0].dtype = MP_DTYPE_FP8_E4M3;
    cases.push_back({"bf16_with_fp8_mixed", codes, MP_SHARD_FLAT});
    return cases;
}

// Gradients that say they are ready, and a step, on every rank.
inline void train_step(const Live& live, int32_t stage) {
    const auto count = static_cast<int32_t>(live.weights.size());
    std::vector<int32_t> all(static_cast<std::size_t>(count));
    for (int32_t i = 0; i < count; ++i) {
        all[static_cast<std::size_t>(i)] = i;
    }
    for (int pass = 0; pass < (stage == 3 ? 2 : 0); ++pass) { // forward, backward
        MP_OK(mp_optimizer_gather_begin(live.optimizer, nullptr, all.data(), count));
        MP_OK(mp_optimizer_gather_wait(live.optimizer, nullptr, all.data(), count));
        MP_OK(mp_optimizer_gather_free(live.optimizer, nullptr, all.data(), count));
    }
    for (int32_t i = count; i-- > 0;) {
        MP_OK(mp_optimizer_acquire_grad(live.optimizer, nullptr, i));
        MP_OK(mp_optimizer_grad_ready(live.optimizer, nullptr, i));
    }
    MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
}

} // namespace mp_test
