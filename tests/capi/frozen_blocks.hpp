// SPDX-License-Identifier: Apache-2.0
// A model whose base is frozen, in codes with scales of any kind, beside a vector that is trained.
#pragma once

#include "memory.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"

namespace mp_test {

// A format of codes, and the shape of a matrix in it.
struct FrozenFormat {
    const char* name;
    int32_t dtype;
    int32_t scaling;
    int32_t rule;
    std::vector<int64_t> shape;

    [[nodiscard]] int64_t count() const {
        int64_t product = 1;
        for (const int64_t size : shape) {
            product *= size;
        }
        return product;
    }
    [[nodiscard]] mp_quant_desc quant() const {
        mp_quant_desc desc = MP_QUANT_DESC_INIT;
        desc.scaling = scaling;
        desc.rule = rule;
        return desc;
    }
};

// Every scaling, in shapes whose blocks, rows and pairs do not come out even.
inline const std::vector<FrozenFormat>& frozen_formats() {
    static const std::vector<FrozenFormat> formats = {
        {"one", MP_DTYPE_FP8_E4M3, MP_SCALING_TENSOR, 0, {300, 201}},
        {"one_e5m2", MP_DTYPE_FP8_E5M2, MP_SCALING_TENSOR, MP_SCALE_RULE_MSAMP, {300, 201}},
        {"one_fp16", MP_DTYPE_FP16, MP_SCALING_TENSOR, MP_SCALE_RULE_MSAMP, {70001}},
        {"row", MP_DTYPE_FP8_E4M3, MP_SCALING_ROW, 0, {300, 201}},
        {"column", MP_DTYPE_FP8_E4M3, MP_SCALING_COLUMN, 0, {300, 201}},
        {"1x128", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_1X128, 0, {300, 201}},
        {"1x128_vector", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_1X128, 0, {70001}},
        {"128x1", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X1, 0, {700, 101}},
        {"128x128", MP_DTYPE_FP8_E5M2, MP_SCALING_BLOCK_128X128, 0, {700, 129}},
        {"128x128_3d", MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X128, 0, {3, 230, 129}},
        {"mx_1x32", MP_DTYPE_FP8_E4M3, MP_SCALING_MX_1X32, 0, {300, 201}},
        {"mx_32x1", MP_DTYPE_FP8_E4M3, MP_SCALING_MX_32X1, MP_SCALE_RULE_MX_FLOOR, {300, 201}},
        {"mxfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32, 0, {300, 201}},
        {"mxfp4_vector", MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32, 0, {70001}},
        {"nvfp4", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {300, 200}},
        {"nvfp4_odd", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {301, 201}},
        {"nvfp4_vector", MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0, {70001}},
    };
    return formats;
}

using Bytes = std::vector<unsigned char>;

constexpr int64_t kFrozenTrained = 20000;
constexpr int32_t kFrozenBoth[] = {0, 1};

// `comm` NULL: of one rank, not sharded.
struct FrozenModel {
    Context context;
    Recipe recipe;
    Tensor base, trained;
    Optimizer optimizer;
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;

    FrozenModel(const FrozenFormat& format, mp_comm* comm, int32_t stage,
                int32_t plan = MP_SHARD_FLAT, bool is_deferred = false, Counter* counter = nullptr,
                bool is_base_frozen = true) {
        context = make_counted_context(counter);
        recipe = make_recipe(context, "bf16_pure");
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        sharding.kind = plan;
        optimizer = make_optimizer_on(comm, context, recipe, nullptr, &sharding);
        add_group(optimizer);
        const mp_quant_desc quant = format.quant();
        base = make_quantized(context, format.dtype, format.shape, &quant,
                              is_deferred ? MP_TENSOR_DEFERRED : 0U);
        trained = make_tensor(context, MP_DTYPE_BF16, {kFrozenTrained}, numbers(kFrozenTrained, 2));
        add("base", base, is_base_frozen ? MP_PARAM_FROZEN : 0U);
        add("trained", trained, 0);
    }
    void add(const char* name, mp_tensor* param, uint32_t flags) const {
        EXPECT_TRUE(succeeded(add_param_flags(optimizer, name, param, flags)));
    }
    // Before it is cut, from values of which one row is by far the largest.
    void quantize(const FrozenFormat& format, uint64_t seed = 1) const {
        std::vector<float> values = numbers(static_cast<std::size_t>(format.count()), seed);
        for (std::size_t i = 0; i < values.size() / 8; ++i) {
            values[i] *= 37.0F;
        }
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, format.shape, values);
        EXPECT_TRUE(succeeded(mp_tensor_quantize(exact, nullptr, base, nullptr, nullptr, nullptr)));
    }
    void shard() const { EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr))); }
    void gather() const {
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer, nullptr, kFrozenBoth, 2)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer, nullptr, kFrozenBoth, 2)));
    }
    void release() const {
        EXPECT_TRUE(succeeded(mp_optimizer_gather_free(optimizer, nullptr, kFrozenBoth, 2)));
    }
    void step() const {
        EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer, nullptr, 1)));
        const Tensor grad = state_of(optimizer, 1, "grad");
        const Tensor source =
            make_tensor(context, MP_DTYPE_BF16, {kFrozenTrained}, numbers(kFrozenTrained, 3));
        EXPECT_TRUE(succeeded(mp_tensor_copy(source, nullptr, grad)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    // Codes, scales and, where these are relative to it, the amax; and the trained ones.
    [[nodiscard]] std::vector<Bytes> weights() const {
        gather();
        std::vector<Bytes> all = {bytes_of(base), bytes_of(scales_of(base)), bytes_of(trained)};
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_quant_desc(base, &quant)));
        if (quant.scaling == MP_SCALING_NVFP4) {
            all.push_back(bytes_of(amax_of(base)));
        }
        return all;
    }
    [[nodiscard]] mp_memory_report memory() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }
    [[nodiscard]] Checkpoint checkpoint(mp_comm* comm) const {
        return checkpoint_of(context, optimizer, comm);
    }
};

inline mp_status init(const FrozenModel& model, uint64_t seed = 9) {
    mp_param_init inits[2] = {MP_PARAM_INIT_INIT, MP_PARAM_INIT_INIT};
    inits[0].kind = MP_INIT_NORMAL;
    inits[0].b = 0.02;
    inits[1].index = 1;
    inits[1].kind = MP_INIT_UNIFORM;
    inits[1].b = 0.5;
    return mp_optimizer_init_params(model.optimizer, nullptr, seed, inits, 2);
}

} // namespace mp_test
