// SPDX-License-Identifier: Apache-2.0
// Frozen weights in codes with scales of every kind: the bits of an optimizer that nobody shares, on any ranks in any stage,
// whatever their values came from; and what ranks hold and send of them.
#include <cmath>

#include "frozen_blocks.hpp"
#include "model_parts.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

// Each format in each stage and plan, with ranks that change from case to case.
struct Case {
    const FrozenFormat& format;
    int32_t stage, plan, ranks;
};
template <class Body> void for_each_case(const Body& body) {
    int32_t number = 0;
    for (const FrozenFormat& format : frozen_formats()) {
        for (const int32_t stage : {0, 1, 2, 3, 3, 3}) {
            const Case c = {format, stage, number % 3, stage == 3 ? 1 + number % 8 : 2};
            ++number;
            SCOPED_TRACE(std::string(format.name) + ", stage " + std::to_string(stage) + ", plan " +
                         std::to_string(c.plan) + ", ranks " + std::to_string(c.ranks));
            body(c);
        }
    }
}

float value_at(int32_t index, int64_t element) {
    return std::sin(static_cast<float>(element + 1) * (index == 0 ? 0.37F : 0.11F)) * 0.1F /
           (1.0F + static_cast<float>(element) * 1e-4F);
}
mp_status fill(int32_t index, int64_t first, int64_t count, float* values, void* payload) {
    for (int64_t i = 0; i < count; ++i) {
        values[i] = value_at(index, first + i);
    }
    return payload != nullptr && *static_cast<int32_t*>(payload) == index ? MP_STATUS_IO_ERROR
                                                                          : MP_STATUS_OK;
}

mp_memory_report planned(const FrozenModel& model, const FrozenFormat& format, int32_t rank,
                         int32_t ranks, mp_comm_traffic* traffic) {
    mp_planned_tensor tensors[2] = {MP_PLANNED_TENSOR_INIT, MP_PLANNED_TENSOR_INIT};
    tensors[0].count = format.count();
    tensors[0].columns = format.shape.back();
    tensors[0].weight_dtype = format.dtype;
    tensors[0].scaling = format.scaling;
    tensors[0].flags = MP_PARAM_FROZEN;
    tensors[1].count = kFrozenTrained;
    tensors[1].ndim = 1;
    mp_memory_report plan = MP_MEMORY_REPORT_INIT;
    EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(model.recipe, nullptr, tensors, 2, &model.sharding,
                                                 rank, ranks, &plan, traffic)));
    return plan;
}

} // namespace

TEST(FrozenBlocks, HaveTheBitsOfOneRank) {
    for_each_case([](const Case& c) {
        const FrozenModel alone(c.format, nullptr, 0);
        alone.quantize(c.format);
        alone.step();
        const auto wanted = alone.weights();
        run_ranks(c.ranks, [&](mp_comm* comm, int32_t /*rank*/) {
            const FrozenModel model(c.format, comm, c.stage, c.plan);
            model.quantize(c.format);
            model.shard();
            if (c.stage == 3) {
                mp_tensor* scales = nullptr;
                MP_FAILS(mp_tensor_get_scales(model.base, &scales), MP_STATUS_BAD_STATE,
                         "no memory now");
            }
            model.step();
            EXPECT_EQ(model.weights(), wanted);
            model.release();
            EXPECT_EQ(model.weights(), wanted) << "again";
        });
    });
}

// From a seed, from each rank's function, from one rank that reads for all.
TEST(FrozenBlocks, GetFirstValuesOfTheSameBits) {
    for_each_case([](const Case& c) {
        std::vector<Bytes> wanted[2];
        for (const bool by_seed : {true, false}) {
            const FrozenModel alone(c.format, nullptr, 0);
            MP_OK(by_seed ? init(alone)
                          : mp_optimizer_fill_params(alone.optimizer, nullptr, kFrozenBoth, 2, fill,
                                                     nullptr, -1));
            wanted[by_seed ? 0 : 1] = alone.weights();
        }
        run_ranks(c.ranks, [&](mp_comm* comm, int32_t /*rank*/) {
            const FrozenModel model(c.format, comm, c.stage, c.plan, true);
            model.shard();
            MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                     "'base' has no values yet");
            MP_OK(init(model));
            EXPECT_EQ(model.weights(), wanted[0]);
            model.release();
            for (const int32_t root : {-1, c.ranks - 1}) {
                MP_OK(init(model, 7)); // others
                MP_OK(mp_optimizer_fill_params(model.optimizer, nullptr, kFrozenBoth, 2, fill,
                                               nullptr, root));
                EXPECT_EQ(model.weights(), wanted[1]) << "root " << root;
                model.release();
            }
        });
    });
}

// What is planned is what is held, and sent, but for what rounds a message up.
TEST(FrozenBlocks, AreHeldAndSentAsPlanned) {
    for_each_case([](const Case& c) {
        if (c.format.dtype == MP_DTYPE_FP16 || c.ranks == 1) {
            return; // fp16: of MS-AMP's recipes, which say so without a scaling. One rank: nobody shares, says a plan
        }
        std::atomic<int64_t> sent{0};
        std::atomic<int64_t> two_gathers{0};
        run_ranks(c.ranks, [&](mp_comm* comm, int32_t rank) {
            const FrozenModel model(c.format, comm, c.stage, c.plan, true);
            model.shard();
            mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
            const mp_memory_report plan = planned(model, c.format, rank, c.ranks, &traffic);
            EXPECT_EQ(model.memory().weight_bytes, plan.weight_bytes);
            EXPECT_EQ(model.memory().total_bytes, plan.total_bytes);
            MP_OK(init(model));
            EXPECT_EQ(model.memory().total_bytes, plan.total_bytes);
            mp_comm_traffic before = MP_COMM_TRAFFIC_INIT;
            MP_OK(mp_optimizer_get_traffic(model.optimizer, &before));
            model.gather();
            mp_comm_traffic after = MP_COMM_TRAFFIC_INIT;
            MP_OK(mp_optimizer_get_traffic(model.optimizer, &after));
            sent += after.all_gather_bytes - before.all_gather_bytes;
            two_gathers += traffic.all_gather_bytes;
            model.release();
            EXPECT_EQ(model.memory().total_bytes, plan.total_bytes);
        });
        if (c.stage == 3) {
            const double planned_bytes = static_cast<double>(two_gathers) / 2.0;
            EXPECT_GE(static_cast<double>(sent), planned_bytes - c.ranks);
            EXPECT_LE(static_cast<double>(sent), planned_bytes + 64.0 * c.ranks * c.ranks);
        }
    });
}

// In stage 3 no rank ever has it whole, not even its codes, unless it is gathered.
TEST(FrozenBlocks, NoRankHoldsADeferredOne) {
    const FrozenFormat format = {"mx", MP_DTYPE_FP8_E4M3, MP_SCALING_MX_1X32, 0, {8192, 256}};
    const int64_t whole = format.count() * 33 / 32;
    run_ranks(4, [&](mp_comm* comm, int32_t /*rank*/) {
        Counter counter;
        {
            const FrozenModel model(format, comm, 3, MP_SHARD_FLAT, true, &counter);
            const int64_t before = counter.live;
            EXPECT_LT(before, whole / 8) << "has memory before it is cut";
            model.shard();
            MP_OK(init(model));
            const int64_t held = model.memory().total_bytes;
            EXPECT_LT(held, whole / 2);
            EXPECT_LE(counter.live, before + held + whole / 3) << "and scratch memory";
            EXPECT_LE(counter.peak, before + held + format.count() + whole / 3) << "slice in fp32";
            model.gather();
            EXPECT_GE(counter.live, whole);
        }
        EXPECT_EQ(counter.live, 0);
    });
}

TEST(FrozenBlocks, ComeFromAModelsFiles) {
    const Folder folder("mp_frozen_blocks");
    std::filesystem::create_directories(folder.path);
    const FrozenFormat format = {"nvfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {300, 200}};
    std::string parts[2];
    for (int32_t p = 0; p < 2; ++p) {
        for (int64_t i = 0; i < (p == 0 ? format.count() : kFrozenTrained); ++i) {
            const float value = value_at(p, i);
            parts[p].append(reinterpret_cast<const char*>(&value), sizeof value);
        }
    }
    const auto path = std::filesystem::path(folder.path) / "model.safetensors";
    write_parts(path,
                {{"base", "F32", {300, 200}, parts[0]}, {"trained", "F32", {20000}, parts[1]}});
    const ModelFile file = opened(path);
    const FrozenModel alone(format, nullptr, 0);
    MP_OK(mp_optimizer_fill_params(alone.optimizer, nullptr, kFrozenBoth, 2, fill, nullptr, -1));
    const auto wanted = alone.weights();
    run_ranks(3, [&](mp_comm* comm, int32_t /*rank*/) {
        const FrozenModel model(format, comm, 3, MP_SHARD_PER_PARAMETER, true);
        model.shard();
        MP_OK(mp_optimizer_load_params(model.optimizer, nullptr, file, nullptr, nullptr, 0));
        EXPECT_EQ(model.weights(), wanted);
    });
}

// Nobody waits for a rank that cannot, also where ranks agree on the amax of a whole tensor meanwhile.
TEST(FrozenBlocks, AFailureStopsAllRanks) {
    for (const FrozenFormat& format : frozen_formats()) {
        for (const int32_t root : {-1, 1}) {
            SCOPED_TRACE(format.name);
            run_ranks(3, [&](mp_comm* comm, int32_t rank) {
                const FrozenModel model(format, comm, 3, MP_SHARD_FLAT, true);
                model.shard();
                int64_t start = 0, asked = 0;
                MP_OK(mp_optimizer_get_slice(model.optimizer, 0, 1, &start, &asked));
                int32_t fails_at = rank == 1 ? 0 : -1;
                const mp_status status = mp_optimizer_fill_params(
                    model.optimizer, nullptr, kFrozenBoth, 2, fill, &fails_at, root);
                if (asked == 0 && root < 0) {
                    MP_OK(status);
                    return;
                }
                if (rank == 1) {
                    MP_FAILS(status, MP_STATUS_IO_ERROR, "fill returned", "'base'");
                } else {
                    MP_FAILS(status, MP_STATUS_PEER_ERROR, "rank 1");
                }
                MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                         "no values yet");
                MP_OK(init(model));
                model.gather();
            });
        }
    }
}

// Memory that one rank does not get: it says so, the others hear of it, and the same call succeeds afterwards.
TEST(FrozenBlocks, ARankWithoutMemoryStopsAll) {
    const FrozenFormat format = {"nvfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {300, 200}};
    const FrozenModel alone(format, nullptr, 0);
    MP_OK(init(alone));
    const auto wanted = alone.weights();
    for (const bool in_shard : {true, false}) {
        bool has_failed = true;
        for (int64_t allocation = 0; has_failed; ++allocation) {
            SCOPED_TRACE(allocation);
            has_failed = false;
            run_ranks(3, [&](mp_comm* comm, int32_t rank) {
                Counter counter;
                const FrozenModel model(format, comm, 3, MP_SHARD_FLAT, true, &counter);
                const auto call = [&](bool with_all) {
                    counter.left = rank == 1 && !with_all ? allocation : INT64_MAX;
                    const mp_status status =
                        in_shard ? mp_optimizer_shard(model.optimizer, nullptr) : init(model);
                    counter.left = INT64_MAX;
                    return status;
                };
                if (!in_shard) {
                    model.shard();
                }
                const mp_status status = call(false);
                if (rank == 1 && status == MP_STATUS_OUT_OF_MEMORY) {
                    has_failed = true;
                } else if (status != MP_STATUS_OK) {
                    EXPECT_NE(rank, 1) << mp_last_error_message();
                }
                if (status == MP_STATUS_OK || !in_shard) { // after a failed cut ranks are apart
                    MP_OK(in_shard ? init(model) : call(true));
                    EXPECT_EQ(model.weights(), wanted);
                } else {
                    EXPECT_LT(mp_optimizer_step(model.optimizer, nullptr, nullptr), 0);
                }
            });
            ASSERT_LT(allocation, 200);
        }
    }
}

// A layer reads codes and scales where they are now, made over a weight that has none yet.
TEST(FrozenBlocks, ServeLayers) {
    struct Kind {
        const char* recipe;
        FrozenFormat format;
    };
    const Kind kinds[] = {
        {"mxfp8", {"mx", MP_DTYPE_FP8_E4M3, MP_SCALING_MX_1X32, 0, {192, 128}}},
        {"fp8_block", {"128x128", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X128, 0, {192, 128}}},
        {"bf16_mixed", {"row", MP_DTYPE_FP8_E4M3, MP_SCALING_ROW, 0, {192, 128}}}};
    for (const Kind& kind : kinds) {
        SCOPED_TRACE(kind.recipe);
        const auto layer_over = [&](const FrozenModel& model) {
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            desc.in_features = 128;
            desc.out_features = 192;
            desc.flags = MP_LINEAR_FROZEN;
            mp_linear* made = nullptr;
            EXPECT_TRUE(
                succeeded(mp_linear_create(model.context, make_recipe(model.context, kind.recipe),
                                           &desc, model.base, nullptr, &made)));
            return Linear(made);
        };
        const auto pass = [](const FrozenModel& model, mp_linear* layer) {
            const Tensor x =
                make_tensor(model.context, MP_DTYPE_BF16, {64, 128}, numbers(64 * 128, 5));
            const Tensor dy =
                make_tensor(model.context, MP_DTYPE_BF16, {64, 192}, numbers(64 * 192, 6));
            const Tensor y = make_tensor(model.context, MP_DTYPE_BF16, {64, 192});
            const Tensor dx = make_tensor(model.context, MP_DTYPE_BF16, {64, 128});
            EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
            EXPECT_TRUE(succeeded(mp_linear_backward_data(layer, nullptr, dy, dx)));
            return std::vector<Bytes>{bytes_of(y), bytes_of(dx)};
        };
        const FrozenModel alone(kind.format, nullptr, 0);
        MP_OK(init(alone));
        const auto wanted = pass(alone, layer_over(alone));
        run_ranks(2, [&](mp_comm* comm, int32_t /*rank*/) {
            const FrozenModel model(kind.format, comm, 3, MP_SHARD_PER_PARAMETER, true);
            const Linear layer = layer_over(model);
            model.shard();
            MP_OK(init(model));
            const Tensor x =
                make_tensor(model.context, MP_DTYPE_BF16, {64, 128}, numbers(64 * 128, 5));
            const Tensor y = make_tensor(model.context, MP_DTYPE_BF16, {64, 192});
            MP_FAILS(mp_linear_forward(layer, nullptr, x, y), MP_STATUS_BAD_STATE,
                     "weight has no memory now");
            for (int32_t use = 0; use < 2; ++use) {
                model.gather();
                EXPECT_EQ(pass(model, layer), wanted);
                model.release();
            }
        });
    }
}
