// SPDX-License-Identifier: Apache-2.0
// SharedScales: the E4M3 scale that all ranks quantize a gradient with and that its sum keeps, and the factor mu that
// makes room for the sum (FP8-LM, equations 1 to 6; numerics/fp8_reduce.hpp). A scale is that of the largest amax of all
// ranks; mu moves once a step, by what the sums of all ranks had to clip, which the step's agreement carries.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/agreement.hpp"
#include "numerics/fp8_reduce.hpp"
#include "runtime/buffer.hpp"
#include "runtime/stream.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class SharedScales {
  public:
    // `shares`: by parameter, whether it has such a scale. `shard`: this rank, to the plan, which outlives this.
    // mu begins at 1 / sqrt(contributions).
    SharedScales(const Stream& stream, const ShardPlan& plan, int32_t shard,
                 std::vector<bool> shares, int32_t contributions);

    // Whether any parameter has one.
    [[nodiscard]] bool exist() const noexcept { return !values_.empty(); }
    [[nodiscard]] bool shares(int32_t parameter) const {
        return shares_[static_cast<std::size_t>(parameter)];
    }
    // What a contribution is multiplied by, and its inverse: for the largest amax of all ranks, as bits. An amax that is
    // 0 or not finite keeps the last scale.
    [[nodiscard]] numerics::BlockScale scale_for(int32_t parameter, uint32_t amax_bits) const;

    // The sum lies there under this scale; `clipped` of this rank's elements did not fit. A tensor that was not
    // finite in any reduction of a step keeps its mu.
    void set_sum(int32_t parameter, float scale_inv, int64_t clipped, bool is_finite);
    [[nodiscard]] float scale_inv(int32_t parameter) const { return at(parameter).scale_inv; }
    // Of the device, for the step; what write() has brought there.
    [[nodiscard]] float* device_scale(int32_t parameter) const noexcept;
    void write(Stream& stream);

    // In the step's agreement: how many elements of each slice were clipped. Afterwards every rank has the same new mu.
    void propose(comm::Agreement& agreement);
    void accept(const comm::Agreement& agreement);

    [[nodiscard]] float mu(int32_t parameter) const { return at(parameter).mu; }
    // Whether any step has moved it.
    [[nodiscard]] bool has_moved(int32_t parameter) const { return mu(parameter) != first_mu_; }
    // From a checkpoint; the same on every rank, in [2^-16, 2]. 0: as at the beginning.
    void set_mu(int32_t parameter, float mu);
    // Goes on as `before` would, whose parameters come first in the list: of those that had one, and have one.
    void follow(const SharedScales& before);
    [[nodiscard]] int64_t bytes() const noexcept { return static_cast<int64_t>(device_.bytes()); }

  private:
    struct State {
        float mu = 1.0F;
        float scale_inv = 1.0F;
        int64_t clipped = 0; // of this rank's elements, in this step's sum
        bool is_finite = true;
        bool was_reduced = false; // in this step
    };
    [[nodiscard]] const State& at(int32_t parameter) const {
        return states_[static_cast<std::size_t>(parameter)];
    }

    const ShardPlan& plan_;
    int32_t shard_;
    std::vector<bool> shares_;
    float first_mu_ = 1.0F;
    std::vector<State> states_; // by parameter
    std::vector<float> values_; // a copy of device_, which is being written from it
    Buffer device_;
    std::size_t first_word_ = 0;
};

} // namespace mp::shard
