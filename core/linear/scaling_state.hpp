// SPDX-License-Identifier: Apache-2.0
// ScalingState: what a layer remembers of its three operands: delayed scales with their histories, and counts of
// what happened when they were quantized, in device memory; and the numbers of its passes.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "linear/passes.hpp"
#include "quant/quantize.hpp"
#include "recipe/fp8_policy.hpp"

namespace mp::linear {

using recipe::kOperands;

// One operand's state, read back.
struct OperandState {
    numerics::DelayedState delayed;
    std::vector<float> history; // empty unless scaling is delayed
    numerics::QuantStats stats;
};

class ScalingState {
  public:
    ScalingState() = default;
    // A weight that is rounded once is scaled by its own amax: no later step could mend a scale of another time.
    ScalingState(Stream& stream, const recipe::Fp8Policy& policy, bool weight_is_frozen);

    [[nodiscard]] Tracking tracking(recipe::Operand operand, bool with_stats) const noexcept;
    // Counts alone, of what nothing rounds to codes: read() takes elements, non_finite and amax of them.
    [[nodiscard]] Tracking tracking_apart(recipe::Operand operand) const noexcept;
    // Of the operands, in device memory; null unless scaling is delayed.
    [[nodiscard]] numerics::DelayedState* delayed() const noexcept {
        return delayed_.as<numerics::DelayedState>();
    }
    [[nodiscard]] bool reduces_amax() const noexcept {
        return delayed_.data() != nullptr && policy_.reduce_amax;
    }
    // What random bits of the operands follow from.
    [[nodiscard]] const Passes& passes() const noexcept { return passes_; }
    [[nodiscard]] Passes& passes() noexcept { return passes_; }
    // save() has them, as something random follows from them beside codes.
    void keep_passes() noexcept { keeps_passes_ = true; }
    // The next step's passes; delayed scales move on.
    void end_step(Stream& stream);
    [[nodiscard]] OperandState read(Stream& stream, recipe::Operand operand) const; // waits
    void clear_stats(Stream& stream) const;
    // Makes room for counts where the policy has none: of a layer in high precision.
    void begin_counts(Stream& stream);

    // All of it but the counts, for a checkpoint. load() throws for what save() did not write under the same
    // policy. Both wait.
    [[nodiscard]] std::vector<unsigned char> save(Stream& stream) const;
    void load(Stream& stream, const unsigned char* data, std::size_t size);
    void check_saved(const unsigned char* data, std::size_t size) const; // throws as load() does

    // Whether any amax has counted since the last step, in what save() returned.
    [[nodiscard]] static bool has_amaxes(std::span<const unsigned char> saved);
    // The amaxes since the last step in what save() returned under delayed scaling, as bits.
    [[nodiscard]] static std::array<uint32_t, kOperands>
    saved_amaxes(std::span<const unsigned char> saved);
    static void set_saved_amaxes(std::vector<unsigned char>& saved,
                                 std::span<const uint32_t> amaxes);

  private:
    [[nodiscard]] bool is_delayed() const noexcept {
        return policy_.scaling == recipe::Fp8Scaling::delayed;
    }
    [[nodiscard]] std::size_t history_bytes() const noexcept;
    // Of the passes in what save() returns; 0 where nothing random follows from them.
    [[nodiscard]] std::size_t pass_bytes() const noexcept;
    // Null where nothing is counted.
    [[nodiscard]] numerics::QuantStats* stats_of(recipe::Operand operand) const noexcept {
        return stats_.data() == nullptr
                   ? nullptr
                   : stats_.as<numerics::QuantStats>() + static_cast<std::size_t>(operand);
    }

    recipe::Fp8Policy policy_;
    bool weight_is_frozen_ = false;
    Passes passes_;
    bool keeps_passes_ = false;
    Buffer delayed_;
    Buffer histories_;
    Buffer stats_; // by operand: of what was rounded, then of what was not
};

} // namespace mp::linear
