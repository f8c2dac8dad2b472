// SPDX-License-Identifier: Apache-2.0
// Passes: the numbers of a layer's micro-batches, which random bits of its operands follow from. A number is taken by a backward:
// a forward that none follows was an evaluation, and leaves the numbers of training alone.
#pragma once

#include <cstdint>

#include "numerics/rounding.hpp"

namespace mp::linear {

// One forward's.
struct Pass {
    uint64_t time = 0;       // sr_time()
    uint64_t generation = 0; // of the counts
    bool is_open = false;    // no backward has run
    bool waits = false;      // side by side with others
};

// Who trains: what random bits begin with, and which of the ranks that train the same layers.
struct Trainer {
    uint64_t seed = 0;
    int32_t rank = 0;
    int32_t ranks = 1;
};

class Passes {
  public:
    // What a checkpoint keeps: the same on every rank.
    struct Counts {
        uint64_t step = 0;
        uint64_t done = 0; // micro-batches of the step, of all ranks
    };

    void set_trainer(const Trainer& trainer) noexcept { trainer_ = trainer; }
    [[nodiscard]] uint64_t seed() const noexcept { return trainer_.seed; }
    // `how` of a policy, now that it is done.
    [[nodiscard]] numerics::Rounding at(numerics::Rounding how, uint64_t time) const noexcept {
        how.seed = trainer_.seed;
        how.step = time;
        return how;
    }

    // A weight is the same in all micro-batches of a step.
    [[nodiscard]] uint64_t of_weight() const noexcept { return time(0); }
    // Of the next forward.
    [[nodiscard]] uint64_t of_forward() const noexcept {
        return time(counts_.done + waiting_ * ranks() + rank());
    }
    // A backward without a forward of its own.
    [[nodiscard]] Pass of_backward() const noexcept {
        return {time(counts_.done + rank()), generation_, true, false};
    }

    // A forward that a backward may follow. `before`: the same place's; one that waits in vain gives its number back.
    [[nodiscard]] Pass begin(const Pass& before, bool waits) noexcept {
        if (waits && before.waits && is_now(before)) {
            return before;
        }
        const Pass pass = {of_forward(), generation_, true, waits};
        waiting_ += waits ? 1 : 0;
        return pass;
    }
    // Its first backward; another one changes nothing.
    void end(Pass& pass) noexcept {
        if (pass.is_open && is_now(pass)) {
            counts_.done += ranks();
            waiting_ -= pass.waits && waiting_ > 0 ? 1 : 0;
        }
        pass.is_open = false;
        pass.waits = false;
    }
    void end_step() noexcept { load({counts_.step + 1, 0}); }

    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
    void load(const Counts& counts) noexcept {
        counts_ = {counts.step % numerics::kStepEnd, counts.done};
        waiting_ = 0;
        ++generation_; // what waits for its backward now counts no longer
    }

  private:
    [[nodiscard]] uint64_t rank() const noexcept { return static_cast<uint64_t>(trainer_.rank); }
    [[nodiscard]] uint64_t ranks() const noexcept { return static_cast<uint64_t>(trainer_.ranks); }
    [[nodiscard]] uint64_t time(uint64_t number) const noexcept {
        return numerics::sr_time(counts_.step,
                                 static_cast<uint32_t>(number % numerics::kMicrobatchEnd));
    }
    [[nodiscard]] bool is_now(const Pass& pass) const noexcept {
        return pass.generation == generation_;
    }

    Trainer trainer_;
    Counts counts_;
    uint64_t waiting_ = 0; // forwards of this rank, before their backward
    uint64_t generation_ = 0;
};

} // namespace mp::linear
