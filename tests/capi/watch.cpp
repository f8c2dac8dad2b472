// SPDX-License-Identifier: Apache-2.0
// The guard that skips steps which stand out, and the history of the last steps.
#include <cmath>
#include <deque>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <sys/stat.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One parameter of four elements, whose gradient is what a test wants; the norm is that of its first element.
struct Watched {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    Tensor param, grad;

    explicit Watched(const char* backend = nullptr, mp_comm* comm = nullptr,
                     const char* recipe_name = "fp32", int32_t stage = 1)
        : context(make_context(1, backend)), recipe(make_recipe(context, recipe_name)),
          param(make_tensor(context, weight_dtype(recipe), {4}, {1.0F, 2.0F, 3.0F, 4.0F})) {
        mp_optimizer* made = nullptr;
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        EXPECT_TRUE(succeeded(
            comm == nullptr
                ? mp_optimizer_create(context, recipe, nullptr, &made)
                : mp_optimizer_create_sharded(context, recipe, nullptr, comm, &sharding, &made)));
        optimizer = Optimizer(made);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        group.lr = 0.125;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, nullptr)));
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = "wheel";
        desc.param = param;
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &desc, nullptr)));
        mp_tensor* raw = nullptr;
        EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer, 0, "grad", &raw)));
        grad = Tensor(raw);
    }

    mp_status guard(int32_t window, double norm_z, double loss_z) const {
        mp_guard_desc desc = MP_GUARD_DESC_INIT;
        desc.window = window;
        desc.max_grad_norm_z = norm_z;
        desc.max_loss_z = loss_z;
        return mp_optimizer_set_guard(optimizer, nullptr, &desc);
    }
    mp_status step(double norm, double loss = kNaN, mp_scaler* scaler = nullptr) const {
        const float values[] = {static_cast<float>(norm), 0.0F, 0.0F, 0.0F};
        EXPECT_TRUE(succeeded(mp_tensor_write(grad, nullptr, values, sizeof values)));
        if (!std::isnan(loss)) {
            EXPECT_TRUE(succeeded(mp_optimizer_set_loss(optimizer, loss)));
        }
        return mp_optimizer_step(optimizer, nullptr, scaler);
    }
    [[nodiscard]] mp_optimizer_stats stats() const {
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
        return stats;
    }
    [[nodiscard]] std::string bad_tensor() const {
        char text[200];
        EXPECT_TRUE(succeeded(mp_optimizer_get_bad_tensor(optimizer, text, sizeof text, nullptr)));
        return text;
    }
    [[nodiscard]] mp_step_record record(int32_t index) const {
        mp_step_record record = MP_STEP_RECORD_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_record(optimizer, index, &record)));
        return record;
    }
    [[nodiscard]] int32_t records() const {
        int32_t count = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_record_count(optimizer, &count)));
        return count;
    }
};

// The same by the textbook.
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

std::string read_file(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

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
    const auto checkpoint_of = [](const Watched& w) {
        mp_checkpoint* made = nullptr;
        EXPECT_TRUE(succeeded(mp_checkpoint_create(w.context, nullptr, nullptr, &made)));
        Checkpoint checkpoint(made);
        EXPECT_TRUE(succeeded(mp_checkpoint_add_optimizer(checkpoint, w.optimizer)));
        return checkpoint;
    };
    for (const int cut :
         {2, 4, 5}) { // before the window is full, before the outlier, and behind it
        const std::string path = std::string(folder.c_str()) + std::to_string(cut);
        const Watched first;
        MP_OK(first.guard(3, 3.0, 0.0));
        for (int i = 0; i < cut; ++i) {
            MP_OK(first.step(norms[i]));
        }
        MP_OK(mp_checkpoint_save(checkpoint_of(first), path.c_str(), cut, 0));
        const Watched second;
        MP_OK(second.guard(3, 3.0, 0.0));
        mp_checkpoint_info info = MP_CHECKPOINT_INFO_INIT;
        MP_OK(mp_checkpoint_load(checkpoint_of(second), path.c_str(), 0, &info));
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
    constexpr int32_t kRanks = 3;
    std::vector<mp_comm*> raw(kRanks);
    MP_OK(mp_comm_create_threads(nullptr, kRanks, raw.data()));
    std::vector<std::thread> threads;
    for (mp_comm* comm : raw) {
        threads.emplace_back([own = Comm(comm)] {
            int32_t rank = -1;
            EXPECT_TRUE(succeeded(mp_comm_get_rank(own, &rank)));
            const Watched w(nullptr, own);
            MP_OK(w.guard(4, 3.0, 5.0));
            for (const double norm : {1.0, 2.0, 1.5, 1.0, 100.0, 1.0}) {
                MP_OK(w.step(norm, 2.0 + 0.1 * norm));
            }
            EXPECT_EQ(w.stats().outlier_steps, 1);
            EXPECT_EQ(w.stats().step, 5);
            MP_FAILS(w.step(1.0, 2.0 + rank), MP_STATUS_RANK_MISMATCH, "the loss that it watches");
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST(History, KeepsTheLastStepsAndNamesTheFirstBadTensor) {
    const Folder folder("history");
    fs::create_directories(folder.path);
    const std::string path = (folder.path / "last.json").string();
    for (const char* backend : kHostBackends) {
        const Watched w(backend);
        EXPECT_EQ(w.records(), 0);
        MP_OK(w.guard(2, 3.0, 0.0));
        MP_OK(mp_optimizer_set_history(w.optimizer, 3, path.c_str()));
        MP_OK(w.step(1.0, 4.0));
        MP_OK(w.step(2.0));
        MP_OK(w.step(90.0, 5.0));
        EXPECT_EQ(w.bad_tensor(), "");
        std::ofstream(path) << "of a run before"; // replaced only once there is something to say
        MP_OK(w.step(kNaN, 6.0));
        MP_OK(w.step(kNaN, 7.0)); // only the first one is written
        ASSERT_EQ(w.records(), 3);
        EXPECT_EQ(w.record(0).outcome, MP_STEP_OUTLIER);
        EXPECT_EQ(w.record(0).call, 3);
        EXPECT_EQ(w.record(0).step, 2);
        EXPECT_EQ(w.record(0).grad_norm, 90.0);
        EXPECT_NEAR(w.record(0).grad_norm_z, 177.0, 1e-9);
        EXPECT_EQ(w.record(0).loss, 5.0);
        EXPECT_EQ(w.record(0).lr, 0.125);
        EXPECT_EQ(w.record(2).outcome, MP_STEP_NON_FINITE);
        EXPECT_EQ(w.record(2).loss, 7.0);
        EXPECT_EQ(w.bad_tensor(), "the gradient of 'wheel'");
        MP_FAILS(mp_optimizer_get_record(w.optimizer, 3, nullptr), MP_STATUS_INVALID_ARGUMENT,
                 "there are 3");
        const auto json = nlohmann::json::parse(read_file(path));
        EXPECT_EQ(json["first_bad"], "the gradient of 'wheel'");
        ASSERT_EQ(json["steps"].size(), 3U);
        EXPECT_TRUE(json["steps"][0]["loss"].is_null()); // nobody gave it
        EXPECT_EQ(json["steps"][1]["outcome"], "outlier");
        EXPECT_EQ(json["steps"][2]["outcome"], "not finite");
        EXPECT_EQ(json["steps"][2]["loss"], 6.0);
        EXPECT_TRUE(json["steps"][2]["grad_norm"].is_null());
        MP_OK(mp_optimizer_set_history(w.optimizer, 0, nullptr));
        EXPECT_EQ(w.records(), 0);
        EXPECT_EQ(w.bad_tensor(), "");
    }
    EXPECT_FALSE(fs::exists(path + ".part"));
}

// From stage 2 on a gradient has no memory any more when a step is judged; its owner has the sum.
TEST(History, RanksNameTheGradientInEveryStage) {
    for (int32_t stage = 0; stage <= 2; ++stage) {
        std::vector<mp_comm*> raw(2);
        MP_OK(mp_comm_create_threads(nullptr, 2, raw.data()));
        std::vector<std::string> names(2);
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank, own = Comm(raw[rank])] {
                const Watched w(nullptr, own, "fp32", stage);
                MP_OK(w.guard(4, 3.0, 0.0));
                MP_OK(mp_optimizer_set_history(w.optimizer, 4, nullptr));
                MP_OK(mp_optimizer_shard(w.optimizer, nullptr));
                for (const double norm : {1.0, rank == 0 ? kNaN : 1.0}) {
                    MP_OK(mp_optimizer_acquire_grad(w.optimizer, nullptr, 0));
                    MP_OK(w.step(norm));
                }
                EXPECT_EQ(w.record(1).outcome, MP_STEP_NON_FINITE) << stage;
                names[rank] = w.bad_tensor();
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        EXPECT_TRUE(names[0] == "the gradient of 'wheel'" || names[1] == "the gradient of 'wheel'")
            << stage << names[0] << names[1];
    }
}

TEST(History, NamesTheLayerWhoseInputWasBadFirst) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp8_current");
    mp_optimizer* made = nullptr;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE;
    MP_OK(mp_optimizer_create(context, recipe, &desc, &made));
    const Optimizer optimizer(made);
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, nullptr));
    std::vector<Tensor> weights, grads;
    std::vector<Linear> layers;
    std::vector<mp_linear*> raw;
    for (const char* name : {"first", "second"}) {
        weights.push_back(make_tensor(context, MP_DTYPE_FP32, {32, 32}, numbers(1024, 3)));
        mp_param_desc param = MP_PARAM_DESC_INIT;
        const std::string weight_name = std::string(name) + ".weight";
        param.name = weight_name.c_str();
        param.param = weights.back();
        int32_t index = 0;
        MP_OK(mp_optimizer_add_param(optimizer, 0, &param, &index));
        mp_tensor* grad = nullptr;
        MP_OK(mp_optimizer_get_state(optimizer, index, "grad", &grad));
        grads.emplace_back(grad);
        mp_linear_desc layer = MP_LINEAR_DESC_INIT;
        layer.in_features = layer.out_features = 32;
        layer.flags = MP_LINEAR_STATS;
        layer.name = name;
        mp_linear* linear = nullptr;
        MP_OK(mp_linear_create(context, recipe, &layer, weights.back(), nullptr, &linear));
        layers.emplace_back(linear);
        raw.push_back(linear);
    }
    MP_OK(mp_optimizer_set_linears(optimizer, raw.data(), 2));
    MP_OK(mp_optimizer_set_history(optimizer, 8, nullptr));
    std::vector<float> values = numbers(32 * 32, 9);
    const auto pass = [&](bool is_bad) {
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {32, 32}, values);
        const Tensor h = make_tensor(context, MP_DTYPE_FP32, {32, 32});
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {32, 32});
        const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {32, 32}, values);
        MP_OK(mp_linear_forward(layers[0], nullptr, x, h));
        if (is_bad) { // something between the layers went wrong
            std::vector<float> hidden = values_of(context, h);
            hidden[5] = static_cast<float>(kNaN);
            MP_OK(mp_tensor_write(h, nullptr, hidden.data(), hidden.size() * sizeof(float)));
        }
        MP_OK(mp_linear_forward(layers[1], nullptr, h, y));
        const Tensor dh = make_tensor(context, MP_DTYPE_FP32, {32, 32});
        MP_OK(mp_linear_backward(layers[1], nullptr, dy, dh, grads[1], nullptr, 0));
        MP_OK(mp_linear_backward(layers[0], nullptr, dh, nullptr, grads[0], nullptr, 0));
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    };
    pass(false);
    pass(true);
    char text[100];
    MP_OK(mp_optimizer_get_bad_tensor(optimizer, text, sizeof text, nullptr));
    EXPECT_STREQ(text, "the input of layer 'second'");
}

// Only ordinary files are replaced, and none but the named one.
TEST(History, WhatIsNoOrdinaryFileStays) {
    const Folder folder("history-files");
    fs::create_directories(folder.path / "a-folder");
    const fs::path target = folder.path / "target", link = folder.path / "link",
                   pipe = folder.path / "pipe", mine = folder.path / "last.json.part";
    std::ofstream(target) << "kept";
    std::ofstream(mine) << "mine";
    fs::create_symlink(target, link);
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const char* name : {"link", "pipe", "a-folder", "last.json"}) {
        const Watched w;
        const std::string path = (folder.path / name).string();
        const mp_status set = mp_optimizer_set_history(w.optimizer, 2, path.c_str());
        EXPECT_EQ(set, name == std::string("last.json") ? MP_STATUS_OK : MP_STATUS_INVALID_ARGUMENT)
            << name;
        MP_OK(w.guard(2, 3.0, 0.0)); // so that gradients are looked at
        MP_OK(w.step(kNaN));
    }
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_TRUE(fs::is_fifo(pipe));
    EXPECT_EQ(fs::file_size(target), 4U);
    EXPECT_EQ(fs::file_size(mine), 4U);
    EXPECT_GT(fs::file_size(folder.path / "last.json"), 50U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 6);
}

TEST(History, AFileThatCannotBeWrittenFailsNoStep) {
    const Watched w;
    MP_OK(mp_optimizer_set_history(w.optimizer, 2, "/nowhere/at/all.json"));
    mp_guard_desc guard = MP_GUARD_DESC_INIT;
    guard.max_grad_norm_z = 3.0; // so that gradients are looked at
    MP_OK(mp_optimizer_set_guard(w.optimizer, nullptr, &guard));
    MP_OK(w.step(kNaN));
    EXPECT_EQ(w.bad_tensor(), "the gradient of 'wheel'");
    EXPECT_EQ(w.records(), 1);
    MP_FAILS(mp_optimizer_set_history(w.optimizer, -1, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "steps is -1");
    MP_FAILS(mp_optimizer_set_history(w.optimizer, 0, "x.json"), MP_STATUS_INVALID_ARGUMENT,
             "no steps to keep");
    EXPECT_EQ(w.records(), 1); // a failed call changes nothing
}
