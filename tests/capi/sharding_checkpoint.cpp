// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sharded optimizers: saved on some ranks in one stage, and gone on with on others in another.
#include <filesystem>

#include "sharded_model.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

std::uintmax_t bytes_below(const Folder& folder) {
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path)) {
        bytes += file.is_regular_file() ? file.file_size() : 0;
    }
    return bytes;
}

mp_sharding_desc desc_of(int32_t stage, int32_t shard_ranks) {
    mp_sharding_desc desc = stage_desc(stage);
    desc.shard_ranks = shard_ranks;
    return desc;
}

using Weights = std::vector<std::vector<unsigned char>>; // after four steps

// Saves after two steps of 4 ranks, and goes on while it is written and after a load.
void save_on_four(const Folder& folder, const mp_sharding_desc& sharding, const Weights& wanted) {
    run_sharded(4, [&](mp_comm* comm, int32_t rank) {
        ShardedModel model(comm, sharding);
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        const Checkpoint checkpoint = model.checkpoint(comm);
        model.train(0, 2);
        EXPECT_TRUE(
            succeeded(mp_checkpoint_save(checkpoint, folder.c_str(), 2, MP_SAVE_BACKGROUND)));
        model.train(2, 4); // while it is written
        EXPECT_TRUE(succeeded(mp_checkpoint_wait(checkpoint)));
        EXPECT_EQ(model.weights(), wanted) << "rank " << rank;
        EXPECT_TRUE(succeeded(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr)));
        model.train(2, 4);
        EXPECT_EQ(model.weights(), wanted) << "rank " << rank << " again";
    });
}

void go_on_with_two(const Folder& folder, const mp_sharding_desc& sharding, const Weights& wanted) {
    run_sharded(2, [&](mp_comm* comm, int32_t rank) {
        ShardedModel model(comm, sharding);
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        EXPECT_TRUE(succeeded(mp_checkpoint_load(model.checkpoint(comm), folder.c_str(),
                                                 MP_LOAD_VERIFY_ALL, nullptr)));
        model.train(2, 4);
        EXPECT_EQ(model.weights(), wanted) << "rank " << rank << " of 2";
    });
}

void go_on_alone(const Folder& folder, const Weights& wanted) {
    ShardedModel alone(nullptr, MP_SHARDING_DESC_INIT);
    MP_OK(mp_checkpoint_load(alone.checkpoint(nullptr), folder.c_str(), 0, nullptr));
    alone.train(2, 4);
    EXPECT_EQ(alone.weights(), wanted);
}

} // namespace

// A checkpoint of 4 ranks in any stage goes on, on 2 ranks in another stage and on one that shares nothing, with the same
// bits: the gradients of all ranks are equal, so their mean does not depend on their number.
TEST(ShardingCheckpoint, ACheckpointOfSomeRanksGoesOnOnOthers) {
    ShardedModel straight(nullptr, MP_SHARDING_DESC_INIT);
    straight.train(0, 4);
    const Weights wanted = straight.weights();
    std::uintmax_t one_copy = 0; // the bytes of a checkpoint
    for (int32_t run = 0; run < 8; ++run) {
        const int32_t stage = run / 2;
        const int32_t shard_ranks = run % 2 * 2; // then in two groups
        SCOPED_TRACE("stage " + std::to_string(stage) + ", groups of " +
                     std::to_string(shard_ranks));
        const Folder folder("sharded");
        save_on_four(folder, desc_of(stage, shard_ranks), wanted);
        const std::uintmax_t bytes = bytes_below(folder);
        one_copy = run == 0 ? bytes : one_copy;
        EXPECT_LT(bytes, one_copy + one_copy / 8) << "replicas write nothing again";
        go_on_with_two(folder, desc_of(3 - stage, shard_ranks == 0 ? 1 : 0), wanted);
        go_on_alone(folder, wanted);
    }
}
