// SPDX-License-Identifier: Apache-2.0
// Parameters of an optimizer written into model files: the same bytes from any ranks, stages and places, weights and what stands
// behind them, frozen ones in codes; what goes wrong on one rank fails on all.
#include <filesystem>

#include "frozen_blocks.hpp"
#include "training.hpp"
#include "written_model.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRows = 611;
constexpr int64_t kColumns = 480; // in all more than a piece
constexpr int64_t kBias = 300;

struct Files : Folder {
    explicit Files(const char* name) : Folder(name) { fs::create_directories(path); }
};

// A matrix and a vector with values that no 16-bit weight holds.
struct Model {
    Context context = make_context(1);
    Recipe recipe;
    std::array<Tensor, 2> params;
    Optimizer optimizer;

    Model(const char* json, mp_comm* comm, int32_t stage, int32_t shard_ranks = 0,
          uint32_t flags = 0) {
        recipe = recipe_of(context, json);
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        sharding.shard_ranks = shard_ranks;
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        add_group(optimizer);
        const std::vector<int64_t> shapes[] = {{kRows, kColumns}, {kBias}};
        for (std::size_t p = 0; p < 2; ++p) {
            params[p] = make_tensor(context, weight_dtype(recipe), shapes[p]);
            EXPECT_TRUE(
                succeeded(add_param(optimizer, 0, p == 0 ? "matrix" : "vector", params[p])));
        }
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr)));
        }
        mp_param_init inits[2] = {MP_PARAM_INIT_INIT, MP_PARAM_INIT_INIT};
        inits[0].kind = inits[1].kind = MP_INIT_NORMAL;
        inits[0].b = inits[1].b = 0.02;
        inits[1].index = 1;
        EXPECT_TRUE(succeeded(mp_optimizer_init_params(optimizer, nullptr, 5, inits, 2)));
    }
    [[nodiscard]] std::vector<float> exact(int32_t index) const {
        const Tensor values =
            make_tensor(context, MP_DTYPE_FP32, {index == 0 ? kRows * kColumns : kBias});
        EXPECT_TRUE(
            succeeded(mp_optimizer_read_state(optimizer, nullptr, index, "fp32_param", values)));
        return values_of(context, values);
    }
    // As numbers.
    [[nodiscard]] std::vector<float> weights(int32_t index) const {
        mp_tensor* param = params[static_cast<std::size_t>(index)];
        const Tensor wide = make_tensor(context, MP_DTYPE_FP32,
                                        index == 0 ? std::vector<int64_t>{kRows, kColumns}
                                                   : std::vector<int64_t>{kBias});
        EXPECT_TRUE(succeeded(weight_dtype(recipe) == MP_DTYPE_FP32
                                  ? mp_tensor_copy(param, nullptr, wide)
                                  : mp_tensor_cast(param, nullptr, wide, nullptr)));
        return values_of(context, wide);
    }
};

ModelWriter writer_for_model(const fs::path& path) {
    ModelWriter writer = make_writer(path);
    (void)add_to(writer, "model.vector", MP_DTYPE_FP32, {kBias});
    (void)add_to(writer, "model.matrix", MP_DTYPE_FP32, {kRows, kColumns});
    return writer;
}

mp_status write(mp_optimizer* optimizer, mp_model_writer* writer, uint32_t flags = 0) {
    return mp_optimizer_write_params(optimizer, nullptr, writer, "model.", nullptr, 0, flags);
}

void expect_in_file(const fs::path& path, const std::vector<float>& matrix,
                    const std::vector<float>& vector) {
    const ModelFile file = opened(path);
    EXPECT_TRUE(floats_in(file, "model.matrix") == matrix);
    EXPECT_TRUE(floats_in(file, "model.vector") == vector);
}

// Both kinds of values by one rank of all.
void write_both(const Model& model, const fs::path& folder, bool is_writer) {
    for (const uint32_t flags : {0U, MP_WRITE_PARAMS_EXACT}) {
        const ModelWriter writer =
            is_writer ? writer_for_model(folder / (std::to_string(flags) + ".safetensors"))
                      : ModelWriter();
        MP_OK(write(model.optimizer, writer, flags));
        if (is_writer) {
            MP_OK(mp_model_writer_finish(writer));
        }
    }
}

} // namespace

TEST(WriteParams, AreTheSameFromAnyRanks) {
    for (
        const char* json :
        {R"({"recipe": "fp32"})", R"({"recipe": "bf16_mixed_dual"})",
         R"({"recipe": "bf16_pure_kahan"})", R"({"recipe": "bf16_pure_remainder"})",
         R"({"recipe": "fp16_mixed"})", R"({"recipe": "bf16_pure"})",
         R"({"recipe": "bf16_pure_kahan", "optimizer.compensation.dtype": "fp8_e4m3_block256"})"}) {
        const Model alone(json, nullptr, 0);
        const std::vector<float> exact[] = {alone.exact(0), alone.exact(1)};
        const std::vector<float> weights[] = {alone.weights(0), alone.weights(1)};
        EXPECT_EQ(exact[0] == weights[0], std::string(json).find("\"fp32\"") != std::string::npos ||
                                              std::string(json).ends_with("\"bf16_pure\"}"));
        struct Case {
            int32_t stage, ranks, shard_ranks, writer;
            uint32_t flags;
        };
        for (const Case& c : {Case{0, 0, 0, 0, 0},
                              {0, 0, 0, 0, MP_OPTIMIZER_OFFLOAD},
                              {0, 2, 0, 1, 0},
                              {1, 3, 0, 2, 0},
                              {2, 3, 0, 0, MP_OPTIMIZER_OFFLOAD},
                              {3, 1, 0, 0, 0},
                              {3, 4, 2, 3, 0},
                              {3, 3, 0, 1, 0}}) {
            SCOPED_TRACE(std::string(json) + ", stage " + std::to_string(c.stage) + ", ranks " +
                         std::to_string(c.ranks));
            const Files folder("written_params");
            if (c.ranks == 0) {
                write_both(Model(json, nullptr, 0, 0, c.flags), folder.path, true);
            } else {
                run_ranks(c.ranks, [&](mp_comm* comm, int32_t rank) {
                    const Model model(json, comm, c.stage, c.shard_ranks, c.flags);
                    write_both(model, folder.path, rank == c.writer);
                });
            }
            expect_in_file(folder.path / "0.safetensors", weights[0], weights[1]);
            expect_in_file(folder.path / "1.safetensors", exact[0], exact[1]);
        }
    }
}

TEST(WriteParams, ExactValuesAreTakenBack) {
    const Files folder("written_back");
    const char* const json = R"({"recipe": "bf16_pure_remainder"})";
    const Model first(json, nullptr, 0);
    const fs::path path = folder.path / "m.safetensors";
    const ModelWriter writer = writer_for_model(path);
    MP_OK(write(first.optimizer, writer, MP_WRITE_PARAMS_EXACT));
    MP_OK(mp_model_writer_finish(writer));
    const Model second(json, nullptr, 0);
    mp_param_init init = MP_PARAM_INIT_INIT;
    MP_OK(mp_optimizer_init_params(second.optimizer, nullptr, 0, &init, 1));
    MP_OK(mp_optimizer_load_params(second.optimizer, nullptr, opened(path), "model.", nullptr, 0));
    EXPECT_TRUE(first.exact(0) == second.exact(0));
    EXPECT_EQ(bytes_of(first.params[0]), bytes_of(second.params[0]));
}

TEST(WriteParams, FrozenCodesBecomeTheirNumbers) {
    int32_t number = 0;
    for (const FrozenFormat& format : frozen_formats()) {
        SCOPED_TRACE(format.name);
        const Files folder("written_frozen");
        const fs::path path = folder.path / "m.safetensors";
        const FrozenModel alone(format, nullptr, 0);
        alone.quantize(format);
        const Tensor wide = make_tensor(alone.context, MP_DTYPE_FP32, format.shape);
        MP_OK(mp_tensor_dequantize(alone.base, nullptr, wide));
        const int32_t stage = ++number % 4;
        run_ranks(3, [&](mp_comm* comm, int32_t rank) {
            const FrozenModel model(format, comm, stage, number % 3);
            model.quantize(format);
            model.shard();
            const ModelWriter writer = rank == 0 ? make_writer(path) : ModelWriter();
            if (rank == 0) {
                (void)add_to(writer, "base", MP_DTYPE_FP32, format.shape);
            }
            const int32_t base = 0;
            MP_OK(
                mp_optimizer_write_params(model.optimizer, nullptr, writer, nullptr, &base, 1, 0));
            if (rank == 0) {
                MP_OK(mp_model_writer_finish(writer));
            }
        });
        EXPECT_TRUE(floats_in(opened(path), "base") == values_of(alone.context, wide));
    }
}

TEST(WriteParams, WrongCallsAreRefusedOnOneRank) {
    const Files folder("written_wrong");
    const Model model(R"({"recipe": "fp32"})", nullptr, 0);
    mp_optimizer* const o = model.optimizer;
    const ModelWriter writer = make_writer(folder.path / "m.safetensors");
    (void)add_to(writer, "vector", MP_DTYPE_FP32, {kBias, 1});
    (void)add_to(writer, "x.vector", MP_DTYPE_INT8, {kBias});
    const int32_t vector = 1, none = 2;
    const auto write_one = [&](const char* prefix, const int32_t* index, uint32_t flags = 0) {
        return mp_optimizer_write_params(o, nullptr, writer, prefix, index, 1, flags);
    };
    MP_FAILS(write(o, nullptr), MP_STATUS_NULL_ARGUMENT, "writer");
    MP_FAILS(write_one("y.", &vector), MP_STATUS_UNKNOWN_NAME, "'y.vector'");
    MP_FAILS(write_one(nullptr, &vector), MP_STATUS_INVALID_SHAPE, "[300, 1]", "[300]");
    MP_FAILS(write_one("x.", &vector), MP_STATUS_INVALID_DTYPE, "I8");
    MP_FAILS(write_one("x.", &none), MP_STATUS_INVALID_ARGUMENT, "2");
    MP_FAILS(write_one("x.", &vector, 2), MP_STATUS_INVALID_ARGUMENT, "flags");
    MP_FAILS(write_one("x.", nullptr), MP_STATUS_NULL_ARGUMENT, "indices");
    EXPECT_TRUE(fs::is_empty(folder.path));
    const Tensor later = make_deferred(model.context, MP_DTYPE_FP32, {3});
    int32_t index = -1;
    MP_OK(add_param(o, 0, "later", later, nullptr, nullptr, &index));
    MP_FAILS(write_one("x.", &index), MP_STATUS_BAD_STATE, "'later' has no values");
}

TEST(WriteParams, WhatFailsOnOneRankFailsOnAll) {
    const Files folder("written_ranks");
    run_ranks(3, [&](mp_comm* comm, int32_t rank) {
        const Model model(R"({"recipe": "bf16_mixed_dual"})", comm, 2);
        mp_optimizer* const o = model.optimizer;
        const fs::path path = folder.path / (std::to_string(rank) + ".safetensors");
        const auto peer = [&](int32_t wrong, mp_status own) {
            return rank == wrong ? own : MP_STATUS_PEER_ERROR;
        };
        MP_FAILS(write(o, nullptr), MP_STATUS_NULL_ARGUMENT, "every rank");
        const ModelWriter own = writer_for_model(path);
        MP_FAILS(write(o, rank == 1 ? nullptr : own.owned.get()), MP_STATUS_INVALID_ARGUMENT,
                 "ranks 0 and 2");
        const int32_t index = rank == 2 ? 1 : 0;
        mp_model_writer* const one = rank == 0 ? own.owned.get() : nullptr;
        MP_FAILS(mp_optimizer_write_params(o, nullptr, one, "model.", &index, 1, 0),
                 MP_STATUS_RANK_MISMATCH, "the parameters that are written");
        MP_FAILS(write(o, one, rank == 1 ? 1U : 0U), MP_STATUS_RANK_MISMATCH, "exact");
        MP_FAILS(write(o, one, rank == 1 ? 8U : 0U), peer(1, MP_STATUS_INVALID_ARGUMENT));
        MP_FAILS(mp_optimizer_write_params(o, nullptr, one, "other.", nullptr, 0, 0),
                 peer(0, MP_STATUS_UNKNOWN_NAME));
        const int32_t bad = rank == 2 ? 7 : 0;
        MP_FAILS(mp_optimizer_write_params(o, nullptr, one, "model.", &bad, 1, 0),
                 peer(2, MP_STATUS_INVALID_ARGUMENT));
        EXPECT_FALSE(fs::exists(path));
        // While it writes: the file is finished.
        if (rank == 0) {
            const std::vector<float> values(kRows * kColumns);
            MP_OK(mp_model_writer_write_floats(own, 0, 0, values.data(), kBias));
            MP_OK(mp_model_writer_write_floats(own, 1, 0, values.data(), kRows * kColumns));
            MP_OK(mp_model_writer_finish(own));
        }
        MP_FAILS(write(o, one), peer(0, MP_STATUS_BAD_STATE));
        // And it goes on.
        const ModelWriter last = rank == 2 ? writer_for_model(path) : ModelWriter();
        MP_OK(write(o, last));
        if (rank == 2) {
            MP_OK(mp_model_writer_finish(last));
        }
    });
}
