// SPDX-License-Identifier: Apache-2.0
// ForwardAmaxes: amaxes of forwards that delayed scaling does not count yet. A forward counts when its backward runs; one that no
// backward follows was an evaluation, and leaves the scales of training alone. Device memory, in the order of the stream.
#pragma once

#include <array>

#include "linear/saved.hpp"
#include "linear/scaling_state.hpp"
#include "recipe/fp8_policy.hpp"
#include "runtime/buffer.hpp"
#include "runtime/stream.hpp"

namespace mp::linear {

class ForwardAmaxes {
  public:
    ForwardAmaxes() = default;
    // Of a layer's state, which outlives this; nothing is gathered where its scales are not delayed.
    ForwardAmaxes(Stream& stream, const ScalingState& state);

    // Where the amax of the next forward's x gathers: with what it keeps, or here for a backward without. Null: nowhere.
    [[nodiscard]] float* of_input(Stream& stream, const ScalingState& state, Saved* saved);
    // Where that of a weight gathers whose codes are made now, or were made by the caller, for one of two products.
    [[nodiscard]] float* of_weight(Stream& stream, const ScalingState& state, std::size_t product);
    // A forward that training may have run: a step without any backward counts it. `input` null: it is done again.
    void forward_done(Stream& stream, const float* input);
    // A backward: what its forward gathered counts from now on, once.
    void count(Stream& stream, const ScalingState& state, Saved* saved);
    [[nodiscard]] bool has_backward() const noexcept { return has_backward_; }

    // The end of a step, before ranks compare amaxes: all its forwards count, or those with a backward alone. May be repeated.
    void settle(Stream& stream, const ScalingState& state, bool counts_forwards);
    // Raises these two by what that adds to x and the weight, before it does. Null: nothing.
    void add_forwards(Stream& stream, float* input, float* weight) const;
    // `forgets_weights`: they are converted again before they are used again.
    void start_over(Stream& stream, bool forgets_weights);
    // A saved state took the place of the layer's: nothing gathered before counts any more. Whether the saved one's step had a
    // backward, after which forwards without one are evaluations.
    void load(Stream& stream, bool has_backward);

  private:
    // Forwards that keep nothing and whose backward has not run: more than a pipeline has stages. Older ones were evaluations.
    static constexpr std::size_t kMostWaiting = 64;
    struct Cells {
        float forwards; // the largest x of the step's forwards
        float weights[2];
        float waiting[kMostWaiting];
    };
    struct Weight {
        bool waits = false;  // its amax does not count yet
        bool trains = false; // a forward of training has used it
    };
    [[nodiscard]] Cells* cells() const noexcept { return cells_.as<Cells>(); }
    void count_weight(Stream& stream, const ScalingState& state, std::size_t product);
    void note_capture(const Stream& stream) {
        is_in_graphs_ = is_in_graphs_ || stream.is_captured();
    }

    Buffer cells_;
    std::array<Weight, 2> weights_;
    std::size_t next_ = 0;    // place in `waiting` of the next forward that keeps nothing
    std::size_t waiting_ = 0; // before it
    int64_t step_ = 0;
    int64_t counted_to_ = -1; // all forwards of this step have counted
    bool counts_forwards_ = false;
    bool has_forwards_ = false;
    bool has_weights_ = false;  // some cell of theirs is not 0
    bool has_backward_ = false; // in this step
    // A graph does again what was captured, and nothing here learns of it: a step's end takes what the cells have, which are 0
    // at its begin, instead of what is known to be in them.
    bool is_in_graphs_ = false;
};

// Codes that somebody else made: their amax enters the delayed scale as if they had been made here.
void count_codes(Stream& stream, const Tracking& tracking, const Tensor& codes);
// Counts what no product rounds: operands in high precision, and codes that somebody else made.
void count_unrounded(Stream& stream, const ScalingState& state, recipe::Operand operand,
                     const Tensor& tensor);

} // namespace mp::linear
