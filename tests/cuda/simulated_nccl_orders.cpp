// SPDX-License-Identifier: Apache-2.0
// One order of the kernels of all communicators of a GPU, on every rank: over numbers of parameters, stages, and all that takes
// communicators of its own. Where ranks differed in it, kernels of real GPUs could wait for each other for ever.
#include "simulated_nccl.hpp"

#include <array>
#include <chrono>
#include <random>

#include "../capi/optimizers.hpp"
#include "simulated/nccl_order.hpp"

namespace mp::test {
namespace {

using simulated::NcclOrders;
using simulated::NcclPart;
using SimulatedNcclOrders = SimulatedNccl;

// ---- the judge of orders --------------------------------------------------------------------------

std::vector<NcclPart> collective() {
    return {{NcclPart::all_reduce, nullptr, nullptr, 4, 0, 0, 0}};
}
std::vector<NcclPart> with(int32_t peer) {
    return {{NcclPart::send, nullptr, nullptr, 4, 0, 0, peer},
            {NcclPart::receive, nullptr, nullptr, 4, 0, 0, peer}};
}

TEST(SimulatedNcclJudge, AnOrderThatDiffersIsSeen) {
    NcclOrders orders;
    for (const int64_t communicator : {1, 2, 1}) {
        orders.add(0, communicator, 0, collective());
    }
    for (const int64_t communicator : {1, 3, 2, 1}) { // one more, which the other has not
        orders.add(1, communicator, 1, collective());
    }
    EXPECT_EQ(orders.stuck(), 0);
    for (const int64_t communicator : {2, 1}) {
        orders.add(0, communicator, 0, collective());
    }
    for (const int64_t communicator : {1, 2}) {
        orders.add(1, communicator, 1, collective());
    }
    EXPECT_EQ(orders.stuck(), 4);
}

// Of three ranks two at a time have the same order of what they share.
TEST(SimulatedNcclJudge, SoIsARingOfThem) {
    NcclOrders orders;
    for (const int32_t rank : {0, 1, 2}) {
        orders.add(rank, rank, rank, with((rank + 1) % 3));
        orders.add(rank, (rank + 2) % 3, rank, with((rank + 2) % 3));
    }
    EXPECT_EQ(orders.stuck(), 6);
}

TEST(SimulatedNcclJudge, ARankWithoutAPartIsNotCounted) {
    NcclOrders orders;
    for (const int32_t rank : {0, 1}) {
        orders.add(rank, 1, rank, with(1 - rank)); // in which the third one has none
    }
    for (const int32_t rank : {0, 1, 2}) {
        orders.add(rank, 1, rank, collective());
        orders.add(rank, 2, rank, collective());
        orders.add(rank, 1, rank, collective());
    }
    EXPECT_EQ(orders.stuck(), 0);
}

// ---- training at random -------------------------------------------------------------------------

// What is the same on every rank. Communicators beside that of all: for shared scales and the order exact; of groups and of
// their replicas; of nodes and across them.
struct Training {
    const char* recipe = "fp32";
    int32_t stage = 1;
    int32_t kind = MP_SHARD_FLAT;
    bool shares_scales = false;
    int32_t order = MP_COMM_ORDER_RANK;
    int32_t shard_ranks = 0;
    int32_t node_ranks = 0;
    int64_t bucket_elements = 64;
    int32_t first = 3;  // parameters before the cut
    int32_t added = 20; // one by one after it
    int64_t elements = 5;
    int32_t steps = 3;
};

std::string text_of(const Training& of) {
    return std::string(of.recipe) + ", stage " + std::to_string(of.stage) + ", plan " +
           std::to_string(of.kind) + (of.shares_scales ? ", shared scales" : "") + ", order " +
           std::to_string(of.order) + ", groups of " + std::to_string(of.shard_ranks) +
           ", nodes of " + std::to_string(of.node_ranks) + ", buckets of " +
           std::to_string(of.bucket_elements) + ", " + std::to_string(of.first) + " + " +
           std::to_string(of.added) + " parameters of " + std::to_string(of.elements);
}

class Model {
  public:
    Model(Rank& rank, const Training& of) : rank_(rank), of_(of), own_(1 + rank.number) {
        const Recipe recipe = recipe_of(rank.context, of.recipe);
        mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
        zero.stage = of.stage == 0 ? MP_SHARDING_STAGE_0 : of.stage;
        zero.kind = of.kind;
        zero.bucket_elements = of.bucket_elements;
        zero.order = of.order;
        zero.shard_ranks = of.shard_ranks;
        zero.node_ranks = of.node_ranks;
        zero.wire_dtype = of.shares_scales ? MP_DTYPE_FP8_E4M3 : 0;
        zero.wire_scale = of.shares_scales ? MP_COMM_SCALE_SHARED : 0;
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        optimizer_ = make_optimizer_on(rank.comm, rank.context, recipe, &desc, &zero);
        add_group(optimizer_);
        const char* weight = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &weight)));
        dtype_ = std::string(weight) == "fp32" ? MP_DTYPE_FP32 : MP_DTYPE_BF16;
        add(of.first);
        EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer_, nullptr)));
        for (int32_t i = 0; i < of.added; ++i) {
            add(1);
        }
    }

    // Weights come and go beside gradients on their way, and what others send is there at a call or not.
    void step() {
        for (int32_t i = count_; i-- > 0;) {
            ok(mp_optimizer_gather_begin(optimizer_, nullptr, &i, 1));
            ok(mp_optimizer_acquire_grad(optimizer_, nullptr, i));
            if (own_() % 4 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(own_() % 4000));
            }
            ok(mp_optimizer_gather_wait(optimizer_, nullptr, &i, 1));
            ok(mp_optimizer_gather_free(optimizer_, nullptr, &i, 1));
            ok(mp_optimizer_grad_ready(optimizer_, nullptr, i));
        }
        ok(mp_optimizer_step(optimizer_, nullptr, nullptr));
    }

  private:
    static void ok(mp_status status) { EXPECT_TRUE(succeeded(status)); }
    void add(int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
            const Tensor weight = make_tensor(rank_.context, dtype_, {of_.elements});
            ok(add_param(optimizer_, 0, ("p" + std::to_string(count_)).c_str(), weight));
            ++count_;
        }
    }

    Rank& rank_;
    const Training& of_;
    std::minstd_rand own_;
    int32_t dtype_ = MP_DTYPE_FP32;
    mp_test::Optimizer optimizer_;
    int32_t count_ = 0;
};

std::vector<Training> trainings() {
    std::vector<Training> all;
    for (const int32_t stage : {0, 1, 2, 3}) {
        Training one;
        one.stage = stage;
        one.shares_scales = true;
        all.push_back(one);
        one.shares_scales = false;
        one.order = MP_COMM_ORDER_EXACT;
        all.push_back(one);
        one.order = MP_COMM_ORDER_RANK;
        one.shard_ranks = 2;
        all.push_back(one);
        one.shares_scales = true;
        all.push_back(one);
        one.shares_scales = false;
        one.shard_ranks = 0;
        one.node_ranks = 2;
        all.push_back(one);
        one.node_ranks = 0;
        all.push_back(one);
    }
    const std::vector<const char*> recipes = {"fp32", "bf16_mixed", "bf16_pure_kahan"};
    std::minstd_rand random(11);
    for (Training& one : all) {
        one.recipe = recipes[random() % recipes.size()];
        one.kind = random() % 2 == 0 ? MP_SHARD_FLAT : MP_SHARD_PER_PARAMETER;
        one.bucket_elements = std::array<int64_t, 3>{1, 16, 40000}[random() % 3];
        one.elements = std::array<int64_t, 3>{1, 5, 20000}[random() % 3];
        one.first = 1 + static_cast<int32_t>(random() % 8);
        one.added = static_cast<int32_t>(random() % 16);
    }
    return all;
}

TEST_P(SimulatedNcclOrders, EveryTrainingHasOne) {
    for (const Training& of : trainings()) {
        SCOPED_TRACE(text_of(of));
        run(GetParam(), [&](Rank& rank) {
            Model model(rank, of);
            for (int32_t step = 0; step < of.steps; ++step) {
                model.step();
            }
        });
        ASSERT_EQ(MP_SIMULATED(mp_simulated_nccl_mistakes)(), 0);
    }
}

// Slices move at each one that is added, and most ranks have no part in most of it.
TEST_P(SimulatedNcclOrders, SoHaveManyThatAreAddedOneByOne) {
    Training of;
    of.shares_scales = true;
    of.bucket_elements = 0;
    of.added = 400;
    run(GetParam(), [&](Rank& rank) {
        Model model(rank, of);
        model.step();
        model.step();
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNcclOrders, ::testing::Values(4));

} // namespace
} // namespace mp::test
