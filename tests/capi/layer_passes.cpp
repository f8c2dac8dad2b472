// SPDX-License-Identifier: Apache-2.0
// Layers whose parameters come and go by one call: the bits of a run without ranks, what has memory when, and wrong calls.
#include "memory.hpp"
#include "sharded_model.hpp"
#include "training.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kLayerCount = 4;
// Tied: the first is used by the first layer and the last one.
const std::vector<std::vector<int32_t>> kLayers = {{0}, {1, 2, 3}, {4}, {0, 5}};
const std::vector<std::vector<int64_t>> kShapes = {{300, 64}, {200, 100}, {128, 128},
                                                   {64},      {333, 50},  {64}};
constexpr int32_t kFrozen = 2;

mp_status set_layers(mp_optimizer* optimizer, const std::vector<std::vector<int32_t>>& layers,
                     int32_t prefetch) {
    std::vector<int32_t> counts, indices;
    for (const std::vector<int32_t>& layer : layers) {
        counts.push_back(static_cast<int32_t>(layer.size()));
        indices.insert(indices.end(), layer.begin(), layer.end());
    }
    return mp_optimizer_set_layer_params(optimizer, static_cast<int32_t>(layers.size()),
                                         counts.data(), indices.data(), prefetch);
}

struct Layered {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;
    int32_t rank;

    Layered(const char* name, mp_comm* comm, int32_t own_rank, int32_t stage,
            Counter* memory = nullptr, uint32_t flags = 0)
        : context(make_counted_context(memory)), recipe(make_recipe(context, name)),
          rank(own_rank) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        desc.flags = MP_OPTIMIZER_ZERO_GRAD | flags;
        mp_sharding_desc sharding = stage_desc(stage);
        sharding.bucket_elements = 10000;
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        add_group(optimizer);
        for (std::size_t i = 0; i < kShapes.size(); ++i) {
            int64_t count = 1;
            for (const int64_t size : kShapes[i]) {
                count *= size;
            }
            const std::vector<float> values = numbers(static_cast<std::size_t>(count), i + 1);
            mp_tensor* made = nullptr;
            EXPECT_TRUE(succeeded(
                mp_recipe_create_weight(context, recipe, static_cast<int32_t>(kShapes[i].size()),
                                        kShapes[i].data(), values.data(), &made)));
            params.emplace_back(made);
            const std::string param_name = 'p' + std::to_string(i);
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = param_name.c_str();
            param.param = params.back();
            param.flags = i == kFrozen ? MP_PARAM_FROZEN : 0U;
            EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &param, nullptr)));
        }
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr)));
        }
    }

    // Whole numbers, that differ by rank and whose mean does not, so that sums are exact in any order.
    void add_gradients(int32_t layer, int64_t step, int32_t ranks) {
        for (const int32_t i : kLayers[static_cast<std::size_t>(layer)]) {
            if (i == kFrozen) {
                continue;
            }
            const Tensor grad = state_of(optimizer, i, "grad");
            auto* const to = static_cast<float*>(data_of(grad));
            const int64_t count = kShapes[static_cast<std::size_t>(i)].size() == 1
                                      ? 64
                                      : kShapes[static_cast<std::size_t>(i)][0] *
                                            kShapes[static_cast<std::size_t>(i)][1];
            const int64_t own = ranks == 1 ? 0 : rank == 0 ? 1 : rank == 1 ? -1 : 0;
            for (int64_t k = 0; k < count; ++k) {
                to[k] += static_cast<float>((k * 7 + step + i + layer) % 15 - 7 + own);
            }
        }
    }

    void pass(int32_t layer, int32_t which, int64_t step, int32_t ranks) {
        MP_OK(mp_optimizer_layer_begin(optimizer, nullptr, layer, which));
        for (const int32_t i : kLayers[static_cast<std::size_t>(layer)]) {
            EXPECT_NE(data_of(params[static_cast<std::size_t>(i)]), nullptr);
        }
        if (which != MP_PASS_FORWARD) {
            add_gradients(layer, step, ranks);
        }
        MP_OK(mp_optimizer_layer_end(optimizer, nullptr, layer, which));
    }

    // Two steps of two micro-batches.
    void train(int32_t ranks) {
        for (int64_t step = 0; step < 2; ++step) {
            for (const int32_t backward : {MP_PASS_ACCUMULATE, MP_PASS_BACKWARD}) {
                for (int32_t layer = 0; layer < kLayerCount; ++layer) {
                    pass(layer, MP_PASS_FORWARD, step, ranks);
                }
                for (int32_t layer = kLayerCount; layer-- > 0;) {
                    pass(layer, backward, step, ranks);
                }
            }
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
    }

    std::vector<std::vector<unsigned char>> weights() {
        std::vector<std::vector<unsigned char>> bytes(params.size());
        for (int32_t layer = 0; layer < kLayerCount; ++layer) {
            EXPECT_TRUE(
                succeeded(mp_optimizer_layer_begin(optimizer, nullptr, layer, MP_PASS_FORWARD)));
            for (const int32_t i : kLayers[static_cast<std::size_t>(layer)]) {
                bytes[static_cast<std::size_t>(i)] = bytes_of(params[static_cast<std::size_t>(i)]);
            }
            EXPECT_TRUE(
                succeeded(mp_optimizer_layer_end(optimizer, nullptr, layer, MP_PASS_FORWARD)));
        }
        return bytes;
    }

    // Waits for what is under way: who goes before takes the other rank's weights away.
    void settle() {
        constexpr int32_t kAll[] = {0, 1, 2, 3, 4, 5};
        MP_OK(mp_optimizer_gather_free(optimizer, nullptr, kAll, 6));
    }

    // Whether it has memory, or will when it is waited for.
    bool is_coming(int32_t i) {
        return mp_optimizer_gather_wait(optimizer, nullptr, &i, 1) == MP_STATUS_OK;
    }
};

} // namespace

TEST(LayerPasses, TheBitsAreThoseOfOneRank) {
    int compared = 0;
    for (const char* recipe : {"fp32", "bf16_mixed_dual"}) {
        Layered alone(recipe, nullptr, 0, 0);
        MP_OK(set_layers(alone.optimizer, kLayers, 1));
        alone.train(1);
        const std::vector<std::vector<unsigned char>> expected = alone.weights();
        Layered offloaded(recipe, nullptr, 0, 0, nullptr,
                          MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS);
        MP_OK(set_layers(offloaded.optimizer, kLayers, 1));
        offloaded.train(1);
        EXPECT_TRUE(offloaded.weights() == expected) << recipe << ", gradients on the host";
        for (const int32_t ranks : {1, 2, 4}) { // a mean is exact
            for (int32_t stage = 0; stage <= 3; ++stage) {
                for (const int32_t prefetch : {0, 1, 3}) {
                    run_sharded(ranks, [&](mp_comm* comm, int32_t rank) {
                        Layered model(recipe, comm, rank, stage);
                        MP_OK(set_layers(model.optimizer, kLayers, prefetch));
                        model.train(ranks);
                        EXPECT_TRUE(model.weights() == expected)
                            << recipe << ", " << ranks << " ranks, stage " << stage << ", prefetch "
                            << prefetch;
                    });
                    ++compared;
                }
            }
        }
    }
    EXPECT_EQ(compared, 72);
}

TEST(LayerPasses, WeightsComeBeforeTheyAreNeededAndGoAfter) {
    for (int32_t prefetch = 0; prefetch <= 3; ++prefetch) {
        run_sharded(2, [&](mp_comm* comm, int32_t rank) {
            Layered model("fp32", comm, rank, 3);
            MP_OK(set_layers(model.optimizer, kLayers, prefetch));
            MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
            EXPECT_TRUE(model.is_coming(0));
            for (const int32_t i : {1, 2, 3}) {
                EXPECT_EQ(model.is_coming(i), prefetch >= 1) << i;
            }
            EXPECT_EQ(model.is_coming(4), prefetch >= 2);
            EXPECT_EQ(model.is_coming(5), prefetch >= 3);
            MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
            EXPECT_EQ(model.is_coming(0), prefetch >= 3); // the last layer, which is coming, has it
            MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 2, MP_PASS_BACKWARD));
            for (const int32_t i : {1, 2, 3}) {
                EXPECT_EQ(model.is_coming(i), prefetch >= 1) << i;
            }
            MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr)); // ends what has begun
            for (int32_t i = 0; i < 6; ++i) {
                EXPECT_FALSE(model.is_coming(i)) << i;
            }
            MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 2, MP_PASS_FORWARD));
            MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 2, MP_PASS_FORWARD));
            EXPECT_FALSE(model.is_coming(4));
            model.settle();
        });
    }
}

TEST(LayerPasses, WrongCallsAreSaidAndChangeNothing) {
    run_sharded(2, [](mp_comm* comm, int32_t rank) {
        Layered model("fp32", comm, rank, 3);
        mp_optimizer* const optimizer = model.optimizer;
        const auto begin = [&](int32_t layer, int32_t pass) {
            return mp_optimizer_layer_begin(optimizer, nullptr, layer, pass);
        };
        const auto end = [&](int32_t layer, int32_t pass) {
            return mp_optimizer_layer_end(optimizer, nullptr, layer, pass);
        };
        const int32_t counts[] = {1, -1};
        const int32_t none = 1;
        expect_refused<MP_STATUS_INVALID_ARGUMENT>({
            {"before there are layers", begin(0, 0), {"mp_optimizer_set_layer_params"}},
            {"parameter 6", set_layers(optimizer, {{0}, {6}}, 1), {"6"}},
            {"parameter -1", set_layers(optimizer, {{-1}}, 1), {"-1"}},
            {"one twice", set_layers(optimizer, {{0}, {1, 1}}, 1), {"layer 1", "twice"}},
            {"prefetch -1", set_layers(optimizer, kLayers, -1), {"prefetch"}},
            {"prefetch 65", set_layers(optimizer, kLayers, 65), {"0..64"}},
            {"a count of -1",
             mp_optimizer_set_layer_params(optimizer, 2, counts, counts, 0),
             {"counts"}},
            {"-1 layers",
             mp_optimizer_set_layer_params(optimizer, -1, counts, counts, 0),
             {"layer_count"}},
        });
        expect_refused<MP_STATUS_NULL_ARGUMENT>({
            {"no counts",
             mp_optimizer_set_layer_params(optimizer, 1, nullptr, counts, 0),
             {"counts"}},
            {"no indices",
             mp_optimizer_set_layer_params(optimizer, 1, &none, nullptr, 0),
             {"indices"}},
        });
        MP_OK(set_layers(optimizer, kLayers, 1));
        MP_OK(begin(1, MP_PASS_FORWARD));
        expect_refused<MP_STATUS_INVALID_ARGUMENT>({
            {"layer 4", begin(4, 0), {"4"}},
            {"layer -1", end(-1, 0), {"-1"}},
            {"pass 3", begin(0, 3), {"MP_PASS_"}},
        });
        expect_refused<MP_STATUS_BAD_STATE>({
            {"begins twice", begin(1, MP_PASS_BACKWARD), {"layer 1"}},
            {"ends another", end(1, MP_PASS_BACKWARD), {"another"}},
            {"ends what did not begin", end(0, MP_PASS_FORWARD), {"layer 0"}},
            {"other layers meanwhile", set_layers(optimizer, kLayers, 0), {"layer 1"}},
        });
        MP_OK(end(1, MP_PASS_FORWARD));
        MP_OK(set_layers(optimizer, {}, 0));
        model.settle();
    });
}

// The first of tied layers is the last in backward; a gradient that has left takes nothing more.
TEST(LayerPasses, AGradientThatHasLeftIsNotAddedTo) {
    run_sharded(2, [](mp_comm* comm, int32_t rank) {
        Layered model("fp32", comm, rank, 2);
        MP_OK(set_layers(model.optimizer, kLayers, 1));
        const auto begin = [&](int32_t layer, int32_t pass) {
            return mp_optimizer_layer_begin(model.optimizer, nullptr, layer, pass);
        };
        const auto both = [&](int32_t layer, int32_t pass, int32_t end) {
            MP_OK(begin(layer, pass));
            MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, layer, end));
        };
        both(0, MP_PASS_BACKWARD, MP_PASS_ACCUMULATE); // it says so at its end
        both(0, MP_PASS_BACKWARD, MP_PASS_BACKWARD);
        MP_FAILS(begin(3, MP_PASS_BACKWARD), MP_STATUS_BAD_STATE, "p0", "layer 3 adds to it");
        both(3, MP_PASS_FORWARD, MP_PASS_FORWARD); // of another micro-batch
        both(3, MP_PASS_ACCUMULATE, MP_PASS_ACCUMULATE);
        MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
        both(3, MP_PASS_BACKWARD, MP_PASS_BACKWARD);
    });
}

// Wherever memory ends, nothing is taken for weights that did not come; and a begin that failed may be repeated.
TEST(LayerPasses, WhatHadNoMemoryIsBegunAgain) {
    Counter memory;
    run_sharded(1, [&](mp_comm* comm, int32_t rank) {
        Layered model("bf16_mixed_dual", comm, rank, 3, &memory);
        MP_OK(set_layers(model.optimizer, kLayers, 3));
        const std::vector<std::vector<unsigned char>> expected = model.weights();
        int failed = 0;
        bool has_failed = true;
        for (int64_t n = 0; has_failed; ++n) {
            memory.left = n;
            const mp_status status =
                mp_optimizer_layer_begin(model.optimizer, nullptr, 1, MP_PASS_BACKWARD);
            memory.left = INT64_MAX;
            has_failed = status != MP_STATUS_OK;
            if (has_failed) {
                EXPECT_EQ(status, MP_STATUS_OUT_OF_MEMORY) << mp_last_error_message();
                ++failed;
                MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 1, MP_PASS_BACKWARD));
            }
            for (const int32_t i : kLayers[1]) {
                const auto place = static_cast<std::size_t>(i);
                EXPECT_TRUE(bytes_of(model.params[place]) == expected[place]) << n << " " << i;
            }
            MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 1, MP_PASS_ACCUMULATE));
            model.settle();
        }
        EXPECT_GT(failed, 3);
    });
}

TEST(LayerPasses, ALoadEndsWhatHasBegun) {
    const Folder folder("layers");
    run_sharded(2, [&](mp_comm* comm, int32_t rank) {
        Layered model("fp32", comm, rank, 3);
        MP_OK(set_layers(model.optimizer, kLayers, 1));
        const Checkpoint checkpoint = checkpoint_of(model.context, model.optimizer, comm);
        const std::string path = folder.path.string();
        MP_OK(mp_checkpoint_save(checkpoint, path.c_str(), 1, 0));
        MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
        MP_OK(mp_checkpoint_load(checkpoint, path.c_str(), 0, nullptr));
        MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
        EXPECT_TRUE(model.is_coming(1)); // fetched again
        MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
        model.settle();
    });
}

TEST(LayerPasses, RanksWithOtherLayersAreNamed) {
    run_sharded(2, [](mp_comm* comm, int32_t rank) {
        Layered model("fp32", comm, rank, 1);
        MP_OK(set_layers(model.optimizer, kLayers, rank));
        MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_RANK_MISMATCH,
                 "the parameters of layers");
    });
}

TEST(LayerPasses, WithoutRanksNothingMoves) {
    Layered model("fp32", nullptr, 0, 0);
    MP_OK(set_layers(model.optimizer, kLayers, 2));
    MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 1, MP_PASS_FORWARD));
    MP_FAILS(mp_optimizer_layer_begin(model.optimizer, nullptr, 1, MP_PASS_FORWARD),
             MP_STATUS_BAD_STATE, "layer 1");
    MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 1, MP_PASS_FORWARD));
    EXPECT_NE(data_of(model.params[1]), nullptr);
}
