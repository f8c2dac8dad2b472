// SPDX-License-Identifier: Apache-2.0
// ZeRO: every stage, plan and bucket size gives the bits of the others; with the tree's order every number of ranks does.
#include "zero.hpp"

#include <gtest/gtest.h>

namespace mp::test {
namespace {

recipe::Recipe preset(const char* name) { return recipe::find_preset(name).recipe; }

Training training_of(const recipe::Recipe& recipe, int32_t stage,
                     shard::ShardKind kind = shard::ShardKind::flat,
                     int64_t bucket_elements = 60000) {
    Training run;
    run.recipe = recipe;
    run.sharding.stage = stage;
    run.sharding.kind = kind;
    run.sharding.bucket_elements = bucket_elements;
    return run;
}

void expect_all_same(const Outcome& expected, const std::vector<Outcome>& actual) {
    for (std::size_t rank = 0; rank < actual.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        expect_same(expected, actual[rank]);
    }
}

// One rank that shares with nobody is the ordinary optimizer.
TEST(Zero, OneRankIsTheOrdinaryOptimizer) {
    for (const char* name : {"fp32", "bf16_pure_kahan", "bf16_pure_sr", "bf16_pure_remainder"}) {
        SCOPED_TRACE(name);
        Training alone = training_of(preset(name), 0);
        alone.alone = true;
        const Outcome expected = train(1, alone)[0];
        for (int32_t stage = 0; stage <= 3; ++stage) {
            SCOPED_TRACE(stage);
            expect_all_same(expected, train(1, training_of(preset(name), stage)));
        }
    }
}

class ZeroRecipe : public testing::TestWithParam<const char*> {};

TEST_P(ZeroRecipe, StagesPlansAndBucketsGiveTheSameBits) {
    const recipe::Recipe recipe = preset(GetParam());
    const bool has_scales =
        is_scaled(recipe.master) || is_scaled(recipe.state(numerics::StateId::exp_avg).format);
    const int32_t ranks = 3;
    const shard::ShardKind first = has_scales ? shard::ShardKind::greedy : shard::ShardKind::flat;
    const std::vector<Outcome> expected = train(ranks, training_of(recipe, 1, first));
    expect_all_same(expected[0], expected);
    // Weights that are gathered in a narrower type are exact where nothing is gathered.
    const bool is_rounded = dtype_size(recipe.weight_gather) < dtype_size(dtype_of(recipe.weight));
    for (int32_t stage = is_rounded ? 1 : 0; stage <= 3; ++stage) {
        for (const shard::ShardKind kind :
             {shard::ShardKind::flat, shard::ShardKind::per_parameter, shard::ShardKind::greedy}) {
            if (has_scales && kind != shard::ShardKind::greedy) {
                continue;
            }
            SCOPED_TRACE("stage " + std::to_string(stage) + ", plan " +
                         std::to_string(static_cast<int32_t>(kind)));
            expect_all_same(expected[0], train(ranks, training_of(recipe, stage, kind)));
            expect_all_same(expected[0], train(ranks, training_of(recipe, stage, kind, 1), true));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, ZeroRecipe,
                         testing::Values("fp32", "bf16_mixed", "bf16_mixed_dual", "bf16_pure_kahan",
                                         "bf16_pure_sr", "bf16_pure_remainder", "msamp_o2",
                                         "msamp_o3"));

TEST(Zero, BlockStatesAreSharded) {
    recipe::Recipe recipe = preset("fp32");
    recipe.state(numerics::StateId::exp_avg).format =
        recipe.state(numerics::StateId::exp_avg_sq).format = FormatId::dynamic8;
    const std::vector<Outcome> expected = train(2, training_of(recipe, 0));
    for (int32_t stage = 1; stage <= 3; ++stage) {
        expect_all_same(expected[0],
                        train(2, training_of(recipe, stage, shard::ShardKind::per_parameter)));
    }
}

// A rule with one state, in plain arrays and in blocks.
TEST(Zero, LionsStateIsSharded) {
    for (const char* name : {"bf16_pure_kahan", "blocks"}) {
        recipe::Recipe recipe = preset(std::string(name) == "blocks" ? "fp32" : name);
        if (std::string(name) == "blocks") {
            recipe.state(numerics::StateId::exp_avg).format = FormatId::dynamic8;
        }
        Training run = training_of(recipe, 0, shard::ShardKind::per_parameter);
        run.rule = numerics::RuleId::lion;
        const std::vector<Outcome> expected = train(3, run);
        EXPECT_EQ(expected[0].memory.of(numerics::StateId::exp_avg_sq), 0);
        for (int32_t stage = 1; stage <= 3; ++stage) {
            SCOPED_TRACE(std::string(name) + ", stage " + std::to_string(stage));
            run.sharding.stage = stage;
            expect_all_same(expected[0], train(3, run));
        }
    }
}

// The tree over eight microbatches, or sums that are exact, however many ranks share them.
class ZeroOrder : public testing::TestWithParam<comm::SumOrder> {};

TEST_P(ZeroOrder, NoNumberOfRanksChangesABit) {
    for (const char* name : {"fp32", "bf16_pure_sr"}) {
        Training run = training_of(preset(name), 1);
        run.slots = run.sharding.slots = 8;
        run.sharding.order = GetParam();
        if (run.recipe.weight == FormatId::bf16) {
            run.sharding.wire = comm::wire_format(DType::bf16);
        }
        const Outcome expected = train(1, run)[0];
        for (const int32_t ranks : {2, 3, 4, 8}) {
            for (int32_t stage = 0; stage <= 3; ++stage) {
                for (const shard::ShardKind kind :
                     {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                      shard::ShardKind::greedy}) {
                    SCOPED_TRACE(std::string(name) + ", ranks " + std::to_string(ranks) +
                                 ", stage " + std::to_string(stage) + ", plan " +
                                 std::to_string(static_cast<int32_t>(kind)));
                    run.sharding.stage = stage;
                    run.sharding.kind = kind;
                    expect_all_same(expected, train(ranks, run, stage % 2 == 1));
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Orders, ZeroOrder,
                         testing::Values(comm::SumOrder::tree, comm::SumOrder::exact));

// What is not finite on one rank skips the step on all.
TEST(Zero, OneRanksInfinitySkipsTheStepEverywhere) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
        const Training run = training_of(preset("bf16_pure_kahan"), stage);
        train_ranks(3, run, [&](TestModel& test_model) {
            test_model.optimizer().shard(test_model.stream());
            test_model.backward(0, false);
            test_model.optimizer().step(test_model.stream(), nullptr);
            const Outcome before = test_model.outcome();
            test_model.backward(1, false, test_model.comm().rank() == 1);
            test_model.optimizer().step(test_model.stream(), nullptr);
            const Outcome after = test_model.outcome();
            EXPECT_EQ(after.params, before.params);
            EXPECT_EQ(after.state.step, 1);
            EXPECT_EQ(after.state.skipped_steps, 1);
            EXPECT_EQ(after.state.skip, 1U);
        });
    }
}

TEST(Zero, StatesAreSharedOut) {
    const int32_t ranks = 4;
    const recipe::Recipe recipe = preset("bf16_mixed_dual");
    const std::vector<Outcome> all = train(ranks, training_of(recipe, 0));
    for (int32_t stage = 1; stage <= 3; ++stage) {
        const std::vector<Outcome> parts = train(ranks, training_of(recipe, stage));
        int64_t exp_avg = 0;
        int64_t master = 0;
        for (const Outcome& part : parts) {
            exp_avg += part.memory.of(numerics::StateId::exp_avg);
            master += part.memory.master;
            EXPECT_LT(part.memory.of(numerics::StateId::exp_avg),
                      all[0].memory.of(numerics::StateId::exp_avg) / 2);
            if (stage == 3) {
                EXPECT_LT(part.memory.weight, all[0].memory.weight / 2);
            }
            EXPECT_LT(part.memory.reduced_grad, all[0].memory.reduced_grad / 2);
            if (stage >= 2) {
                EXPECT_EQ(part.memory.grad, 0);
            }
        }
        EXPECT_EQ(exp_avg, all[0].memory.of(numerics::StateId::exp_avg));
        EXPECT_EQ(master, all[0].memory.master);
    }
}

// Exactly, for every rank, before anything is allocated.
TEST(Zero, HoldsWhatThePlanSays) {
    for (const char* name : {"fp32", "bf16_mixed"}) { // the second gathers in a narrower type
        for (int32_t stage = 0; stage <= 3; ++stage) {
            for (const shard::ShardKind kind :
                 {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                  shard::ShardKind::greedy}) {
                const Training training = training_of(preset(name), stage, kind);
                train_ranks(3, training, [&](TestModel& test_model) {
                    test_model.optimizer().shard(test_model.stream());
                    const optim::MemoryReport held = test_model.optimizer().parameters().memory();
                    const optim::MemoryReport planned = optim::planned_memory(
                        training.recipe, planned_model(), {.sharding = training.sharding},
                        {test_model.comm().rank(), 3});
                    EXPECT_EQ(held.weight, planned.weight) << name << stage;
                    EXPECT_EQ(held.grad, planned.grad) << name << stage;
                    EXPECT_EQ(held.reduced_grad, planned.reduced_grad) << name << stage;
                    EXPECT_EQ(held.of(numerics::StateId::exp_avg),
                              planned.of(numerics::StateId::exp_avg))
                        << name << stage;
                    EXPECT_EQ(held.of(numerics::StateId::exp_avg_sq),
                              planned.of(numerics::StateId::exp_avg_sq))
                        << name << stage;
                    EXPECT_EQ(held.total(), planned.total()) << name << stage;
                });
            }
        }
    }
}

TEST(Zero, Stage3HasWeightsOnlyWhileTheyAreGathered) {
    train_ranks(2, training_of(preset("fp32"), 3), [](TestModel& test_model) {
        optim::Optimizer& optimizer = test_model.optimizer();
        optimizer.shard(test_model.stream());
        shard::Sharding& sharding = *optimizer.sharding();
        const std::vector<int32_t> first = {0, 2};
        const std::vector<int32_t> second = {5};
        EXPECT_FALSE(test_model.param(0)->has_memory());
        EXPECT_THROW(sharding.wait_gather(test_model.stream(), first), Error);
        sharding.begin_gather(test_model.stream(), first);
        sharding.begin_gather(test_model.stream(), second); // ahead of its use
        sharding.wait_gather(test_model.stream(), first);
        EXPECT_TRUE(test_model.param(2)->has_memory());
        EXPECT_NE(static_cast<const float*>(test_model.param(2)->data())[1], 0.0F);
        sharding.release(test_model.stream(), first);
        EXPECT_FALSE(test_model.param(0)->has_memory());
        sharding.wait_gather(test_model.stream(), second);
        EXPECT_TRUE(test_model.param(5)->has_memory());
        sharding.release(test_model.stream(), second);
    });
}

// A microbatch's gradients may leave as soon as they are there, and are added to those that left before.
TEST(Zero, Stage2AddsMicrobatchesThatLeft) {
    Training training = training_of(preset("fp32"), 2);
    std::vector<Outcome> apart(2);
    train_ranks(2, training, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, true);
        test_model.backward(1, true);
        test_model.optimizer().step(test_model.stream(), nullptr);
        apart[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    training.sharding.stage = 1; // the caller adds them; all sums are exact
    train_ranks(2, training, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (std::size_t p = 0; p < model().size(); ++p) {
            const auto grad =
                test_model.optimizer().parameters().state(static_cast<int32_t>(p), "grad");
            auto* values = static_cast<float*>(grad->data());
            test_model.write_gradient(p, test_model.comm().rank(), 0);
            const std::vector<float> first(values, values + grad->count());
            test_model.write_gradient(p, test_model.comm().rank(), 1);
            for (std::size_t i = 0; i < first.size(); ++i) {
                values[i] += first[i];
            }
        }
        test_model.optimizer().step(test_model.stream(), nullptr);
        expect_same(apart[static_cast<std::size_t>(test_model.comm().rank())],
                    test_model.outcome());
    });
}

TEST(Zero, Stage1KeepsGradientsSoTheyLeaveOnce) {
    train_ranks(2, training_of(preset("fp32"), 1), [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, true);
        test_model.optimizer().sharding()->reduce(test_model.stream());
        EXPECT_THROW(test_model.backward(0, true), Error);
        EXPECT_TRUE(test_model.comm().run(comm::Barrier{}).ok());
    });
}

// Sent by a rank, of a model of n elements on N ranks, (N-1)/N n each way: 4 and 4 bytes, or 2 and 2.
TEST(Zero, WireBytesAreTheFormulas) {
    for (const bool is_bf16 : {false, true}) {
        Training run = training_of(preset(is_bf16 ? "bf16_pure_kahan" : "fp32"), 1,
                                   shard::ShardKind::flat, int64_t{1} << 40);
        run.max_grad_norm = 0.0;
        if (is_bf16) {
            run.sharding.wire = comm::wire_format(DType::bf16);
        }
        int64_t sent = 0;
        int64_t elements = 0;
        std::mutex mutex;
        const int32_t ranks = 4;
        train_ranks(ranks, run, [&](TestModel& test_model) {
            test_model.optimizer().shard(test_model.stream());
            test_model.backward(0, false);
            const comm::Traffic before = test_model.comm().traffic();
            test_model.optimizer().step(test_model.stream(), nullptr);
            const comm::Traffic& after = test_model.comm().traffic();
            const auto of = [&](CollectiveKind kind) {
                const auto i = static_cast<std::size_t>(kind);
                return after.bytes[i] - before.bytes[i];
            };
            const std::lock_guard lock(mutex);
            sent += of(CollectiveKind::all_to_all) + of(CollectiveKind::all_gather);
            elements = 0;
            for (const Shape& shape : model()) {
                elements += shape.count();
            }
            EXPECT_EQ(after.calls[static_cast<std::size_t>(CollectiveKind::max_u32)] -
                          before.calls[static_cast<std::size_t>(CollectiveKind::max_u32)],
                      1)
                << "one agreement a step";
        });
        // All ranks together: each way (N-1) n elements; vectors stay fp32, and slices have gaps.
        const int64_t each = is_bf16 ? 2 : 4;
        const double expected = 2.0 * (ranks - 1) * static_cast<double>(elements * each);
        const double vectors = 2.0 * (ranks - 1) * static_cast<double>(3 * kChunkElements + 134);
        EXPECT_GE(static_cast<double>(sent), expected);
        EXPECT_LE(static_cast<double>(sent), 1.01 * (expected + (is_bf16 ? 2.0 * vectors : 0.0)));
    }
}

} // namespace
} // namespace mp::test
