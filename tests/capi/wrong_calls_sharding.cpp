// SPDX-License-Identifier: Apache-2.0
// Wrong calls of sharded optimizers (sharding.h), and of ordinary ones: it is said on every rank alike.
#include "optimizers.hpp"
#include "sharded_model.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

TEST(WrongCallsSharding, MemoryThatIsNotThereIsSaid) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, stage_desc(3));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        mp_optimizer* const optimizer = model.optimizer;
        void* data = nullptr;
        const int32_t one[] = {1};
        const auto data_of = [&](int32_t i) {
            return mp_tensor_get_data(model.params[static_cast<std::size_t>(i)], &data);
        };
        expect_refused<MP_STATUS_BAD_STATE>({
            {"data of a shard", data_of(0), {"sharded", "mp_optimizer_gather_begin"}},
            {"waits for nothing",
             mp_optimizer_gather_wait(optimizer, nullptr, one, 1),
             {"waited for"}},
        });
        MP_OK(mp_optimizer_gather_begin(optimizer, nullptr, one, 1));
        MP_OK(mp_optimizer_gather_wait(optimizer, nullptr, one, 1));
        MP_OK(data_of(1));
        EXPECT_NE(data, nullptr);
        MP_OK(mp_optimizer_gather_free(optimizer, nullptr, one, 1));
        MP_FAILS(data_of(1), MP_STATUS_BAD_STATE, "sharded");
    });
}

TEST(WrongCallsSharding, WrongDescriptionsAreRefusedBeforeAnyRankIsAsked) {
    const std::vector<Comm> comms = make_comms(2, &kSoon); // one thread asks both: nothing may wait
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    using Desc = mp_sharding_desc;
    mp_optimizer* optimizer = nullptr;
    const auto make = [&](mp_comm* comm, const Desc* sharding) {
        return mp_optimizer_create_sharded(context, recipe, nullptr, comm, sharding, &optimizer);
    };
    const auto create = [&](auto... fields) {
        const Desc sharding = with(Desc MP_SHARDING_DESC_INIT, fields...);
        return make(comms[0], &sharding);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"stage 4", create(&Desc::stage, 4), {"stage", "4"}},
        {"unknown kind", create(&Desc::kind, 9), {"MP_SHARD_"}},
        {"unknown order", create(&Desc::order, -1), {"MP_COMM_ORDER_"}},
        {"too few slots", create(&Desc::slots, 1, &Desc::order, MP_COMM_ORDER_TREE), {"slots"}},
        {"buckets of -5", create(&Desc::bucket_elements, -5), {"bucket_elements"}},
        {"copies of 3 ranks", create(&Desc::shard_ranks, 3), {"shard_ranks is 3", "2 ranks"}},
        {"checks every -1", create(&Desc::check_every, -1), {"check_every"}},
        {"unknown flags", create(&Desc::flags, 64), {"sharding.flags"}},
    });
    constexpr int32_t kExact = MP_COMM_ORDER_EXACT, kFast = MP_COMM_ORDER_FAST;
    expect_refused<MP_STATUS_UNSUPPORTED>({
        {"exact on nodes",
         create(&Desc::node_ranks, 2, &Desc::order, kExact),
         {"node_ranks", "exact"}},
        {"fast in fp8",
         create(&Desc::wire_dtype, MP_DTYPE_FP8_E4M3, &Desc::order, kFast),
         {"fast"}},
    });
    MP_FAILS(make(nullptr, nullptr), MP_STATUS_NULL_ARGUMENT, "comm");
    EXPECT_EQ(optimizer, nullptr);
}

TEST(WrongCallsSharding, AnOrdinaryOptimizerHasNoRanks) {
    ShardedModel model(nullptr, MP_SHARDING_DESC_INIT);
    mp_comm_traffic traffic{};
    traffic.struct_size = sizeof traffic;
    expect_refused<MP_STATUS_BAD_STATE>({
        {"shards", mp_optimizer_shard(model.optimizer, nullptr), {"mp_optimizer_create_sharded"}},
        {"traffic", mp_optimizer_get_traffic(model.optimizer, &traffic), {"ranks"}},
    });
    MP_OK(mp_optimizer_end_microbatch(model.optimizer, nullptr));
    const int32_t wrong[] = {17};
    // Nothing to do, nothing read.
    MP_OK(mp_optimizer_gather_free(model.optimizer, nullptr, wrong, 1));
}
