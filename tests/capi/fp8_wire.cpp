// SPDX-License-Identifier: Apache-2.0
// fp8 between ranks through the C ABI: the factor mu of gradients, which a checkpoint keeps, and weights gathered as codes.
#include <cmath>

#include "optimizers.hpp"
#include "sharded_model.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

mp_sharding_desc shared_wire() {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.wire_dtype = MP_DTYPE_FP8_E4M3;
    sharding.wire_scale = MP_COMM_SCALE_SHARED;
    return sharding;
}

double mu_of(const ShardedModel& model, int32_t index) {
    double mu = 0;
    EXPECT_TRUE(succeeded(mp_optimizer_get_grad_mu(model.optimizer, index, &mu)));
    return mu;
}

} // namespace

TEST(Fp8Wire, ACheckpointKeepsMu) {
    const Folder folder("mu"), kept("mu_kept"), without("mu_without");
    double saved = 0.0;
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        ShardedModel model(comm, shared_wire());
        double mu = 0;
        MP_FAILS(mp_optimizer_get_grad_mu(model.optimizer, 0, &mu), MP_STATUS_BAD_STATE,
                 "mp_optimizer_shard");
        MP_OK(mp_optimizer_shard(model.optimizer, nullptr));
        MP_FAILS(mp_optimizer_get_grad_mu(model.optimizer, 9, &mu), MP_STATUS_INVALID_ARGUMENT,
                 "9");
        EXPECT_NEAR(mu_of(model, 0), std::sqrt(0.5), 1e-6);
        model.train(0, 3);
        const double later = mu_of(model, 0);
        EXPECT_GT(later, std::sqrt(0.5) * 1.002) << "2 * 0.5 of the largest code: nothing clips";
        EXPECT_EQ(mu_of(model, 2), later) << "of no elements";
        MP_OK(mp_checkpoint_save(model.checkpoint(comm), folder.c_str(), 3, 0));
        model.train(3, 6);
        ShardedModel again(comm, shared_wire());
        MP_OK(mp_checkpoint_load(again.checkpoint(comm), folder.c_str(), 0, nullptr));
        EXPECT_EQ(mu_of(again, 0), later);
        saved = rank == 0 ? later : saved;
        again.train(3, 6);
        for (int32_t i = 0; i < kParams; ++i) {
            EXPECT_EQ(mu_of(again, i), mu_of(model, i));
            EXPECT_EQ(bytes_of(again.params[static_cast<std::size_t>(i)]),
                      bytes_of(model.params[static_cast<std::size_t>(i)]));
        }
    });
    // One rank has no wire, and no mu; what is saved of it stays for ranks that have. One that never had any gives none.
    ShardedModel alone(nullptr, MP_SHARDING_DESC_INIT);
    MP_OK(mp_checkpoint_save(alone.checkpoint(nullptr), without.c_str(), 3, 0));
    MP_OK(mp_checkpoint_load(alone.checkpoint(nullptr), folder.c_str(), 0, nullptr));
    MP_OK(mp_checkpoint_save(alone.checkpoint(nullptr), kept.c_str(), 3, 0));
    run_ranks(2, [&](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, shared_wire());
        MP_OK(mp_checkpoint_load(model.checkpoint(comm), kept.c_str(), 0, nullptr));
        EXPECT_EQ(mu_of(model, 0), saved);
        MP_OK(mp_checkpoint_load(model.checkpoint(comm), without.c_str(), 0, nullptr));
        EXPECT_NEAR(mu_of(model, 0), std::sqrt(0.5), 1e-6);
    });
}

TEST(Fp8Wire, OtherWiresHaveNoMu) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        mp_sharding_desc sharding = shared_wire();
        sharding.wire_scale = MP_COMM_SCALE_BLOCK;
        ShardedModel model(comm, sharding);
        MP_OK(mp_optimizer_shard(model.optimizer, nullptr));
        EXPECT_EQ(mu_of(model, 0), 0.0);
    });
}

TEST(Fp8Wire, WhatHasNoMeaningIsRefused) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        const Context context = make_context(1);
        const Recipe recipe = make_recipe(context, "fp32");
        const auto create = [&](const mp_sharding_desc& sharding) {
            const mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
            mp_optimizer* raw = nullptr;
            return mp_optimizer_create_sharded(context, recipe, &desc, comm, &sharding, &raw);
        };
        mp_sharding_desc sharding = shared_wire();
        sharding.wire_dtype = MP_DTYPE_FP8_E5M2;
        MP_FAILS(create(sharding), MP_STATUS_INVALID_ARGUMENT, "fp8_e4m3");
        sharding.wire_dtype = MP_DTYPE_BF16;
        MP_FAILS(create(sharding), MP_STATUS_INVALID_ARGUMENT, "bf16");
        sharding = shared_wire();
        sharding.order = MP_COMM_ORDER_FAST;
        MP_FAILS(create(sharding), MP_STATUS_UNSUPPORTED, "order fast");
        sharding = shared_wire();
        sharding.node_ranks = 2;
        MP_FAILS(create(sharding), MP_STATUS_UNSUPPORTED, "block scales");
        mp_comm_reduce_desc reduce = MP_COMM_REDUCE_DESC_INIT;
        reduce.wire_dtype = MP_DTYPE_FP8_E4M3;
        reduce.wire_scale = MP_COMM_SCALE_SHARED;
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {8});
        const Tensor sum = make_tensor(context, MP_DTYPE_FP32, {8});
        const mp_tensor* source = x;
        MP_FAILS(mp_comm_all_reduce(comm, nullptr, &reduce, &source, 1, sum, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "scale of desc.wire_dtype is 4");
    });
}

// weight.gather.codes says what travels: it is refused where nothing would.
TEST(Fp8Wire, GatheringCodesWantsWeightsThatAreCodes) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        for (const bool as_codes : {false, true}) {
            const Context context = make_context(1);
            const Recipe recipe = make_recipe(context, "bf16_with_fp8_mixed");
            const mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
            mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
            mp_optimizer* raw = nullptr;
            ASSERT_TRUE(
                done(mp_optimizer_create_sharded(context, recipe, &desc, comm, &sharding, &raw)));
            const Optimizer optimizer(raw);
            int32_t group = 0;
            MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
            const std::vector<float> values = numbers(64 * 64, 3);
            const int64_t shape[] = {64, 64};
            mp_tensor* weight = nullptr;
            MP_OK((as_codes ? mp_recipe_create_weight_codes : mp_recipe_create_weight)(
                context, recipe, 2, shape, values.data(), &weight));
            const Tensor owned(weight);
            MP_OK(add_param(optimizer, group, "w", owned));
            if (as_codes) {
                MP_OK(mp_optimizer_shard(optimizer, nullptr));
            } else {
                MP_FAILS(mp_optimizer_shard(optimizer, nullptr), MP_STATUS_UNSUPPORTED,
                         "weight.gather.codes", "mp_recipe_create_weight_codes");
            }
        }
    });
    const Context context = make_context(1);
    const int64_t shape[] = {64, 64};
    mp_tensor* weight = nullptr;
    MP_FAILS(mp_recipe_create_weight_codes(context, make_recipe(context, "fp8_block"), 2, shape,
                                           nullptr, &weight),
             MP_STATUS_UNSUPPORTED, "delayed or tensorwise");
}
