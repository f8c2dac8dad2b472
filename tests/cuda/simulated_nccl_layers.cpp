// SPDX-License-Identifier: Apache-2.0
// fp8 layers over NCCL: amaxes of delayed scaling and the scales of weights that travel as codes are agreed on in the device's
// order. Nobody waits for them on the host, and scales and weights have the bits of ranks that meet there.
#include "simulated_nccl.hpp"

#include <array>
#include <atomic>

#include "../capi/layers.hpp"
#include "../capi/optimizers.hpp"

namespace mp::test {
namespace {

using SimulatedNcclLayers = SimulatedNccl;

constexpr int64_t kIn = 128;
constexpr int64_t kOut = 320; // more than one chunk
constexpr int64_t kRows = 32;
constexpr std::size_t kLayers = 2;

struct LayerCase {
    const char* recipe;
    int32_t stage;
    bool as_codes; // the weights travel so
};

// Layers beside each other, and the optimizer of their weights.
class LayerTraining {
  public:
    LayerTraining(mp_context* context, mp_comm* comm, const LayerCase& of, int32_t rank)
        : recipe_(recipe_of(context, of.recipe)) {
        mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
        zero.stage = of.stage == 0 ? MP_SHARDING_STAGE_0 : of.stage;
        optimizer_ = make_optimizer_on(comm, context, recipe_, nullptr, &zero);
        add_group(optimizer_, 0.01);
        std::array<mp_linear*, kLayers> layers{};
        for (std::size_t i = 0; i < kLayers; ++i) {
            const std::vector<float> values = numbers(kOut * kIn, 3 + static_cast<int>(i));
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, values);
            const std::array<int64_t, 2> shape = {kOut, kIn};
            mp_tensor* codes = nullptr;
            if (of.as_codes) {
                EXPECT_TRUE(succeeded(mp_recipe_create_weight_codes(
                    context, recipe_, 2, shape.data(), values.data(), &codes)));
            }
            weights_.push_back(of.as_codes
                                   ? Tensor(codes)
                                   : make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, values));
            const std::string name = "w" + std::to_string(i);
            EXPECT_TRUE(
                succeeded(add_param(optimizer_, 0, name.c_str(), weights_[i], nullptr,
                                    of.as_codes ? static_cast<mp_tensor*>(exact) : nullptr)));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_shard(optimizer_, nullptr)));
        for (std::size_t i = 0; i < kLayers; ++i) {
            linears_.push_back(make_linear(context, recipe_, linear_desc(kIn, kOut), weights_[i]));
            layers[i] = linears_[i];
        }
        EXPECT_TRUE(succeeded(mp_optimizer_set_linears(optimizer_, layers.data(), kLayers)));
        x_ = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, numbers(kRows * kIn, 20 + rank));
        dy_ = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, numbers(kRows * kOut, 30 + rank));
        y_ = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
        dx_ = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
    }

    void pass() {
        for (std::size_t i = 0; i < kLayers; ++i) {
            const auto index = static_cast<int32_t>(i);
            EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer_, nullptr, index)));
            const Tensor grad = state_of(optimizer_, index, "grad");
            EXPECT_TRUE(succeeded(mp_linear_forward(linears_[i], nullptr, x_, y_)));
            EXPECT_TRUE(
                succeeded(mp_linear_backward(linears_[i], nullptr, dy_, dx_, grad, nullptr, 0)));
            EXPECT_TRUE(succeeded(mp_optimizer_grad_ready(optimizer_, nullptr, index)));
        }
    }
    [[nodiscard]] mp_status update() { return mp_optimizer_step(optimizer_, nullptr, nullptr); }
    // Weights, and the layers' scales.
    [[nodiscard]] std::vector<unsigned char> bits() const {
        std::vector<unsigned char> all;
        for (std::size_t i = 0; i < kLayers; ++i) {
            for (const std::vector<unsigned char>& part :
                 {bytes_of(weights_[i]), scaling_of(linears_[i])}) {
                all.insert(all.end(), part.begin(), part.end());
            }
        }
        return all;
    }

  private:
    Recipe recipe_;
    mp_test::Optimizer optimizer_;
    std::vector<Tensor> weights_;
    std::vector<Linear> linears_;
    Tensor x_, dy_, y_, dx_;
};

std::vector<LayerCase> layer_cases() {
    std::vector<LayerCase> all;
    for (const int32_t stage : {0, 1, 2}) {
        all.push_back({"fp8_delayed", stage, false});
    }
    for (const int32_t stage : {1, 2}) {
        all.push_back({R"({"recipe": "fp8_delayed", "weight.gather.codes": "on"})", stage, true});
    }
    return all;
}

int64_t counted(const Rank& rank, int64_t Control::*number) {
    EXPECT_TRUE(succeeded(mp_comm_barrier(rank.comm, nullptr)));
    const int64_t now = control().*number;
    EXPECT_TRUE(succeeded(mp_comm_barrier(rank.comm, nullptr)));
    return now;
}

TEST_P(SimulatedNcclLayers, TheHostWaitsForNoScale) {
    for (const LayerCase& of : layer_cases()) {
        SCOPED_TRACE(std::string(of.recipe) + ", stage " + std::to_string(of.stage));
        run(GetParam(), [&](Rank& rank) {
            LayerTraining training(rank.context, rank.comm, of, rank.number);
            for (int step = 0; step < 4; ++step) {
                const int64_t syncs = counted(rank, &Control::syncs);
                const int64_t mallocs = counted(rank, &Control::mallocs);
                training.pass();
                EXPECT_TRUE(succeeded(training.update()));
                if (step >= 2) { // tables, and memory that stays
                    EXPECT_EQ(counted(rank, &Control::syncs), syncs);
                    EXPECT_TRUE(of.stage == 2 || counted(rank, &Control::mallocs) == mallocs)
                        << "cudaFree waits";
                } else {
                    (void)counted(rank, &Control::syncs);
                }
            }
        });
    }
}

TEST_P(SimulatedNcclLayers, ScalesHaveTheBitsOfRanksThatMeetOnTheHost) {
    for (const LayerCase& of : layer_cases()) {
        SCOPED_TRACE(std::string(of.recipe) + ", stage " + std::to_string(of.stage));
        const auto trained = [&](mp_context* context, mp_comm* comm, int32_t rank) {
            LayerTraining training(context, comm, of, rank);
            for (int step = 0; step < 4; ++step) {
                training.pass();
                EXPECT_TRUE(succeeded(training.update()));
            }
            EXPECT_TRUE(succeeded(mp_context_sync(context)));
            return training.bits();
        };
        std::vector<std::vector<unsigned char>> by_host(static_cast<std::size_t>(GetParam()));
        run_ranks(GetParam(), [&](mp_comm* comm, int32_t rank) {
            mp_context_desc desc = MP_CONTEXT_DESC_INIT;
            desc.device_kind = MP_DEVICE_CUDA;
            desc.device_index = rank;
            mp_context* made = nullptr;
            EXPECT_TRUE(succeeded(mp_context_create(&desc, &made)));
            const Context context(made);
            by_host[static_cast<std::size_t>(rank)] = trained(context, comm, rank);
        });
        run(GetParam(), [&](Rank& rank) {
            EXPECT_EQ(trained(rank.context, rank.comm, rank.number),
                      by_host[static_cast<std::size_t>(rank.number)]);
        });
    }
}

// The agreement of a step ends by the deadline, and nothing has moved.
TEST_P(SimulatedNcclLayers, ALostRankEndsByTheDeadline) {
    std::atomic<int32_t> over = 0;
    run(
        GetParam(),
        [&](Rank& rank) {
            LayerTraining training(rank.context, rank.comm, {"fp8_delayed", 1, false}, rank.number);
            training.pass();
            EXPECT_TRUE(succeeded(training.update()));
            without_rank_0(rank, over, [&] {
                training.pass();
                EXPECT_EQ(training.update(), MP_STATUS_TIMEOUT);
            });
        },
        500);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNcclLayers, ::testing::Values(4));

} // namespace
} // namespace mp::test
