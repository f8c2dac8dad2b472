// SPDX-License-Identifier: Apache-2.0
// Checkpoints of frozen weights in any format: on other ranks and in other stages to the bit; into another format; and of what
// was trained and is frozen now, or the other way round.
#include "by_tool.hpp"
#include "frozen_blocks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

// As the base of the model above, or a plain one: of bf16 under a recipe with fp32 masters.
struct Base {
    const char* name;
    int32_t dtype, scaling; // of codes, or MP_DTYPE_BF16 or _FP32
    bool is_frozen;
};
// Of the base: its slices are whole rows of all blocks, or their borders lie between those of what is in the file.
struct BaseShape {
    int64_t rows, columns;
};
BaseShape of_base = {160, 256};

class Tuning {
  public:
    Tuning(const Base& base, mp_comm* comm, int32_t stage, const char* recipe_name = "fp16_mixed") {
        context_ = make_context(1);
        recipe_ = make_recipe(context_, recipe_name);
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        optimizer_ = make_optimizer_on(comm, context_, recipe_, nullptr, &sharding);
        add_group(optimizer_);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = base.scaling;
        const std::vector<float> values = numbers(of_base.rows * of_base.columns, 1);
        if (base.scaling == 0) {
            base_ = make_tensor(context_, base.dtype, {of_base.rows, of_base.columns}, values);
        } else {
            base_ = make_quantized(context_, base.dtype, {of_base.rows, of_base.columns}, &quant);
            const Tensor exact =
                make_tensor(context_, MP_DTYPE_FP32, {of_base.rows, of_base.columns}, values);
            EXPECT_TRUE(
                succeeded(mp_tensor_quantize(exact, nullptr, base_, nullptr, nullptr, nullptr)));
        }
        other_ = make_tensor(context_, weight_dtype(recipe_), {20000}, numbers(20000, 2));
        is_frozen_ = base.is_frozen;
        add("base", base_, base.is_frozen ? MP_PARAM_FROZEN : 0U);
        add("other", other_, 0);
        checkpoint_ = checkpoint_of(context_, optimizer_, comm);
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer_, nullptr)));
        }
    }
    void steps(int32_t count) const {
        for (int32_t i = 0; i < count; ++i) {
            for (const int32_t p : {0, 1}) {
                if (p == 0 && is_frozen_) {
                    continue;
                }
                EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer_, nullptr, p)));
                const Tensor grad = state_of(optimizer_, p, "grad");
                mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
                EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
                const int64_t size = p == 0 ? of_base.rows * of_base.columns : 20000;
                const std::vector<int64_t> shape(desc.shape, desc.shape + desc.ndim);
                const Tensor source =
                    make_tensor(context_, desc.dtype, shape,
                                numbers(static_cast<std::size_t>(size),
                                        3 + static_cast<uint64_t>(p) + static_cast<uint64_t>(i)));
                EXPECT_TRUE(succeeded(mp_tensor_copy(source, nullptr, grad)));
            }
            EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer_, nullptr, nullptr)));
        }
    }
    [[nodiscard]] mp_status save(const Folder& folder) const {
        return mp_checkpoint_save(checkpoint_, folder.c_str(), 1, 0);
    }
    [[nodiscard]] mp_status load(const Folder& folder, uint32_t flags = 0,
                                 mp_checkpoint_info* info = nullptr) const {
        return mp_checkpoint_load(checkpoint_, folder.c_str(), flags, info);
    }
    void gather() const {
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer_, nullptr, kFrozenBoth, 2)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer_, nullptr, kFrozenBoth, 2)));
    }
    [[nodiscard]] std::vector<Bytes> weights() const {
        gather();
        std::vector<Bytes> all = {bytes_of(base_), bytes_of(other_)};
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        if (mp_tensor_get_quant_desc(base_, &quant) == MP_STATUS_OK) {
            all.push_back(bytes_of(scales_of(base_)));
        }
        return all;
    }
    // The base's numbers.
    [[nodiscard]] std::vector<float> base() const {
        gather();
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        if (mp_tensor_get_quant_desc(base_, &quant) != MP_STATUS_OK) {
            return values_of(context_, base_);
        }
        const Tensor wide = make_tensor(context_, MP_DTYPE_FP32, {of_base.rows, of_base.columns});
        EXPECT_TRUE(succeeded(mp_tensor_dequantize(base_, nullptr, wide)));
        return values_of(context_, wide);
    }
    [[nodiscard]] std::vector<float> exact(int32_t p, const char* state) const {
        const Tensor values =
            make_tensor(context_, MP_DTYPE_FP32, {p == 0 ? of_base.rows * of_base.columns : 20000});
        EXPECT_TRUE(succeeded(mp_optimizer_read_state(optimizer_, nullptr, p, state, values)));
        return values_of(context_, values);
    }
    void set_base(const std::vector<float>& values) const {
        const mp_fill_fn fill = [](int32_t, int64_t first, int64_t count, float* to,
                                   void* payload) -> mp_status {
            std::copy_n(static_cast<const std::vector<float>*>(payload)->begin() + first, count,
                        to);
            return MP_STATUS_OK;
        };
        std::vector<float> all = values;
        EXPECT_TRUE(succeeded(
            mp_optimizer_fill_params(optimizer_, nullptr, kFrozenBoth, 1, fill, &all, -1)));
    }

  private:
    void add(const char* name, mp_tensor* param, uint32_t flags) const {
        EXPECT_TRUE(succeeded(add_param_flags(optimizer_, name, param, flags)));
    }

    Context context_;
    Recipe recipe_;
    Tensor base_, other_;
    bool is_frozen_ = false;
    Optimizer optimizer_;
    Checkpoint checkpoint_;
};

// Under fp16_mixed, whose weights are fp16 beside fp32 masters.
constexpr Base kTrainedBase = {"trained", MP_DTYPE_FP16, 0, false};
constexpr Base kFrozenFp16 = {"fp16", MP_DTYPE_FP16, 0, true};
constexpr Base kFrozenBases[] = {
    {"fp8", MP_DTYPE_FP8_E4M3, MP_SCALING_TENSOR, true},
    {"1x128", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_1X128, true},
    {"128x128", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X128, true},
    {"mxfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32, true},
    {"nvfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, true},
    {"bf16", MP_DTYPE_BF16, 0, true},
};

} // namespace

// A checkpoint of any ranks in any stage is that of any others, to the bit.
TEST(FrozenCheckpoints, LoadOnOtherRanks) {
    int32_t number = 0;
    for (const FrozenFormat& format : frozen_formats()) {
        const FrozenModel alone(format, nullptr, 0);
        MP_OK(init(alone));
        alone.step();
        const auto wanted = alone.weights();
        for (const int32_t saved_on : {1, 3}) {
            const int32_t stage = saved_on == 1 ? 0 : 3 - number % 2;
            SCOPED_TRACE(std::string(format.name) + ", saved on " + std::to_string(saved_on) +
                         " in stage " + std::to_string(stage));
            const Folder folder("mp_frozen_checkpoint");
            const auto save = [&](mp_comm* comm, int32_t /*rank*/) {
                const FrozenModel model(format, comm, stage, number % 3, comm != nullptr);
                if (comm != nullptr) {
                    model.shard();
                }
                MP_OK(init(model));
                model.step();
                const Checkpoint checkpoint = model.checkpoint(comm);
                MP_OK(mp_checkpoint_save(checkpoint, folder.c_str(), 1,
                                         number % 2 == 0 ? MP_SAVE_BACKGROUND : 0U));
                MP_OK(mp_checkpoint_wait(checkpoint));
            };
            if (saved_on == 1) {
                save(nullptr, 0);
            } else {
                run_ranks(saved_on, save);
            }
            for (const int32_t ranks : {1, 2, 5}) {
                run_ranks(ranks, [&](mp_comm* comm, int32_t /*rank*/) {
                    const FrozenModel model(format, comm, 1 + (number + ranks) % 3, ranks % 3,
                                            true);
                    model.shard();
                    MP_OK(mp_checkpoint_load(model.checkpoint(comm), folder.c_str(),
                                             MP_LOAD_VERIFY_ALL, nullptr));
                    EXPECT_EQ(model.weights(), wanted) << ranks;
                });
            }
            const FrozenModel unshared(format, nullptr, 0, MP_SHARD_FLAT, true);
            MP_OK(mp_checkpoint_load(unshared.checkpoint(nullptr), folder.c_str(), 0, nullptr));
            EXPECT_EQ(unshared.weights(), wanted);
            MP_OK(mp_checkpoint_verify(folder.c_str(), -1, nullptr, nullptr));
            ++number;
            const Folder again("mp_frozen_again");
            if (by_tool("reshard " + folder.path.string() + " " + again.path.string() +
                        " --ranks 3")) {
                const FrozenModel model(format, nullptr, 0);
                MP_OK(mp_checkpoint_load(model.checkpoint(nullptr), again.c_str(), 0, nullptr));
                EXPECT_EQ(model.weights(), wanted) << "resharded by the command";
            }
        }
    }
}

class FrozenInFiles : public ::testing::TestWithParam<BaseShape> {
  protected:
    void SetUp() override { of_base = GetParam(); }
};

// Tuning begins with a model that was trained: its weights are what the next step needs; states of what is frozen are not.
TEST_P(FrozenInFiles, WhatWasTrainedLoadsAsFrozen) {
    const Folder folder("mp_frozen_tuning");
    const Tuning trained(kTrainedBase, nullptr, 0);
    trained.steps(3);
    MP_OK(trained.save(folder));
    const auto wanted = trained.weights();
    const Tuning alone(kFrozenFp16, nullptr, 0);
    MP_OK(alone.load(folder));
    EXPECT_EQ(alone.weights(), wanted);
    EXPECT_EQ(alone.exact(1, "exp_avg"), trained.exact(1, "exp_avg"));
    alone.steps(2);
    trained.steps(2);
    EXPECT_EQ(alone.weights()[1], trained.weights()[1]) << "the others go on";
    EXPECT_EQ(alone.weights()[0], wanted[0]);
    for (const int32_t stage : {0, 1, 3}) {
        run_ranks(3, [&](mp_comm* comm, int32_t /*rank*/) {
            const Tuning model(kFrozenFp16, comm, stage);
            MP_OK(model.load(folder, stage == 1 ? MP_LOAD_CONVERT : 0U));
            EXPECT_EQ(model.weights(), wanted) << stage;
        });
    }
    // Other types are rounded where that is asked for, from all bits that the weights have.
    for (const Base& base : kFrozenBases) {
        SCOPED_TRACE(base.name);
        const Tuning rounded(base, nullptr, 0);
        const auto before = rounded.weights();
        const mp_status status = rounded.load(folder);
        EXPECT_LT(status, 0);
        EXPECT_NE(std::string(mp_last_error_message()).find("MP_LOAD_CONVERT"), std::string::npos)
            << mp_last_error_message();
        EXPECT_EQ(rounded.weights(), before);
        mp_checkpoint_info info = MP_CHECKPOINT_INFO_INIT;
        MP_OK(rounded.load(folder, MP_LOAD_CONVERT, &info));
        EXPECT_EQ(info.converted, 1);
        EXPECT_GT(info.weight_largest_error, 0.0);
        EXPECT_EQ(info.state_largest_error[MP_STATE_EXP_AVG], 0.0) << "the others are as they were";
        const auto expected = rounded.weights();
        EXPECT_EQ(expected[1], wanted[1]);
        for (const int32_t stage : {1, 3}) {
            run_ranks(4, [&](mp_comm* comm, int32_t /*rank*/) {
                const Tuning model(base, comm, stage);
                MP_OK(model.load(folder, MP_LOAD_CONVERT));
                EXPECT_EQ(model.weights(), expected) << stage;
            });
        }
    }
}

// What was frozen is trained from where it was, as if it had been added anew.
TEST_P(FrozenInFiles, WhatWasFrozenLoadsAsTrained) {
    std::vector<Base> bases(std::begin(kFrozenBases), std::end(kFrozenBases));
    bases.push_back(kFrozenFp16);
    for (const Base& base : bases) {
        SCOPED_TRACE(base.name);
        const Folder folder("mp_thawed");
        const Tuning frozen(base, nullptr, 0);
        frozen.steps(3);
        MP_OK(frozen.save(folder));
        const Tuning alone(kTrainedBase, nullptr, 0);
        const auto before = alone.weights();
        const mp_status status = alone.load(folder);
        EXPECT_LT(status, 0);
        EXPECT_NE(std::string(mp_last_error_message()).find("MP_LOAD_CONVERT"), std::string::npos)
            << mp_last_error_message();
        EXPECT_EQ(alone.weights(), before);
        alone.steps(1); // states that are to go
        MP_OK(alone.load(folder, MP_LOAD_CONVERT));
        EXPECT_EQ(alone.exact(0, "fp32_param"), frozen.base());
        EXPECT_EQ(alone.exact(0, "exp_avg"),
                  std::vector<float>(static_cast<std::size_t>(of_base.rows * of_base.columns)));
        EXPECT_EQ(alone.exact(1, "exp_avg"), frozen.exact(1, "exp_avg"));
        const Tuning added(kTrainedBase, nullptr,
                           0); // with the same weights, and its own first step before it
        added.set_base(frozen.base());
        added.steps(1);
        alone.steps(1);
        EXPECT_EQ(alone.weights()[0], added.weights()[0]);
        alone.steps(1);
        frozen.steps(1);
        frozen.steps(1);
        EXPECT_EQ(alone.weights()[1], frozen.weights()[1]);
        const auto wanted = alone.weights();
        for (const int32_t stage : {1, 3}) {
            run_ranks(3, [&](mp_comm* comm, int32_t /*rank*/) {
                const Tuning model(kTrainedBase, comm, stage);
                MP_OK(model.load(folder, MP_LOAD_CONVERT));
                model.steps(1);
                model.steps(1);
                EXPECT_EQ(model.weights(), wanted) << stage;
            });
        }
    }
}

// From one format of codes to another, and to another recipe for the rest.
TEST_P(FrozenInFiles, ConvertBetweenFormats) {
    for (const Base& from : kFrozenBases) {
        const Folder folder("mp_frozen_formats");
        const Tuning saved(from, nullptr, 0);
        saved.steps(2);
        MP_OK(saved.save(folder));
        for (const Base& to : kFrozenBases) {
            for (const char* recipe : {"fp16_mixed", "bf16_pure_kahan"}) {
                SCOPED_TRACE(std::string(from.name) + " to " + to.name + ", " + recipe);
                const Tuning alone(to, nullptr, 0, recipe);
                MP_OK(alone.load(folder, MP_LOAD_CONVERT));
                if (std::strcmp(from.name, to.name) == 0) {
                    EXPECT_EQ(alone.weights()[0], saved.weights()[0]);
                }
                const auto wanted = alone.weights();
                run_ranks(3, [&](mp_comm* comm, int32_t /*rank*/) {
                    const Tuning model(to, comm, 3, recipe);
                    MP_OK(model.load(folder, MP_LOAD_CONVERT));
                    EXPECT_EQ(model.weights(), wanted);
                });
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FrozenInFiles,
                         ::testing::Values(BaseShape{160, 256}, BaseShape{600, 96},
                                           BaseShape{640, 192}),
                         [](const auto& i) {
                             return std::to_string(i.param.rows) + "x" +
                                    std::to_string(i.param.columns);
                         });
