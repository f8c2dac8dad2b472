// SPDX-License-Identifier: Apache-2.0
// The history of the last steps: what it records, whom it names for a number that is not finite, and its file.
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "layers.hpp"
#include "ranks.hpp"
#include "training.hpp"
#include "watched.hpp"

using namespace mp_test;

namespace {

std::string read_file(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

} // namespace

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
        std::vector<std::string> names(2);
        run_ranks(2, [&](mp_comm* comm, int32_t rank) {
            const Watched w(nullptr, comm, "fp32", stage);
            MP_OK(w.guard(4, 3.0, 0.0));
            MP_OK(mp_optimizer_set_history(w.optimizer, 4, nullptr));
            MP_OK(mp_optimizer_shard(w.optimizer, nullptr));
            for (const double norm : {1.0, rank == 0 ? kNaN : 1.0}) {
                MP_OK(mp_optimizer_acquire_grad(w.optimizer, nullptr, 0));
                MP_OK(w.step(norm));
            }
            EXPECT_EQ(w.record(1).outcome, MP_STEP_NON_FINITE) << stage;
            names[static_cast<std::size_t>(rank)] = w.bad_tensor();
        });
        EXPECT_TRUE(names[0] == "the gradient of 'wheel'" || names[1] == "the gradient of 'wheel'")
            << stage << names[0] << names[1];
    }
}

TEST(History, NamesTheLayerWhoseInputWasBadFirst) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp8_current");
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE;
    const Optimizer optimizer = make_optimizer(context, recipe, desc);
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, nullptr));
    std::vector<Tensor> weights, grads;
    std::vector<Linear> layers;
    std::vector<mp_linear*> raw;
    for (const char* name : {"first", "second"}) {
        weights.push_back(make_tensor(context, MP_DTYPE_FP32, {32, 32}, numbers(1024, 3)));
        const std::string weight_name = std::string(name) + ".weight";
        int32_t index = 0;
        MP_OK(
            add_param(optimizer, 0, weight_name.c_str(), weights.back(), nullptr, nullptr, &index));
        grads.push_back(state_of(optimizer, index, "grad"));
        mp_linear_desc layer = linear_desc(32, 32, MP_LINEAR_STATS);
        layer.name = name;
        layers.push_back(make_linear(context, recipe, layer, weights.back()));
        raw.push_back(layers.back());
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
