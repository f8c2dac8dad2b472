// SPDX-License-Identifier: Apache-2.0
// Layers and products on every generation of GPU: the simulated cuBLASLt, by its tables, may refuse a product when it is
// asked for an algorithm, and must not when it is to compute it.
#include "../backends/gemm_scaled_case.hpp"
#include "../core/core_context.hpp"
#include "linear/layer_pass.hpp"
#include "optim/param_states.hpp"
#include "simulation_lt.hpp"

namespace mp::test {
namespace {

struct Sizes {
    int64_t rows, in, out;
};

// Forward and backward of one layer, and the products that it chose.
std::string run_layer(const std::shared_ptr<Context>& context, const recipe::Recipe& recipe,
                      const Sizes& sizes) {
    Stream& stream = context->stream();
    const auto make = [&](DType dtype, int64_t rows, int64_t columns) {
        auto tensor =
            std::make_shared<Tensor>(context, stream, dtype, mp::Shape{{rows, columns}, 2});
        stream.zero(tensor->data(), tensor->bytes());
        return tensor;
    };
    linear::LinearOptions options;
    options.in_features = sizes.in;
    options.out_features = sizes.out;
    const auto weight =
        optim::make_state(context, stream, recipe.weight, mp::Shape{{sizes.out, sizes.in}, 2});
    const auto bias =
        std::make_shared<Tensor>(context, stream, DType::fp32, mp::Shape{{sizes.out}, 1});
    stream.zero(bias->data(), bias->bytes());
    linear::Linear layer(context, recipe, options, weight, bias);
    const auto x = make(DType::bf16, sizes.rows, sizes.in);
    const auto y = make(DType::bf16, sizes.rows, sizes.out);
    const auto dx = make(DType::bf16, sizes.rows, sizes.in);
    const auto dw = make(DType::fp32, sizes.out, sizes.in);
    const linear::LayerPass pass{&layer, layer.last(), {}};
    linear::forward(stream, pass, x, y.get(), linear::Keep::input);
    linear::backward(stream, pass, *y, dx.get(), {dw.get(), nullptr, false});
    stream.sync();
    return layer.describe();
}

constexpr int kGenerations[] = {80, 89, 90, 100, 103, 120};

// The simulated cuBLASLt counts a product that it refuses as a misuse, and so does this.
TEST_F(Simulation, EveryRecipeHasItsProductsOnEveryGeneration) {
    for (const int capability : kGenerations) {
        const On generation(capability);
        const auto context =
            std::make_shared<Context>(context_options(), enabled_backends(), &backend());
        for (const recipe::Preset& preset : recipe::presets()) {
            SCOPED_TRACE(std::string(preset.name) + " on " + std::to_string(capability));
            const std::string text = run_layer(context, preset.recipe, {32, 64, 96});
            (void)run_layer(context, preset.recipe, {7, 48, 80});
            (void)run_layer(context, preset.recipe, {7, 50, 33});
            ASSERT_EQ(control().misuse, 0) << lt().complaint;
            const std::string name = preset.name;
            const bool is_fp8 = text.find("rows: cublaslt_fp8") != std::string::npos;
            if (name == "fp8_current" || name == "fp8_delayed") {
                EXPECT_EQ(is_fp8, capability >= 89) << text;
            } else if (name == "fp8_rowwise") {
                EXPECT_EQ(is_fp8, capability == 90) << text;
            } else if (name == "fp8_block" || name == "mxfp8") {
                EXPECT_FALSE(is_fp8) << text;
            }
        }
    }
}

// Every product of fp8 codes that a candidate over cuBLASLt may be asked for: it says why not, or computes it.
int32_t run_products(TestDevice& on, const Candidate& candidate) {
    int32_t taken = 0;
    for (uint32_t bits = 0; bits < 16; ++bits) {
        for (const DType out :
             {DType::fp32, DType::bf16, DType::fp16, DType::fp8_e4m3, DType::fp8_e5m2}) {
            for (const DType bias : {DType::none, DType::fp32, DType::bf16, DType::fp16}) {
                for (const ScaleGrid& grid : {kTensorScale, kRowScales, kRowBlockScales}) {
                    ScaledOptions o;
                    o.base.shape = {5, 18, 32};
                    o.base.in = (bits & 1U) != 0 ? kE5m2 : kE4m3;
                    o.b = (bits & 2U) != 0 ? kE5m2 : kE4m3;
                    o.base.out = out;
                    o.base.bias = bias;
                    o.base.gelu = (bits & 4U) != 0;
                    o.base.trans_b = (bits & 8U) != 0;
                    o.grid_a = grid;
                    o.grid_b = transposed(grid, grid != kTensorScale);
                    const ScaledCase c = make_scaled(o);
                    Reason reason;
                    if (!candidate.supports(on.device(), c.gemm.desc, reason)) {
                        EXPECT_FALSE(reason.empty()) << describe(o);
                        continue;
                    }
                    Result result;
                    EXPECT_TRUE(run_scaled(on, candidate, c, result)) << describe(o);
                    EXPECT_TRUE(within_scaled_bound(c, expect_all(c), result,
                                                    allowance_of(on, candidate, c.gemm.desc)))
                        << describe(o);
                    ++taken;
                }
            }
        }
    }
    return taken;
}

TEST_F(Simulation, EveryProductIsTakenOrRefusedInWordsOnEveryGeneration) {
    for (const int capability : kGenerations) {
        SCOPED_TRACE("on " + std::to_string(capability));
        const On generation(capability);
        TestDevice on(backend(), 1);
        const CandidateList list = on.device().candidates(OpKind::gemm);
        EXPECT_EQ(run_products(on, list.items[0]), 0); // "cublaslt" has no scales
        // Three pairs of codes, with fp32, bf16, fp16 and one or two fp8 results, by one scale; on Hopper by rows too.
        const int32_t of_tensor = 4 * 4 * (4 + 5 + 5);
        const int32_t of_rows = capability == 90 ? 4 * 4 * 3 * 3 : 0;
        EXPECT_EQ(run_products(on, list.items[1]), capability < 89 ? 0 : of_tensor + of_rows);
        EXPECT_EQ(run_products(on, list.items[2]), 4 * 4 * 4 * 2 * 3); // into fp32 and bf16
    }
}

} // namespace
} // namespace mp::test
