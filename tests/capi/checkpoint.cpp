// SPDX-License-Identifier: Apache-2.0
// mp_checkpoint: training that is stopped and goes on has the bits of training that is not; in the background; on ranks.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "../fixture_path.hpp"
#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

TEST(Checkpoint, GoingOnHasTheBitsOfNotHavingStopped) {
    const char* const fp8_blocks =
        R"({"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "fp8_e4m3_block256", )"
        R"("optimizer.exp_avg_sq.dtype": "fp8_e4m3_block256"})";
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
        fp8_blocks};
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

namespace {

struct Errors {
    double largest = 0.0;
    double rms = 0.0;
};

std::vector<float> exact_weight(const Training& training, int32_t i) {
    const Tensor values = make_tensor(training.context, MP_DTYPE_FP32, {kSizes[i]});
    EXPECT_TRUE(
        succeeded(mp_optimizer_read_state(training.optimizer, nullptr, i, "fp32_param", values)));
    return values_of(training.context, values);
}

Errors weight_errors(const Training& saved, const Training& target) {
    Errors errors;
    double squares = 0.0;
    int64_t count = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(std::size(kSizes)); ++i) {
        const std::vector<float> exact = exact_weight(saved, i), now = exact_weight(target, i);
        for (std::size_t e = 0; e < exact.size(); ++e, ++count) {
            const double error =
                std::fabs(static_cast<double>(exact[e]) - static_cast<double>(now[e]));
            errors.largest = std::max(errors.largest, error);
            squares += error * error;
        }
    }
    errors.rms = std::sqrt(squares / static_cast<double>(count));
    return errors;
}

} // namespace

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
        EXPECT_EQ(stats_of(target.optimizer).step, 4);
        const Errors errors = weight_errors(saved, target);
        EXPECT_EQ(info.weight_largest_error, errors.largest);
        EXPECT_NEAR(info.weight_rms_error, errors.rms, 1e-12);
        EXPECT_EQ(info.weight_largest_error > 0.0, shows_loss);
        EXPECT_LT(info.weight_largest_error, 0.01);
        EXPECT_LT(info.state_rms_error[MP_STATE_EXP_AVG], 0.01);
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

// A scaler whose scale does not move has its own after a load, whatever was saved.
TEST(Checkpoint, AScaleThatDoesNotMoveStays) {
    const Context context = make_context(1);
    const auto make = [&](int32_t kind, double scale) {
        mp_scaler_desc desc = MP_SCALER_DESC_INIT;
        desc.kind = kind;
        desc.init_scale = scale;
        return make_scaler(context, &desc);
    };
    const auto file_of = [&](mp_scaler* scaler) {
        mp_checkpoint* made = nullptr;
        EXPECT_TRUE(succeeded(mp_checkpoint_create(context, nullptr, nullptr, &made)));
        EXPECT_TRUE(succeeded(mp_checkpoint_add_scaler(made, scaler)));
        return Checkpoint(made);
    };
    const Folder folder("scaler");
    const Scaler moves = make(MP_SCALER_DYNAMIC, 65536.0);
    MP_OK(mp_checkpoint_save(file_of(moves), folder.c_str(), 1, 0));
    for (const auto& [kind, scale] : {std::pair(MP_SCALER_NONE, 1.0), {MP_SCALER_STATIC, 128.0}}) {
        const Scaler stays = make(kind, kind == MP_SCALER_NONE ? 65536.0 : scale);
        MP_OK(mp_checkpoint_load(file_of(stays), folder.c_str(), 0, nullptr));
        mp_scaler_state state = MP_SCALER_STATE_INIT;
        MP_OK(mp_scaler_get_state(stays, nullptr, &state));
        EXPECT_EQ(state.scale, scale);
    }
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
    EXPECT_EQ(folder.entries(), 2U);
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
    EXPECT_EQ(folder.entries(), 1U);
    Training alone("bf16_pure_kahan");
    MP_OK(mp_checkpoint_load(alone.checkpoint, folder.c_str(), 0, nullptr));
    EXPECT_EQ(alone.everything(), states[0]);
}
