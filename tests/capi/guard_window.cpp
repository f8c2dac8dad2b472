// SPDX-License-Identifier: Apache-2.0
// What a guard has seen: which values join it, of whatever size, and that nothing loses them.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Guarded {
    Context context;
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    Tensor param = make_tensor(context, MP_DTYPE_FP32, {2}, {1.0F, 2.0F});
    Tensor grad = make_tensor(context, MP_DTYPE_FP32, {2});
    Checkpoint checkpoint;

    explicit Guarded(const char* backend = nullptr) : context(make_context(1, backend)) {
        optimizer = make_optimizer(context, recipe);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "w", param, grad)));
        checkpoint = checkpoint_of(context, optimizer);
    }
    void guard(int32_t window, double norm_z, double loss_z) const {
        mp_guard_desc desc = MP_GUARD_DESC_INIT;
        desc.window = window;
        desc.max_grad_norm_z = norm_z;
        desc.max_loss_z = loss_z;
        EXPECT_TRUE(succeeded(mp_optimizer_set_guard(optimizer, nullptr, &desc)));
    }
    [[nodiscard]] mp_optimizer_stats step(double norm, double loss) const {
        const float values[] = {static_cast<float>(norm), 0.0F};
        EXPECT_TRUE(succeeded(mp_tensor_write(grad, nullptr, values, sizeof values)));
        EXPECT_TRUE(succeeded(mp_optimizer_set_loss(optimizer, loss)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
        return stats_of(optimizer);
    }
};

} // namespace

// watch.h: a value joins the window whether its step is taken or not, unless it is not finite.
TEST(GuardWindow, TakesTheFiniteLossOfAStepWhoseGradientIsNotFinite) {
    for (const char* backend : kHostBackends) {
        const Guarded run(backend);
        run.guard(3, 3.0, 3.0);
        (void)run.step(1.0, 1.0);
        (void)run.step(2.0, 2.0);
        EXPECT_EQ(run.step(kInfinity, 3.0).found_inf, 1U);
        mp_optimizer_stats stats = run.step(3.0, 4.0); // 1, 2, 3 behind it; of norms two
        EXPECT_NEAR(stats.loss_z, 2.0 / std::sqrt(2.0 / 3.0), 1e-12) << backend;
        EXPECT_EQ(stats.grad_norm_z, 0.0) << backend;
        stats = run.step(kInfinity, 1e9); // stands out, but is skipped for the other reason
        EXPECT_EQ(stats.found_inf, 1U) << backend;
        EXPECT_EQ(stats.outlier_steps, 0) << backend;
        EXPECT_EQ(stats.skipped_steps, 2) << backend;
    }
}

// A z-score has no unit: near the ends of fp64 it is what it is near 1.
TEST(GuardWindow, JudgesLossesOfEverySize) {
    for (const char* backend : kHostBackends) {
        for (const int exponent : {-1060, -1022, -600, -300, 0, 300, 600, 1000, 1019}) {
            const Guarded run(backend);
            run.guard(3, 0.0, 3.0);
            for (const double loss : {1.0, 2.0, 1.5, 2.0}) {
                EXPECT_EQ(run.step(1.0, std::ldexp(loss, exponent)).outlier_steps, 0) << exponent;
            }
            const mp_optimizer_stats stats = run.step(1.0, std::ldexp(12.0, exponent));
            const double deviation = std::sqrt(0.5 / 9.0); // of 2, 1.5, 2
            EXPECT_NEAR(stats.loss_z, (12.0 - 5.5 / 3.0) / deviation, 1e-9) << exponent;
            EXPECT_EQ(stats.outlier_steps, 1) << backend << " " << exponent;
        }
    }
}

// Set before the load, after it, after another, off and on again, by another window: nothing that fits is lost.
TEST(GuardWindow, IsThereForWhateverGuardComes) {
    const Folder folder("guard_window");
    const auto trained = [] {
        Guarded run;
        run.guard(4, 3.0, 3.0);
        for (int i = 0; i < 7; ++i) { // the ring is full, and begins inside
            (void)run.step(1.0 + 0.3 * (i % 3), 2.0 + 0.1 * (i % 4));
        }
        return run;
    };
    const Guarded whole = trained();
    MP_OK(mp_checkpoint_save(whole.checkpoint, folder.c_str(), 7, 0));
    const mp_optimizer_stats expected = whole.step(40.0, 2.0);
    EXPECT_EQ(expected.outlier_steps, 1);
    for (int way = 0; way < 5; ++way) {
        const Guarded run;
        if (way == 0 || way == 2) {
            run.guard(way == 0 ? 4 : 9, 3.0, 3.0);
        }
        MP_OK(mp_checkpoint_load(run.checkpoint, folder.c_str(), 0, nullptr));
        if (way == 3) {
            run.guard(4, 3.0, 3.0);
            MP_OK(mp_optimizer_set_guard(run.optimizer, nullptr, nullptr));
        }
        if (way == 4) { // saved again by who has no guard
            const std::string again = std::string(folder.c_str()) + "/again";
            MP_OK(mp_checkpoint_save(run.checkpoint, again.c_str(), 7, 0));
            MP_OK(mp_checkpoint_load(run.checkpoint, again.c_str(), 0, nullptr));
        }
        if (way > 0) {
            run.guard(4, 3.0, 3.0);
        }
        const mp_optimizer_stats found = run.step(40.0, 2.0);
        EXPECT_EQ(found.outlier_steps, 1) << way;
        if (way != 2) { // the same ring; after another one sums are in another order
            EXPECT_EQ(found.grad_norm_z, expected.grad_norm_z) << way;
            EXPECT_EQ(found.loss_z, expected.loss_z) << way;
        }
    }
    const Guarded wider; // four values do not fill a window of nine
    wider.guard(9, 3.0, 3.0);
    MP_OK(mp_checkpoint_load(wider.checkpoint, folder.c_str(), 0, nullptr));
    EXPECT_EQ(wider.step(40.0, 2.0).outlier_steps, 0);
}

TEST(GuardWindow, ALossThatWasGivenStaysWhereTheGuardChanges) {
    const Guarded run;
    run.guard(2, 0.0, 3.0);
    (void)run.step(1.0, 1.0);
    MP_OK(mp_optimizer_set_loss(run.optimizer, 2.0));
    run.guard(2, 1.0, 3.0);
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr)); // it watches the loss, and has it
}
