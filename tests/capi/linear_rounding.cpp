// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of what products take (gemm.*.rounding): the codes are those of the quantizer alone under the documented
// key, on every backend; what the key follows from; what evaluations, recompute and checkpoints leave of it.
#include <cstring>

#include "linear_rounding.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;
using namespace mp_test::rounding;

namespace {

constexpr const char* kPresets[] = {"fp8_delayed",       "fp8_current", "fp8_rowwise",
                                    "fp8_rowwise_gw_hp", "fp8_block",   "mxfp8"};
constexpr const char* kName = "h0.qkv";

// The three products of codes that are given, by a layer that rounds nothing itself.
Results of_codes(const Layer& layer, const std::string& preset, uint64_t step, int32_t microbatch) {
    const auto made = [&](int32_t product, int32_t operand) {
        return by_key(layer, kName, product, operand, 0, step, microbatch);
    };
    const Layer plain(layer.context, with_rounding(preset, "nearest"), kName);
    const Tensor w[] = {made(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT),
                        made(MP_PRODUCT_DGRAD, MP_OPERAND_WEIGHT)};
    EXPECT_TRUE(succeeded(mp_linear_set_weight_codes(plain.linear, w[0], w[1])));
    const Tensor y = plain.empty(kRows, kOut), unused = plain.empty(kRows, kOut);
    const Tensor dx = plain.empty(kRows, kIn), dw = plain.empty(kOut, kIn);
    EXPECT_TRUE(succeeded(mp_linear_forward_saved(
        plain.linear, nullptr, made(MP_PRODUCT_FPROP, MP_OPERAND_INPUT), y, nullptr, 0)));
    const Saved saved = make_saved(plain.linear);
    EXPECT_TRUE(succeeded(mp_linear_forward_saved(
        plain.linear, nullptr, made(MP_PRODUCT_WGRAD, MP_OPERAND_INPUT), unused, saved, 0)));
    EXPECT_TRUE(done(mp_linear_backward_saved(plain.linear, nullptr, saved,
                                              made(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT), dx,
                                              nullptr, nullptr, 0)));
    EXPECT_TRUE(done(mp_linear_backward_saved(plain.linear, nullptr, saved,
                                              made(MP_PRODUCT_WGRAD, MP_OPERAND_GRAD_OUTPUT),
                                              nullptr, dw, nullptr, 0)));
    return {bytes_of(y), bytes_of(dx), bytes_of(dw)};
}

} // namespace

TEST(LinearRounding, CodesAreThoseOfTheQuantizerUnderTheDocumentedKey) {
    for (const std::string preset : kPresets) {
        std::vector<Bytes> of_first_backend;
        for (const char* backend : kHostBackends) {
            SCOPED_TRACE(preset + " on " + backend);
            const Context context = make_context(of_first_backend.empty() ? 1 : 2, backend);
            const Layer layer(context, with_rounding(preset), kName);
            std::vector<Bytes> codes;
            for (uint64_t step = 0; step < 2; ++step) {
                for (int32_t microbatch = 0; microbatch < 2; ++microbatch) {
                    const Results expected = of_codes(layer, preset, step, microbatch);
                    for (const int32_t operand : {MP_OPERAND_INPUT, MP_OPERAND_WEIGHT}) {
                        codes.push_back(layer.quantized(MP_PRODUCT_FPROP, operand));
                        EXPECT_EQ(codes.back(), bytes_of(by_key(layer, kName, MP_PRODUCT_FPROP,
                                                                operand, 0, step, microbatch)));
                    }
                    codes.push_back(layer.quantized(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT));
                    const Results got = layer.pass();
                    EXPECT_EQ(got.y, expected.y);
                    EXPECT_EQ(got.dx, expected.dx);
                    EXPECT_EQ(got.dw, expected.dw);
                }
                layer.end_step();
            }
            if (of_first_backend.empty()) {
                of_first_backend = codes;
            }
            EXPECT_EQ(codes, of_first_backend);
        }
    }
}

TEST(LinearRounding, BitsFollowFromStepMicrobatchLayerAndOperand) {
    const Context context = make_context();
    const Layer layer(context, with_rounding("fp8_current"), kName);
    const Layer other(context, with_rounding("fp8_current"), "h1.qkv");
    const auto of_x = [](const Layer& from) {
        return from.quantized(MP_PRODUCT_FPROP, MP_OPERAND_INPUT);
    };
    const auto of_w = [&] { return layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT); };
    const auto of_dy = [&](mp_tensor* dy) {
        return layer.quantized(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT, dy);
    };
    const Bytes x = of_x(layer), w = of_w(), dy = of_dy(layer.dy());
    EXPECT_EQ(of_x(layer), x) << "nothing has happened in between";
    EXPECT_NE(of_x(other), x);
    (void)layer.pass();
    EXPECT_NE(of_x(layer), x);
    EXPECT_NE(of_dy(layer.dy()), dy);
    EXPECT_EQ(of_w(), w) << "a weight is the same in all micro-batches of a step";
    layer.end_step();
    EXPECT_NE(of_x(layer), x);
    EXPECT_NE(of_w(), w);
    EXPECT_NE(of_dy(layer.dy()), dy);

    // Operands of the same numbers.
    const Layer e4m3(context, R"({"recipe": "fp8_current", "fp8.format": "e4m3",
        "gemm.input.rounding": "stochastic", "gemm.grad_output.rounding": "stochastic"})",
                     kName);
    const Tensor same = e4m3.dy();
    EXPECT_NE(e4m3.quantized(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT, same),
              e4m3.quantized(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, same));
}

TEST(LinearRounding, HalvesOfABackwardHaveItsBits) {
    const Context context = make_context();
    const Layer whole(context, with_rounding("fp8_current"), kName);
    const Layer halves(context, with_rounding("fp8_current"), kName);
    const Tensor y = halves.empty(kRows, kOut), dx = halves.empty(kRows, kIn);
    const Tensor dw = halves.empty(kOut, kIn);
    for (int i = 0; i < 2; ++i) {
        MP_OK(mp_linear_forward(halves.linear, nullptr, halves.x(), y));
        MP_OK(mp_linear_backward_data(halves.linear, nullptr, halves.dy(), dx));
        EXPECT_TRUE(
            done(mp_linear_backward_weight(halves.linear, nullptr, halves.dy(), dw, nullptr, 0)));
        EXPECT_EQ((Results{bytes_of(y), bytes_of(dx), bytes_of(dw)}), whole.pass());
    }
}

// Where rows and columns have one largest number, and so one scale.
TEST(LinearRounding, BothOrientationsRoundANumberTheSameWay) {
    const Context context = make_context();
    const Layer layer(context, with_rounding("fp8_rowwise"), kName);
    std::vector<float> values = numbers(kIn * kIn, 5);
    for (std::size_t i = 0; i < std::size_t{kIn}; ++i) {
        values[i * kIn + i] = 1.5F;
    }
    const Tensor square = make_tensor(context, MP_DTYPE_FP32, {kIn, kIn}, values);
    EXPECT_EQ(layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, square),
              layer.quantized(MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, square));
    EXPECT_EQ(layer.quantized(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT, square),
              layer.quantized(MP_PRODUCT_WGRAD, MP_OPERAND_GRAD_OUTPUT, square));
}

TEST(LinearRounding, EvaluationsLeaveTheBitsOfTraining) {
    const Context context = make_context();
    for (const uint32_t flags : {0U, MP_LINEAR_CACHE_WEIGHT}) {
        const Layer plain(context, with_rounding("fp8_block"), kName);
        const Layer evaluated(context, with_rounding("fp8_block"), kName, flags);
        const Saved saved = make_saved(evaluated.linear);
        const Tensor y = plain.empty(kRows, kOut);
        for (int step = 0; step < 2; ++step) {
            for (int microbatch = 0; microbatch < 3; ++microbatch) {
                evaluated.evaluate();
                EXPECT_EQ(evaluated.pass(), plain.pass());
                evaluated.evaluate();
            }
            plain.end_step();
            evaluated.end_step();
        }
        // Into the place of the next forward.
        MP_OK(mp_linear_forward_saved(evaluated.linear, nullptr, plain.x(), y, saved, 0));
        const Bytes first = bytes_of(y);
        MP_OK(mp_linear_forward_saved(evaluated.linear, nullptr, plain.x(), y, saved, 0));
        EXPECT_EQ(bytes_of(y), first);
    }
}

TEST(LinearRounding, GoesOnWhereACheckpointWasMade) {
    const Context context = make_context();
    for (const std::string preset : {"fp8_current", "fp8_delayed"}) {
        SCOPED_TRACE(preset);
        const Layer layer(context, with_rounding(preset), kName);
        const Layer resumed(context, with_rounding(preset), kName);
        (void)layer.pass();
        (void)layer.pass();
        layer.end_step();
        (void)layer.pass();
        const Bytes saved = scaling_of(layer.linear);
        MP_OK(mp_linear_set_scaling(resumed.linear, saved.data(), saved.size()));
        EXPECT_EQ(scaling_of(resumed.linear), saved);
        EXPECT_EQ(resumed.pass(), layer.pass());
        layer.end_step();
        resumed.end_step();
        EXPECT_EQ(resumed.pass(), layer.pass());

        const Layer nearest(context, with_rounding(preset, "nearest"), kName);
        const Bytes other = scaling_of(nearest.linear);
        MP_FAILS(mp_linear_set_scaling(nearest.linear, saved.data(), saved.size()),
                 MP_STATUS_INVALID_ARGUMENT, "gemm.*.rounding", "rounds them to nearest");
        MP_FAILS(mp_linear_set_scaling(layer.linear, other.data(), other.size()),
                 MP_STATUS_INVALID_ARGUMENT, "saved where operands are rounded to nearest");
    }
}

// What never changes is rounded as at the begin, whatever the step.
TEST(LinearRounding, AFrozenWeightKeepsItsCodes) {
    const Context context = make_context();
    const Layer layer(context, with_rounding("fp8_current"), kName, MP_LINEAR_FROZEN);
    const Bytes w = layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT);
    const Tensor y = layer.empty(kRows, kOut), dx = layer.empty(kRows, kIn);
    std::vector<Bytes> results;
    for (int i = 0; i < 2; ++i) {
        MP_OK(mp_linear_forward(layer.linear, nullptr, layer.x(), y));
        results.push_back(bytes_of(y));
        MP_OK(mp_linear_forward(layer.linear, nullptr, layer.x(), y)); // again, or an evaluation
        EXPECT_EQ(bytes_of(y), results.back());
        MP_OK(mp_linear_backward_data(layer.linear, nullptr, layer.dy(), dx));
        results.push_back(bytes_of(dx));
    }
    EXPECT_NE(results[0], results[2]);
    EXPECT_NE(results[1], results[3]);
    layer.end_step();
    EXPECT_EQ(layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT), w);
}

// Codes that an evaluation made before the optimizer had the layer do not stay.
TEST(LinearRounding, AFrozenWeightIsRoundedByTheSeedThatTrains) {
    const Context context = make_context();
    const auto result = [&](bool evaluates_before) {
        const Layer layer(context, with_rounding("fp8_current"), kName, MP_LINEAR_FROZEN);
        const Tensor y = layer.empty(kRows, kOut);
        if (evaluates_before) {
            EXPECT_TRUE(succeeded(mp_linear_forward(layer.linear, nullptr, layer.x(), y)));
        }
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 77;
        const Optimizer optimizer = make_optimizer(context, layer.recipe, &desc);
        mp_linear* const one = layer.linear;
        EXPECT_TRUE(succeeded(mp_optimizer_set_linears(optimizer, &one, 1)));
        EXPECT_TRUE(succeeded(mp_linear_forward(layer.linear, nullptr, layer.x(), y)));
        return bytes_of(y);
    };
    EXPECT_EQ(result(true), result(false));
}

// Of an optimizer that ends the layers' steps, on ranks: theirs and no others.
TEST(LinearRounding, TheOptimizerHasTheSeedAndTheRank) {
    constexpr int32_t kRanks = 2;
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        const Context context = make_context(1);
        const Layer layer(context, with_rounding("fp8_current"), kName);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 77;
        const Optimizer optimizer = make_optimizer_on(comm, context, layer.recipe, &desc);
        int32_t group = 0;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, &group)));
        EXPECT_TRUE(succeeded(add_param(optimizer, group, "w", layer.w)));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer, nullptr)));
        mp_linear* const one = layer.linear;
        EXPECT_TRUE(succeeded(mp_optimizer_set_linears(optimizer, &one, 1)));
        for (int32_t i = 0; i < 2; ++i) {
            for (const int32_t operand : {MP_OPERAND_INPUT, MP_OPERAND_WEIGHT}) {
                EXPECT_EQ(layer.quantized(MP_PRODUCT_FPROP, operand),
                          bytes_of(by_key(layer, kName, MP_PRODUCT_FPROP, operand, 77, 0,
                                          i * kRanks + rank)))
                    << "micro-batch " << i << " of rank " << rank;
            }
            (void)layer.pass();
        }
        EXPECT_TRUE(succeeded(mp_optimizer_set_linears(optimizer, nullptr, 0)));
        EXPECT_EQ(layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT),
                  bytes_of(by_key(layer, kName, MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT, 0, 0, 0)));
    });
}

TEST(LinearRounding, ALayerHasOneOptimizer) {
    const Context context = make_context(1);
    const Layer layer(context, with_rounding("fp8_current"), kName);
    const auto optimizer_of = [&](uint64_t seed) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = seed;
        return make_optimizer(context, layer.recipe, &desc);
    };
    const Optimizer first = optimizer_of(77);
    Optimizer second = optimizer_of(5);
    mp_linear* const one = layer.linear;
    const auto expect_seed = [&](uint64_t seed) {
        EXPECT_EQ(layer.quantized(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT),
                  bytes_of(by_key(layer, kName, MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT, seed, 0, 0)));
    };
    MP_OK(mp_optimizer_set_linears(first, &one, 1));
    expect_seed(77);
    MP_FAILS(mp_optimizer_set_linears(second, &one, 1), MP_STATUS_BAD_STATE, "layer 0 ('h0.qkv')",
             "another optimizer");
    MP_OK(mp_optimizer_set_linears(second, nullptr, 0));
    expect_seed(77);
    MP_FAILS(mp_linear_end_step(&one, 1, nullptr, nullptr), MP_STATUS_BAD_STATE,
             "mp_optimizer_set_linears"); // which is the first one's all the time
    MP_OK(mp_optimizer_set_linears(first, nullptr, 0));
    MP_OK(mp_optimizer_set_linears(second, &one, 1));
    expect_seed(5);
    second = Optimizer();
    MP_OK(mp_optimizer_set_linears(first, &one, 1));
    expect_seed(77);
}

// Codes of a weight that are kept within a step, seen by a write that nobody was told of.
TEST(LinearRounding, TheSameListAgainChangesNothing) {
    const Context context = make_context(1);
    const Layer layer(context, with_rounding("fp8_current"), kName, MP_LINEAR_CACHE_WEIGHT);
    const Layer other(context, with_rounding("fp8_current"), "h1.qkv", MP_LINEAR_CACHE_WEIGHT);
    const Tensor y = layer.empty(kRows, kOut);
    const auto result = [&] {
        EXPECT_TRUE(succeeded(mp_linear_forward(layer.linear, nullptr, layer.x(), y)));
        return bytes_of(y);
    };
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = 77;
    const Optimizer optimizer = make_optimizer(context, layer.recipe, &desc);
    mp_linear* const both[] = {layer.linear, other.linear};
    MP_OK(mp_optimizer_set_linears(optimizer, both, 1));
    const Bytes before = result();
    void* weight = nullptr;
    MP_OK(mp_tensor_get_data(layer.w, &weight));
    std::memset(weight, 0, bytes_of(layer.w).size());
    for (const int32_t count : {1, 2}) { // the same, and one more
        MP_OK(mp_optimizer_set_linears(optimizer, both, count));
        EXPECT_EQ(result(), before);
    }
    MP_OK(mp_optimizer_set_linears(optimizer, nullptr, 0));
    EXPECT_NE(result(), before) << "what is nobody's is rounded by another seed";
}

TEST(LinearRounding, ALoadBringsTheSeedAndTheCounts) {
    const Folder folder("linear_rounding");
    Results expected;
    for (const uint64_t seed : {77U, 5U}) { // the second one loads what the first one has saved
        const Context context = make_context(1);
        const Layer layer(context, with_rounding("fp8_current"), kName);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = seed;
        const Optimizer optimizer = make_optimizer_on(nullptr, context, layer.recipe, &desc);
        MP_OK(mp_optimizer_add_group(optimizer, nullptr, nullptr));
        MP_OK(add_param(optimizer, 0, "w", layer.w));
        mp_linear* const one = layer.linear;
        MP_OK(mp_optimizer_set_linears(optimizer, &one, 1));
        mp_checkpoint* made = nullptr;
        MP_OK(mp_checkpoint_create(context, nullptr, nullptr, &made));
        const Checkpoint checkpoint(made);
        MP_OK(mp_checkpoint_add_optimizer(made, optimizer));
        MP_OK(mp_checkpoint_add_linear(made, kName, layer.linear));
        if (seed == 77) {
            (void)layer.pass();
            MP_OK(mp_checkpoint_save(made, folder.c_str(), 1, 0));
            expected = layer.pass();
        } else {
            MP_OK(mp_checkpoint_load(made, folder.c_str(), 0, nullptr));
            EXPECT_EQ(layer.pass(), expected);
        }
    }
}

TEST(LinearRounding, IsAskedForByLayer) {
    const Context context = make_context();
    const auto describe = [&](const std::string& text, const char* name) {
        return description_of(Layer(context, text, name).linear);
    };
    const std::string one = R"({"recipe": "fp8_current", "layers":
        "h0.*: gemm.grad_output.rounding=stochastic"})";
    EXPECT_NE(describe(one, "h0.qkv").find("codes of grad_output rounded stochastically"),
              std::string::npos);
    EXPECT_EQ(describe(one, "h1.qkv").find("stochastically"), std::string::npos);

    // A layer without codes has nothing to round, unless a rule says that it has.
    const std::string all = with_rounding("fp8_current");
    const auto with_rules = [&](const char* rules) {
        return all.substr(0, all.size() - 1) + R"(, "layers": ")" + rules + "\"}";
    };
    EXPECT_EQ(describe(with_rules("lm_head*"), "lm_head").find("stochastically"),
              std::string::npos);
    const Recipe vain = recipe_of(context, R"({"recipe": "fp8_current", "layers":
            "lm_head: gemm.scaling=none, gemm.input.rounding=stochastic"})");
    const Layer layer(context, all, kName);
    mp_linear_desc desc = linear_desc(kIn, kOut);
    desc.name = "lm_head";
    mp_linear* made = nullptr;
    MP_FAILS(mp_linear_create(context, vain, &desc, layer.w, nullptr, &made),
             MP_STATUS_INVALID_ARGUMENT, "lm_head", "gemm.input.rounding is stochastic");
    desc.name = nullptr;
    MP_FAILS(mp_linear_create(context, layer.recipe, &desc, layer.w, nullptr, &made),
             MP_STATUS_INVALID_ARGUMENT, "gemm.*.rounding", "mp_linear_desc.name");
}
