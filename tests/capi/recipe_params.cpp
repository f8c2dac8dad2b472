// SPDX-License-Identifier: Apache-2.0
// Rules of the key "layers" for parameters: what those are kept and gathered in, alone and on ranks, in plans and checkpoints.
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 150;
constexpr int64_t kColumns = 200; // two chunks
constexpr int64_t kCount = kRows * kColumns;
constexpr const char* kNames[] = {"embedding", "h0.attn.weight", "h0.mlp.weight"};

// Three matrices with the same values and gradients, so that what differs between them are their formats.
struct Model {
    Context context = make_context(1);
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;

    Model(const char* preset, const char* rules, mp_comm* comm = nullptr,
          const char* exp_avg_of_group = nullptr)
        : recipe(make_recipe(context, preset)) {
        EXPECT_TRUE(succeeded(mp_recipe_set_string(recipe, MP_RECIPE_LAYERS, rules)));
        optimizer = make_optimizer_on(comm, context, recipe);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        group.beta2 = 0.95;
        group.state_formats[0] = exp_avg_of_group;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, nullptr)));
        for (const char* name : kNames) {
            params.push_back(
                make_tensor(context, weight_dtype(recipe), {kRows, kColumns}, numbers(kCount, 1)));
            EXPECT_TRUE(succeeded(add_param(optimizer, 0, name, params.back())));
        }
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr)));
        }
    }
    void step() const {
        for (int32_t p = 0; p < 3; ++p) {
            const Tensor grad = state_of(optimizer, p, "grad");
            mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
            EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
            const Tensor source = make_tensor(context, desc.dtype, {kCount}, numbers(kCount, 2));
            EXPECT_TRUE(succeeded(mp_tensor_copy(source, nullptr, grad)));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    [[nodiscard]] int32_t dtype(int32_t index, const char* state) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(state_of(optimizer, index, state), &desc)));
        return desc.dtype;
    }
    [[nodiscard]] mp_memory_report memory() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }
    [[nodiscard]] mp_memory_report plan(int32_t rank, int32_t ranks) const {
        std::vector<mp_planned_tensor> tensors(3, MP_PLANNED_TENSOR_INIT);
        for (std::size_t p = 0; p < 3; ++p) {
            tensors[p].count = kCount;
            tensors[p].name = kNames[p];
        }
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(recipe, nullptr, tensors.data(), 3, nullptr,
                                                     rank, ranks, &report, nullptr)));
        return report;
    }
};

constexpr const char* kRules = "emb*: optimizer.exp_avg.dtype=fp32; *.attn.*: "
                               "optimizer.exp_avg.dtype=int8_block256, gemm.scaling=none";

} // namespace

// Those whose names fit have what the rules say, the others what the recipe says; and each steps as in a group with that format.
TEST(RecipeParams, AreKeptAsTheRulesSay) {
    const Model model("bf16_pure", kRules);
    EXPECT_EQ(model.dtype(0, "exp_avg"), MP_DTYPE_FP32);
    EXPECT_EQ(model.dtype(1, "exp_avg"), MP_DTYPE_UINT8);
    EXPECT_EQ(model.dtype(2, "exp_avg"), MP_DTYPE_BF16);
    EXPECT_EQ(model.dtype(0, "exp_avg_sq"), MP_DTYPE_BF16);
    EXPECT_EQ(model.memory().total_bytes, model.plan(0, 1).total_bytes);
    const char* const formats[] = {"fp32", "int8_block256", nullptr};
    for (int i = 0; i < 3; ++i) {
        model.step();
    }
    for (int32_t p = 0; p < 3; ++p) {
        const Model alike("bf16_pure", "", nullptr, formats[p]);
        for (int i = 0; i < 3; ++i) {
            alike.step();
        }
        for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
            EXPECT_EQ(bytes_of(state_of(model.optimizer, p, state)),
                      bytes_of(state_of(alike.optimizer, p, state)))
                << kNames[p] << " " << state;
        }
    }
}

// What a program says of a group goes over the recipe's rules.
TEST(RecipeParams, AGroupsFormatsGoOverThem) {
    const Model model("bf16_pure", kRules, nullptr, "fp8_e4m3_block128");
    for (int32_t p = 0; p < 3; ++p) {
        EXPECT_EQ(model.dtype(p, "exp_avg"), MP_DTYPE_FP8_E4M3) << p;
        EXPECT_EQ(model.dtype(p, "exp_avg_sq"), MP_DTYPE_BF16) << p;
    }
}

TEST(RecipeParams, OfOneNameByItself) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp8_delayed");
    MP_OK(mp_recipe_set_string(
        recipe, MP_RECIPE_LAYERS,
        "a*: gemm.scaling=none, weight.gather.dtype=fp32; ab: optimizer.exp_avg.dtype=bf16"));
    const auto of = [&](const char* name, const char* key) {
        mp_recipe* raw = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_clone_for_param(recipe, name, &raw)));
        const Recipe own(raw);
        const char* value = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_string(own, key, &value)));
        return std::string(value);
    };
    EXPECT_EQ(of("ab", MP_RECIPE_EXP_AVG_DTYPE), "bf16");
    EXPECT_EQ(of("a", MP_RECIPE_EXP_AVG_DTYPE), "fp32");
    EXPECT_EQ(of("ab", MP_RECIPE_WEIGHT_GATHER_DTYPE), "fp32");
    EXPECT_EQ(of("b", MP_RECIPE_WEIGHT_GATHER_DTYPE), "bf16");
    EXPECT_EQ(of("ab", MP_RECIPE_GEMM_SCALING), "delayed"); // that is a layer's
    EXPECT_EQ(of("ab", MP_RECIPE_LAYERS), "");
    mp_recipe* raw = nullptr;
    MP_FAILS(mp_recipe_clone_for_param(recipe, "", &raw), MP_STATUS_INVALID_ARGUMENT, "name");
    MP_FAILS(mp_recipe_clone_for_layer(recipe, "", &raw), MP_STATUS_INVALID_ARGUMENT, "name");
}

// Rules that a parameter cannot have are refused where it comes.
TEST(RecipeParams, CombinationsAreJudgedByParameter) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "bf16_pure_sr");
    MP_OK(mp_recipe_set_string(recipe, MP_RECIPE_LAYERS, "w?, x: master.dtype=fp32"));
    const Optimizer optimizer = make_optimizer(context, recipe);
    add_group(optimizer);
    const Tensor w = make_tensor(context, MP_DTYPE_BF16, {4});
    MP_FAILS(add_param(optimizer, 0, "w1", w), MP_STATUS_INVALID_ARGUMENT, "parameter 'w1'", "'w?'",
             "stochastic");
    MP_OK(add_param(optimizer, 0, "w", w));
}

// On ranks: what is planned is held, and a weight is gathered in its own type.
TEST(RecipeParams, AreGatheredAsTheRulesSay) {
    run_ranks(2, [](mp_comm* comm, int32_t rank) {
        const Model model("bf16_mixed", "embedding: weight.gather.dtype=fp32", comm);
        EXPECT_EQ(model.memory().total_bytes, model.plan(rank, 2).total_bytes);
        model.step();
        for (int32_t p = 0; p < 3; ++p) {
            int64_t start = 0, count = 0;
            MP_OK(mp_optimizer_get_slice(model.optimizer, p, rank, &start, &count));
            if (count == 0) {
                continue;
            }
            const Tensor exact = make_tensor(model.context, MP_DTYPE_FP32, {count});
            MP_OK(mp_optimizer_read_state(model.optimizer, nullptr, p, "fp32_param", exact));
            const std::vector<float> whole =
                values_of(model.context, model.params[static_cast<std::size_t>(p)]);
            const std::vector<float> here(whole.begin() + start, whole.begin() + start + count);
            EXPECT_EQ(here == values_of(model.context, exact), p == 0) << kNames[p];
        }
    });
}

// A checkpoint comes back under the same rules, and by conversion under others.
TEST(RecipeParams, ChangeInCheckpoints) {
    const Folder folder("recipe_params");
    const Model saved("bf16_pure", kRules);
    saved.step();
    MP_OK(mp_checkpoint_save(checkpoint_of(saved.context, saved.optimizer), folder.c_str(), 1, 0));
    const Model same("bf16_pure", kRules);
    MP_OK(mp_checkpoint_load(checkpoint_of(same.context, same.optimizer), folder.c_str(), 0,
                             nullptr));
    const Model other("bf16_pure", "h0*: optimizer.exp_avg.dtype=fp32");
    const Checkpoint into = checkpoint_of(other.context, other.optimizer);
    EXPECT_NE(mp_checkpoint_load(into, folder.c_str(), 0, nullptr), MP_STATUS_OK);
    MP_OK(mp_checkpoint_load(into, folder.c_str(), MP_LOAD_CONVERT, nullptr));
    for (int32_t p = 0; p < 3; ++p) {
        EXPECT_EQ(bytes_of(state_of(same.optimizer, p, "exp_avg")),
                  bytes_of(state_of(saved.optimizer, p, "exp_avg")));
        const auto moments = [&](const Model& model) {
            const Tensor values = make_tensor(model.context, MP_DTYPE_FP32, {kCount});
            EXPECT_TRUE(
                succeeded(mp_optimizer_read_state(model.optimizer, nullptr, p, "exp_avg", values)));
            return values_of(model.context, values);
        };
        if (p != 0) { // into fp32 nothing is lost
            EXPECT_EQ(moments(other), moments(saved)) << kNames[p];
        }
    }
}
