// SPDX-License-Identifier: Apache-2.0
// mp_checkpoint: training that is stopped and goes on has the bits of training that is not; in the background; on ranks;
// and each way to call it wrongly.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>

#include "../fixture_path.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

std::size_t entries_in(const fs::path& path) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

} // namespace

TEST(Checkpoint, GoingOnHasTheBitsOfNotHavingStopped) {
    const char* const recipes[] = {
        "fp32",
        "fp16_mixed",
        "bf16_mixed",
        "bf16_mixed_dual",
        "bf16_pure",
        "bf16_pure_sr",
        "bf16_pure_kahan",
        "bf16_pure_remainder",
        R"({"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int8_block256", "optimizer.exp_avg_sq.dtype": "int8_block256"})",
        R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int4_block128", "optimizer.exp_avg_sq.dtype": "int4_block128"})",
        R"({"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "fp8_e4m3_block256", "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block256"})"};
    for (const char* name : recipes) {
        SCOPED_TRACE(name);
        const Folder folder("resume");
        Training straight(name);
        Training stopped(name);
        Training resumed(name, 99); // the seed comes with the checkpoint
        for (int i = 0; i < 5; ++i) {
            straight.step();
            stopped.step();
        }
        MP_OK(mp_checkpoint_save(stopped.checkpoint, folder.c_str(), 5, 0));
        stopped.step(); // what comes after is not in it
        resumed.step(); // and what was before is gone
        mp_checkpoint_info info{};
        info.struct_size = sizeof info;
        MP_OK(mp_checkpoint_load(resumed.checkpoint, folder.c_str(), MP_LOAD_VERIFY_ALL, &info));
        EXPECT_EQ(info.step, 5);
        EXPECT_EQ(info.applied_step, 4);
        EXPECT_EQ(info.seed, 3U);
        EXPECT_EQ(resumed.position, 5);
        EXPECT_EQ(resumed.everything(), straight.everything());
        for (int i = 0; i < 5; ++i) {
            straight.step();
            resumed.step();
            EXPECT_EQ(resumed.everything(), straight.everything()) << "step " << i + 6;
        }
    }
}

// A checkpoint that the first version wrote, before groups had rules (tests/fixtures/checkpoint).
TEST(Checkpoint, OfTheFirstVersionStillLoads) {
    Training straight("bf16_pure_kahan");
    for (int i = 0; i < 5; ++i) {
        straight.step();
    }
    Training resumed("bf16_pure_kahan", 99);
    const std::string folder = fixture_path("checkpoint/bf16_pure_kahan");
    MP_OK(mp_checkpoint_load(resumed.checkpoint, folder.c_str(), MP_LOAD_VERIFY_ALL, nullptr));
    EXPECT_EQ(resumed.everything(), straight.everything());
    straight.step();
    resumed.step();
    EXPECT_EQ(resumed.everything(), straight.everything());
}

// One group by AdamW, one by another rule.
TEST(Checkpoint, GoesOnByEachGroupsRule) {
    for (const int32_t rule : {MP_RULE_ADAM, MP_RULE_LION}) {
        for (const char* name : {"fp32", "bf16_pure_kahan"}) {
            SCOPED_TRACE(std::string(name) + ", rule " + std::to_string(rule));
            const Folder folder("rules");
            Training straight(name, 3, nullptr, nullptr, rule);
            Training resumed(name, 3, nullptr, nullptr, rule);
            for (int i = 0; i < 3; ++i) {
                straight.step();
            }
            MP_OK(mp_checkpoint_save(straight.checkpoint, folder.c_str(), 3, 0));
            MP_OK(mp_checkpoint_load(resumed.checkpoint, folder.c_str(), 0, nullptr));
            straight.step();
            straight.step();
            resumed.step();
            resumed.step();
            EXPECT_EQ(resumed.everything(), straight.everything());

            // AdamW takes what Adam left. Lion's states are others.
            Training other(name);
            const auto before = other.everything();
            if (rule == MP_RULE_ADAM) {
                MP_OK(mp_checkpoint_load(other.checkpoint, folder.c_str(), 0, nullptr));
                other.step();
                other.step();
                EXPECT_EQ(other.everything(), straight.everything()) << "the rule comes with it";
            } else {
                EXPECT_LT(mp_checkpoint_load(other.checkpoint, folder.c_str(), 0, nullptr), 0);
                EXPECT_NE(std::string(mp_last_error_message()).find("exp_avg_sq"),
                          std::string::npos)
                    << mp_last_error_message();
                EXPECT_EQ(other.everything(), before);
            }
        }
    }
}

// Between recipes whose exact weights are fp32 nothing is lost of them, and moments round as their types do.
TEST(Checkpoint, ConvertsToAnotherRecipeAndSaysWhatThatLoses) {
    const auto convert = [](const char* from, const char* to, bool shows_loss) {
        SCOPED_TRACE(std::string(from) + " to " + to);
        const Folder folder("convert");
        Training saved(from);
        for (int i = 0; i < 5; ++i) {
            saved.step();
        }
        MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 5, 0));
        Training target(to, 99);
        mp_checkpoint_info info{};
        info.struct_size = sizeof info;
        MP_OK(mp_checkpoint_load(target.checkpoint, folder.c_str(), MP_LOAD_CONVERT, &info));
        EXPECT_EQ(info.converted, 1);
        EXPECT_EQ(target.position, 5);
        mp_optimizer_stats stats{};
        stats.struct_size = sizeof stats;
        MP_OK(mp_optimizer_get_stats(target.optimizer, nullptr, &stats));
        EXPECT_EQ(stats.step, 4);
        double largest = 0.0;
        double squares = 0.0;
        int64_t count = 0;
        for (int32_t i = 0; i < static_cast<int32_t>(std::size(kSizes)); ++i) {
            const auto read = [&](const Training& training, const char* state) {
                const Tensor values = make_tensor(training.context, MP_DTYPE_FP32, {kSizes[i]});
                EXPECT_TRUE(succeeded(
                    mp_optimizer_read_state(training.optimizer, nullptr, i, state, values)));
                return values_of(training.context, values);
            };
            const std::vector<float> exact = read(saved, "fp32_param"),
                                     now = read(target, "fp32_param");
            for (std::size_t e = 0; e < exact.size(); ++e, ++count) {
                const double error =
                    std::fabs(static_cast<double>(exact[e]) - static_cast<double>(now[e]));
                largest = std::max(largest, error);
                squares += error * error;
            }
        }
        EXPECT_EQ(info.weight_largest_error, largest);
        EXPECT_NEAR(info.weight_rms_error, std::sqrt(squares / static_cast<double>(count)), 1e-12);
        EXPECT_EQ(info.weight_largest_error > 0.0, shows_loss);
        EXPECT_LT(info.weight_largest_error, 0.01);
        EXPECT_LT(info.exp_avg_rms_error, 0.01);
        target.step(); // and training goes on
    };
    convert("fp32", "bf16_mixed_dual", false);
    convert("bf16_mixed", "bf16_pure_remainder", false);
    convert("bf16_pure_remainder", "fp32", false);
    convert("bf16_pure_kahan", "fp16_mixed", false);
    convert("fp32", "bf16_pure", true);
    convert("fp32", R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256"})", true);
    // The same recipe is an ordinary load, bit for bit.
    const Folder folder("convert");
    Training saved("bf16_pure_kahan");
    saved.step();
    MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
    Training same("bf16_pure_kahan", 99);
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    MP_OK(mp_checkpoint_load(same.checkpoint, folder.c_str(), MP_LOAD_CONVERT, &info));
    EXPECT_EQ(info.converted, 0);
    EXPECT_EQ(same.everything(), saved.everything());
}

// Only layers' scales, which are the saved recipe's, may be left behind.
TEST(Checkpoint, NothingIsLostOnTheWayToAnotherRecipe) {
    const Folder folder("convert");
    Training saved("fp32");
    saved.step();
    int64_t more = 7;
    MP_OK(mp_checkpoint_add_data(saved.checkpoint, "more", &more, sizeof more));
    MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
    Training target("bf16_mixed", 99);
    const auto before = target.everything();
    MP_FAILS(mp_checkpoint_load(target.checkpoint, folder.c_str(), MP_LOAD_CONVERT, nullptr),
             MP_STATUS_UNKNOWN_NAME, "'more' (data) is in the file");
    EXPECT_EQ(target.everything(), before);
}

TEST(Checkpoint, InTheBackgroundItIsTheStateOfTheCall) {
    const Folder folder("background");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    struct Gate {
        std::atomic<bool> open{false};
        std::atomic<int64_t> done{0};
        std::atomic<int64_t> total{0};
    } gate;
    desc.payload = &gate;
    desc.progress = [](int64_t done, int64_t total, void* payload) {
        auto* g = static_cast<Gate*>(payload);
        g->done = done;
        g->total = total;
        while (!g->open) {
            std::this_thread::yield();
        }
    };
    Training training("bf16_mixed", 3, nullptr, &desc);
    training.step();
    const std::vector<unsigned char> then = training.everything();
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, MP_SAVE_BACKGROUND));
    EXPECT_EQ(mp_checkpoint_test(training.checkpoint), MP_STATUS_NOT_READY);
    MP_FAILS(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, 0), MP_STATUS_BAD_STATE,
             "still running");
    training.step(); // training goes on
    gate.open = true;
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    MP_OK(mp_checkpoint_test(training.checkpoint));
    EXPECT_EQ(gate.done.load(), gate.total.load());
    EXPECT_GT(gate.total.load(), 10000);
    EXPECT_NE(training.everything(), then);
    MP_OK(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr));
    EXPECT_EQ(training.everything(), then);
    // A folder that cannot be is found at the call; a failure in the background is told by wait, once.
    MP_FAILS(mp_checkpoint_save(training.checkpoint, "/proc/none/none", 2, MP_SAVE_BACKGROUND),
             MP_STATUS_IO_ERROR, "/proc/none");
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    MP_OK(mp_checkpoint_save(training.checkpoint, "/proc", 2, MP_SAVE_BACKGROUND));
    MP_FAILS(mp_checkpoint_wait(training.checkpoint), MP_STATUS_IO_ERROR, "/proc/.tmp-");
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    // Destroying waits.
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 3, MP_SAVE_BACKGROUND));
    training.checkpoint = Checkpoint();
    EXPECT_EQ(entries_in(folder.path), 2U);
}

TEST(Checkpoint, KeepsAsManyAsAsked) {
    const Folder folder("keep");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = 2;
    Training training("bf16_pure", 3, nullptr, &desc);
    for (int64_t step = 1; step <= 4; ++step) {
        MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), step, 0));
    }
    EXPECT_EQ(entries_in(folder.path), 2U);
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    MP_OK(mp_checkpoint_inspect(folder.c_str(), &info));
    EXPECT_EQ(info.step, 4);
    EXPECT_EQ(info.sequence, 4);
    EXPECT_EQ(info.world, 1);
    EXPECT_EQ(info.format, 1);
    std::string text(1 << 16, '\0');
    MP_OK(mp_checkpoint_describe(folder.c_str(), text.data(), text.size(), nullptr));
    EXPECT_NE(text.find("step-4-4-"), std::string::npos) << text;
    EXPECT_NE(text.find("step-3-3-"), std::string::npos) << text;
    const std::string newest = text.substr(0, text.find(':'));
    MP_OK(
        mp_checkpoint_describe((folder.path / newest).c_str(), text.data(), text.size(), nullptr));
    EXPECT_NE(text.find("tensor layer.129 (param) bf16 [129]"), std::string::npos) << text;
}

std::string manifest_of(const std::string& path, mp_status wanted = MP_STATUS_OK) {
    std::size_t needed = 0;
    EXPECT_EQ(mp_checkpoint_read_manifest(path.c_str(), nullptr, 0, &needed), wanted);
    std::string text(needed, '\0');
    EXPECT_EQ(mp_checkpoint_read_manifest(path.c_str(), text.data(), text.size(), nullptr), wanted);
    return text.c_str();
}

// The manifest is the one that a load takes; what lies beside it under a newer name is passed over with a word, whatever it is.
TEST(Checkpoint, ReadsTheManifestThatALoadTakes) {
    namespace fs = std::filesystem;
    const Folder folder("manifest");
    Training training("bf16_pure");
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 7, 0));
    const std::string name = fs::directory_iterator(folder.path)->path().filename().string();
    const std::string whole = manifest_of(folder.c_str());
    EXPECT_EQ(whole.rfind("{\"name\":\"" + name + "\",\"manifest\":{\"format\"", 0), 0U) << whole;
    EXPECT_EQ(whole.back(), '}');
    const std::string alone = manifest_of(folder.path / name);
    EXPECT_EQ(alone, "{\"name\":\"\"" + whole.substr(whole.find(",\"manifest\"")));
    const fs::path newer = folder.path / ("step-9-99-" + std::string(32, 'a'));
    const auto damages = {
        +[](const fs::path& to) { fs::create_directory(to); },
        +[](const fs::path& to) { std::ofstream(to) << "a file"; },
        +[](const fs::path& to) { fs::create_directory_symlink(to.parent_path() / "other", to); },
        +[](const fs::path& to) {
            fs::create_directory(to);
            std::ofstream(to / "manifest.json") << "{}";
        },
        +[](const fs::path& to) {
            fs::create_directory(to);
            EXPECT_EQ(mkfifo((to / "manifest.json").c_str(), 0600), 0);
        },
    };
    fs::copy(folder.path / name, folder.path / "other"); // what the link leads to
    for (const auto& damage : damages) {
        damage(newer);
        EXPECT_EQ(manifest_of(folder.c_str(), MP_STATUS_WARNING), whole);
        std::string text(1 << 16, '\0');
        MP_OK(mp_checkpoint_describe(folder.c_str(), text.data(), text.size(), nullptr));
        EXPECT_EQ(text.find("rank(s)"), text.rfind("rank(s)")) << text; // one of them is intact
        fs::remove_all(newer);
    }
    const std::string beyond = "step-9-100000000000000000000000-" + std::string(32, 'a');
    fs::copy(folder.path / name, folder.path / beyond);
    EXPECT_EQ(manifest_of(folder.c_str()), whole);
    std::size_t needed = 7;
    MP_FAILS(mp_checkpoint_read_manifest("/none", nullptr, 0, &needed), MP_STATUS_IO_ERROR,
             "/none");
    EXPECT_EQ(needed, 7U);
}

TEST(Checkpoint, RefusesWhatDoesNotFitAndLeavesTheState) {
    const Folder folder("refuse");
    Training saved("bf16_mixed");
    saved.step();
    MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
    Training other("bf16_mixed_dual");
    std::vector<unsigned char> before = other.everything();
    MP_FAILS(mp_checkpoint_load(other.checkpoint, folder.c_str(), 0, nullptr), MP_STATUS_BAD_STATE,
             "another recipe", "weight.dtype");
    MP_FAILS(mp_checkpoint_load(other.checkpoint, folder.c_str(), MP_LOAD_OTHER_RECIPE, nullptr),
             MP_STATUS_INVALID_DTYPE, "is fp32 in the file but bf16 here");
    EXPECT_EQ(other.everything(), before);
    // The same types, another recipe.
    Training sibling(R"({"recipe": "bf16_mixed", "scaler.init_scale": 8})");
    before = sibling.everything();
    MP_FAILS(mp_checkpoint_load(sibling.checkpoint, folder.c_str(), 0, nullptr),
             MP_STATUS_BAD_STATE, "another recipe", "scaler.init_scale");
    EXPECT_EQ(sibling.everything(), before);
    MP_OK(mp_checkpoint_load(sibling.checkpoint, folder.c_str(), MP_LOAD_OTHER_RECIPE, nullptr));
    EXPECT_EQ(sibling.everything(), saved.everything());
    // One more group, one more datum.
    Training grown("bf16_mixed");
    int32_t index = 0;
    MP_OK(mp_optimizer_add_group(grown.optimizer, nullptr, &index));
    MP_FAILS(mp_checkpoint_load(grown.checkpoint, folder.c_str(), 0, nullptr), MP_STATUS_BAD_STATE,
             "2 group(s) were saved, but there are 3");
    Training more("bf16_mixed");
    int64_t datum = 0;
    MP_OK(mp_checkpoint_add_data(more.checkpoint, "datum", &datum, sizeof datum));
    MP_FAILS(mp_checkpoint_load(more.checkpoint, folder.c_str(), 0, nullptr),
             MP_STATUS_UNKNOWN_NAME, "does not have 'datum'");
    // Damage.
    for (const fs::directory_entry& file :
         fs::directory_iterator(fs::directory_iterator(folder.path)->path())) {
        fs::resize_file(file.path(), fs::file_size(file.path()) - 1);
    }
    Training damaged("bf16_mixed");
    before = damaged.everything();
    MP_FAILS(mp_checkpoint_load(damaged.checkpoint, folder.c_str(), 0, nullptr), MP_STATUS_IO_ERROR,
             "no checkpoint that can be read", "checksum");
    EXPECT_EQ(damaged.everything(), before);
}

TEST(Checkpoint, OnRanksThatAllHaveEverything) {
    const Folder folder("ranks");
    constexpr int32_t kRanks = 2;
    mp_comm* comms[kRanks] = {};
    MP_OK(mp_comm_create_threads(nullptr, kRanks, comms));
    std::vector<std::vector<unsigned char>> states(kRanks);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            Training training("bf16_pure_kahan", 3, comms[rank]);
            training.step();
            EXPECT_TRUE(succeeded(
                mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, MP_SAVE_BACKGROUND)));
            states[static_cast<std::size_t>(rank)] = training.everything();
            EXPECT_TRUE(succeeded(mp_checkpoint_wait(training.checkpoint)));
            training.step();
            EXPECT_TRUE(
                succeeded(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr)));
            EXPECT_EQ(training.everything(), states[static_cast<std::size_t>(rank)]);
            // A rank that is at another step is found out before anything is written.
            if (rank == 1) {
                training.step();
            }
            EXPECT_TRUE(fails(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, 0),
                              MP_STATUS_RANK_MISMATCH, {"rank 1 and rank 0 have different"}));
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (mp_comm* comm : comms) {
        mp_comm_destroy(comm);
    }
    EXPECT_EQ(entries_in(folder.path), 1U);
    Training alone("bf16_pure_kahan");
    MP_OK(mp_checkpoint_load(alone.checkpoint, folder.c_str(), 0, nullptr));
    EXPECT_EQ(alone.everything(), states[0]);
}

TEST(Checkpoint, WeightsAlone) {
    const Folder folder("weights");
    fs::create_directory(folder.path);
    const std::string file = (folder.path / "weights.safetensors").string();
    const Training training("bf16_pure");
    MP_OK(mp_checkpoint_export_weights(training.checkpoint, file.c_str()));
    EXPECT_GT(fs::file_size(file), 2U * (1 + 129 + 6000));
    EXPECT_EQ(entries_in(folder.path), 1U);
    MP_FAILS(mp_checkpoint_export_weights(training.checkpoint, file.c_str()), MP_STATUS_IO_ERROR,
             "exists");
    EXPECT_EQ(entries_in(folder.path), 1U);
}

TEST(Checkpoint, CalledWrongly) {
    Training training("fp32");
    mp_checkpoint* out = nullptr;
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = -1;
    MP_FAILS(mp_checkpoint_create(training.context, nullptr, &desc, &out),
             MP_STATUS_INVALID_ARGUMENT, "keep");
    desc.keep = 0;
    desc.flags = 1;
    MP_FAILS(mp_checkpoint_create(training.context, nullptr, &desc, &out),
             MP_STATUS_INVALID_ARGUMENT, "flags");
    mp_checkpoint* const c = training.checkpoint;
    MP_FAILS(mp_checkpoint_add_optimizer(c, training.optimizer), MP_STATUS_BAD_STATE, "already");
    MP_FAILS(mp_checkpoint_add_scaler(c, training.scaler), MP_STATUS_BAD_STATE, "already");
    MP_FAILS(mp_checkpoint_add_linear(c, "", training.linear), MP_STATUS_INVALID_ARGUMENT, "name");
    MP_FAILS(mp_checkpoint_add_data(c, "x", nullptr, 1), MP_STATUS_NULL_ARGUMENT, "data");
    MP_FAILS(mp_checkpoint_add_data(c, "x", &desc, 0), MP_STATUS_INVALID_ARGUMENT, "bytes");
    const Training stranger("fp32");
    Checkpoint fresh;
    MP_OK(mp_checkpoint_create(training.context, nullptr, nullptr, &out));
    fresh = Checkpoint(out);
    MP_FAILS(mp_checkpoint_add_optimizer(fresh, stranger.optimizer), MP_STATUS_INVALID_ARGUMENT,
             "another context");
    MP_FAILS(mp_checkpoint_save(c, "/tmp/x", -1, 0), MP_STATUS_INVALID_ARGUMENT, "step");
    MP_FAILS(mp_checkpoint_save(c, "/tmp/x", 1, 8), MP_STATUS_INVALID_ARGUMENT, "flags");
    MP_FAILS(mp_checkpoint_save(c, nullptr, 1, 0), MP_STATUS_NULL_ARGUMENT, "directory");
    MP_FAILS(mp_checkpoint_save(c, "/none/none/none", 1, 0), MP_STATUS_IO_ERROR, "/none");
    MP_FAILS(mp_checkpoint_load(c, "/none", 0, nullptr), MP_STATUS_IO_ERROR, "/none");
    MP_FAILS(mp_checkpoint_load(c, "/none", 64, nullptr), MP_STATUS_INVALID_ARGUMENT, "flags");
    mp_checkpoint_info info{};
    MP_FAILS(mp_checkpoint_inspect("/none", &info), MP_STATUS_INVALID_ARGUMENT, "struct_size");
    MP_FAILS(mp_checkpoint_load(c, "/none", 0, &info), MP_STATUS_INVALID_ARGUMENT, "struct_size");
    MP_FAILS(mp_checkpoint_add_linear(c, "layer", training.linear), MP_STATUS_INVALID_ARGUMENT,
             "'layer'");
}

// Whoever may write into the folder may put links there under the names of leftovers and of old checkpoints. Cleaning up
// must not reach what they point to.
TEST(Checkpoint, CleaningUpFollowsNoLinks) {
    const std::string id(32, 'c');
    for (const std::string& name : {".tmp-0-" + id, ".trash-0-" + id, "step-1-0-" + id}) {
        SCOPED_TRACE(name);
        for (const int32_t keep : {0, 1}) {
            const Folder outside("outside");
            fs::create_directories(outside.path / "empty");
            std::ofstream(outside.path / "precious") << "data";
            const Folder folder("links");
            mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
            desc.keep = keep;
            Training training("fp32", 3, nullptr, &desc);
            MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
            fs::create_directory_symlink(outside.path, folder.path / name);
            MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, 0));
            EXPECT_TRUE(fs::exists(outside.path / "precious"));
            EXPECT_TRUE(fs::exists(outside.path / "empty"));
        }
    }
}
