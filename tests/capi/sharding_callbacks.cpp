// SPDX-License-Identifier: Apache-2.0
// A sharded optimizer over a table of callbacks (which hand everything on to ranks that are threads): with
// MP_COMM_TAKES_ANY_THREAD a thread of the optimizer's calls poll and release, never beside another call of the table;
// without it every call comes from the caller's own thread.
#include <chrono>
#include <set>
#include <thread>

#include "forwarded_comm.hpp"
#include "optimizers.hpp"

using namespace mp_test;

namespace {

// One step in which the gradients leave before it.
void train(mp_comm* comm, bool has_thread) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer* raw = nullptr;
    MP_OK(mp_optimizer_create_sharded(context, recipe, nullptr, comm, nullptr, &raw));
    const Optimizer optimizer(raw);
    int32_t group = -1;
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {40000}, numbers(40000, 1));
    MP_OK(add_param(optimizer, group, "weight", weight));
    MP_OK(mp_optimizer_shard(optimizer, nullptr));
    EXPECT_EQ(progress_of(optimizer).has_thread, has_thread ? 1 : 0);
    EXPECT_EQ(std::string(progress_of(optimizer).reason).find("ANY_THREAD") != std::string::npos,
              !has_thread);
    MP_OK(mp_optimizer_grad_ready(optimizer, nullptr, 0));
    for (int ms = 0;
         has_thread && ms < 20000 && progress_of(optimizer).finished < progress_of(optimizer).begun;
         ++ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    EXPECT_EQ(progress_of(optimizer).finished_by_thread > 0, has_thread);
}

class ShardingCallbacks : public testing::TestWithParam<uint32_t> {};

} // namespace

TEST_P(ShardingCallbacks, CallTheTableFromWhereItSays) {
    constexpr int32_t kRanks = 2;
    const bool has_thread = GetParam() != 0;
    mp_comm* raw[kRanks] = {};
    MP_OK(mp_comm_create_threads(nullptr, kRanks, raw));
    const auto rank = [&](int32_t r) {
        Forward forward;
        forward.comm = Comm(raw[r]);
        forward.flags = GetParam();
        const mp_comm_callbacks table = forward.table();
        mp_comm* made = nullptr;
        MP_OK(mp_comm_create_callbacks(nullptr, &table, &made));
        const Comm comm(made);
        train(comm, has_thread);
        ASSERT_EQ(forward.parts.size(), 1U);
        const Forward& part = *forward.parts[0];
        const std::set<std::thread::id> own = {std::this_thread::get_id()};
        EXPECT_EQ(part.others, own) << "begun by the caller alone";
        EXPECT_EQ(part.pollers.size(), has_thread ? 2U : 1U);
        EXPECT_EQ(part.pollers.count(*own.begin()), 1U);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
}

INSTANTIATE_TEST_SUITE_P(Flags, ShardingCallbacks,
                         testing::Values(0U, uint32_t{MP_COMM_TAKES_ANY_THREAD}));
