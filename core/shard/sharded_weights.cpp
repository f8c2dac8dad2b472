// SPDX-License-Identifier: Apache-2.0
#include "shard/sharded_weights.hpp"

#include <algorithm>

#include "quant/quantize.hpp"

namespace mp::shard {

ShardedWeights::ShardedWeights(const std::shared_ptr<Context>& context, Stream& stream,
                               int32_t stage, comm::Communicator& comm, const ShardPlan& plan,
                               const std::vector<ShardedTensor>& tensors, LentMemory& lent,
                               comm::MessageCounts& messages, Stream* between,
                               const ShardedWeights* before)
    : stage_(stage), comm_(comm), plan_(plan), tensors_(tensors), lent_(lent), messages_(messages),
      between_(between), own_(tensors.size()), gathered_by_(tensors.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const auto parameter = static_cast<int32_t>(i);
        if (tensors_[i].is_codes()) {
            code_parameters_.push_back(parameter);
        }
        own_[i] = make_own(context, stream, parameter, before);
        const bool is_as_before = before != nullptr && i < before->own_.size() &&
                                  own_[i] != nullptr && own_[i] == before->own_[i];
        if (tensors_[i].param->has_memory() && !is_as_before) { // a deferred one has no values yet
            update_own(stream, parameter);
        }
    }
}

std::shared_ptr<Tensor> ShardedWeights::make_own(const std::shared_ptr<Context>& context,
                                                 Stream& stream, int32_t parameter,
                                                 const ShardedWeights* before) const {
    const auto i = static_cast<std::size_t>(parameter);
    const ShardedTensor& tensor = tensors_[i];
    const ShardSlice own = own_slice(parameter);
    if (!tensor.is_apart || own.count == 0) {
        return nullptr;
    }
    if (before != nullptr && i < before->own_.size() &&
        before->tensors_[i].is_frozen() == tensor.is_frozen()) {
        const ShardSlice old = before->own_slice(parameter);
        if (old.start == own.start && old.count == own.count) {
            return before->own_[i];
        }
    }
    const Format exact = tensor.is_codes() ? Format{tensor.exact, {}, {}} : tensor.param->format();
    return make_tensor(context, stream, exact,
                       slice_shape(exact.grid, tensor.param->columns(), own.count));
}

void ShardedWeights::update_own(Stream& stream, int32_t parameter) {
    const auto i = static_cast<std::size_t>(parameter);
    if (own_[i] == nullptr) {
        return;
    }
    const ShardSlice own = own_slice(parameter);
    tensors_[i].param->require_memory("optimizer: parameter");
    const ArrayRef from = slice_of(*tensors_[i].param, own.start, own.count);
    const ArrayRef to = slice_of(*own_[i]);
    if (tensors_[i].is_codes()) {
        quant::dequantize_matrix(stream, from, to.elements());
        return;
    }
    copy_array(stream, from, to, CopyKind::device_to_device);
}

ShardSlice ShardedWeights::own_slice(int32_t parameter) const {
    const ShardedTensor& tensor = tensors_[static_cast<std::size_t>(parameter)];
    if (tensor.is_whole) {
        return {parameter, comm_.rank(), 0, tensor.param->count()};
    }
    return plan_.slice_on(parameter, comm_.rank());
}

ArrayRef ShardedWeights::own(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    const ShardSlice slice = own_slice(parameter);
    return own_[i] != nullptr ? slice_of(*own_[i])
                              : slice_of(*tensors_[i].param, slice.start, slice.count);
}

int64_t ShardedWeights::bytes(int32_t parameter) const {
    return bytes_of(own_[static_cast<std::size_t>(parameter)]);
}

Fp8Weight ShardedWeights::code_weight(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    return {&plan_.slices_of(parameter), own_[i].get(), tensors_[i].param.get()};
}

void ShardedWeights::agree_on_code_scales(Stream& stream) {
    if (code_parameters_.empty()) {
        return;
    }
    land(stream); // with the scales so far
    std::vector<Fp8Weight> weights;
    weights.reserve(code_parameters_.size());
    for (const int32_t parameter : code_parameters_) {
        weights.push_back(code_weight(parameter));
    }
    code_scales_.agree(stream, comm_, weights);
}

void ShardedWeights::send(Stream& stream, std::vector<int32_t> parameters) {
    std::vector<GatherTarget> numbers;
    std::vector<Fp8Weight> codes;
    std::vector<Fp8Scale> scales;
    for (const int32_t parameter : parameters) {
        const ShardedTensor& tensor = tensors_[static_cast<std::size_t>(parameter)];
        if (!tensor.is_codes()) {
            numbers.push_back({&plan_.slices_of(parameter), slice_of(*tensor.param), own(parameter),
                               tensor.gather});
            continue;
        }
        const auto found =
            std::lower_bound(code_parameters_.begin(), code_parameters_.end(), parameter);
        const auto place = static_cast<std::size_t>(found - code_parameters_.begin());
        codes.push_back(code_weight(parameter));
        scales.push_back(code_scales_[place]);
    }
    Gather gather;
    gather.parameters = std::move(parameters);
    if (!numbers.empty()) {
        // Around a use, in stage 3, a step may come before a slow rank has read.
        gather.numbers =
            std::make_unique<WeightGather>(stream, comm_, std::move(numbers), between_, stage_ < 3);
    }
    if (!codes.empty()) {
        gather.codes = std::make_unique<Fp8Gather>(stream, comm_, std::move(codes),
                                                   std::move(scales), between_);
    }
    gathers_.push_back(std::move(gather));
    ++messages_.begun;
    for (const int32_t parameter : gathers_.back().parameters) {
        gathered_by_[static_cast<std::size_t>(parameter)] = ended_gathers_ + gathers_.size();
    }
}

comm::Advance ShardedWeights::Gather::step(Stream& stream) {
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

void ShardedWeights::Gather::finish(Stream& stream) {
    if (numbers != nullptr) {
        numbers->finish(stream);
        numbers.reset();
    }
    if (codes != nullptr) {
        codes->finish(stream);
        codes.reset();
    }
}

void ShardedWeights::finish_first(Stream& stream) {
    Gather& gather = gathers_.front();
    if (!gather.is_done()) {
        gather.finish(stream);
        ++messages_.finished;
    }
    gathers_.pop_front();
    ++ended_gathers_;
    done_gathers_ -= done_gathers_ > 0 ? 1 : 0;
}

void ShardedWeights::wait_gather(Stream& stream, std::span<const int32_t> parameters) {
    for (const int32_t parameter : parameters) {
        while (gathered_by_[static_cast<std::size_t>(parameter)] > ended_gathers_) {
            finish_first(stream);
        }
    }
}

comm::Advance ShardedWeights::step(Stream& stream) {
    while (done_gathers_ < gathers_.size() && gathers_[done_gathers_].is_done()) {
        ++done_gathers_;
    }
    if (done_gathers_ == gathers_.size()) {
        return comm::Advance::done;
    }
    const comm::Advance advance = gathers_[done_gathers_].step(stream);
    if (advance != comm::Advance::done) {
        return advance;
    }
    ++messages_.finished;
    return comm::Advance::moved; // there may be another one
}

bool ShardedWeights::is_frozen(const ShardBucket& bucket) const {
    return !bucket.parameters.empty() &&
           tensors_[static_cast<std::size_t>(bucket.parameters[0])].is_frozen();
}

void ShardedWeights::publish(Stream& stream) {
    if (stage_ == 0) {
        return;
    }
    for (const std::shared_ptr<Tensor>& own : own_) {
        if (own != nullptr) {
            own->touch();
        }
    }
    agree_on_code_scales(stream);
    if (stage_ == 3) {
        std::vector<int32_t> all(tensors_.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = static_cast<int32_t>(i);
        }
        release(stream, all);
        return;
    }
    send_all(stream, [&] { publish_buckets(stream); });
}

template <typename Body> void ShardedWeights::send_all(Stream& stream, const Body& body) {
    try {
        body();
        land(stream);
    } catch (...) { // nobody reads this rank's weights any more
        drop();
        throw;
    }
}

void ShardedWeights::land(Stream& stream) {
    while (!gathers_.empty()) {
        finish_first(stream);
    }
}

void ShardedWeights::drop() noexcept {
    ended_gathers_ += gathers_.size();
    done_gathers_ = 0;
    gathers_.clear();
}

void ShardedWeights::publish_some(Stream& stream, std::span<const int32_t> parameters) {
    if (stage_ == 0) {
        return;
    }
    agree_on_code_scales(stream);
    if (stage_ < 3) {
        fetch(stream, parameters);
    }
}

// One after another, so that the memory of the exchange stays small.
void ShardedWeights::fetch(Stream& stream, std::span<const int32_t> parameters) {
    send_all(stream, [&] {
        for (const int32_t parameter : parameters) {
            send(stream, {parameter});
            finish_first(stream);
        }
    });
}

// A bucket at a time, so that the memory of the exchange stays small.
void ShardedWeights::publish_buckets(Stream& stream) {
    for (const ShardBucket& bucket : plan_.buckets()) {
        if (is_frozen(bucket)) {
            continue; // nobody has changed it
        }
        send(stream, bucket.parameters);
        if (gathers_.size() > 1) {
            finish_first(stream);
        }
    }
}

// What cannot be fetched has no memory either: its zeros would be taken for weights.
void ShardedWeights::begin_gather(Stream& stream, std::span<const int32_t> parameters) {
    std::vector<int32_t> absent;
    absent.reserve(parameters.size());
    const auto tensor_of = [this](int32_t parameter) -> Tensor& {
        return *tensors_[static_cast<std::size_t>(parameter)].param;
    };
    try {
        for (const int32_t parameter : parameters) {
            if (!tensor_of(parameter).has_memory()) {
                lent_.restore(stream, tensor_of(parameter), {"weight", parameter});
                absent.push_back(parameter);
            }
        }
        if (!absent.empty()) {
            send(stream, absent);
        }
    } catch (...) {
        for (const int32_t parameter : absent) {
            lent_.drop(stream, tensor_of(parameter));
        }
        throw;
    }
}

void ShardedWeights::release(Stream& stream, std::span<const int32_t> parameters) {
    wait_gather(stream, parameters); // nobody gives back what is still arriving
    for (const int32_t parameter : parameters) {
        lent_.drop(stream, *tensors_[static_cast<std::size_t>(parameter)].param);
    }
}

} // namespace mp::shard
