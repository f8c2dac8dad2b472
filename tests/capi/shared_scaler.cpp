// SPDX-License-Identifier: Apache-2.0
// One loss scaler and several optimizers: each skips by its own gradients, in any order; one update looks at all.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>

#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How one of them is stepped.
enum class Way { optimizer, pointers, plan };

struct Stepper {
    Way way;
    float p[2] = {0.0F, 0.0F}, g[2] = {1.0F, 1.0F}, m[2] = {}, v[2] = {};
    mp_step_args args = MP_STEP_ARGS_INIT;
    mp_step_slot slot = MP_STEP_SLOT_INIT;
    Tensor param, grad;
    Optimizer optimizer;
    StepPlan plan;
    mp_context* context;

    Stepper(mp_context* owner, mp_recipe* recipe, Way as, mp_comm* comm = nullptr)
        : way(as), context(owner) {
        args.lr = 1e-3;
        slot.count = 2;
        slot.param.data = p;
        slot.grad.data = g;
        slot.states[0].data = m;
        slot.states[1].data = v;
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
            MP_DTYPE_FP32;
        if (way == Way::plan) {
            mp_step_plan* made = nullptr;
            EXPECT_TRUE(succeeded(mp_step_plan_create(context, &args, &slot, 1, &made)));
            plan = StepPlan(made);
        } else if (way == Way::optimizer) {
            make_optimizer(recipe, comm);
        }
    }
    Stepper(const Stepper&) = delete;
    void make_optimizer(mp_recipe* recipe, mp_comm* comm) {
        optimizer = make_optimizer_on(comm, context, recipe);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
        param = wrap_tensor(context, MP_DTYPE_FP32, {2}, p);
        grad = wrap_tensor(context, MP_DTYPE_FP32, {2}, g);
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "w", param, grad)));
    }
    // Whether it was skipped.
    bool step(mp_scaler* scaler) {
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        if (way == Way::optimizer) {
            EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, scaler)));
            EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
        } else if (way == Way::plan) {
            EXPECT_TRUE(succeeded(mp_step_plan_run(plan, nullptr, scaler)));
            EXPECT_TRUE(succeeded(mp_step_plan_get_stats(plan, nullptr, &stats)));
        } else {
            EXPECT_TRUE(succeeded(
                mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, scaler, &stats)));
        }
        return stats.found_inf != 0;
    }
};

void look(mp_scaler* scaler, float value) {
    const void* grads[] = {&value};
    const int32_t dtypes[] = {MP_DTYPE_FP32};
    const int64_t elements[] = {1};
    EXPECT_TRUE(succeeded(mp_scaler_check_pointers(scaler, nullptr, 1, grads, dtypes, elements)));
}

// Steps in an order; of `bad`, by bits, gradients overflow. The caller looks before step `looks`, at what `sees` is.
void step_all(mp_context* context, mp_recipe* recipe, const std::vector<int>& order, unsigned bad,
              int looks, float sees) {
    const Scaler scaler = make_scaler(context);
    const Way ways[] = {Way::optimizer, Way::pointers, Way::plan};
    std::vector<std::unique_ptr<Stepper>> all;
    for (std::size_t i = 0; i < order.size(); ++i) {
        all.push_back(std::make_unique<Stepper>(context, recipe, ways[i]));
        all.back()->g[1] = (bad >> i & 1U) != 0 ? kInfinity : 1.0F;
    }
    bool found = false;
    for (std::size_t at = 0; at < order.size(); ++at) {
        if (static_cast<int>(at) == looks) {
            look(scaler, sees);
            found = found || sees == kInfinity;
        }
        const auto i = static_cast<unsigned>(order[at]);
        EXPECT_EQ(all[i]->step(scaler), found || (bad >> i & 1U) != 0) << at;
        EXPECT_EQ(all[i]->p[0] == 0.0F, found || (bad >> i & 1U) != 0) << at;
    }
    MP_OK(mp_scaler_update(scaler, nullptr));
    double scale = 0.0;
    MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
    EXPECT_EQ(scale, found || bad != 0 ? 32768.0 : 65536.0);
    for (const auto& one : all) { // nothing is left of it
        one->g[1] = 1.0F;
        EXPECT_FALSE(one->step(scaler));
    }
}

} // namespace

TEST(SharedScaler, EachSkipsByItsOwnGradientsInAnyOrder) {
    int cases = 0;
    for (const char* backend : kHostBackends) {
        const Context context = make_context(1, backend);
        const Recipe recipe = make_recipe(context, "fp32");
        for (const int count : {2, 3}) {
            std::vector<int> order(static_cast<std::size_t>(count));
            std::iota(order.begin(), order.end(), 0);
            do {
                for (unsigned bad = 0; bad < 1U << static_cast<unsigned>(count); ++bad) {
                    for (int looks = -1; looks < count; ++looks) {
                        for (const float sees : {1.0F, kInfinity}) {
                            SCOPED_TRACE(std::string(backend) + ", bad " + std::to_string(bad) +
                                         ", first " + std::to_string(order[0]) + ", looks " +
                                         std::to_string(looks) + " at " + std::to_string(sees));
                            step_all(context, recipe, order, bad, looks, sees);
                            ++cases;
                        }
                    }
                }
            } while (std::next_permutation(order.begin(), order.end()));
        }
    }
    std::printf("%d cases\n", cases);
}

// A checkpoint between two of the steps knows who found what.
TEST(SharedScaler, SavedBetweenTheSteps) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const std::string folder = ::testing::TempDir() + "mp_shared_scaler";
    const auto file_of = [&](mp_scaler* scaler) {
        mp_checkpoint* made = nullptr;
        EXPECT_TRUE(succeeded(mp_checkpoint_create(context, nullptr, nullptr, &made)));
        EXPECT_TRUE(succeeded(mp_checkpoint_add_scaler(made, scaler)));
        return Handle<mp_checkpoint, mp_checkpoint_destroy>(made);
    };
    for (const bool looks : {false, true}) {
        std::filesystem::remove_all(folder);
        Stepper a(context, recipe, Way::pointers), b(context, recipe, Way::pointers);
        const Scaler first = make_scaler(context), second = make_scaler(context);
        a.g[0] = kInfinity;
        EXPECT_TRUE(a.step(first));
        if (looks) { // then it is found for all
            const void* grad = a.g;
            const int32_t dtype = MP_DTYPE_FP32;
            const int64_t count = 2;
            MP_OK(mp_scaler_check_pointers(first, nullptr, 1, &grad, &dtype, &count));
        }
        MP_OK(mp_checkpoint_save(file_of(first), folder.c_str(), 1, 0));
        MP_OK(mp_checkpoint_load(file_of(second), folder.c_str(), 0, nullptr));
        EXPECT_EQ(b.step(second), looks);
        MP_OK(mp_scaler_update(second, nullptr));
        double scale = 0.0;
        MP_OK(mp_scaler_get_scale(second, nullptr, &scale));
        EXPECT_EQ(scale, 32768.0);
    }
    std::filesystem::remove_all(folder);
}

// Sharded optimizers, and such whose ranks hold other parameters; one rank's gradient is not finite.
TEST(SharedScaler, OnRanks) {
    for (const bool is_sharded : {true, false}) {
        for (int first = 0; first < 2; ++first) {
            for (int bad = 0; bad < 2; ++bad) {
                mp_comm* raw[2] = {};
                MP_OK(mp_comm_create_threads(nullptr, 2, raw));
                std::vector<std::thread> threads;
                for (int32_t rank = 0; rank < 2; ++rank) {
                    threads.emplace_back([=, comm = raw[rank]] {
                        const Comm own(comm);
                        const Context context = make_context(1);
                        const Recipe recipe = make_recipe(context, "fp32");
                        const Scaler scaler = make_scaler(context);
                        Stepper a(context, recipe, Way::optimizer, is_sharded ? comm : nullptr);
                        Stepper b(context, recipe, Way::optimizer, is_sharded ? comm : nullptr);
                        Stepper* const both[] = {&a, &b};
                        if (!is_sharded) {
                            EXPECT_TRUE(succeeded(mp_optimizer_set_norm_comm(a.optimizer, own)));
                            EXPECT_TRUE(succeeded(mp_optimizer_set_norm_comm(b.optimizer, own)));
                        }
                        both[bad]->g[0] = rank == 1 ? kInfinity : 1.0F;
                        EXPECT_EQ(both[first]->step(scaler), first == bad);
                        // Ranks that ask each other in between learn of it, and skip no more than before.
                        EXPECT_TRUE(succeeded(mp_scaler_combine(scaler, nullptr, own)));
                        EXPECT_EQ(both[1 - first]->step(scaler), first != bad);
                        EXPECT_TRUE(succeeded(mp_scaler_combine(scaler, nullptr, own)));
                        EXPECT_TRUE(succeeded(mp_scaler_update(scaler, nullptr)));
                        double scale = 0.0;
                        EXPECT_TRUE(succeeded(mp_scaler_get_scale(scaler, nullptr, &scale)));
                        EXPECT_EQ(scale, 32768.0);
                    });
                }
                for (std::thread& thread : threads) {
                    thread.join();
                }
            }
        }
    }
}
