// SPDX-License-Identifier: Apache-2.0
// SharedScales: the E4M3 scale that all ranks quantize a gradient with and that its sum keeps, and the factor mu that
// makes room for the sum (FP8-LM, equations 1 to 6; numerics/fp8_reduce.hpp). A scale is that of the largest amax of all
// ranks, and in device memory; mu moves once a step, by what the sums of all ranks had to clip, which the step's agreement
// carries.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/agreement.hpp"
#include "numerics/fp8_reduce.hpp"
#include "runtime/buffer.hpp"
#include "runtime/host_lane.hpp"
#include "runtime/stream.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class SharedScales {
  public:
    // `shares`: by parameter, whether it has such a scale. `shard`: this rank, to the plan, which outlives this.
    // mu begins at 1 / sqrt(contributions).
    SharedScales(const Stream& stream, const ShardPlan& plan, int32_t shard,
                 const std::vector<bool>& shares, int32_t contributions, HostLane* lane);

    // Whether any parameter has one.
    [[nodiscard]] bool exist() const noexcept { return scales_.data() != nullptr; }
    [[nodiscard]] bool shares(int32_t parameter) const { return at(parameter).shares; }
    // Of contributions: their scale is the one for the largest amax of all ranks. An amax that is 0 or not finite keeps the last.
    [[nodiscard]] Format format(int32_t parameter) const;

    // Of the last sum, a scale_inv in device memory.
    [[nodiscard]] float* scale(int32_t parameter) const noexcept {
        return scales_.as<float>() + parameter;
    }
    // A sum lies there under this scale, made of numbers of this amax. A tensor that was not finite in any reduction of a step
    // keeps its mu.
    void set_sum(Stream& stream, int32_t parameter, const float* scale_inv, const float* amax);
    // So many elements of this slice, of this rank's, did not fit; the lower half of a count.
    void set_clipped(Stream& stream, const ShardSlice& slice, const int64_t* clipped);
    // Where the host steps, they are in its memory too, once they have come by the lane.
    void leave(Stream& stream);
    [[nodiscard]] float* step_scale(int32_t parameter) const noexcept {
        return lane_ == nullptr ? scale(parameter)
                                : reinterpret_cast<float*>(on_host_.data()) + parameter;
    }

    // In the step's agreement: how many elements of each slice were clipped. Afterwards every rank has the same new mu. Of an
    // agreement that fails nothing stays: collect() has copied what it writes.
    void collect(Stream& stream);
    void propose(comm::Agreement& agreement);
    void accept(const comm::Agreement& agreement);

    [[nodiscard]] float mu(int32_t parameter) const { return at(parameter).mu; }
    // Whether any step has moved it.
    [[nodiscard]] bool has_moved(int32_t parameter) const { return mu(parameter) != first_mu_; }
    // From a checkpoint; the same on every rank, in [2^-16, 2]. 0: as at the beginning.
    void set_mu(int32_t parameter, float mu);
    // Goes on as `before` would, whose parameters come first in the list: of those that had one, and have one.
    void follow(Stream& stream, const SharedScales& before);
    // What all of it holds, of so many parameters; a word for each that has a scale, and for each slice of one.
    [[nodiscard]] static constexpr int64_t device_bytes(int64_t parameters, int64_t words) {
        return (parameters + 2 * words) * kWordBytes;
    }
    [[nodiscard]] static constexpr int64_t host_bytes(int64_t parameters) { // where the host steps
        return parameters * kWordBytes;
    }
    [[nodiscard]] int64_t device_bytes() const noexcept {
        return static_cast<int64_t>(scales_.bytes() + words_.bytes() + agreed_.bytes());
    }
    [[nodiscard]] int64_t host_bytes() const noexcept {
        return static_cast<int64_t>(on_host_.bytes());
    }
    // Of the words that come to the host in a step's agreement.
    [[nodiscard]] int64_t agreement_bytes() const noexcept {
        return static_cast<int64_t>(agreed_.bytes());
    }

  private:
    static constexpr int64_t kWordBytes = 4; // and of a scale
    struct State {
        bool shares = false;
        float mu = 1.0F;
        std::size_t first_word = 0; // the amax; the slices' clipped elements follow
        bool was_reduced = false;   // in this step
    };
    [[nodiscard]] const State& at(int32_t parameter) const {
        return states_[static_cast<std::size_t>(parameter)];
    }
    // Of a step that begins to reduce: all zero.
    [[nodiscard]] uint32_t* words(Stream& stream);

    const ShardPlan& plan_;
    int32_t shard_;
    float first_mu_ = 1.0F;
    std::vector<State> states_;  // by parameter
    Buffer scales_;              // by parameter
    HostLane* lane_;             // null: the device steps
    PinnedBuffer on_host_;       // the same as scales_, where the host steps
    Buffer words_;               // what this rank has to say in the agreement,
    Buffer agreed_;              // and what the agreement carries and writes
    bool has_words_ = false;     // of this step
    std::size_t first_word_ = 0; // in the agreement
};

} // namespace mp::shard
