// SPDX-License-Identifier: Apache-2.0
// Nothing silent: what a call says of a mistake that it survives, and what the log is told.
#include <cmath>
#include <mutex>

#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

struct Line {
    int32_t level;
    std::string text;
};

// What a context's log was told.
struct Log {
    std::mutex mutex;
    std::vector<Line> lines;

    static void write(int32_t level, const char* message, void* payload) {
        auto& log = *static_cast<Log*>(payload);
        const std::lock_guard lock(log.mutex);
        log.lines.push_back({level, message});
    }
    // The first line with all of these words.
    [[nodiscard]] const Line* find(const std::vector<std::string>& words) const {
        for (const Line& line : lines) {
            bool has_all = true;
            for (const std::string& word : words) {
                has_all = has_all && line.text.find(word) != std::string::npos;
            }
            if (has_all) {
                return &line;
            }
        }
        return nullptr;
    }
};

struct Warnings : ::testing::Test {
    Log log;
    Context context = open();

    Context open() {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.log = Log::write;
        desc.log_payload = &log;
        desc.log_level = MP_LOG_DEBUG;
        desc.num_threads = 1;
        mp_context* made = nullptr;
        EXPECT_TRUE(succeeded(mp_context_create(&desc, &made)));
        return Context(made);
    }
    Tensor matrix(int64_t rows, int64_t columns) const {
        return make_tensor(context, MP_DTYPE_FP32, {rows, columns},
                           numbers(static_cast<std::size_t>(rows * columns), 5));
    }
    mp_status make_layer(const char* recipe, mp_tensor* weight, int64_t in, int64_t out,
                         uint32_t flags, Linear& layer) const {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = in;
        desc.out_features = out;
        desc.flags = flags;
        mp_linear* made = nullptr;
        const mp_status status =
            mp_linear_create(context, make_recipe(context, recipe), &desc, weight, nullptr, &made);
        layer = Linear(made);
        return status;
    }
    Optimizer make_optimizer() const {
        const Recipe recipe = make_recipe(context, "fp32");
        mp_optimizer* made = nullptr;
        EXPECT_TRUE(succeeded(mp_optimizer_create(context, recipe, nullptr, &made)));
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(made, nullptr, nullptr)));
        return Optimizer(made);
    }
    static void add(mp_optimizer* optimizer, const char* name, mp_tensor* param, mp_tensor* grad) {
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, name, param, grad)));
    }
};

} // namespace

TEST_F(Warnings, ALayerThatFallsBackSaysSo) {
    const Tensor weight = matrix(48, 64);
    Linear layer;
    EXPECT_TRUE(fails(make_layer("mxfp8", weight, 64, 48, 0, layer), MP_STATUS_WARNING,
                      {"high precision", "64 x 48", "multiple_of"}));
    ASSERT_NE(log.find({"high precision", "64 x 48"}), nullptr);
    EXPECT_EQ(log.find({"high precision", "64 x 48"})->level, MP_LOG_WARNING);
    const Tensor fits = matrix(64, 64);
    MP_OK(make_layer("mxfp8", fits, 64, 64, 0, layer));
    MP_OK(make_layer("bf16_mixed", weight, 64, 48, 0, layer)); // asks for no fp8
}

TEST_F(Warnings, AForgottenEndOfStepIsNoticedOnce) {
    const Tensor weight = matrix(64, 64), x = matrix(8, 64), y = matrix(8, 64), dw = matrix(64, 64);
    const auto step = [&](mp_linear* layer, uint32_t flags) {
        EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
        return mp_linear_backward_weight(layer, nullptr, y, dw, nullptr, flags);
    };
    Linear layer;
    MP_OK(make_layer("fp8_delayed", weight, 64, 64, 0, layer));
    MP_OK(step(layer, 0));
    MP_OK(step(layer, MP_BACKWARD_ACCUMULATE)); // the next micro-batch
    EXPECT_TRUE(fails(step(layer, 0), MP_STATUS_WARNING, {"mp_linear_end_step"}));
    MP_OK(step(layer, 0));
    MP_OK(make_layer("bf16_mixed", weight, 64, 64, MP_LINEAR_CACHE_WEIGHT, layer));
    MP_OK(step(layer, 0));
    mp_linear* const one = layer;
    MP_OK(mp_linear_end_step(&one, 1, nullptr, nullptr));
    MP_OK(step(layer, 0));
    EXPECT_TRUE(fails(step(layer, 0), MP_STATUS_WARNING, {"mp_linear_end_step"}));
    MP_OK(make_layer("bf16_mixed", weight, 64, 64, 0, layer)); // nothing depends on it
    for (int i = 0; i < 3; ++i) {
        MP_OK(step(layer, 0));
    }
}

TEST_F(Warnings, AForgottenUpdateOfTheScalerIsNoticedOnce) {
    const Tensor weight = matrix(8, 8), grad = matrix(8, 8), other = matrix(8, 8);
    const Optimizer first = make_optimizer(), second = make_optimizer();
    add(first, "a", weight, grad);
    add(second, "b", other, nullptr);
    const Scaler scaler = make_scaler(context);
    MP_OK(mp_optimizer_step(first, nullptr, scaler));
    MP_OK(mp_optimizer_step(second, nullptr, scaler)); // two optimizers, one update
    MP_OK(mp_scaler_update(scaler, nullptr));
    MP_OK(mp_optimizer_step(first, nullptr, scaler));
    EXPECT_TRUE(
        fails(mp_optimizer_step(first, nullptr, scaler), MP_STATUS_WARNING, {"mp_scaler_update"}));
    MP_OK(mp_optimizer_step(first, nullptr, scaler));
}

TEST_F(Warnings, ANearestBf16SecondMomentIsToldOf) {
    const Optimizer optimizer = mp_test::make_optimizer(context, make_recipe(context, "bf16_pure"));
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = -1;
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_WARNING,
             "never decrease");
    EXPECT_EQ(index, 0); // done all the same
    group.beta2 = 0.996;
    MP_OK(mp_optimizer_add_group(optimizer, &group, &index));
}

TEST_F(Warnings, AnOptimizerWithNothingInItSaysSoOnce) {
    const Optimizer optimizer = make_optimizer();
    EXPECT_TRUE(fails(mp_optimizer_step(optimizer, nullptr, nullptr), MP_STATUS_WARNING,
                      {"no parameters"}));
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
}

TEST_F(Warnings, TheLogTellsOfStepsCheckpointsAndProducts) {
    const Tensor weight = matrix(64, 64), grad = matrix(64, 64), fine = matrix(8, 8),
                 fine_grad = matrix(8, 8);
    const Optimizer optimizer = make_optimizer();
    add(optimizer, "fine", fine, fine_grad);
    add(optimizer, "blocks.0.weight", weight, grad);
    const Scaler scaler = make_scaler(context);
    MP_OK(mp_optimizer_step(optimizer, nullptr, scaler));
    MP_OK(mp_scaler_update(scaler, nullptr));
    EXPECT_EQ(log.find({"skipped"}), nullptr);
    static_cast<float*>(data_of(grad))[77] = NAN;
    MP_OK(mp_optimizer_step(optimizer, nullptr, scaler));
    MP_OK(mp_scaler_update(scaler, nullptr));
    ASSERT_NE(log.find({"step 2", "skipped", "'blocks.0.weight'"}), nullptr);
    ASSERT_NE(log.find({"loss scale", "65536", "32768", "not finite"}), nullptr);

    const Folder folder("log");
    const Checkpoint checkpoint = checkpoint_of(context, optimizer);
    MP_OK(mp_checkpoint_save(checkpoint, folder.c_str(), 7, 0));
    MP_OK(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr));
    EXPECT_NE(log.find({"step 7 is saved", folder.c_str()}), nullptr);
    EXPECT_NE(log.find({"step 7 is loaded", folder.c_str()}), nullptr);

    Linear layer;
    MP_OK(make_layer("bf16_mixed", weight, 64, 64, MP_LINEAR_CACHE_WEIGHT, layer));
    const Tensor x = matrix(8, 64), y = matrix(8, 64);
    MP_OK(mp_linear_forward(layer, nullptr, x, y));
    ASSERT_NE(log.find({"linear: fprop with 8 rows"}), nullptr);
    ASSERT_NE(log.find({"linear: keeps its weight as bf16", "8192 bytes"}), nullptr) << "cached";
    EXPECT_EQ(log.find({"linear: fprop with 8 rows"})->level, MP_LOG_DEBUG);
}

// How many threads and why, and the memory that an optimizer holds.
TEST_F(Warnings, TheLogTellsOfThreadsAndMemory) {
    ASSERT_NE(log.find({"host: 1 thread(s)", "instruction set"}), nullptr);
    const Tensor weight = matrix(64, 64), grad = matrix(64, 64);
    const Optimizer optimizer = make_optimizer();
    add(optimizer, "w", weight, grad);
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    ASSERT_NE(log.find({"1 parameter(s) of 4096 elements", "exp_avg 16384, exp_avg_sq 16384"}),
              nullptr);
}

// Products of a context with other threads may have other last bits, so a load that finds them says so.
TEST_F(Warnings, ACheckpointOfOtherThreadsIsToldOf) {
    const Folder folder("threads");
    for (const int32_t threads : {1, 2}) {
        const Context other = make_context(threads);
        int64_t position = 7;
        mp_checkpoint* raw = nullptr;
        MP_OK(mp_checkpoint_create(other, nullptr, nullptr, &raw));
        const Checkpoint saved(raw);
        MP_OK(mp_checkpoint_add_data(saved, "position", &position, sizeof position));
        MP_OK(mp_checkpoint_save(saved, folder.c_str(), threads, 0));
        MP_OK(mp_checkpoint_create(context, nullptr, nullptr, &raw));
        const Checkpoint loaded(raw);
        MP_OK(mp_checkpoint_add_data(loaded, "position", &position, sizeof position));
        MP_OK(mp_checkpoint_load(loaded, folder.c_str(), 0, nullptr));
        const Line* line = log.find({"saved on host, ", "2 threads", "1 thread,"});
        EXPECT_EQ(line != nullptr, threads == 2);
    }
    EXPECT_EQ(log.find({"2 threads", "last bits"})->level, MP_LOG_WARNING);
}

// Weights that a program keeps in fp32 are none of a recipe's that wants others: only its products apply, which is said once.
TEST_F(Warnings, ARecipeWhoseWeightsAreTheProgramsIsToldOfOnce) {
    const std::vector<float> weight(64 * 64);
    int noted = 0;
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        MP_OK(mp_recipe_get_preset_info(i, &name, nullptr));
        const Recipe recipe = make_recipe(context, name);
        const char* kept = nullptr;
        MP_OK(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &kept));
        const bool is_other = std::string(kept) != "fp32";
        noted += is_other ? 1 : 0;
        for (int time = 0; time < 2; ++time) {
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            desc.in_features = desc.out_features = 64;
            mp_linear* made = nullptr;
            const mp_status status =
                mp_linear_create_pointers(context, recipe, &desc, weight.data(), MP_DTYPE_FP32,
                                          nullptr, MP_DTYPE_NONE, &made);
            const Linear layer(made);
            ASSERT_TRUE(done(status)) << name;
            EXPECT_EQ(status > 0, is_other && time == 0) << name;
            if (status > 0) {
                EXPECT_NE(std::string(mp_last_error_message()).find("only the products apply"),
                          std::string::npos);
            }
        }
    }
    EXPECT_GT(noted, 10);
}
