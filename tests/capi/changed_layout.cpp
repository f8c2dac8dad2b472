// SPDX-License-Identifier: Apache-2.0
// After parameters were frozen, trained again and added an optimizer is as one that was made so: what each rank owns and holds,
// what a checkpoint has, and each parameter's count of steps.
#include "changed_model.hpp"
#include "planned_model.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

// Sharded ones have a group of the second list's for g, h and i.
std::vector<ChangedParam> list_of(const ChangedModel& model) {
    std::vector<ChangedParam> list = first_params();
    list.insert(list.end(), late_params().begin(), late_params().end());
    list.resize(static_cast<std::size_t>(model.count()));
    for (std::size_t i = 0; i < list.size(); ++i) {
        list[i].flags = model.is_frozen(static_cast<int32_t>(i)) ? MP_PARAM_FROZEN : 0U;
    }
    return list;
}

// The same one, made at once. On ranks it is cut.
ChangedModel made_as(const ChangedModel& model, mp_comm* comm) {
    ChangedModel made(comm, model.kind, make_context(1), false);
    std::vector<ChangedParam> first = list_of(model);
    const auto begin = static_cast<std::ptrdiff_t>(std::min(first.size(), first_params().size()));
    const std::vector<ChangedParam> late(first.begin() + begin, first.end());
    first.resize(static_cast<std::size_t>(begin));
    made.add(first, 0);
    made.add(late, 1);
    made.ok(comm != nullptr ? mp_optimizer_shard(made.optimizer, nullptr) : MP_STATUS_OK);
    EXPECT_EQ(made.status, MP_STATUS_OK) << made.said;
    return made;
}

mp_memory_report planned_as(const ChangedModel& model) {
    std::vector<mp_planned_tensor> tensors;
    for (const ChangedParam& param : list_of(model)) {
        mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
        tensor.count = 1;
        for (const int64_t size : param.shape) {
            tensor.count *= size;
        }
        tensor.ndim = static_cast<int32_t>(param.shape.size());
        tensor.flags = param.flags;
        tensors.push_back(tensor);
    }
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = model.kind.flags;
    const mp_sharding_desc sharding = ChangedModel::sharding_of(model.kind);
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(model.recipe, &desc, tensors.data(),
                                                 static_cast<int64_t>(tensors.size()), &sharding,
                                                 model.rank, model.ranks, &report, nullptr)));
    return report;
}

void expect_same_slices(const ChangedModel& model, const ChangedModel& made) {
    for (int32_t i = 0; i < model.count(); ++i) {
        for (int32_t rank = 0; rank < model.ranks; ++rank) {
            int64_t start[2] = {}, count[2] = {};
            MP_OK(mp_optimizer_get_slice(model.optimizer, i, rank, start, count));
            MP_OK(mp_optimizer_get_slice(made.optimizer, i, rank, start + 1, count + 1));
            EXPECT_EQ(start[0], start[1]);
            EXPECT_EQ(count[0], count[1]);
        }
    }
}

// `see` after each change, and a step.
template <typename See> void live(ChangedModel& model, const See& see) {
    model.step(1);
    model.set_frozen({0, 1}, 1);
    model.step(2);
    see();
    model.add(late_params(), 1);
    model.init_deferred(8);
    model.step(3);
    see();
    model.set_frozen({0, 2, 5}, 0);
    model.set_frozen({4}, 1);
    model.step(4);
    see();
    EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
}

} // namespace

TEST(ChangedLayout, IsThatOfOneThatWasMadeSo) {
    for (const uint32_t flags : {0U, MP_OPTIMIZER_OFFLOAD}) {
        for (const int32_t stage : {0, 1, 2, 3}) {
            for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
                run_sharded(3, [&](mp_comm* comm, int32_t rank) {
                    const std::string where = "stage " + std::to_string(stage) + " plan " +
                                              std::to_string(plan) + " rank " +
                                              std::to_string(rank);
                    ChangedModel model(comm, {"bf16_pure_kahan", stage, plan, flags, 30000});
                    live(model, [&] {
                        expect_equal(planned_as(model), model.memory(), where);
                        if (stage > 0) {
                            expect_same_slices(model, made_as(model, comm));
                        }
                    });
                });
            }
        }
    }
    ChangedModel alone(nullptr, {"bf16_pure_kahan"});
    live(alone, [&] { expect_equal(planned_as(alone), alone.memory(), "alone"); });
}

// Saved by three ranks, and loaded by three and by one, which go on with the same bits.
TEST(ChangedLayout, CheckpointsLoadIntoOneThatWasMadeSo) {
    for (const int32_t stage : {0, 1, 2, 3}) {
        const Folder folder(("changed" + std::to_string(stage)).c_str());
        const ChangedKind kind = {"bf16_pure_remainder", stage, MP_SHARD_FLAT, 0, 30000};
        std::vector<std::vector<unsigned char>> weights;
        std::vector<ChangedParam> list;
        run_sharded(3, [&](mp_comm* comm, int32_t rank) {
            ChangedModel model(comm, kind);
            live(model, [] {});
            model.set_frozen({6}, 1); // so that no step comes between a change and the file
            model.set_frozen({4}, 0);
            const Checkpoint saved = checkpoint_of(model.context, model.optimizer, comm);
            MP_OK(mp_checkpoint_save(saved, folder.c_str(), 5, 0));
            ChangedModel loaded = made_as(model, comm);
            MP_OK(mp_checkpoint_load(checkpoint_of(loaded.context, loaded.optimizer, comm),
                                     folder.c_str(), 0, nullptr));
            model.step(5);
            loaded.step(5);
            EXPECT_EQ(model.weights(), loaded.weights());
            EXPECT_EQ(model.t(0), loaded.t(0));
            EXPECT_EQ(model.t(1), loaded.t(1));
            const auto own = model.weights();
            if (rank == 0) {
                weights = own;
                ChangedModel alone = made_as(model, nullptr);
                MP_OK(mp_checkpoint_load(checkpoint_of(alone.context, alone.optimizer),
                                         folder.c_str(), 0, nullptr));
                alone.step(5);
                EXPECT_EQ(alone.weights(), own);
                EXPECT_EQ(alone.status, MP_STATUS_OK) << alone.said;
            }
            EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
        });
    }
}

// Trained again: the steps of one that was added then, with the weight it had. A group's t is that of what is trained in it.
TEST(ChangedLayout, WhatIsTrainedAgainBeginsItsOwnCount) {
    const ChangedKind kind = {"fp32"};
    ChangedModel model(nullptr, kind);
    model.steps(1, 4);
    EXPECT_EQ(model.t(0), 3);
    model.set_frozen({0}, 1);
    model.steps(4, 6);
    EXPECT_EQ(model.t(0), 5);
    const std::vector<unsigned char> frozen = bytes_of(model.params[0]);
    model.set_frozen({0}, 0);
    ChangedModel fresh(nullptr, kind);
    MP_OK(mp_tensor_copy(model.params[0], nullptr, fresh.params[0]));
    MP_OK(mp_optimizer_sync_master(fresh.optimizer, nullptr, 0));
    // One's clipping would be of other gradients.
    MP_OK(mp_optimizer_set_max_grad_norm(model.optimizer, 0.0));
    MP_OK(mp_optimizer_set_max_grad_norm(fresh.optimizer, 0.0));
    model.steps(6, 9);
    fresh.steps(6, 9);
    EXPECT_NE(bytes_of(model.params[0]), frozen);
    EXPECT_EQ(bytes_of(model.params[0]), bytes_of(fresh.params[0]));
    EXPECT_EQ(bytes_of(state_of(model.optimizer, 0, "exp_avg_sq")),
              bytes_of(state_of(fresh.optimizer, 0, "exp_avg_sq")));
    EXPECT_EQ(model.t(0), 8);
    model.set_frozen({0, 1, 3, 4}, 1); // nothing is trained in the group
    EXPECT_EQ(model.t(0), 0);
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
    EXPECT_EQ(model.t(0), 0);
    model.set_frozen({1}, 0);
    model.step(9);
    EXPECT_EQ(model.t(0), 1);
    EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
}

// Before ranks have cut them, and marked ones.
TEST(ChangedLayout, ChangesBeforeTheCutAndMarks) {
    const ChangedKind kind = {"fp32", 3, MP_SHARD_FLAT, 0, 0, false};
    ChangedModel alone(nullptr, kind);
    alone.set_frozen({0}, 1);
    alone.set_frozen({2}, 0);
    const auto mark_and_step = [](ChangedModel& model) {
        const int32_t marked[] = {2, 4};
        for (int32_t i : {1, 2, 4}) {
            MP_OK(mp_optimizer_mark_unused(model.optimizer, nullptr, &i, 1));
        }
        model.set_frozen({4}, 1);
        MP_OK(mp_optimizer_mark_unused(model.optimizer, nullptr, marked, 2));
        model.ok(mp_optimizer_step(model.optimizer, nullptr, nullptr));
        model.set_frozen({4}, 0);
        model.step(2);
        EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
        EXPECT_EQ(model.t(0), 2); // of 'd', which was not marked
    };
    mark_and_step(alone);
    const auto weights = alone.weights();
    run_sharded(3, [&](mp_comm* comm, int32_t /*rank*/) {
        ChangedModel model(comm, kind, make_context(1), false);
        model.add(first_params(), 0);
        model.set_frozen({0}, 1);
        model.set_frozen({2}, 0);
        MP_OK(mp_optimizer_shard(model.optimizer, nullptr));
        mark_and_step(model);
        EXPECT_EQ(model.weights(), weights);
    });
}
