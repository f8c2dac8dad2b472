// SPDX-License-Identifier: Apache-2.0
// LossScaler: a LossScaleState in device memory and the rule that moves it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "context/context.hpp"
#include "numerics/loss_scale.hpp"
#include "recipe/recipe.hpp"

namespace mp::scaler {

// The published rules: "torch", "megatron", "deepspeed", "apex". Throws unknown_name.
recipe::ScalerPolicy scaler_preset(const std::string& name);

class LossScaler {
  public:
    // Throws invalid_argument for a value outside its bounds.
    LossScaler(std::shared_ptr<Context> context, const recipe::ScalerPolicy& policy);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    // Whether steps taken with this scaler are skipped for non-finite gradients.
    [[nodiscard]] bool checks() const noexcept { return policy_.kind != recipe::ScalerKind::none; }
    [[nodiscard]] const recipe::ScalerPolicy& policy() const noexcept { return policy_; }
    // In device memory; null for a scaler that does not check, which is as if there were none.
    [[nodiscard]] numerics::LossScaleState* device_state() const noexcept;
    // The same of any scaler; one that does not check keeps 1 and 0 there.
    [[nodiscard]] numerics::LossScaleState* state() const noexcept {
        return state_.as<numerics::LossScaleState>();
    }

    // Why this scaler cannot be in such a state, which is somebody else's; empty: it can.
    [[nodiscard]] std::string refusal(const numerics::LossScaleState& state) const;
    // The state as a scaler of this kind has it: one whose scale does not move keeps its own.
    [[nodiscard]] numerics::LossScaleState converted(numerics::LossScaleState state) const noexcept;
    [[nodiscard]] numerics::LossScaleState read(Stream& stream) const; // waits
    void write(Stream& stream, const numerics::LossScaleState& state); // waits
    void check_finite(Stream& stream, std::span<const TensorRef> grads);
    void update(Stream& stream);
    // Hears of each step of an optimizer with it: true at the first that finds no update() since its last. Said once.
    // Of more optimizers than it has places for it reports nothing.
    [[nodiscard]] bool forgets_update(const void* optimizer) noexcept;
    // Collective: found_inf becomes 1 where any rank has it. Waits; throws where a rank is lost.
    void combine(Stream& stream, comm::Communicator& comm);

  private:
    [[nodiscard]] float first_scale() const noexcept {
        return checks() ? static_cast<float>(policy_.init_scale) : 1.0F;
    }

    std::shared_ptr<Context> context_;
    recipe::ScalerPolicy policy_;
    Buffer state_;
    std::array<const void*, 8> used_by_{}; // since the last update
    bool has_warned_ = false;
};

} // namespace mp::scaler
