// SPDX-License-Identifier: Apache-2.0
// MP_OPTIMIZER_ZERO_GRAD: a step that is skipped leaves zeros, too, in whichever way it is taken, for whatever reason it is
// skipped, and in whatever format its gradients are.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

struct Format {
    const char* name;
    int32_t dtype;
    std::size_t size;
    uint32_t one, bad; // the codes of a finite number and of none
    bool is_scaled;
};
constexpr Format kFormats[] = {
    {"fp32", MP_DTYPE_FP32, 4, 0x3f800000U, 0x7f800000U, false},
    {"fp16", MP_DTYPE_FP16, 2, 0x3c00U, 0xfc00U, false},
    {"bf16", MP_DTYPE_BF16, 2, 0x3f80U, 0x7fc0U, false},
    {"scaled fp16", MP_DTYPE_FP16, 2, 0x3c00U, 0x7e00U, true},
    {"scaled bf16", MP_DTYPE_BF16, 2, 0x3f80U, 0xff80U, true},
    {"scaled fp8_e4m3", MP_DTYPE_FP8_E4M3, 1, 0x38U, 0x7fU, true},
    {"scaled fp8_e5m2", MP_DTYPE_FP8_E5M2, 1, 0x3cU, 0x7cU, true},
};

enum class Cause { none, not_finite, found_by_caller };
constexpr Cause kCauses[] = {Cause::none, Cause::not_finite, Cause::found_by_caller};
constexpr int64_t kCounts[] = {2 * 16384 + 7, 3}; // three chunks, and less than a vector

void fill(const Format& format, unsigned char* data, int64_t count, int64_t bad_at) {
    for (int64_t i = 0; i < count; ++i) {
        std::memcpy(data + static_cast<std::size_t>(i) * format.size,
                    i == bad_at ? &format.bad : &format.one, format.size);
    }
}

bool is_zero(const std::vector<unsigned char>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0; });
}

void find(mp_scaler* scaler) {
    const float bad = std::numeric_limits<float>::infinity();
    const void* grads[] = {&bad};
    const int32_t dtypes[] = {MP_DTYPE_FP32};
    const int64_t elements[] = {1};
    EXPECT_TRUE(succeeded(mp_scaler_check_pointers(scaler, nullptr, 1, grads, dtypes, elements)));
}

// Arrays of the caller's in a format, stepped by either call.
struct Slots {
    std::vector<std::vector<float>> p, m, v;
    std::vector<std::vector<unsigned char>> g;
    float scale_inv = 0.5F;
    std::vector<mp_step_slot> slots;

    explicit Slots(const Format& format) {
        for (const int64_t count : kCounts) {
            const auto n = static_cast<std::size_t>(count);
            p.push_back(numbers(n, 1));
            m.emplace_back(n, 0.0F);
            v.emplace_back(n, 0.0F);
            g.emplace_back(n * format.size);
        }
        for (std::size_t i = 0; i < p.size(); ++i) {
            mp_step_slot slot = MP_STEP_SLOT_INIT;
            slot.count = kCounts[i];
            slot.uid = i;
            slot.param.data = p[i].data();
            slot.grad.data = g[i].data();
            slot.states[0].data = m[i].data();
            slot.states[1].data = v[i].data();
            slot.grad.scale_inv = format.is_scaled ? &scale_inv : nullptr;
            slot.param.dtype = slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_FP32;
            slot.grad.dtype = format.dtype;
            slots.push_back(slot);
        }
    }
};

// One step in which the last array's last gradient is bad, and one that is taken.
void step_slots(mp_context* context, const Format& format, Cause cause, bool by_plan, bool zeroes) {
    Slots arrays(format);
    const Scaler scaler = make_scaler(context);
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.flags |= zeroes ? MP_OPTIMIZER_ZERO_GRAD : 0U;
    mp_step_plan* made = nullptr;
    if (by_plan) {
        MP_OK(mp_step_plan_create(context, &args, arrays.slots.data(), 2, &made));
    }
    const StepPlan plan(made);
    const auto step = [&] {
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        if (by_plan) {
            EXPECT_TRUE(succeeded(mp_step_plan_run(plan, nullptr, scaler)));
            EXPECT_TRUE(succeeded(mp_step_plan_get_stats(plan, nullptr, &stats)));
        } else {
            EXPECT_TRUE(succeeded(mp_optimizer_step_pointers(
                context, nullptr, &args, arrays.slots.data(), 2, scaler, &stats)));
        }
        return stats.found_inf != 0;
    };
    const auto before = arrays.p;
    for (std::size_t i = 0; i < 2; ++i) {
        fill(format, arrays.g[i].data(), kCounts[i],
             i == 1 && cause == Cause::not_finite ? kCounts[i] - 1 : -1);
    }
    const auto gradients = arrays.g;
    if (cause == Cause::found_by_caller) {
        find(scaler);
    }
    EXPECT_EQ(step(), cause != Cause::none);
    EXPECT_EQ(arrays.p == before, cause != Cause::none);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(is_zero(arrays.g[i]), zeroes) << i;
        EXPECT_EQ(arrays.g[i] == gradients[i], !zeroes) << i;
    }
    EXPECT_EQ(arrays.scale_inv, 0.5F);
    if (zeroes) { // what is added to next
        MP_OK(mp_scaler_update(scaler, nullptr));
        EXPECT_FALSE(step());
    }
}

// An optimizer over two groups, of which the second is off where `is_off`.
struct Model {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params, grads;

    Model(const char* backend, const char* name, const Format& format, uint32_t flags, bool is_off,
          mp_comm* comm = nullptr, int32_t stage = 1)
        : context(make_context(2, backend)), recipe(make_recipe(context, name)) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        for (int32_t i = 0; i < 2; ++i) {
            EXPECT_TRUE(done(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
            params.push_back(make_tensor(context, MP_DTYPE_FP32, {kCounts[i]},
                                         numbers(static_cast<std::size_t>(kCounts[i]), 5)));
            grads.push_back(make_tensor(context, format.dtype, {kCounts[i]}));
            const std::string param_name = "p" + std::to_string(i);
            EXPECT_TRUE(succeeded(
                add_param(optimizer, i, param_name.c_str(), params.back(), grads.back())));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_set_enabled(optimizer, 1, is_off ? 0 : 1)));
    }
    void write(const Format& format, int64_t bad_at) {
        for (std::size_t i = 0; i < 2; ++i) {
            fill(format, static_cast<unsigned char*>(data_of(grads[i])), kCounts[i],
                 i == 0 ? bad_at : -1);
        }
    }
    [[nodiscard]] mp_optimizer_stats stats() const { return stats_of(optimizer); }
};

} // namespace

TEST(SkippedGradients, AreZeroOnPointersInEveryFormat) {
    int cases = 0;
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const Format& format : kFormats) {
            for (const Cause cause : kCauses) {
                for (const bool by_plan : {false, true}) {
                    for (const bool zeroes : {false, true}) {
                        SCOPED_TRACE(std::string(backend) + ", " + format.name + ", cause " +
                                     std::to_string(static_cast<int>(cause)) +
                                     (by_plan ? ", plan" : "") + (zeroes ? ", zeroes" : ""));
                        step_slots(context, format, cause, by_plan, zeroes);
                        ++cases;
                    }
                }
            }
        }
    }
    std::printf("%d cases\n", cases);
}

TEST(SkippedGradients, AreZeroInAnOptimizerAndOfAGroupThatIsOffAsTheyWere) {
    for (const char* backend : kHostBackends) {
        for (const Format& format : {kFormats[0], kFormats[1], kFormats[2]}) {
            for (const Cause cause : kCauses) {
                for (const uint32_t extra : {0U, MP_OPTIMIZER_OFFLOAD, MP_OPTIMIZER_CHECK_FINITE}) {
                    for (const bool is_off : {false, true}) {
                        SCOPED_TRACE(std::string(backend) + ", " + format.name + ", cause " +
                                     std::to_string(static_cast<int>(cause)) + ", flags " +
                                     std::to_string(extra) + (is_off ? ", off" : ""));
                        Model model(backend, "fp32", format, MP_OPTIMIZER_ZERO_GRAD | extra,
                                    is_off);
                        const Scaler scaler = make_scaler(model.context);
                        model.write(format, cause == Cause::not_finite ? 16384 : -1);
                        const auto kept = bytes_of(model.grads[1]);
                        if (cause == Cause::found_by_caller) {
                            find(scaler);
                        }
                        MP_OK(mp_optimizer_step(model.optimizer, nullptr, scaler));
                        EXPECT_EQ(model.stats().found_inf, cause != Cause::none ? 1U : 0U);
                        EXPECT_TRUE(is_zero(bytes_of(model.grads[0])));
                        EXPECT_EQ(bytes_of(model.grads[1]),
                                  is_off ? kept : std::vector<unsigned char>(kept.size()));
                    }
                }
            }
        }
    }
}

TEST(SkippedGradients, AreZeroWhereTheGuardSkips) {
    for (const char* backend : kHostBackends) {
        for (const bool by_loss : {false, true}) {
            SCOPED_TRACE(std::string(backend) + (by_loss ? ", loss" : ", norm"));
            Model model(backend, "fp32", kFormats[0], MP_OPTIMIZER_ZERO_GRAD, false);
            mp_guard_desc guard = MP_GUARD_DESC_INIT;
            guard.window = 3;
            guard.max_grad_norm_z = by_loss ? 0.0 : 2.0;
            guard.max_loss_z = by_loss ? 2.0 : 0.0;
            MP_OK(mp_optimizer_set_guard(model.optimizer, nullptr, &guard));
            for (int step = 0; step < 5; ++step) {
                const bool is_out = step == 3;
                const float size =
                    (is_out && !by_loss ? 1000.0F : 1.0F) + 0.01F * static_cast<float>(step);
                std::vector<float> values(static_cast<std::size_t>(kCounts[0]), size);
                MP_OK(mp_tensor_write(model.grads[0], nullptr, values.data(), values.size() * 4));
                MP_OK(mp_optimizer_set_loss(model.optimizer,
                                            (is_out && by_loss ? 50.0 : 2.0) + 0.01 * step));
                MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
                EXPECT_TRUE(is_zero(bytes_of(model.grads[0]))) << step;
            }
            EXPECT_EQ(model.stats().outlier_steps, 1);
        }
    }
}

TEST(SkippedGradients, AreZeroOnRanks) {
    for (const int32_t ranks : {1, 2}) {
        for (const int32_t stage : {0, 1}) {
            for (const Cause cause : {Cause::none, Cause::not_finite}) {
                std::vector<mp_comm*> raw(static_cast<std::size_t>(ranks));
                MP_OK(mp_comm_create_threads(nullptr, ranks, raw.data()));
                std::vector<std::thread> threads;
                for (int32_t rank = 0; rank < ranks; ++rank) {
                    threads.emplace_back([=, comm = raw[static_cast<std::size_t>(rank)]] {
                        const Comm own(comm);
                        Model model(nullptr, "fp32", kFormats[0],
                                    MP_OPTIMIZER_ZERO_GRAD | MP_OPTIMIZER_CHECK_FINITE, false, own,
                                    stage);
                        const bool is_bad = cause == Cause::not_finite && rank == ranks - 1;
                        model.write(kFormats[0], is_bad ? 5 : -1);
                        EXPECT_TRUE(
                            succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
                        EXPECT_EQ(model.stats().found_inf, cause == Cause::none ? 0U : 1U);
                        EXPECT_TRUE(is_zero(bytes_of(model.grads[0])));
                        EXPECT_TRUE(is_zero(bytes_of(model.grads[1])));
                        EXPECT_TRUE(
                            succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
                        EXPECT_EQ(model.stats().found_inf, 0U);
                    });
                }
                for (std::thread& thread : threads) {
                    thread.join();
                }
            }
        }
    }
}

// One overflow costs one step and one halving.
TEST(SkippedGradients, ALoopThatAddsGoesOn) {
    const Context context = make_context();
    Slots arrays(kFormats[0]);
    const Scaler scaler = make_scaler(context);
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.flags |= MP_OPTIMIZER_ZERO_GRAD;
    int skipped = 0;
    double scale = 0.0;
    for (int i = 0; i < 20; ++i) {
        MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
        for (std::vector<unsigned char>& grad : arrays.g) {
            auto* values = reinterpret_cast<float*>(grad.data());
            values[1] +=
                i == 3 ? std::numeric_limits<float>::infinity() : static_cast<float>(scale);
        }
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, arrays.slots.data(), 2, scaler,
                                         &stats));
        skipped += stats.found_inf != 0 ? 1 : 0;
        args.step += stats.found_inf != 0 ? 0 : 1;
        MP_OK(mp_scaler_update(scaler, nullptr));
    }
    MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
    EXPECT_EQ(skipped, 1);
    EXPECT_EQ(scale, 32768.0);
}
