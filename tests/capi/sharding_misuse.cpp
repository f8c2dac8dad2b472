// SPDX-License-Identifier: Apache-2.0
// What sharded optimizers are wrongly asked for, and ordinary ones: it is said in words, on every rank alike.
#include "optimizers.hpp"
#include "sharded_model.hpp"

using namespace mp_test;

TEST(ShardingMisuse, MemoryThatIsNotThereIsSaid) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, stage_desc(3));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        void* data = nullptr;
        EXPECT_TRUE(fails(mp_tensor_get_data(model.params[0], &data), MP_STATUS_BAD_STATE,
                          {"sharded", "mp_optimizer_gather_begin"}));
        const int32_t one[] = {1};
        EXPECT_TRUE(fails(mp_optimizer_gather_wait(model.optimizer, nullptr, one, 1),
                          MP_STATUS_BAD_STATE, {"waited for"}));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(succeeded(mp_tensor_get_data(model.params[1], &data)));
        EXPECT_NE(data, nullptr);
        EXPECT_TRUE(succeeded(mp_optimizer_gather_free(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(
            fails(mp_tensor_get_data(model.params[1], &data), MP_STATUS_BAD_STATE, {"sharded"}));
        mp_param_desc late = MP_PARAM_DESC_INIT;
        late.name = "late";
        const Tensor more = make_tensor(model.context, MP_DTYPE_FP32, {3});
        late.param = more;
        EXPECT_TRUE(fails(mp_optimizer_add_param(model.optimizer, 0, &late, nullptr),
                          MP_STATUS_BAD_STATE, {"too late"}));
    });
}

// Memory of the caller cannot be taken, which all ranks learn alike.
TEST(ShardingMisuse, StageTwoNeedsGradientsOfTheLibrary) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, stage_desc(2));
        std::vector<float> memory(10);
        const Tensor grad = wrap_tensor(model.context, MP_DTYPE_FP32, {10}, memory.data());
        const Tensor param = make_tensor(model.context, MP_DTYPE_FP32, {10});
        EXPECT_TRUE(succeeded(add_param(model.optimizer, 0, "own", param, grad)));
        const mp_status status = mp_optimizer_shard(model.optimizer, nullptr);
        EXPECT_TRUE(status == MP_STATUS_BAD_STATE || status == MP_STATUS_PEER_LOST ||
                    status == MP_STATUS_PEER_ERROR)
            << status << " " << mp_last_error_message();
    });
}

TEST(ShardingMisuse, WrongDescriptionsAreRefusedBeforeAnyRankIsAsked) {
    const std::vector<Comm> comms = make_comms(2, &kSoon); // one thread asks both: nothing may wait
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer* optimizer = nullptr;
    const auto create = [&](const mp_sharding_desc& sharding) {
        return mp_optimizer_create_sharded(context, recipe, nullptr, comms[0], &sharding,
                                           &optimizer);
    };
    const mp_sharding_desc good = MP_SHARDING_DESC_INIT;
    mp_sharding_desc bad = good;
    bad.stage = 4;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "stage", "4");
    bad = good;
    bad.kind = 9;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "MP_SHARD_");
    bad = good;
    bad.order = -1;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "MP_COMM_ORDER_");
    bad = good;
    bad.slots = 1;
    bad.order = MP_COMM_ORDER_TREE;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "slots");
    bad = good;
    bad.bucket_elements = -5;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "bucket_elements");
    bad = good;
    bad.shard_ranks = 3;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "shard_ranks is 3", "2 ranks");
    bad = good;
    bad.node_ranks = 2;
    bad.order = MP_COMM_ORDER_EXACT;
    MP_FAILS(create(bad), MP_STATUS_UNSUPPORTED, "node_ranks", "exact");
    bad = good;
    bad.check_every = -1;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "check_every");
    bad = good;
    bad.flags = 64;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "sharding.flags");
    bad = good;
    bad.wire_dtype = MP_DTYPE_FP8_E4M3;
    bad.order = MP_COMM_ORDER_FAST;
    MP_FAILS(create(bad), MP_STATUS_UNSUPPORTED, "fast");
    MP_FAILS(mp_optimizer_create_sharded(context, recipe, nullptr, nullptr, nullptr, &optimizer),
             MP_STATUS_NULL_ARGUMENT, "comm");
    EXPECT_EQ(optimizer, nullptr);
    mp_optimizer_desc offload = MP_OPTIMIZER_DESC_INIT;
    offload.flags = MP_OPTIMIZER_OFFLOAD;
    MP_FAILS(mp_optimizer_create_sharded(context, recipe, &offload, comms[0], nullptr, &optimizer),
             MP_STATUS_UNSUPPORTED, "OFFLOAD");
}

TEST(ShardingMisuse, AnOrdinaryOptimizerHasNoRanks) {
    ShardedModel model(nullptr, MP_SHARDING_DESC_INIT);
    mp_comm_traffic traffic{};
    traffic.struct_size = sizeof traffic;
    MP_FAILS(mp_optimizer_shard(model.optimizer, nullptr), MP_STATUS_BAD_STATE,
             "mp_optimizer_create_sharded");
    MP_FAILS(mp_optimizer_get_traffic(model.optimizer, &traffic), MP_STATUS_BAD_STATE, "ranks");
    MP_OK(mp_optimizer_end_microbatch(model.optimizer, nullptr));
    const int32_t wrong[] = {17};
    MP_OK(mp_optimizer_gather_free(model.optimizer, nullptr, wrong,
                                   1)); // nothing to do, nothing read
}
