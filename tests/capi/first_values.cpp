// SPDX-License-Identifier: Apache-2.0
// First values of parameters: the same for any ranks and stages, from rules, files and a function; deferred parameters, of which
// no rank holds more than its slice; and what is refused. In every option's company: equal_bits.cpp.
#include <cmath>

#include "memory.hpp"
#include "model_parts.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 300;
constexpr int64_t kColumns = 200; // four chunks
constexpr int64_t kCount = kRows * kColumns;
constexpr int64_t kBias = 300;
constexpr int32_t kBoth[] = {0, 1};

// A matrix and a vector, deferred or not; `comm` NULL: of one rank, not sharded.
struct Model {
    Context context;
    Recipe recipe;
    std::array<Tensor, 2> params;
    Optimizer optimizer;

    Model(mp_comm* comm, int32_t stage, const char* name, bool is_deferred = true,
          uint32_t flags = 0, Counter* counter = nullptr) {
        context = make_counted_context(counter);
        recipe = make_recipe(context, name);
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        optimizer = make_optimizer_on(comm, context, recipe, nullptr, &sharding);
        add_group(optimizer);
        const std::vector<int64_t> shapes[] = {{kRows, kColumns}, {kBias}};
        const int32_t dtype = weight_dtype(recipe);
        for (std::size_t p = 0; p < 2; ++p) {
            params[p] = is_deferred ? make_deferred(context, dtype, shapes[p])
                                    : make_tensor(context, dtype, shapes[p]);
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = p == 0 ? "matrix" : "vector";
            param.param = params[p];
            param.flags = p == 0 ? flags : 0U;
            EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &param, nullptr)));
        }
    }
    void shard() const { EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr))); }
    void gather() const {
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer, nullptr, kBoth, 2)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer, nullptr, kBoth, 2)));
    }
    [[nodiscard]] std::vector<std::vector<unsigned char>> weights() const {
        gather();
        return {bytes_of(params[0]), bytes_of(params[1])};
    }
    [[nodiscard]] std::vector<float> exact(int32_t index, int64_t count) const {
        const Tensor values = make_tensor(context, MP_DTYPE_FP32, {count});
        EXPECT_TRUE(
            succeeded(mp_optimizer_read_state(optimizer, nullptr, index, "fp32_param", values)));
        return values_of(context, values);
    }
};

mp_param_init rule(int32_t index, int32_t kind, double a, double b = 0.0) {
    mp_param_init init = MP_PARAM_INIT_INIT;
    init.index = index;
    init.kind = kind;
    init.a = a;
    init.b = b;
    return init;
}

mp_status init(const Model& model, uint64_t seed = 9) {
    const mp_param_init inits[] = {rule(0, MP_INIT_NORMAL, 0.0, 0.02),
                                   rule(1, MP_INIT_UNIFORM, -0.5, 0.5)};
    return mp_optimizer_init_params(model.optimizer, nullptr, seed, inits, 2);
}

// What a filling function writes, by element.
float value_at(int32_t index, int64_t element) {
    return std::sin(static_cast<float>(element + 1) * (index == 0 ? 0.37F : 0.11F)) * 0.1F;
}

// Counts what it is asked for, and fails where it is to.
struct Filler {
    int64_t asked = 0;
    int32_t fails_at = -1;
    static mp_status fill(int32_t index, int64_t first, int64_t count, float* values,
                          void* payload) {
        auto& self = *static_cast<Filler*>(payload);
        self.asked += count;
        for (int64_t i = 0; i < count; ++i) {
            values[i] = value_at(index, first + i);
        }
        return index == self.fails_at ? MP_STATUS_IO_ERROR : MP_STATUS_OK;
    }
};

} // namespace

// The weights of any number of ranks, in any stage, deferred or not, are those of one that has all.
TEST(FirstValues, AreTheSameForAnyRanks) {
    for (const char* name :
         {"fp32", "bf16_mixed", "bf16_pure_kahan", "bf16_pure_remainder", "fp16_mixed"}) {
        const Model alone(nullptr, 0, name, false);
        MP_OK(init(alone));
        const auto exact = alone.exact(0, kCount);
        const auto expected = alone.weights();
        const bool rounds = std::string(name) == "bf16_mixed"; // what is gathered
        for (const int32_t stage : {0, 1, 2, 3}) {
            for (const int32_t ranks : {1, 3}) {
                SCOPED_TRACE(std::string(name) + ", stage " + std::to_string(stage) + ", ranks " +
                             std::to_string(ranks));
                run_ranks(ranks, [&](mp_comm* comm, int32_t rank) {
                    const Model model(comm, stage, name, (stage + ranks) % 2 == 0 || stage == 3);
                    model.shard();
                    MP_OK(init(model));
                    if (!rounds || stage == 0) {
                        EXPECT_EQ(model.weights(), expected);
                    }
                    int64_t start = 0, count = kCount;
                    if (stage > 0) {
                        MP_OK(mp_optimizer_get_slice(model.optimizer, 0, rank, &start, &count));
                    }
                    const std::vector<float> own(exact.begin() + start,
                                                 exact.begin() + start + count);
                    EXPECT_EQ(model.exact(0, count), own);
                });
            }
        }
    }
}

// From Philox4x32-10 and NormalDist().inv_cdf of Python, written after the documents alone.
TEST(FirstValues, AreThoseOfTheDocuments) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    add_group(optimizer);
    const Tensor w = make_deferred(context, MP_DTYPE_FP32, {1001});
    MP_OK(add_param(optimizer, 0, "w", w));
    const mp_param_init normal = rule(0, MP_INIT_NORMAL, 0.0, 1.0);
    MP_OK(mp_optimizer_init_params(optimizer, nullptr, 1, &normal, 1));
    const std::vector<float> values = values_of(context, w);
    constexpr float kKnown[][2] = {{0, -0x1.a835f2p-4F},
                                   {1, -0x1.f881bap-3F},
                                   {2, 0x1.73a7d6p-2F},
                                   {9, -0x1.79ccf8p-1F},
                                   {1000, -0x1.4f8284p+0F}};
    for (const auto& [element, value] : kKnown) {
        EXPECT_EQ(values[static_cast<std::size_t>(element)], value) << element;
    }
}

// A weight that has no room for a value keeps the rest of it beside.
TEST(FirstValues, LoseNothingThatTheRecipeCanHold) {
    for (const char* name : {"bf16_mixed", "bf16_pure_remainder", "fp16_mixed"}) {
        const Model model(nullptr, 0, name);
        Filler filler;
        MP_OK(mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 2, Filler::fill, &filler,
                                       -1));
        const std::vector<float> exact = model.exact(0, kCount);
        for (int64_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(exact[static_cast<std::size_t>(i)], value_at(0, i)) << name << " " << i;
        }
    }
}

// Each rank is asked for what it has; where one reads for all, it alone is asked.
TEST(FirstValues, AreReadOnce) {
    const Model alone(nullptr, 0, "bf16_pure", false);
    Filler whole;
    MP_OK(mp_optimizer_fill_params(alone.optimizer, nullptr, kBoth, 2, Filler::fill, &whole, -1));
    const auto expected = alone.weights();
    for (const int32_t root : {-1, 2}) {
        for (const int32_t stage : {0, 2, 3}) {
            SCOPED_TRACE("root " + std::to_string(root) + ", stage " + std::to_string(stage));
            std::atomic<int64_t> asked{0};
            run_ranks(3, [&](mp_comm* comm, int32_t rank) {
                const Model model(comm, stage, "bf16_pure");
                model.shard();
                Filler filler;
                const bool reads = root < 0 || rank == root;
                MP_OK(mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 2,
                                               reads ? Filler::fill : nullptr, &filler, root));
                asked += filler.asked;
                EXPECT_EQ(model.weights(), expected);
            });
            EXPECT_EQ(asked, (kCount + kBias) * (root < 0 && stage == 0 ? 3 : 1));
        }
    }
}

// Training goes on from them as from a whole model's.
TEST(FirstValues, AreSteppedAsThoseOfAWholeModel) {
    const auto steps = [](const Model& model, int32_t stage) {
        for (int32_t p = 0; p < 2; ++p) {
            const int64_t count = p == 0 ? kCount : kBias;
            EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(model.optimizer, nullptr, p)));
            const Tensor grad = state_of(model.optimizer, p, "grad");
            const Tensor source =
                make_tensor(model.context, MP_DTYPE_BF16, {count},
                            numbers(static_cast<std::size_t>(count), 3 + static_cast<uint64_t>(p)));
            EXPECT_TRUE(succeeded(mp_tensor_copy(source, nullptr, grad)));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr))) << stage;
    };
    const Model alone(nullptr, 0, "bf16_pure_kahan", false);
    MP_OK(init(alone));
    steps(alone, -1);
    const auto expected = alone.weights();
    for (const int32_t stage : {1, 3}) {
        run_ranks(2, [&](mp_comm* comm, int32_t /*rank*/) {
            const Model model(comm, stage, "bf16_pure_kahan");
            model.shard();
            MP_OK(init(model));
            steps(model, stage);
            EXPECT_EQ(model.weights(), expected);
        });
    }
}

// In stage 3 a rank has its slices, and one slice in fp32 while it gets its values: never the model. What is held is planned.
TEST(FirstValues, NoRankHoldsTheModel) {
    constexpr int32_t kRanks = 4;
    constexpr int64_t kWhole = kCount * 4;
    for (const uint32_t flags : {0U, MP_PARAM_FROZEN}) {
        run_ranks(kRanks, [&](mp_comm* comm, int32_t rank) {
            Counter counter;
            {
                const Model model(comm, 3, "fp32", true, flags, &counter);
                const int64_t before = counter.live;
                EXPECT_LT(before, kWhole / 8) << "has memory before it is cut";
                model.shard();
                MP_OK(init(model));
                mp_memory_report held = MP_MEMORY_REPORT_INIT;
                MP_OK(mp_optimizer_get_memory(model.optimizer, &held));
                mp_planned_tensor tensors[2] = {MP_PLANNED_TENSOR_INIT, MP_PLANNED_TENSOR_INIT};
                tensors[0].count = kCount;
                tensors[0].flags = flags;
                tensors[1].count = kBias;
                tensors[1].ndim = 1;
                mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                sharding.stage = 3;
                mp_memory_report plan = MP_MEMORY_REPORT_INIT;
                MP_OK(mp_recipe_plan_tensors(model.recipe, nullptr, tensors, 2, &sharding, rank,
                                             kRanks, &plan, nullptr));
                EXPECT_EQ(held.total_bytes, plan.total_bytes);
                int64_t start = 0, count = 0;
                MP_OK(mp_optimizer_get_slice(model.optimizer, 0, rank, &start, &count));
                EXPECT_LE(count, kCount / 2);
                // The slice in fp32, and what an optimizer has beside its parameters.
                EXPECT_LE(counter.peak, before + plan.total_bytes + count * 4 + kWhole / 8);
            }
            EXPECT_EQ(counter.live, 0);
        });
    }
}

TEST(FirstValues, ComeFromAModelsFiles) {
    const Folder folder("mp_first_values");
    std::filesystem::create_directories(folder.path);
    std::string matrix, vector;
    std::vector<float> values[2];
    for (int32_t p = 0; p < 2; ++p) {
        for (int64_t i = 0; i < (p == 0 ? kCount : kBias); ++i) {
            const float value = value_at(p, i);
            values[p].push_back(value);
            if (p == 1) {
                vector.append(reinterpret_cast<const char*>(&value), sizeof value);
            }
        }
    }
    const Model alone(nullptr, 0, "bf16_pure", false);
    const Tensor rounded = make_tensor(alone.context, MP_DTYPE_BF16, {kCount}, values[0]);
    const auto bytes = bytes_of(rounded);
    matrix.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto path = std::filesystem::path(folder.path) / "model.safetensors";
    write_parts(path, {{"model.matrix", "BF16", {kRows, kColumns}, matrix},
                       {"model.vector", "F32", {kBias}, vector},
                       {"matrix", "BF16", {kColumns, kRows}, matrix},
                       {"ids.vector", "I64", {kBias}, std::string(kBias * 8, '\0')}});
    const ModelFile file = opened(path);
    MP_OK(mp_optimizer_load_params(alone.optimizer, nullptr, file, "model.", nullptr, 0));
    EXPECT_EQ(bytes_of(alone.params[0]), bytes);
    EXPECT_EQ(bytes_of(alone.params[1]),
              bytes_of(make_tensor(alone.context, MP_DTYPE_BF16, {kBias}, values[1])));
    const auto expected = alone.weights();
    run_ranks(2, [&](mp_comm* comm, int32_t /*rank*/) {
        const Model model(comm, 3, "bf16_pure");
        model.shard();
        MP_OK(mp_optimizer_load_params(model.optimizer, nullptr, file, "model.", kBoth, 2));
        EXPECT_EQ(model.weights(), expected);
    });
    const auto load = [&](const char* prefix, std::initializer_list<int32_t> indices) {
        return mp_optimizer_load_params(alone.optimizer, nullptr, file, prefix, indices.begin(),
                                        static_cast<int32_t>(indices.size()));
    };
    MP_FAILS(load("other.", {0}), MP_STATUS_UNKNOWN_NAME, "'other.matrix'", "'matrix'");
    MP_FAILS(load(nullptr, {0}), MP_STATUS_INVALID_SHAPE, "'matrix' is [200, 300]", "[300, 200]");
    MP_FAILS(load("ids.", {1}), MP_STATUS_INVALID_DTYPE, "'ids.vector' is I64", "BF16");
    MP_FAILS(load("model.", {2}), MP_STATUS_INVALID_ARGUMENT, "parameter 2 does not exist");
    EXPECT_EQ(bytes_of(alone.params[0]), bytes); // nothing has changed
}

// Nobody waits for a rank that cannot, and nobody steps what has no values.
TEST(FirstValues, AFailureStopsAllRanks) {
    for (const int32_t root : {-1, 1}) {
        run_ranks(3, [&](mp_comm* comm, int32_t rank) {
            const Model model(comm, 3, "bf16_pure");
            model.shard();
            MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                     "'matrix' has no values yet", "mp_optimizer_init_params");
            Filler filler;
            filler.fails_at = rank == 1 ? 0 : -1;
            const mp_status status = mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 2,
                                                              Filler::fill, &filler, root);
            if (rank == 1) {
                MP_FAILS(status, MP_STATUS_IO_ERROR, "fill returned", "'matrix'");
            } else {
                MP_FAILS(status, MP_STATUS_PEER_ERROR, "rank 1", "have no values now");
            }
            MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                     "no values yet");
            const int32_t mine[] = {rank == 2 ? 1 : 0};
            MP_FAILS(mp_optimizer_fill_params(model.optimizer, nullptr, mine, 1, Filler::fill,
                                              &filler, -1),
                     MP_STATUS_RANK_MISMATCH, "first values' parameters");
            MP_FAILS(init(model, static_cast<uint64_t>(rank)), MP_STATUS_RANK_MISMATCH, "seed");
            MP_FAILS(mp_optimizer_sync_master(model.optimizer, nullptr, -1), MP_STATUS_BAD_STATE,
                     "no memory now");
            const mp_param_init bad = rule(0, rank == 0 ? 7 : MP_INIT_CONSTANT, 1.0);
            MP_FAILS(mp_optimizer_init_params(model.optimizer, nullptr, 1, &bad, 1),
                     rank == 0 ? MP_STATUS_INVALID_ARGUMENT : MP_STATUS_PEER_ERROR);
            MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                     "no values yet");
            MP_OK(init(model));
            model.gather();
        });
    }
}

TEST(FirstValues, RefusesWhatCannotBe) {
    const Model model(nullptr, 0, "bf16_pure");
    const auto refuses = [&](const mp_param_init& init, const char* words) {
        MP_FAILS(mp_optimizer_init_params(model.optimizer, nullptr, 1, &init, 1),
                 MP_STATUS_INVALID_ARGUMENT, words);
    };
    refuses(rule(2, MP_INIT_CONSTANT, 0.0), "parameter 2 does not exist");
    refuses(rule(0, 3, 0.0), "kind is 3");
    refuses(rule(0, MP_INIT_CONSTANT, std::nan("")), "finite");
    refuses(rule(0, MP_INIT_UNIFORM, 1.0, -1.0), "from 1 to -1");
    refuses(rule(0, MP_INIT_NORMAL, 0.0, -1.0), "standard deviation -1");
    const mp_param_init twice[] = {rule(0, MP_INIT_CONSTANT, 1.0), rule(0, MP_INIT_CONSTANT, 2.0)};
    MP_FAILS(mp_optimizer_init_params(model.optimizer, nullptr, 1, twice, 2),
             MP_STATUS_INVALID_ARGUMENT, "'matrix'", "named twice");
    MP_FAILS(mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 2, nullptr, nullptr, -1),
             MP_STATUS_NULL_ARGUMENT, "fill");
    Filler filler;
    MP_FAILS(mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 2, Filler::fill, &filler, 1),
             MP_STATUS_INVALID_ARGUMENT, "root is 1");
    const auto nan = [](int32_t, int64_t, int64_t count, float* values, void*) -> mp_status {
        std::fill_n(values, count, std::nanf(""));
        return MP_STATUS_OK;
    };
    MP_FAILS(mp_optimizer_fill_params(model.optimizer, nullptr, kBoth, 1, nan, nullptr, -1),
             MP_STATUS_INVALID_ARGUMENT, "element 0", "'matrix'", "finite");
    run_ranks(1, [](mp_comm* comm, int32_t) {
        const Model sharded(comm, 3, "bf16_pure");
        MP_FAILS(init(sharded), MP_STATUS_BAD_STATE, "mp_optimizer_shard");
    });
}
