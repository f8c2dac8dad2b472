// SPDX-License-Identifier: Apache-2.0
// A checkpoint of another recipe, saved and loaded by ranks that share the optimizer: every number of ranks, stage and plan
// converts to the bits, and reports the loss, of one rank alone. (That one rank's numbers are right is shown through the
// C API.)
#include "checkpoint/reshard.hpp"

namespace mp::test {
namespace {

using checkpoint::Conversion;

Training training_of(const std::string& name) {
    for (const Family& family : families()) {
        if (name == family.name) {
            return family.run;
        }
    }
    ADD_FAILURE() << name;
    return {};
}

struct Converted {
    Conversion loss;
    std::vector<Outcome> outcomes;
};

// On every rank the same; returns rank 0's.
Converted convert_on(int32_t ranks, Training run, SimulatedFiles& files) {
    run.first = 0.5F;
    std::vector<Converted> all(static_cast<std::size_t>(ranks));
    train_ranks(ranks, run, [&](TestModel& test_model) {
        Converted& own = all[static_cast<std::size_t>(test_model.comm().rank())];
        const auto checkpointer = checkpointer_of(test_model, files);
        checkpoint::LoadFlags flags;
        flags.convert = true;
        (void)checkpointer->load(kFolder, flags, &own.loss);
        own.outcomes = go_on(test_model, kBefore, 2);
    });
    for (const Converted& one : all) {
        expect_all_same(all[0].outcomes, one.outcomes);
        EXPECT_EQ(one.loss.weights.rms, all[0].loss.weights.rms);
    }
    return all[0];
}

void expect_same_loss(const checkpoint::Difference& expected,
                      const checkpoint::Difference& actual) {
    EXPECT_EQ(expected.largest, actual.largest);
    EXPECT_NEAR(expected.rms, actual.rms, 1e-12 * expected.rms); // sums of ranks' sums
}

TEST(Convert, EveryNumberOfRanksConvertsAsOneDoes) {
    const struct {
        const char* from;
        const char* to;
        bool keeps_weights; // what the target keeps of them is all that there is
    } rows[] = {
        {"kahan", "msamp_o2", false},
        {"kahan", "msamp_o3", false},
        {"msamp_o2", "kahan", true},
        {"msamp_o3", "bf16_mixed", true},
        {"fp32", "fp16_mixed", true},
        {"remainder", "int8 blocks", false},
        {"int4 blocks", "fp32", true},
        {"bf16_mixed", "int4 blocks", false},
        {"fp16_mixed", "remainder", true},
        {"stochastic", "fp8 blocks", true},
        {"bf16_mixed_dual", "fp8 codes", true},
        {"fp8 codes", "fp16 scaled", false},
        {"companded", "fp8 blocks of 128", true},
        {"kahan", "int8 kahan", false},
        {"int8 kahan", "bf16_mixed", true},
        {"bf16_mixed", "lion", false}, // the rule is the target's
    };
    for (const auto& row : rows) {
        Training from = training_of(row.from);
        Training to = training_of(row.to);
        from.sharding.stage = to.sharding.stage = 1;
        from.rule = to.rule;
        SimulatedFiles files;
        save_on(3, from, files);
        const Converted expected = convert_on(1, to, files);
        EXPECT_TRUE(expected.loss.happened);
        EXPECT_EQ(expected.loss.weights.largest == 0.0, row.keeps_weights)
            << row.from << " to " << row.to << ": " << expected.loss.weights.largest;
        EXPECT_LT(expected.loss.weights.largest, 0.01);
        EXPECT_LT(expected.loss.states[0].rms, 0.01);
        for (const int32_t ranks : {2, 5}) {
            to.sharding.stage = ranks == 2 ? 2 : 3;
            SCOPED_TRACE(std::string(row.from) + " to " + row.to + " on " + std::to_string(ranks));
            const Converted actual = convert_on(ranks, to, files);
            expect_all_same(expected.outcomes, actual.outcomes);
            expect_same_loss(expected.loss.weights, actual.loss.weights);
            expect_same_loss(expected.loss.states[0], actual.loss.states[0]);
            expect_same_loss(expected.loss.states[1], actual.loss.states[1]);
        }
    }
}

// In stage 0 every rank has everything, and a loss counts once.
TEST(Convert, WhereEveryRankHasEverything) {
    Training from = training_of("fp32");
    Training to = training_of("int8 blocks");
    SimulatedFiles files;
    save_on(2, from, files);
    to.sharding.stage = 0;
    const Converted expected = convert_on(1, to, files);
    const Converted actual = convert_on(3, to, files);
    expect_all_same(expected.outcomes, actual.outcomes);
    expect_same_loss(expected.loss.weights, actual.loss.weights);
    EXPECT_GT(actual.loss.weights.rms, 0.0);
}

// What one rank alone finds wrong leaves every rank's state as it was.
TEST(Convert, DamageLeavesEveryRanksState) {
    SimulatedFiles files;
    save_on(2, training_of("kahan"), files);
    std::vector<std::string> names;
    check(files.list(kFolder, &names));
    ASSERT_EQ(names.size(), 1U);
    std::string* shard =
        files.content(std::string(kFolder) + "/" + names[0] + "/shard-1-of-2.safetensors");
    ASSERT_NE(shard, nullptr);
    shard->back() = static_cast<char>(shard->back() ^ 1);
    Training to = training_of("msamp_o2");
    to.sharding.stage = 2;
    const auto steps = [&](bool loads) {
        std::vector<Outcome> outcomes;
        train_ranks(2, to, [&](TestModel& test_model) {
            const auto checkpointer = checkpointer_of(test_model, files);
            (void)go_on(test_model, 0, 1);
            checkpoint::LoadFlags flags;
            flags.convert = true;
            if (loads) {
                EXPECT_THROW((void)checkpointer->load(kFolder, flags, nullptr), Error);
            }
            const std::vector<Outcome> own = go_on(test_model, 1, 2);
            if (test_model.comm().rank() == 1) {
                outcomes = own;
            }
        });
        return outcomes;
    };
    expect_all_same(steps(false), steps(true));
}

} // namespace
} // namespace mp::test
