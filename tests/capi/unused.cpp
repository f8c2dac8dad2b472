// SPDX-License-Identifier: Apache-2.0
// Parameters without a gradient in a step: it passes over them, as PyTorch's does where a gradient is None, and as if each had a
// group of its own that is off. That ranks and places have the same bits: equal_bits.cpp.
#include <array>
#include <cmath>
#include <sstream>

#include "fixture_arrays.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr std::array<int64_t, 3> kCounts = {7, 24, 130};
constexpr int32_t kParams = 3;

struct Kind {
    const char* recipe;
    uint32_t flags;
    const char* backend;
};

constexpr Kind kKinds[] = {{"fp32", 0, "host"},
                           {"fp32", 0, "reference"},
#if MP_HAS_KOKKOS
                           {"bf16_mixed", 0, "kokkos"},
#endif
                           {"fp32", MP_OPTIMIZER_OFFLOAD, nullptr},
                           {"bf16_pure_sr", 0, nullptr},
                           {"bf16_pure_kahan", MP_OPTIMIZER_OFFLOAD, nullptr},
                           {"bf16_pure_remainder", MP_OPTIMIZER_ZERO_GRAD, nullptr}};

bool is_unused(uint64_t step, int32_t p) {
    return (p == 2 && step < 4) || (step * 5 + static_cast<uint64_t>(p) * 3) % 7 < 3;
}

// Three parameters in one group, or each in one of its own.
struct Model {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;
    bool in_groups = false;

    explicit Model(const Kind& kind, bool are_apart = false, mp_comm* comm = nullptr,
                   int32_t stage = MP_SHARDING_STAGE_0)
        : context(make_context(2, kind.backend)), recipe(make_recipe(context, kind.recipe)),
          in_groups(are_apart) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = kind.flags;
        desc.max_grad_norm = 1.0;
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        for (int32_t p = 0; p < kParams; ++p) {
            if (p == 0 || are_apart) {
                add_group(optimizer, 0x1p-7, 0x1p-3);
            }
            add(p, numbers(static_cast<std::size_t>(kCounts[static_cast<std::size_t>(p)]), 1));
        }
    }
    void add(int32_t p, const std::vector<float>& values) {
        const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, shape, values);
        mp_tensor* raw = nullptr;
        EXPECT_TRUE(succeeded(
            mp_recipe_create_weight(context, recipe, 1, shape.data(), values.data(), &raw)));
        params.emplace_back(raw);
        MP_OK(add_param(optimizer, in_groups ? p : 0, ("p" + std::to_string(p)).c_str(), raw,
                        nullptr, exact));
    }
    // Those of unused parameters are not numbers, which nobody sees.
    void set_grads(uint64_t step) {
        for (int32_t p = 0; p < static_cast<int32_t>(params.size()); ++p) {
            EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer, nullptr, p)));
            const Tensor grad = state_of(optimizer, p, "grad");
            std::vector<float> values = numbers(values_of(context, grad).size(), 100 * step);
            values[0] = is_unused(step, p) ? NAN : values[0];
            const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, shape, values);
            EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, grad, nullptr)));
        }
    }
    void step(uint64_t step) {
        set_grads(step);
        for (int32_t p = 0; p < static_cast<int32_t>(params.size()); ++p) {
            if (in_groups) {
                EXPECT_TRUE(
                    succeeded(mp_optimizer_set_enabled(optimizer, p, is_unused(step, p) ? 0 : 1)));
            } else if (is_unused(step, p)) {
                EXPECT_TRUE(succeeded(mp_optimizer_mark_unused(optimizer, nullptr, &p, 1)));
            }
        }
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    // Weights, states and the norm.
    std::vector<unsigned char> bytes() {
        std::vector<unsigned char> all;
        const auto append = [&](const std::vector<unsigned char>& more) {
            all.insert(all.end(), more.begin(), more.end());
        };
        for (int32_t p = 0; p < static_cast<int32_t>(params.size()); ++p) {
            for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
                append(bytes_of(state_of(optimizer, p, state)));
            }
        }
        const mp_optimizer_stats stats = stats_of(optimizer);
        const auto* raw = reinterpret_cast<const unsigned char*>(&stats);
        append({raw, raw + sizeof stats});
        return all;
    }
    int64_t t(int32_t group) {
        int64_t step = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group_step(optimizer, nullptr, group, &step)));
        return step;
    }
};

std::vector<float> part_of(const Array& array, int32_t p) {
    std::vector<float> part;
    int64_t first = 0;
    for (int32_t before = 0; before < p; ++before) {
        first += kCounts[static_cast<std::size_t>(before)];
    }
    for (int64_t i = 0; i < kCounts[static_cast<std::size_t>(p)]; ++i) {
        part.push_back(static_cast<float>(array.at(0, first + i)));
    }
    return part;
}

} // namespace

// torch.optim.AdamW and clip_grad_norm_ in fp64, with gradients that are None.
TEST(Unused, TakeTorchsSteps) {
    const FixtureFile file("unused");
    std::istringstream hyper(file.fact("hyper"));
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    hyper >> group.lr >> group.beta1 >> group.beta2 >> group.eps >> group.weight_decay >>
        desc.max_grad_norm;
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe, desc);
    MP_OK(mp_optimizer_add_group(optimizer, &group, nullptr));
    std::vector<Tensor> params;
    for (int32_t p = 0; p < kParams; ++p) {
        params.push_back(make_tensor(context, MP_DTYPE_FP32, {kCounts[static_cast<std::size_t>(p)]},
                                     part_of(array_in(file, "start"), p)));
        MP_OK(add_param(optimizer, 0, ("p" + std::to_string(p)).c_str(), params.back()));
    }
    for (const auto& [step, words] : file.facts("unused")) {
        for (int32_t p = 0; p < kParams; ++p) {
            const Tensor grad =
                make_tensor(context, MP_DTYPE_FP32, {kCounts[static_cast<std::size_t>(p)]},
                            part_of(array_in(file, step + "/grad"), p));
            MP_OK(mp_tensor_copy(grad, nullptr, state_of(optimizer, p, "grad")));
        }
        std::istringstream unused(words);
        for (int32_t p = 0; unused >> p;) {
            MP_OK(mp_optimizer_mark_unused(optimizer, nullptr, &p, 1));
        }
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        for (int32_t p = 0; p < kParams && file.has(step + "/0/param"); ++p) {
            for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
                const std::string name = step + "/" + std::to_string(p) + "/" + state;
                const std::vector<float> ours = values_of(context, state_of(optimizer, p, state));
                for (std::size_t i = 0; i < ours.size(); ++i) {
                    const double theirs =
                        file.has(name) ? array_in(file, name).at(0, static_cast<int64_t>(i)) : 0.0;
                    EXPECT_NEAR(ours[i], theirs, 4e-7 * std::max(std::abs(theirs), 0.1)) << name;
                }
            }
        }
    }
}

// Steps, norms and counts are those of groups that are off, also through a checkpoint in the middle, and for one that comes late.
TEST(Unused, HaveTheBitsOfAGroupThatIsOff) {
    for (const Kind& kind : kKinds) {
        SCOPED_TRACE(std::string(kind.recipe) + (kind.backend != nullptr ? kind.backend : ""));
        Model marked(kind), off(kind, true);
        std::array<int64_t, kParams> taken{};
        const Folder folder("unused");
        for (uint64_t step = 1; step < 12; ++step) {
            SCOPED_TRACE(step);
            marked.step(step);
            off.step(step);
            ASSERT_EQ(marked.bytes(), off.bytes());
            for (int32_t p = 0; p < kParams; ++p) {
                taken[static_cast<std::size_t>(p)] += is_unused(step, p) ? 0 : 1;
                EXPECT_EQ(off.t(p), taken[static_cast<std::size_t>(p)]);
            }
            EXPECT_EQ(marked.t(0), *std::max_element(taken.begin(), taken.end()));
            if (step == 6) {
                MP_OK(mp_checkpoint_save(checkpoint_of(marked.context, marked.optimizer),
                                         folder.c_str(), 6, 0));
            }
        }
        Model loaded(kind);
        loaded.step(1); // its rows are others
        MP_OK(mp_checkpoint_load(checkpoint_of(loaded.context, loaded.optimizer), folder.c_str(), 0,
                                 nullptr));
        for (uint64_t step = 7; step < 12; ++step) {
            loaded.step(step);
        }
        EXPECT_EQ(loaded.bytes(), marked.bytes());
        marked.add(kParams, numbers(50, 9));
        off.in_groups = false; // the new one is in the first group there, too
        off.add(kParams, numbers(50, 9));
        for (Model* model : {&marked, &off}) {
            MP_OK(mp_optimizer_set_enabled(model->optimizer, -1, 1));
            MP_OK(mp_optimizer_zero_grad(model->optimizer, nullptr));
            MP_OK(mp_optimizer_step(model->optimizer, nullptr, nullptr));
        }
        EXPECT_EQ(marked.bytes(), off.bytes());
    }
}

// Gradients are zeroed, a step that is skipped is the step they are marked for, and one that fails is not.
TEST(Unused, AreMarkedForOneStep) {
    Model run(kKinds[0]);
    constexpr int32_t kFirst = 0;
    MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, nullptr, 0));
    run.set_grads(7);
    MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &kFirst, 1));
    EXPECT_EQ(values_of(run.context, state_of(run.optimizer, 0, "grad")), std::vector<float>(7));
    const std::vector<unsigned char> before = bytes_of(run.params[0]);
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_EQ(bytes_of(run.params[0]), before);
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr)); // of zeros, which decay
    EXPECT_NE(bytes_of(run.params[0]), before);
    EXPECT_EQ(run.t(0), 2);

    const std::vector<unsigned char> weights = bytes_of(run.params[0]);
    run.set_grads(4); // the second one has no number
    MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &kFirst, 1));
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_EQ(stats_of(run.optimizer).skipped_steps, 1);
    run.set_grads(7);
    MP_OK(mp_optimizer_zero_grad(run.optimizer, nullptr));
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_NE(bytes_of(run.params[0]), weights);
    EXPECT_EQ(run.t(0), 3);
}

// One in its group that is frozen has no part in what the others count.
TEST(Unused, AFrozenOneChangesNothing) {
    const auto trained = [](bool marks) {
        Model run({"fp32", MP_OPTIMIZER_ZERO_GRAD, nullptr});
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        const Tensor frozen = make_tensor(run.context, MP_DTYPE_FP32, {5}, numbers(5, 3));
        desc.name = "frozen";
        desc.param = frozen;
        desc.flags = MP_PARAM_FROZEN;
        const std::array<int32_t, 2> unused = {kParams, 1}; // frozen, and a late one
        for (uint64_t step = 11; step < 13; ++step) {
            run.step(step);
        }
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(run.optimizer, 0, &desc, nullptr)));
        for (const int32_t count : {1, 2, 1}) {
            EXPECT_TRUE(succeeded(mp_optimizer_mark_unused(run.optimizer, nullptr, unused.data(),
                                                           marks ? count : 0)));
            EXPECT_TRUE(succeeded(mp_optimizer_step(run.optimizer, nullptr, nullptr)));
        }
        const int32_t late = 4;
        const std::vector<float> values = numbers(50, 9);
        const Tensor param = make_tensor(run.context, MP_DTYPE_FP32, {50}, values);
        const Tensor grad = make_tensor(run.context, MP_DTYPE_FP32, {50}, numbers(50, 10));
        EXPECT_TRUE(succeeded(add_param(run.optimizer, 0, "late", param, grad)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(run.optimizer, nullptr, nullptr)));
        return bytes_of(state_of(run.optimizer, late, "param"));
    };
    EXPECT_EQ(trained(true), trained(false));
}

// A batch that is given up takes its marks along.
TEST(Unused, AreForgottenWithTheGradients) {
    Model run(kKinds[0]);
    constexpr int32_t kFirst = 0;
    const std::vector<unsigned char> before = bytes_of(run.params[0]);
    MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &kFirst, 1));
    MP_OK(mp_optimizer_zero_grad(run.optimizer, nullptr));
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_NE(bytes_of(run.params[0]), before);
}

// Nobody waits for sums that another rank does not have.
TEST(Unused, RanksThatDifferAreTold) {
    for (const int32_t stage : {MP_SHARDING_STAGE_0, 1, 2, 3}) {
        SCOPED_TRACE(stage);
        run_ranks(2, [&](mp_comm* comm, int32_t rank) {
            Model run({"fp32", 0, nullptr}, true, comm, stage);
            MP_OK(mp_optimizer_shard(run.optimizer, nullptr));
            const auto fails_with = [&](const char* words) {
                run.set_grads(7);
                constexpr int32_t kFirst = 0;
                MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &kFirst, 1));
                MP_FAILS(mp_optimizer_step(run.optimizer, nullptr, nullptr),
                         MP_STATUS_RANK_MISMATCH, "rank(s) 1 do not", words);
            };
            const int32_t last = 2;
            MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &last, rank));
            fails_with("the parameters marked as unused");
            MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &last, 1 - rank)); // now both
            run.set_grads(7);
            MP_OK(mp_optimizer_mark_unused(run.optimizer, nullptr, &last, 1));
            MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
            EXPECT_EQ(run.t(0), 0);
            EXPECT_EQ(run.t(1), 1);
            EXPECT_EQ(run.t(2), 0);
            MP_OK(mp_optimizer_set_enabled(run.optimizer, 2, rank));
            fails_with("a group's lr");
        });
    }
}
