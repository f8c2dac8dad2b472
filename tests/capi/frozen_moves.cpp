// SPDX-License-Identifier: Apache-2.0
// Frozen weights in codes where the list of parameters changes after the cut: in stage 3 their slices move with their scales.
// And tensors that are added twice.
#include "frozen_blocks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

const FrozenFormat kBlocks = {
    "nvfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {300, 200}}; // and an amax of all

// One after another, each of which changes the cut of what is frozen.
enum class Change { add, freeze, train };
constexpr Change kChanges[] = {Change::add, Change::freeze, Change::train};

Tensor late_of(const FrozenModel& model) {
    return make_tensor(model.context, MP_DTYPE_FP32, {99000}, numbers(99000, 4));
}

void make(const FrozenModel& model, Change change) {
    if (change == Change::add) {
        model.add("late", late_of(model), MP_PARAM_FROZEN);
        return;
    }
    const int32_t trained = 1;
    EXPECT_TRUE(succeeded(mp_optimizer_set_frozen(model.optimizer, nullptr, &trained, 1,
                                                  change == Change::freeze ? 1 : 0)));
}
void make_until(const FrozenModel& model, Change last) {
    for (const Change change : kChanges) {
        make(model, change);
        if (change == last) {
            return;
        }
    }
}

// Of the first parameters, on all ranks.
std::vector<int64_t> slices_of(const FrozenModel& model, int32_t parameters) {
    std::vector<int64_t> all;
    for (int32_t i = 0; i < parameters; ++i) {
        int64_t start = 0, count = 0;
        for (int32_t rank = 0;
             mp_optimizer_get_slice(model.optimizer, i, rank, &start, &count) == MP_STATUS_OK;
             ++rank) {
            all.insert(all.end(), {start, count});
        }
    }
    return all;
}

TEST(FrozenMoves, AreNoneWhereEachParameterIsCutByItself) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        const FrozenModel model(kBlocks, comm, 3, MP_SHARD_PER_PARAMETER);
        model.quantize(kBlocks);
        model.shard();
        const auto before = slices_of(model, 2);
        for (const Change change : kChanges) {
            make(model, change);
        }
        EXPECT_EQ(slices_of(model, 2), before);
    });
}

// Codes and scales go with their slices, and each rank then has what a model that was made so gives it.
TEST(FrozenMoves, KeepTheBitsOfOneThatWasMadeSo) {
    int32_t number = 0;
    for (const FrozenFormat& format : frozen_formats()) {
        for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_GREEDY}) {
            const int32_t ranks = 2 + number++ % 4;
            SCOPED_TRACE(std::string(format.name) + ", plan " + std::to_string(plan) + ", ranks " +
                         std::to_string(ranks));
            std::atomic<int32_t> moves{0};
            run_ranks(ranks, [&](mp_comm* comm, int32_t rank) {
                const FrozenModel model(format, comm, 3, plan);
                model.quantize(format);
                model.shard();
                const auto wanted = model.weights();
                model.release();
                for (const Change change : kChanges) {
                    const auto before = slices_of(model, 1);
                    make(model, change);
                    moves += rank == 0 && slices_of(model, 1) != before ? 1 : 0;
                    const FrozenModel made(format, comm, 3, plan);
                    made.quantize(format);
                    make_until(made, change);
                    made.shard();
                    EXPECT_EQ(slices_of(model, 3), slices_of(made, 3));
                    EXPECT_EQ(model.memory().total_bytes, made.memory().total_bytes);
                    EXPECT_EQ(model.weights(), wanted);
                    model.release();
                }
            });
            EXPECT_GT(moves, 0) << "nothing was to move";
        }
    }
}

// Saved after a move by three ranks, and loaded by one.
TEST(FrozenMoves, AreInACheckpoint) {
    for (const FrozenFormat& format : frozen_formats()) {
        SCOPED_TRACE(format.name);
        const Folder folder("frozen_moves");
        const FrozenModel alone(format, nullptr, 0);
        alone.quantize(format);
        const auto wanted = alone.weights();
        run_ranks(3, [&](mp_comm* comm, int32_t /*rank*/) {
            const FrozenModel model(format, comm, 3);
            model.quantize(format);
            model.shard();
            make(model, Change::add);
            MP_OK(mp_checkpoint_save(model.checkpoint(comm), folder.c_str(), 1, 0));
        });
        const FrozenModel loaded(format, nullptr, 0);
        make(loaded, Change::add);
        MP_OK(mp_checkpoint_load(loaded.checkpoint(nullptr), folder.c_str(), 0, nullptr));
        EXPECT_EQ(loaded.weights(), wanted);
    }
}

// At every allocation of one rank: all ranks fail, keep what they had, and the same call succeeds afterwards.
TEST(FrozenMoves, AFailureOfMemoryMovesNothing) {
    bool has_failed = true;
    for (int64_t allocation = 0; has_failed; ++allocation) {
        SCOPED_TRACE(allocation);
        has_failed = false;
        run_ranks(3, [&](mp_comm* comm, int32_t rank) {
            Counter counter;
            const FrozenModel model(kBlocks, comm, 3, MP_SHARD_FLAT, false, &counter);
            model.quantize(kBlocks);
            model.shard();
            const auto wanted = model.weights();
            model.release();
            const Tensor late = late_of(model);
            const auto before = slices_of(model, 2);
            counter.left = rank == 1 ? allocation : INT64_MAX;
            const mp_status status =
                add_param_flags(model.optimizer, "late", late, MP_PARAM_FROZEN);
            counter.left = INT64_MAX;
            if (rank == 1) {
                has_failed = status == MP_STATUS_OUT_OF_MEMORY;
            }
            if (status != MP_STATUS_OK) {
                EXPECT_EQ(slices_of(model, 2), before);
            }
            if (mp_comm_get_status(comm) != MP_STATUS_OK) {
                return; // ranks are apart where it failed while slices were on their way
            }
            if (status != MP_STATUS_OK) {
                EXPECT_EQ(model.weights(), wanted);
                model.release();
                model.add("late", late, MP_PARAM_FROZEN);
            }
            EXPECT_NE(slices_of(model, 2), before);
            EXPECT_EQ(model.weights(), wanted);
        });
        ASSERT_LT(allocation, 200);
    }
}

TEST(FrozenMoves, ADeferredTensorIsAddedOnce) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        const FrozenModel model(kBlocks, comm, 3);
        model.quantize(kBlocks);
        model.shard();
        mp_tensor_desc shape = tensor_desc(MP_DTYPE_FP32, {40000});
        shape.flags = MP_TENSOR_DEFERRED;
        mp_tensor* raw = nullptr;
        MP_OK(mp_tensor_create(model.context, &shape, &raw));
        const Tensor deferred(raw);
        mp_param_desc both[2] = {MP_PARAM_DESC_INIT, MP_PARAM_DESC_INIT};
        both[0].name = "a";
        both[1].name = "b";
        both[0].param = both[1].param = deferred;
        MP_FAILS(mp_optimizer_add_params(model.optimizer, 0, both, 2, nullptr), MP_STATUS_BAD_STATE,
                 "desc.param");
        int32_t count = 0;
        MP_OK(mp_optimizer_get_param_count(model.optimizer, &count));
        EXPECT_EQ(count, 2);
    });
}

} // namespace
