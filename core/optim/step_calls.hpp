// SPDX-License-Identifier: Apache-2.0
// StepCalls: that parameters have values, how many steps ranks have asked for, and now and then whether the weights that the
// last one made equal still are.
#pragma once

#include "optim/parameters.hpp"
#include "optim/step_participant.hpp"

namespace mp::optim {

class StepCalls final : public StepParticipant {
  public:
    // `parameters` outlives this.
    explicit StepCalls(const Parameters& parameters) : parameters_(parameters) {}

    void begin(Stream& /*stream*/) override {
        check_have_values(parameters_);
        weights_.reset();
    }
    void collect(Stream& stream) override {
        weights_ = parameters_.sharding()->weights_hash(stream, calls_);
    }
    void propose(comm::Agreement& agreement) override {
        agreement.must_equal("the number of steps", static_cast<uint64_t>(calls_));
        agreement.must_equal_on_device("the weights' bits, which the last step made equal",
                                       weights_ != nullptr ? weights_->sum() : nullptr,
                                       sizeof(uint64_t));
    }
    void accept(const comm::Agreement& /*agreement*/) override {
        ++calls_;
        weights_.reset();
    }

  private:
    const Parameters& parameters_;
    int64_t calls_ = 0;
    std::unique_ptr<ContentHash> weights_; // where they are compared in this step
};

} // namespace mp::optim
