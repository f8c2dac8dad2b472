// SPDX-License-Identifier: Apache-2.0
// The guard that skips steps which stand out: of the norm and of the loss, over ranks and through checkpoints.
#include <deque>

#include "ranks.hpp"
#include "training.hpp"
#include "watched.hpp"

using namespace mp_test;

namespace {

// How far a value stands out of the last ones, by the textbook.
struct Scores {
    std::size_t window;
    std::deque<double> last{};

    double add(double value) {
        double z = 0.0;
        if (last.size() == window) {
            double sum = 0.0, squares = 0.0;
            for (const double x : last) {
                sum += x;
            }
            const double mean = sum / static_cast<double>(window);
            for (const double x : last) {
                squares += (x - mean) * (x - mean);
            }
            const double deviation = std::sqrt(squares / static_cast<double>(window));
            z = deviation > 0.0 ? (value - mean) / deviation : 0.0;
            last.pop_front();
        }
        last.push_back(value);
        return z;
    }
};

} // namespace

TEST(Guard, SkipsWhatStandsOutOnEveryBackend) {
    for (const char* backend : kHostBackends) {
        const Watched w(backend);
        MP_OK(w.guard(4, 3.0, 0.0));
        Scores scores{4};
        int64_t outliers = 0, taken = 0;
        for (const double norm :
             {1.0, 2.0, 1.5, 1.0, 1.25, 100.0, 1.0, 8.0, 1.0, 1.0, 1.0, 1.0, 1.0}) {
            const std::vector<unsigned char> before = bytes_of(w.param);
            const double z = scores.add(norm);
            MP_OK(w.step(norm));
            const mp_optimizer_stats stats = w.stats();
            EXPECT_NEAR(stats.grad_norm_z, z, 1e-9 * std::fabs(z)) << backend << norm;
            EXPECT_EQ(stats.loss_z, 0.0);
            outliers += z > 3.0 ? 1 : 0;
            taken += z > 3.0 ? 0 : 1;
            EXPECT_EQ(stats.outlier_steps, outliers) << backend << norm;
            EXPECT_EQ(stats.skipped_steps, outliers);
            EXPECT_EQ(stats.step, taken);
            EXPECT_EQ(stats.found_inf, 0U);
            EXPECT_EQ(bytes_of(w.param) == before, z > 3.0) << backend << norm;
        }
        EXPECT_EQ(outliers, 1) << backend; // 100; with it in the window 8 is none
    }
}

TEST(Guard, TakesALastingChangeForWhatItIs) {
    const Watched w;
    MP_OK(w.guard(8, 3.0, 0.0));
    for (int i = 0; i < 8; ++i) {
        MP_OK(w.step(1.0 + 0.01 * (i % 2)));
    }
    MP_OK(w.step(50.0));
    EXPECT_EQ(w.stats().outlier_steps, 1);
    MP_OK(w.step(50.0)); // 2.6 deviations of a window that has one of them
    EXPECT_EQ(w.stats().outlier_steps, 1);
}

TEST(Guard, WatchesTheLossWhereItIsGiven) {
    const Watched w;
    MP_OK(w.guard(2, 0.0, 2.0));
    MP_FAILS(w.step(1.0), MP_STATUS_BAD_STATE, "mp_optimizer_set_loss");
    MP_OK(w.step(1.0, 5.0));
    MP_FAILS(w.step(1.0), MP_STATUS_BAD_STATE, "before each step"); // a step forgets it
    MP_OK(w.step(1.0, 4.0));
    MP_OK(w.step(1000.0, 6.0)); // (6 - 4.5) / 0.5
    EXPECT_EQ(w.stats().outlier_steps, 1);
    EXPECT_NEAR(w.stats().loss_z, 3.0, 1e-12);
    EXPECT_EQ(w.stats().grad_norm_z, 0.0);
    const double infinity = std::numeric_limits<double>::infinity();
    MP_OK(w.step(1.0, infinity)); // no outlier, and not in the window
    EXPECT_EQ(w.stats().outlier_steps, 1);
    MP_OK(w.step(1.0, 6.0));
    EXPECT_NEAR(w.stats().loss_z, 1.0, 1e-12);
}

TEST(Guard, LeavesTheLossScaleAlone) {
    const Watched w(nullptr, nullptr, "fp16_mixed");
    mp_scaler* made = nullptr;
    MP_OK(mp_scaler_create_from_recipe(w.context, w.recipe, &made));
    const Scaler scaler(made);
    double before = 0.0, after = 0.0;
    MP_OK(mp_scaler_get_scale(scaler, nullptr, &before));
    MP_OK(w.guard(2, 2.0, 0.0));
    const Tensor wide = make_tensor(w.context, MP_DTYPE_FP32, {4});
    for (const float norm : {1.0F, 2.0F, 500.0F}) {
        const float values[] = {norm, 0.0F, 0.0F, 0.0F};
        MP_OK(mp_tensor_write(wide, nullptr, values, sizeof values));
        MP_OK(mp_tensor_cast(wide, nullptr, w.grad, nullptr));
        MP_OK(mp_optimizer_step(w.optimizer, nullptr, scaler));
        MP_OK(mp_scaler_update(scaler, nullptr));
    }
    EXPECT_EQ(w.stats().outlier_steps, 1);
    MP_OK(mp_scaler_get_scale(scaler, nullptr, &after));
    EXPECT_EQ(before, after);
}

TEST(Guard, RefusesWhatCannotBeAndTellsWhatItIs) {
    const Watched w;
    mp_guard_desc read = MP_GUARD_DESC_INIT;
    MP_OK(mp_optimizer_get_guard(w.optimizer, &read));
    EXPECT_EQ(read.max_grad_norm_z + read.max_loss_z, 0.0);
    MP_FAILS(w.guard(4, 0.0, 0.0), MP_STATUS_INVALID_ARGUMENT, "nothing would be watched");
    MP_FAILS(w.guard(1, 3.0, 0.0), MP_STATUS_INVALID_ARGUMENT, "window is 1");
    MP_FAILS(w.guard(1025, 3.0, 0.0), MP_STATUS_INVALID_ARGUMENT, "2 to 1024");
    MP_FAILS(w.guard(4, -1.0, 0.0), MP_STATUS_INVALID_ARGUMENT, "max_grad_norm_z is -1");
    MP_FAILS(w.guard(4, 1.0, kNaN), MP_STATUS_INVALID_ARGUMENT, "max_loss_z is");
    MP_OK(w.guard(0, 2.5, 0.0));
    MP_OK(mp_optimizer_get_guard(w.optimizer, &read));
    EXPECT_EQ(read.window, 128);
    EXPECT_EQ(read.max_grad_norm_z, 2.5);
    MP_OK(mp_optimizer_set_guard(w.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_get_guard(w.optimizer, &read));
    EXPECT_EQ(read.max_grad_norm_z, 0.0);
}

TEST(Guard, ACheckpointKeepsWhatItHasSeen) {
    const Folder folder("guard");
    const double norms[] = {1.0, 2.0, 1.5, 1.0, 9.0, 1.0};
    const Watched whole;
    MP_OK(whole.guard(3, 3.0, 0.0));
    for (const double norm : norms) {
        MP_OK(whole.step(norm));
    }
    EXPECT_EQ(whole.stats().outlier_steps, 1);
    for (const int cut :
         {2, 4, 5}) { // before the window is full, before the outlier, and behind it
        const std::string path = std::string(folder.c_str()) + std::to_string(cut);
        const Watched first;
        MP_OK(first.guard(3, 3.0, 0.0));
        for (int i = 0; i < cut; ++i) {
            MP_OK(first.step(norms[i]));
        }
        MP_OK(mp_checkpoint_save(checkpoint_of(first.context, first.optimizer), path.c_str(), cut,
                                 0));
        const Watched second;
        MP_OK(second.guard(3, 3.0, 0.0));
        mp_checkpoint_info info = MP_CHECKPOINT_INFO_INIT;
        MP_OK(mp_checkpoint_load(checkpoint_of(second.context, second.optimizer), path.c_str(), 0,
                                 &info));
        for (int i = cut; i < 6; ++i) {
            MP_OK(second.step(norms[i]));
        }
        EXPECT_EQ(bytes_of(second.param), bytes_of(whole.param)) << cut;
        EXPECT_EQ(second.stats().outlier_steps, 1) << cut;
        EXPECT_EQ(second.stats().grad_norm_z, whole.stats().grad_norm_z) << cut;
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
}

TEST(Guard, RanksDecideAlikeAndNameWhatDiffers) {
    run_ranks(3, [](mp_comm* comm, int32_t rank) {
        const Watched w(nullptr, comm);
        MP_OK(w.guard(4, 3.0, 5.0));
        for (const double norm : {1.0, 2.0, 1.5, 1.0, 100.0, 1.0}) {
            MP_OK(w.step(norm, 2.0 + 0.1 * norm));
        }
        EXPECT_EQ(w.stats().outlier_steps, 1);
        EXPECT_EQ(w.stats().step, 5);
        MP_FAILS(w.step(1.0, 2.0 + rank), MP_STATUS_RANK_MISMATCH, "the loss that it watches");
    });
}
