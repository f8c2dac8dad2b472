// SPDX-License-Identifier: Apache-2.0
// 300 steps of a small network: bf16 weights with remainders are bf16 weights beside fp32 masters, bit for bit, as long
// as both are rounded alike. A remainder's weight is its master weight rounded with halves away from zero; a cast rounds
// them to even. So the other run has optimizer.weight.rounding nearest_away; the last test shows that nothing else is
// different.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core_context.hpp"
#include "numerics/bf16.hpp"
#include "numerics/philox.hpp"
#include "numerics/remainder.hpp"
#include "optim/optimizer.hpp"

using namespace mp;

namespace {

constexpr int64_t kIn = 12;
constexpr int64_t kHidden = 48;
constexpr int64_t kBatch = 16;
constexpr float kTie =
    0x1.01p+0F; // in the middle of two bf16 numbers, of which the lower one is even

float number(uint64_t seed) {
    return static_cast<float>(static_cast<double>(numerics::splitmix64(seed) >> 11) * 0x1p-52 -
                              1.0);
}

// One hidden layer and one output; the gradients of half the mean square error.
struct Network {
    std::vector<float> first = std::vector<float>(kHidden * kIn);
    std::vector<float> second = std::vector<float>(kHidden);

    float gradients(uint64_t step, std::vector<float>& d_first,
                    std::vector<float>& d_second) const {
        std::fill(d_first.begin(), d_first.end(), 0.0F);
        std::fill(d_second.begin(), d_second.end(), 0.0F);
        float loss = 0.0F;
        for (uint64_t sample = 0; sample < kBatch; ++sample) {
            std::array<float, kIn> x{};
            for (std::size_t i = 0; i < kIn; ++i) {
                x[i] = number((step * kBatch + sample) * kIn + i);
            }
            std::array<float, kHidden> h{};
            float y = 0.0F;
            for (std::size_t j = 0; j < kHidden; ++j) {
                for (std::size_t i = 0; i < kIn; ++i) {
                    h[j] += first[j * kIn + i] * x[i];
                }
                y += second[j] * std::fmax(h[j], 0.0F);
            }
            const float error = y - (x[0] * x[1] + x[2]); // of a target to be learnt
            loss += error * error / (2.0F * kBatch);
            for (std::size_t j = 0; j < kHidden; ++j) {
                d_second[j] += error * std::fmax(h[j], 0.0F) / kBatch;
                for (std::size_t i = 0; i < kIn && h[j] > 0.0F; ++i) {
                    d_first[j * kIn + i] += error * second[j] * x[i] / kBatch;
                }
            }
        }
        return loss;
    }
};

class Model {
  public:
    explicit Model(const recipe::Recipe& recipe)
        : context_(test::make_context("", 2)), recipe_(recipe), optimizer_(context_, recipe_, {}) {
        numerics::GroupHyper hyper = numerics::usual_hyper(numerics::RuleId::adamw);
        hyper.lr = 0.01;
        hyper.weight_decay = 0.01;
        optimizer_.groups().add(hyper);
        add("first", kHidden * kIn, 0.5F);
        add("second", kHidden, 0.25F);
    }

    // Steps once; returns the loss before.
    float step(uint64_t number_of_step) {
        Network network;
        network.first = multiplied(0);
        network.second = multiplied(1);
        std::vector<float> d_first(network.first.size());
        std::vector<float> d_second(network.second.size());
        const float loss = network.gradients(number_of_step, d_first, d_second);
        write(0, d_first);
        write(1, d_second);
        optimizer_.step(context_->stream(), nullptr);
        return loss;
    }
    // The fp32 weights, put together where they are in two parts.
    std::vector<float> exact(int32_t i) const {
        const auto param = optimizer_.parameters().state(i, "param");
        const auto master = optimizer_.parameters().state(i, "master");
        std::vector<float> values(static_cast<std::size_t>(param->count()));
        for (std::size_t k = 0; k < values.size(); ++k) {
            values[k] = recipe_.master == FormatId::remainder16
                            ? numerics::join_master(static_cast<const uint16_t*>(param->data())[k],
                                                    static_cast<const int16_t*>(master->data())[k])
                            : static_cast<const float*>(master->data())[k];
        }
        return values;
    }
    // What products use: bf16 weights.
    std::vector<float> multiplied(int32_t i) const {
        const auto param = optimizer_.parameters().state(i, "param");
        std::vector<float> values(static_cast<std::size_t>(param->count()));
        for (std::size_t k = 0; k < values.size(); ++k) {
            values[k] = numerics::bf16_to_float(static_cast<const uint16_t*>(param->data())[k]);
        }
        return values;
    }

  private:
    void add(const char* name, int64_t count, float size) {
        const Shape shape = {{count}, 1};
        optim::NewParameter p;
        p.name = name;
        p.param =
            std::make_shared<Tensor>(context_, context_->stream(), dtype_of(recipe_.weight), shape);
        p.init_fp32 = std::make_shared<Tensor>(context_, context_->stream(), DType::fp32, shape);
        auto* values = static_cast<float*>(p.init_fp32->data());
        for (int64_t i = 0; i < count; ++i) {
            values[i] = size * number(static_cast<uint64_t>(count * 1000 + i));
        }
        values[0] = kTie;
        optimizer_.add_parameter(context_->stream(), 0, p);
    }
    void write(int32_t i, const std::vector<float>& values) {
        const auto grad = optimizer_.parameters().state(i, "grad");
        ASSERT_EQ(grad->dtype(), DType::fp32);
        std::copy(values.begin(), values.end(), static_cast<float*>(grad->data()));
    }

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    optim::Optimizer optimizer_;
};

recipe::Recipe preset(const char* name) { return recipe::find_preset(name).recipe; }

TEST(RemainderTraining, ThreeHundredStepsHaveTheBitsOfFp32Masters) {
    Model split(preset("bf16_pure_remainder"));
    recipe::Recipe half_away = preset("bf16_mixed_dual");
    half_away.weight_rounding = recipe::RoundingMode::nearest_away;
    Model whole(half_away);
    float first_loss = 0.0F;
    float last_loss = 0.0F;
    for (uint64_t step = 0; step < 300; ++step) {
        const float loss = split.step(step);
        ASSERT_EQ(loss, whole.step(step)) << step;
        for (int32_t i = 0; i < 2; ++i) {
            ASSERT_EQ(split.exact(i), whole.exact(i)) << step;
            ASSERT_EQ(split.multiplied(i), whole.multiplied(i)) << step;
        }
        first_loss += step < 20 ? loss : 0.0F;
        last_loss += step >= 280 ? loss : 0.0F;
    }
    EXPECT_LT(last_loss, 0.1F * first_loss); // it learns: the gradients meant something
}

// The weight of a remainder and a cast to bf16 differ in ties below an even weight, and nowhere else.
TEST(RemainderTraining, ACastDiffersInTiesOnly) {
    Model split(preset("bf16_pure_remainder"));
    int64_t ties = 0;
    for (uint64_t step = 0; step < 50; ++step) {
        for (int32_t i = 0; i < 2; ++i) {
            const std::vector<float> exact = split.exact(i);
            const std::vector<float> multiplied = split.multiplied(i);
            for (std::size_t k = 0; k < exact.size(); ++k) {
                const uint32_t bits = numerics::bits_from_float(exact[k]);
                const bool is_tie = (bits & 0x1ffffU) == 0x8000U;
                const float cast = numerics::bf16_to_float(numerics::float_to_bf16(exact[k]));
                EXPECT_EQ(cast == multiplied[k], !is_tie) << exact[k];
                ties += is_tie ? 1 : 0;
            }
        }
        (void)split.step(step);
    }
    EXPECT_GE(ties, 2); // the two that were put there
}

} // namespace
