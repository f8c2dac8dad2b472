// SPDX-License-Identifier: Apache-2.0
// Adapters that are trained: an optimizer that has a and b alone, scales that its steps move, checkpoints, ranks.
#include <cmath>

#include "adapters.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

class Tuning {
  public:
    explicit Tuning(const char* recipe)
        : model_(recipe), lora_(model_.context, model_.layer, model_.recipe, 32.0, 80) {
        const std::vector<float> zeros(kOut * kRank, 0.0F);
        EXPECT_TRUE(succeeded(
            mp_tensor_write(lora_.b, nullptr, zeros.data(), zeros.size() * sizeof(float))));
        optimizer_ = make_optimizer(model_.context, model_.recipe);
        (void)add_group(optimizer_, 1e-2, 0.0);
        EXPECT_TRUE(succeeded(add_param(optimizer_, 0, "base.lora_A.weight", lora_.a, lora_.da)));
        EXPECT_TRUE(succeeded(add_param(optimizer_, 0, "base.lora_B.weight", lora_.b, lora_.db)));
        mp_linear* const layer = model_.layer;
        EXPECT_TRUE(succeeded(mp_optimizer_set_linears(optimizer_, &layer, 1)));
        checkpoint_ = checkpoint_of(model_.context, optimizer_);
        EXPECT_TRUE(succeeded(mp_checkpoint_add_linear(checkpoint_, "base", layer)));
        target_ = numbers(kRows * kOut, 90);
    }

    // Squared distance to the target, before the step.
    double step() {
        EXPECT_TRUE(succeeded(mp_linear_forward(model_.layer, nullptr, model_.x, model_.y)));
        std::vector<float> y = values_of(model_.context, model_.y);
        double loss = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            y[i] -= target_[i];
            loss += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        }
        EXPECT_TRUE(
            succeeded(mp_tensor_write(model_.dy, nullptr, y.data(), y.size() * sizeof(float))));
        EXPECT_TRUE(done(
            mp_linear_backward(model_.layer, nullptr, model_.dy, model_.dx, nullptr, nullptr, 0)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer_, nullptr, nullptr)));
        return loss;
    }
    [[nodiscard]] std::vector<Bytes> state() const {
        mp_linear *first = nullptr, *second = nullptr;
        EXPECT_TRUE(succeeded(mp_adapter_get_linears(lora_.adapter, &first, &second)));
        const Linear a(first), b(second);
        return {bytes_of(lora_.a), bytes_of(lora_.b), scaling_of(model_.layer), scaling_of(a),
                scaling_of(b)};
    }
    [[nodiscard]] Bytes base() const { return bytes_of(model_.w); }
    [[nodiscard]] mp_checkpoint* checkpoint() const { return checkpoint_; }

  private:
    Model model_;
    Lora lora_;
    Optimizer optimizer_;
    Checkpoint checkpoint_;
    std::vector<float> target_;
};

constexpr const char* kTrained[] = {"fp32", "bf16_mixed", "fp8_delayed", "fp8_current"};

} // namespace

TEST(AdapterTraining, LearnsAndLeavesTheBaseAlone) {
    for (const char* const recipe : kTrained) {
        SCOPED_TRACE(recipe);
        Tuning tuning(recipe);
        const Bytes base = tuning.base();
        const double first = tuning.step();
        double last = first;
        for (int i = 0; i < 60; ++i) {
            last = tuning.step();
        }
        EXPECT_LT(last, 0.5 * first);
        EXPECT_EQ(tuning.base(), base);
    }
}

// What a checkpoint brings back is all: scales of both layers too.
TEST(AdapterTraining, GoesOnFromACheckpoint) {
    for (const char* const recipe : kTrained) {
        SCOPED_TRACE(recipe);
        const Folder folder("mp_adapter_checkpoint");
        Tuning whole(recipe), other(recipe);
        for (int i = 0; i < 4; ++i) {
            (void)whole.step();
        }
        MP_OK(mp_checkpoint_save(whole.checkpoint(), folder.c_str(), 1, 0));
        MP_OK(mp_checkpoint_load(other.checkpoint(), folder.c_str(), 0, nullptr));
        EXPECT_EQ(other.state(), whole.state());
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(other.step(), whole.step());
        }
        EXPECT_EQ(other.state(), whole.state());
    }
}

// Ranks that end a step together scale their adapters alike.
TEST(AdapterTraining, RanksScaleAlike) {
    std::vector<Bytes> scales[2];
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        const Model model("fp8_delayed");
        const Lora lora(model.context, model.layer, model.recipe, 8.0, 20);
        const Tensor x = make_tensor(model.context, MP_DTYPE_FP32, {kRows, kIn},
                                     numbers(kRows * kIn, 5, rank == 0 ? 1.0F : 3.0F));
        MP_OK(mp_linear_forward(model.layer, nullptr, x, model.y));
        EXPECT_TRUE(done(
            mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0)));
        mp_linear *first = nullptr, *second = nullptr;
        MP_OK(mp_adapter_get_linears(lora.adapter, &first, &second));
        const Linear a(first), b(second);
        const Bytes before = scaling_of(a);
        mp_linear* const layer = model.layer;
        MP_OK(mp_linear_end_step(&layer, 1, nullptr, comm));
        EXPECT_NE(scaling_of(a), before);
        scales[rank] = {scaling_of(a), scaling_of(b)};
    });
    EXPECT_EQ(scales[0], scales[1]);
}
