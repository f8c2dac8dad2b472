// SPDX-License-Identifier: Apache-2.0
// The arithmetic of fp8 over ranks, with ranks as arrays in one process: sums of E4M3 gradients and the factor mu,
// whole tensors shared out greedily, and weights cast in slices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core_context.hpp"
#include "numerics/fp8_reduce.hpp"
#include "optim/optimizer.hpp"
#include "quant/quantize.hpp"
#include "shard/greedy.hpp"

namespace mp::test {
namespace {

using numerics::BlockScale;
using Codes = std::vector<uint8_t>;

// ---- sums ---------------------------------------------------------------------------------------

// One element's codes of every rank, added in fp32 and rounded once.
uint8_t sum_of(const Codes& codes) {
    float sum = 0.0F;
    for (const uint8_t code : codes) {
        sum += numerics::e4m3_to_float(code);
    }
    return numerics::float_to_e4m3_sat(sum);
}

// The reduced codes of gradients that are the same on every rank, as published for FP8-LM's scheme.
TEST(Fp8Reduce, CoherentGradientsNeedMuOfOneOverRanks) {
    const std::vector<float> gradient = {1.0F, -0.5F, 0.25F, 56.0F};
    const struct {
        float mu;
        float multiply;
        Codes codes;
        float last_mean;
        int64_t clipped;
    } rows[] = {
        {1.0F, 8.0F, {0x60, 0xD8, 0x50, 0x7E}, 14.0F, 1},
        {0.5F, 4.0F, {0x58, 0xD0, 0x48, 0x7E}, 28.0F, 1},
        {0.25F, 2.0F, {0x50, 0xC8, 0x40, 0x7E}, 56.0F, 0}, // exact: 448 is a code
        {0.125F, 1.0F, {0x48, 0xC0, 0x38, 0x76}, 56.0F, 0},
    };
    constexpr int32_t kRanks = 4;
    for (const auto& row : rows) {
        const BlockScale scale = numerics::shared_gradient_scale(56.0F, row.mu, 1.0F);
        EXPECT_EQ(scale.multiply, row.multiply);
        EXPECT_EQ(scale.scale_inv, 1.0F / row.multiply);
        int64_t clipped = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            const uint8_t code = numerics::float_to_e4m3_sat(gradient[i] * scale.multiply);
            const uint8_t sum = sum_of(Codes(kRanks, code));
            EXPECT_EQ(sum, row.codes[i]) << row.mu << " " << i;
            clipped += kRanks * numerics::e4m3_to_float(code) > 464.0F ? 1 : 0;
            const float mean = numerics::e4m3_to_float(sum) * scale.scale_inv / kRanks;
            EXPECT_EQ(mean, i == 3 ? row.last_mean : gradient[i]) << row.mu << " " << i;
        }
        EXPECT_EQ(clipped, row.clipped) << row.mu;
    }
}

TEST(Fp8Reduce, MuHalvesGrowsAndStaysInBounds) {
    EXPECT_EQ(numerics::next_mu(1.0F, 11, 1000000), 0.5F);
    EXPECT_GT(numerics::next_mu(1.0F, 10, 1000000), 1.0F);
    EXPECT_GT(numerics::next_mu(1.0F, 1, 100), 1.0F) << "one element of a small tensor is no sign";
    EXPECT_EQ(numerics::next_mu(1.0F, 2, 100), 0.5F);
    float mu = 0.5F;
    for (int step = 0; step < 1000; ++step) {
        mu = numerics::next_mu(mu, 0, 1000000);
    }
    EXPECT_NEAR(mu, 1.0F, 1e-4F);
    for (int step = 0; step < 5000; ++step) {
        mu = numerics::next_mu(mu, 0, 1000000);
    }
    EXPECT_EQ(mu, 2.0F);
    for (int step = 0; step < 100; ++step) {
        mu = numerics::next_mu(mu, 1000, 1000);
    }
    EXPECT_EQ(mu, 0x1p-16F);
}

TEST(Fp8Reduce, MuWorksAboveTheFormatAndKeepsPowersOfTwo) {
    const float above = numerics::shared_gradient_scale(10000.0F, 1.0F, 1.0F).multiply;
    EXPECT_EQ(above, 0x1p-5F);
    EXPECT_EQ(numerics::shared_gradient_scale(10000.0F, 0.5F, 1.0F).multiply, 0x1p-6F)
        << "half of mu is half of the scale, also where the scale is below 1";
    EXPECT_EQ(numerics::shared_gradient_scale(56.0F, 0.7071F, 1.0F).multiply, 4.0F);
    for (const float amax :
         {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_EQ(numerics::shared_gradient_scale(amax, 0.5F, 8.0F).scale_inv, 8.0F)
            << "kept, and not multiplied by mu again";
    }
    // The smallest of the ranks' scales is the scale of their largest amax.
    float smallest = std::numeric_limits<float>::max();
    for (const float amax : {3.0F, 449.0F, 1e-3F}) {
        smallest = std::min(smallest, numerics::shared_gradient_scale(amax, 1.0F, 1.0F).multiply);
    }
    EXPECT_EQ(smallest, numerics::shared_gradient_scale(449.0F, 1.0F, 1.0F).multiply);
}

// ---- whole tensors ------------------------------------------------------------------------------

TEST(GreedyPlan, PublishedExamples) {
    const struct {
        std::vector<int64_t> counts;
        int32_t ranks;
        std::vector<int32_t> owner;
        std::vector<int64_t> load;
    } rows[] = {
        {{100, 60, 50, 40, 30, 20}, 2, {0, 1, 1, 0, 1, 0}, {160, 140}},
        {{7, 7, 6, 6, 5, 5, 4}, 3, {0, 1, 2, 2, 0, 1, 0}, {16, 12, 12}},
        {{16, 16, 16, 16, 1000}, 4, {1, 2, 3, 1, 0}, {1000, 32, 16, 16}},
    };
    for (const auto& row : rows) {
        const shard::GreedyPlan plan = shard::assign_greedily(row.counts, row.ranks);
        EXPECT_EQ(plan.owner, row.owner);
        EXPECT_EQ(plan.load, row.load);
        const int64_t total = std::accumulate(row.counts.begin(), row.counts.end(), int64_t{0});
        const int64_t largest = *std::max_element(row.counts.begin(), row.counts.end());
        EXPECT_LE(*std::max_element(plan.load.begin(), plan.load.end()),
                  total / row.ranks + largest);
    }
    EXPECT_GT(shard::assign_greedily(rows[2].counts, 4).imbalance(), 1.5);
    // Loads go on from one group to the next.
    const std::vector<int64_t> more = {50, 5};
    EXPECT_EQ(shard::assign_greedily(more, 2, {160, 140}).owner, (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(shard::assign_greedily({}, 3).load, (std::vector<int64_t>{0, 0, 0}));
    EXPECT_THROW((void)shard::assign_greedily(more, 0), Error);
}

struct Model {
    std::vector<std::shared_ptr<Tensor>> weights;
    std::vector<std::unique_ptr<optim::Optimizer>> optimizers; // by rank: of the tensors it owns
    std::vector<std::pair<std::size_t, int32_t>> places; // by tensor: rank, index in its optimizer
};

Shape shape_of(int64_t rows, int64_t columns) { return {{rows, columns}, 2}; }

Model make_model(const std::shared_ptr<Context>& context, const std::vector<int64_t>& counts,
                 int32_t ranks) {
    const recipe::Recipe& recipe = recipe::find_preset("msamp_o3").recipe;
    const Format form{DType::fp8_e4m3, kTensorScale,
                      scale_policy(numerics::ScaleRule::msamp, DType::fp8_e4m3)};
    const shard::GreedyPlan plan = shard::assign_greedily(counts, ranks);
    Model model;
    for (int32_t rank = 0; rank < ranks; ++rank) {
        model.optimizers.push_back(
            std::make_unique<optim::Optimizer>(context, recipe, optim::OptimizerOptions{}));
        model.optimizers.back()->groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto owner = static_cast<std::size_t>(plan.owner[i]);
        const Shape shape = shape_of(1, counts[i]);
        auto weight = std::make_shared<Tensor>(context, context->stream(), form, shape);
        auto initial = std::make_shared<Tensor>(context, context->stream(), DType::fp32, shape);
        for (int64_t j = 0; j < counts[i]; ++j) {
            static_cast<float*>(initial->data())[j] =
                0.02F * std::sin(static_cast<float>(j + 31 * static_cast<int64_t>(i)));
        }
        optim::Optimizer& optimizer = *model.optimizers[owner];
        const int32_t index = optimizer.add_parameter(
            context->stream(), 0, {"p" + std::to_string(i), weight, nullptr, initial});
        model.weights.push_back(std::move(weight));
        model.places.emplace_back(owner, index);
    }
    return model;
}

// Every rank has the same gradient; its codes are summed and land at the owner with the mean's scale.
void reduce_gradient(Model& model, std::size_t tensor, int step, int32_t ranks, float mu,
                     int64_t& saturated) {
    const auto [owner, index] = model.places[tensor];
    const std::shared_ptr<Tensor> grad = model.optimizers[owner]->parameters().state(index, "grad");
    std::vector<float> values(static_cast<std::size_t>(grad->count()));
    float amax = 0.0F;
    for (std::size_t j = 0; j < values.size(); ++j) { // a ratio of 100 between largest and smallest
        const float wave =
            std::sin(static_cast<float>(j * 7 + tensor + static_cast<std::size_t>(step)));
        values[j] = std::copysign(0.01F + 0.99F * wave * wave, wave);
        amax = std::max(amax, std::fabs(values[j]));
    }
    const BlockScale scale = numerics::shared_gradient_scale(amax, mu, 1.0F);
    for (std::size_t j = 0; j < values.size(); ++j) {
        const Codes codes(static_cast<std::size_t>(ranks),
                          numerics::float_to_e4m3_sat(values[j] * scale.multiply));
        const uint8_t sum = sum_of(codes);
        const float exact = static_cast<float>(ranks) * numerics::e4m3_to_float(codes[0]);
        saturated += std::fabs(exact) > numerics::kE4m3Max ? 1 : 0;
        static_cast<uint8_t*>(grad->data())[j] = sum;
    }
    *static_cast<float*>(grad->scales()->scale_inv->data()) =
        scale.scale_inv / static_cast<float>(ranks);
}

struct Trained {
    std::vector<Codes> codes;
    std::vector<float> scales;
    int64_t saturated = 0;
    bool operator==(const Trained& other) const {
        return codes == other.codes && scales == other.scales;
    }
};

Trained train(int32_t ranks, float mu) {
    const std::vector<int64_t> counts = {1000, 17, 256, 600, 600, 1};
    const auto context = make_context();
    Model model = make_model(context, counts, ranks);
    Trained result;
    for (int step = 0; step < 20; ++step) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            reduce_gradient(model, i, step, ranks, mu, result.saturated);
        }
        for (const auto& optimizer : model.optimizers) {
            optimizer->step(context->stream(), nullptr);
        }
    }
    for (const auto& weight : model.weights) {
        const auto* codes = static_cast<const uint8_t*>(weight->data());
        result.codes.emplace_back(codes, codes + weight->count());
        result.scales.push_back(*static_cast<const float*>(weight->scales()->scale_inv->data()));
    }
    return result;
}

TEST(GreedyZero, ShardedEqualsReplicated) {
    const Trained alone = train(1, 1.0F);
    EXPECT_EQ(alone.saturated, 0);
    for (const int32_t ranks : {2, 4}) {
        const Trained sharded = train(ranks, 1.0F / static_cast<float>(ranks));
        EXPECT_EQ(sharded, alone) << ranks;
        EXPECT_EQ(sharded.saturated, 0);
    }
    EXPECT_GT(train(4, 0.5F).saturated, 0) << "1 / sqrt(ranks) is for gradients that do not agree";
    EXPECT_EQ(train(3, 0.25F).codes.size(), alone.codes.size());
}

// ---- slices -------------------------------------------------------------------------------------

// Rows of a weight on several ranks, some with none: amaxes are maximized, slices are cast with the shared scale.
TEST(ShardedCast, SlicesGiveTheBitsOfTheWhole) {
    const auto context = make_context();
    Stream& stream = context->stream();
    constexpr int64_t kRows = 7;
    constexpr int64_t kColumns = 48;
    Tensor weight(context, stream, DType::fp32, shape_of(kRows, kColumns));
    auto* values = static_cast<float*>(weight.data());
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
        values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 11);
    }
    Format form{DType::fp8_e4m3, kTensorScale, {}};
    for (const numerics::ScaleRule rule :
         {numerics::ScaleRule::current, numerics::ScaleRule::float64, numerics::ScaleRule::msamp}) {
        form.policy = scale_policy(rule, DType::fp8_e4m3);
        Tensor whole(context, stream, form, weight.shape());
        quant::quantize_tensor(stream, weight, whole, nullptr);
        for (int64_t ranks = 1; ranks <= 9; ++ranks) {
            const int64_t share = (kRows + ranks - 1) / ranks; // the last ranks may have none
            const auto begin = [&](int64_t rank) { return std::min(rank * share, kRows); };
            float amax = 0.0F;
            for (int64_t rank = 0; rank < ranks; ++rank) {
                for (int64_t i = begin(rank) * kColumns; i < begin(rank + 1) * kColumns; ++i) {
                    amax = std::max(amax, std::fabs(values[i]));
                }
            }
            numerics::DelayedState delayed;
            delayed.multiply = numerics::block_scale(form.policy, amax, 1.0F, 0.0F).multiply;
            Codes gathered(static_cast<std::size_t>(kRows * kColumns));
            float scale_inv = 0.0F;
            for (int64_t rank = 0; rank < ranks; ++rank) {
                const int64_t first = begin(rank) * kColumns;
                const int64_t rows = begin(rank + 1) - begin(rank);
                Sink sink;
                sink.codes = {gathered.data() + first, &scale_inv, nullptr, form, rows, kColumns};
                sink.tracking.delayed = &delayed;
                const TensorRef source = {values + first, rows * kColumns, DType::fp32};
                quant::quantize_matrix(stream, plain_array(source, rows, kColumns), sink);
            }
            EXPECT_EQ(std::memcmp(gathered.data(), whole.data(), gathered.size()), 0)
                << ranks << " ranks, rule " << static_cast<int>(rule);
            EXPECT_EQ(scale_inv, *static_cast<const float*>(whole.scales()->scale_inv->data()));
        }
    }
}

} // namespace
} // namespace mp::test
