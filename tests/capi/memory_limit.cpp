// SPDX-License-Identifier: Apache-2.0
// Ranks whose allocators refuse what goes beyond a limit train a model of eight times that, in stage 3, with a frozen base,
// deferred parameters and offload. What a rank holds at most is what is planned, to the byte. With a byte less it says so, and
// nobody hangs. The bits are those of one rank that has everything.
//
// A context without an accelerator has one memory: what the host keeps under MP_OPTIMIZER_OFFLOAD comes from the same allocator.
// It is known to the byte, so a limit here is the device's and the host's part. The model is eight times the device's. It cannot
// be eight times both: eight ranks hold all of it among them, and copies beside it.
#include "limited_training.hpp"

using namespace mp_test;

namespace {

mp_memory_report plan(int32_t layers, int32_t rank, int32_t ranks) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, kRecipe);
    std::vector<mp_planned_tensor> tensors;
    for (int32_t i = 0; i < 2 * layers; ++i) {
        mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
        tensor.count = i < layers ? kBase : kAdapter;
        tensor.weight_dtype = i < layers ? MP_DTYPE_BF16 : MP_DTYPE_NONE;
        tensor.flags = i < layers ? MP_PARAM_FROZEN : 0U;
        tensors.push_back(tensor);
    }
    const mp_sharding_desc sharding = sharding_of_each();
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = ranks > 1 ? MP_OPTIMIZER_OFFLOAD : 0U;
    EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(recipe, &desc, tensors.data(),
                                                 static_cast<int64_t>(tensors.size()), &sharding,
                                                 rank, ranks, &report, nullptr)));
    return report;
}

// What a rank holds at most.
struct Need {
    int64_t device = 0; // while a layer is gathered and its gradient has memory
    int64_t host = 0;   // from the first step on
    int64_t tables = 0; // no more than this
    [[nodiscard]] int64_t arrays() const { return device + host; }
    [[nodiscard]] int64_t all() const { return arrays() + tables; }
};

// `rank` -1: the one that holds most.
Need need(int32_t layers, int32_t rank, int64_t workspace) {
    const mp_memory_report report = plan(layers, rank, kRanks);
    const int64_t own = report.master_bytes / 4; // trained elements
    // What has memory in use only, and scratch memory: a piece for what this rank lends of a layer in a gather, and a second one,
    // since the gradient that left last stays in the first until the next one leaves.
    const int64_t in_use = kLayerBytes + kGradBytes;
    const int64_t scratch = workspace > 0 ? workspace : 2 * kLentBytes;
    Need sum;
    sum.device = report.total_bytes - report.host_bytes + in_use + scratch;
    sum.host = report.host_bytes;
    // On the device and on the host a row and a chunk for each own parameter; the optimizer's numbers.
    sum.tables = 2 * 512 * (own / kAdapter) + 1024;
    return sum;
}

struct Outcome {
    mp_status status = MP_STATUS_OK;
    std::string said;
    int64_t peak = 0, array_peak = 0, table_peak = 0, refused = 0;
    int64_t workspace = 0, held = 0;
    Weights weights;
};

// On a thread for each rank. One that fails leaves at once.
template <class LimitOf>
std::vector<Outcome> train(int32_t layers, int64_t workspace, const LimitOf& limit_of) {
    std::vector<Outcome> outcomes(kRanks);
    run_sharded(kRanks, [&](mp_comm* comm, int32_t rank) {
        Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        LimitedMemory memory(limit_of(rank));
        {
            LimitedTraining training(comm, rank, layers, memory, workspace);
            if (training.status == MP_STATUS_OK) {
                outcome.weights = training.weights();
                outcome.workspace = training.workspace_peak();
                outcome.held = training.held().total_bytes;
            }
            outcome.status = training.status;
            outcome.said = training.said;
        }
        outcome.peak = memory.peak;
        outcome.array_peak = memory.array_peak;
        outcome.table_peak = memory.table_peak;
        outcome.refused = memory.refused;
        EXPECT_EQ(memory.live, 0);
    });
    return outcomes;
}
std::vector<Outcome> train(int32_t layers, int64_t workspace, int64_t limit) {
    return train(layers, workspace, [&](int32_t /*rank*/) { return limit; });
}

// Everything on one rank, nothing offloaded, no limit.
Weights alone(int32_t layers, int32_t steps = kSteps) {
    LimitedMemory memory;
    LimitedTraining training(nullptr, 0, layers, memory, 0, steps);
    EXPECT_EQ(training.status, MP_STATUS_OK) << training.said;
    return training.weights();
}

// As mp_queue_get_workspace_peak advises: from a training of fewer layers. Scratch memory is that of a layer.
int64_t workspace_of_a_layer() {
    int64_t most = 0;
    for (const Outcome& rank : train(kSmall, 0, INT64_MAX)) {
        most = std::max(most, rank.workspace);
    }
    return most;
}

// Of `who`, or of all where it is -1, by the byte that was refused; the others by what became of it.
void expect_refused(const std::vector<Outcome>& outcomes, int32_t who) {
    int32_t refused = 0;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        SCOPED_TRACE("rank " + std::to_string(rank) + ": " + outcome.said);
        refused += outcome.refused > 0 ? 1 : 0;
        if (outcome.status == MP_STATUS_OUT_OF_MEMORY) {
            EXPECT_TRUE(who < 0 || rank == who);
            EXPECT_GE(outcome.refused, 1);
            EXPECT_NE(outcome.said.find("no memory for"), std::string::npos);
        } else {
            EXPECT_NE(rank, who);
            EXPECT_TRUE(outcome.status == MP_STATUS_PEER_LOST ||
                        outcome.status == MP_STATUS_PEER_ERROR)
                << mp_status_string(outcome.status);
        }
    }
    EXPECT_GE(refused, 1);
}

} // namespace

TEST(MemoryLimit, EightRanksTrainEightTimesTheirMemory) {
    const int64_t whole = plan(kLarge, 0, 1).total_bytes;
    const Weights expected = alone(kLarge);
    for (const int64_t workspace : {int64_t{0}, workspace_of_a_layer()}) {
        SCOPED_TRACE("a workspace of " + std::to_string(workspace));
        const Need most = need(kLarge, -1, workspace);
        EXPECT_LE(8 * (most.device + most.tables), whole);
        const std::vector<Outcome> outcomes = train(kLarge, workspace, most.all());
        for (int32_t rank = 0; rank < kRanks; ++rank) {
            const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
            SCOPED_TRACE("rank " + std::to_string(rank));
            EXPECT_EQ(outcome.status, MP_STATUS_OK) << outcome.said;
            EXPECT_EQ(outcome.refused, 0);
            // One of the queue's own pieces may be of a layer whose adapter is another rank's.
            const int64_t adapter = workspace > 0 ? 0 : kAdapter * 2;
            EXPECT_LE(outcome.array_peak, need(kLarge, rank, workspace).arrays());
            EXPECT_GE(outcome.array_peak, need(kLarge, rank, workspace).arrays() - adapter);
            EXPECT_LE(outcome.table_peak, need(kLarge, rank, workspace).tables);
            EXPECT_EQ(outcome.held, plan(kLarge, rank, kRanks).total_bytes);
            EXPECT_TRUE(outcome.weights == expected);
        }
    }
}

TEST(MemoryLimit, AByteLessIsOutOfMemory) {
    const int64_t workspace = workspace_of_a_layer();
    const int64_t peak = train(kLarge, workspace, INT64_MAX)[0].peak; // the same on all
    for (const Outcome& rank : train(kLarge, workspace, peak)) {
        EXPECT_EQ(rank.status, MP_STATUS_OK) << rank.said;
    }
    expect_refused(train(kLarge, workspace, peak - 1), -1);
    for (const int32_t who : {0, 5}) {
        expect_refused(train(kLarge, workspace,
                             [&](int32_t rank) { return rank == who ? peak - 1 : INT64_MAX; }),
                       who);
    }
}

// When parameters are cut, filled, gathered, reduced or stepped: a rank that waited for ever would have MP_STATUS_TIMEOUT.
TEST(MemoryLimit, WhereverItEndsNobodyWaits) {
    constexpr int32_t kLimits = 24;
    const int64_t peak = train(kSmall, 0, INT64_MAX)[0].peak;
    for (int32_t i = 0; i < kLimits; ++i) {
        const int64_t limit = peak * i / kLimits;
        SCOPED_TRACE(std::to_string(limit) + " bytes of " + std::to_string(peak));
        expect_refused(
            train(kSmall, 0, [&](int32_t rank) { return rank == 3 ? limit : INT64_MAX; }), 3);
        expect_refused(train(kSmall, 0, limit), -1);
    }
}

TEST(MemoryLimit, TheBitsOfASmallerModelAreThoseOfOneRank) {
    const Weights before = alone(kSmall, 0);
    const Weights expected = alone(kSmall);
    for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(before[i] == expected[i], i < kSmall); // the base alone stays
    }
    // Memory of its own keeps the queue from growing a piece of scratch memory, which takes the new one beside the old: early in
    // a training, so that only a small model has its peak there.
    const int64_t workspace = workspace_of_a_layer();
    const Need all = need(kSmall, -1, workspace); // the same on all
    for (const Outcome& rank : train(kSmall, workspace, all.all())) {
        EXPECT_EQ(rank.status, MP_STATUS_OK) << rank.said;
        EXPECT_EQ(rank.array_peak, all.arrays());
        EXPECT_TRUE(rank.weights == expected);
    }
}
