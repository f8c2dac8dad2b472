// SPDX-License-Identifier: Apache-2.0
// StepGuard: an optimizer's memory of its last gradient norms and losses, which skips steps that stand out.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "numerics/step_guard.hpp"
#include "optim/step_memory.hpp"
#include "optim/step_participant.hpp"
#include "runtime/buffer.hpp"

namespace mp::optim {

struct GuardOptions {
    int32_t window = 128;         // llm.c's
    double max_grad_norm_z = 0.0; // 0: not watched
    double max_loss_z = 0.0;
};

// What a checkpoint keeps of it: the last values of each thing watched, oldest first.
struct GuardValues {
    std::array<std::vector<double>, numerics::kWatchedCount> last;
    std::array<int64_t, numerics::kWatchedCount> count =
        {}; // seen in all: says where the ring begins
};

class StepGuard final : public StepParticipant {
  public:
    // Skips steps that stand out from now on; without a value none. What it has seen is kept where the options stay. Throws for
    // numbers that cannot be. Waits.
    void set(Stream& stream, const std::optional<GuardOptions>& options);

    [[nodiscard]] bool is_on() const noexcept { return state_.data() != nullptr; }
    [[nodiscard]] const GuardOptions& options() const noexcept { return options_; }
    [[nodiscard]] bool watches_loss() const noexcept { return options_.max_loss_z > 0.0; }
    // Of the step to come.
    void set_loss(double loss) noexcept { loss_ = loss; }
    [[nodiscard]] std::optional<double> loss() const noexcept { return loss_; }
    // What ranks must have in common: the numbers, and the loss.
    [[nodiscard]] uint64_t hash() const noexcept;
    void add_to(StepOptions& options) const noexcept;
    // Throws where the loss is watched and nobody gave it.
    void begin(Stream& stream) override;
    void propose(comm::Agreement& agreement) override;
    void end(Stream& /*stream*/) override { loss_.reset(); }

    void save(Stream& stream, OptimizerCounts& counts) const override;
    void prepare_restore(Stream& stream, RestoredCounts& restored) const override;
    void restore(Stream& stream, RestoredCounts& restored) override;
    [[nodiscard]] GuardValues read(Stream& stream) const; // waits

  private:
    // The newest that the window holds. One that is off keeps all, for the next guard or checkpoint. Waits.
    void write(Stream& stream, GuardValues values);

    GuardOptions options_;
    std::optional<double> loss_;
    Buffer state_;        // none: it is off
    GuardValues waiting_; // of one that is off
    TextLine<120> shown_; // in an agreement
};

} // namespace mp::optim
