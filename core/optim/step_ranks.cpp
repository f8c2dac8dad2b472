// SPDX-License-Identifier: Apache-2.0
#include "optim/step_ranks.hpp"

#include "shard/sharding.hpp"
#include "status/guarded.hpp"

namespace mp::optim {

StepRanks::StepRanks(shard::Sharding* sharding, const NormGroup& others,
                     const Parameters& parameters, std::vector<int32_t> enabled, uint64_t guard)
    : sharding_(sharding), gradients_(parameters.host_gradients()),
      others_(others.exists() ? &others : nullptr), enabled_(std::move(enabled)), guard_(guard) {
    if (others_ != nullptr) {
        elsewhere_ = chunks_counted_elsewhere(parameters, enabled_);
    }
}

PlacedSums StepRanks::sums(Stream& stream, const PlacedSums& own) {
    PlacedSums all = shares_sums() ? sharding_->all_sums(stream, own, enabled_)
                                   : PlacedSums{nullptr, own.sums, own.places, own.count, own.held};
    is_summed_ = true; // what fails before fails before its message, or with the communicator
    if (others_ == nullptr) {
        return all;
    }
    const NormGroup::Message mine = NormGroup::message(stream, all, elsewhere_, guard_);
    is_measured_ = true;
    return others_->sums(stream, mine);
}

void StepRanks::reduce(Stream& stream) {
    if (sharding_ != nullptr) {
        sharding_->reduce(stream);
    }
}

void StepRanks::collect(Stream& stream) const {
    if (gradients_ != nullptr) {
        gradients_->collect(stream);
    }
}

void StepRanks::give_up(const Status& own, bool measures) {
    if (sharding_ != nullptr && !sharding_->groups().status().ok()) {
        sharding_->groups().abort(own); // other groups would wait for this rank's agreement
        return;
    }
    if (!measures) {
        return;
    }
    // What fails here fails in reach(), too, or was said before.
    if (shares_sums() && !is_summed_) {
        (void)guarded("sums", [&]() -> Status {
            sharding_->decline_sums();
            return {};
        });
    }
    if (others_ != nullptr && !is_measured_) {
        (void)guarded("sums", [&]() -> Status {
            others_->decline();
            return {};
        });
    }
}

void StepRanks::reserve(Stream& stream, std::span<StepParticipant* const> participants) const {
    comm::Agreement agreement(stream);
    for (StepParticipant* const participant : participants) {
        participant->propose(agreement);
    }
    check(sharding_->reserve(agreement));
}

void StepRanks::reach(Stream& stream, std::span<StepParticipant* const> participants,
                      const Status& own) {
    if (sharding_ == nullptr) {
        check(own);
        return;
    }
    comm::Agreement agreement(stream);
    for (StepParticipant* const participant : participants) {
        participant->propose(agreement);
    }
    agreement.decline(own);
    check(sharding_->reach(agreement));
    for (StepParticipant* const participant : participants) {
        participant->accept(agreement);
    }
}

void StepRanks::publish(Stream& stream) {
    if (sharding_ != nullptr) {
        sharding_->publish(stream);
    }
}

} // namespace mp::optim
