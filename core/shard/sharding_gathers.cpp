// SPDX-License-Identifier: Apache-2.0
// The weights' way from their owners to every rank of a group: after a step, and in stage 3 around each use.
#include <algorithm>

#include "shard/sharding.hpp"

namespace mp::shard {

GatherTarget Sharding::target(int32_t parameter) const {
    const ShardedTensor& tensor = tensors_[static_cast<std::size_t>(parameter)];
    return {&plan_.slices_of(parameter), slice_of(*tensor.param), weight_of(parameter),
            tensor.gather};
}

Fp8Weight Sharding::code_weight(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    return {&plan_.slices_of(parameter), own_weights_[i].get(), tensors_[i].param.get()};
}

void Sharding::agree_on_code_scales(Stream& stream) {
    if (code_parameters_.empty()) {
        return;
    }
    std::vector<Fp8Weight> weights;
    weights.reserve(code_parameters_.size());
    for (const int32_t parameter : code_parameters_) {
        weights.push_back(code_weight(parameter));
    }
    code_scales_ = agree_on_scales(stream, groups_.shards(), weights);
}

void Sharding::send(Stream& stream, std::vector<int32_t> parameters) {
    std::vector<GatherTarget> numbers;
    std::vector<Fp8Weight> codes;
    Fp8Scales scales;
    for (const int32_t parameter : parameters) {
        const auto found = std::find(code_parameters_.begin(), code_parameters_.end(), parameter);
        if (found == code_parameters_.end()) {
            numbers.push_back(target(parameter));
            continue;
        }
        const auto place = static_cast<std::size_t>(found - code_parameters_.begin());
        codes.push_back(code_weight(parameter));
        scales.scales.push_back(code_scales_.scales[place]);
        scales.amaxes.push_back(code_scales_.amaxes[place]);
        scales.versions.push_back(code_scales_.versions[place]);
    }
    Gather gather;
    gather.parameters = std::move(parameters);
    if (!numbers.empty()) {
        gather.numbers =
            std::make_unique<WeightGather>(stream, groups_.shards(), std::move(numbers));
    }
    if (!codes.empty()) {
        gather.codes = std::make_unique<Fp8Gather>(stream, groups_.shards(), std::move(codes),
                                                   std::move(scales));
    }
    gathers_.push_back(std::move(gather));
    ++messages_.begun;
}

comm::Advance Sharding::Gather::step(Stream& stream) {
    comm::Advance advance = numbers ? numbers->step(stream) : codes->step(stream);
    if (advance == comm::Advance::done) {
        if (numbers) {
            numbers.reset();
        } else {
            codes.reset();
        }
        advance = is_done() ? comm::Advance::done : comm::Advance::moved;
    }
    return advance;
}

void Sharding::Gather::finish(Stream& stream) {
    if (numbers != nullptr) {
        numbers->finish(stream);
        numbers.reset();
    }
    if (codes != nullptr) {
        codes->finish(stream);
        codes.reset();
    }
}

void Sharding::finish_first_gather(Stream& stream) {
    Gather& gather = gathers_.front();
    if (!gather.is_done()) {
        gather.finish(stream);
        ++messages_.finished;
    }
    for (const int32_t parameter : gather.parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->touch();
    }
    gathers_.pop_front();
}

void Sharding::finish_gathers_of(Stream& stream, std::span<const int32_t> parameters) {
    const auto has_any = [&](const Gather& gather) {
        return std::find_first_of(gather.parameters.begin(), gather.parameters.end(),
                                  parameters.begin(), parameters.end()) != gather.parameters.end();
    };
    while (std::any_of(gathers_.begin(), gathers_.end(), has_any)) {
        finish_first_gather(stream);
    }
}

void Sharding::publish(Stream& stream) {
    const comm::Progress::Turn turn(progress_);
    buckets_->start_over();
    if (options_.stage == 0) {
        return;
    }
    for (const std::shared_ptr<Tensor>& own : own_weights_) {
        if (own != nullptr) {
            own->touch();
        }
    }
    agree_on_code_scales(stream);
    if (options_.stage == 3) {
        std::vector<int32_t> all(tensors_.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = static_cast<int32_t>(i);
        }
        release_memory(stream, all);
        return;
    }
    // A bucket at a time, so that the memory of the exchange stays small.
    for (const ShardBucket& bucket : plan_.buckets()) {
        send(stream, bucket.parameters);
        if (gathers_.size() > 1) {
            finish_first_gather(stream);
        }
    }
    while (!gathers_.empty()) {
        finish_first_gather(stream);
    }
}

// ---- stage 3

void Sharding::begin_gather(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage != 3) {
        return;
    }
    const comm::Progress::Turn turn(progress_);
    check_alive();
    std::vector<int32_t> absent;
    for (const int32_t parameter : parameters) {
        Tensor& param = *tensors_[static_cast<std::size_t>(parameter)].param;
        if (!param.has_memory()) {
            param.restore_memory(stream);
            absent.push_back(parameter);
        }
    }
    if (!absent.empty()) {
        send(stream, std::move(absent));
    }
}

void Sharding::wait_gather(Stream& stream, std::span<const int32_t> parameters) {
    for (const int32_t parameter : parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->require_memory(
            "optimizer: a parameter that is waited for, and not being gathered,");
    }
    if (options_.stage == 3) {
        const comm::Progress::Turn turn(progress_);
        check_alive();
        finish_gathers_of(stream, parameters);
    }
}

void Sharding::release(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const comm::Progress::Turn turn(progress_);
        release_memory(stream, parameters);
    }
}

void Sharding::release_memory(Stream& stream, std::span<const int32_t> parameters) {
    finish_gathers_of(stream, parameters); // nobody gives back what is still arriving
    stream.sync();
    for (const int32_t parameter : parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->drop_memory();
    }
}

} // namespace mp::shard
