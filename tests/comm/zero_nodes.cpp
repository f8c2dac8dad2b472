// SPDX-License-Identifier: Apache-2.0
// Gradients that are added inside nodes first: whatever the stage and the plan the same bits, those of one level where
// no sum is rounded, and a ring's bytes between nodes.
#include "zero.hpp"

#include <gtest/gtest.h>

#include <mutex>

namespace mp::test {
namespace {

Training training_of(DType wire, int32_t stage, int32_t node_ranks,
                     shard::ShardKind kind = shard::ShardKind::flat) {
    Training run;
    run.recipe = recipe::find_preset("bf16_pure_kahan").recipe;
    run.sharding.stage = stage;
    run.sharding.node_ranks = node_ranks;
    run.sharding.kind = kind;
    run.sharding.bucket_elements = 60000;
    run.sharding.wire = comm::wire_format(wire, wire == DType::fp8_e4m3 ? comm::WireScale::block
                                                                        : comm::WireScale::none);
    return run;
}

void expect_all_same(const Outcome& expected, const std::vector<Outcome>& actual) {
    for (std::size_t rank = 0; rank < actual.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        expect_same(expected, actual[rank]);
    }
}

TEST(ZeroNodes, StagesAndPlansHaveTheSameBits) {
    struct Layout {
        int32_t ranks, node_ranks;
    };
    for (const Layout layout : {Layout{4, 2}, Layout{6, 3}, Layout{6, 2}, Layout{3, 1}}) {
        for (const DType wire : {DType::fp32, DType::bf16, DType::fp8_e4m3}) {
            const std::vector<Outcome> expected =
                train(layout.ranks, training_of(wire, 1, layout.node_ranks));
            for (const int32_t stage : {0, 2, 3}) {
                for (const shard::ShardKind kind :
                     {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                      shard::ShardKind::greedy}) {
                    SCOPED_TRACE(std::to_string(layout.ranks) + " ranks, " +
                                 std::to_string(layout.node_ranks) + " a node, stage " +
                                 std::to_string(stage) + ", " + dtype_name(wire));
                    expect_all_same(expected[0],
                                    train(layout.ranks,
                                          training_of(wire, stage, layout.node_ranks, kind),
                                          stage != 2));
                }
            }
        }
    }
}

// The model's gradients and their sums are exact in fp32.
TEST(ZeroNodes, WhereNothingIsRoundedTheyAreThoseOfOneLevel) {
    const std::vector<Outcome> expected = train(6, training_of(DType::fp32, 1, 0));
    for (const int32_t node_ranks : {1, 2, 3, 6}) {
        SCOPED_TRACE(node_ranks);
        expect_all_same(expected[0], train(6, training_of(DType::fp32, 1, node_ranks)));
    }
}

// All ranks together, n elements on M nodes of L ranks: M (L-1) n to the nodes' sums, (M-1) n between the nodes.
TEST(ZeroNodes, BetweenNodesGoARingsBytes) {
    constexpr int32_t kNodes = 3;
    constexpr int32_t kLocals = 2;
    const Training run = training_of(DType::bf16, 1, kLocals);
    int64_t sent = 0;
    int64_t elements = 0;
    for (const Shape& shape : model()) {
        elements += shape.count();
    }
    std::mutex mutex;
    train_ranks(kNodes * kLocals, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, false);
        const auto exchange = static_cast<std::size_t>(CollectiveKind::all_to_all);
        const int64_t before =
            test_model.optimizer().sharding()->groups().traffic().bytes[exchange];
        test_model.optimizer().step(test_model.stream(), nullptr);
        const std::lock_guard lock(mutex);
        sent += test_model.optimizer().sharding()->groups().traffic().bytes[exchange] - before;
    });
    const int64_t units = kNodes * (kLocals - 1) + (kNodes - 1);
    const double expected = 2.0 * static_cast<double>(units * elements);
    EXPECT_GE(static_cast<double>(sent), expected);
    EXPECT_LE(static_cast<double>(sent), 1.02 * expected);
}

TEST(ZeroNodes, WhatCannotBeIsRefused) {
    const auto refused = [](Code code, const char* word, const shard::ShardingOptions& options) {
        try {
            shard::check_sharding(options, 4);
            ADD_FAILURE() << word;
        } catch (const Error& error) {
            EXPECT_EQ(error.status().code(), code);
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        }
    };
    shard::ShardingOptions options;
    options.node_ranks = 3;
    refused(Code::invalid_argument, "node_ranks is 3", options);
    options.node_ranks = 2;
    shard::check_sharding(options, 4);
    options.order = comm::SumOrder::tree;
    refused(Code::unsupported, "node_ranks 2", options);
    options.order = comm::SumOrder::rank;
    options.shard_ranks = 2;
    refused(Code::unsupported, "node_ranks 2", options);
}

} // namespace
} // namespace mp::test
