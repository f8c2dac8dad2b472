// SPDX-License-Identifier: Apache-2.0
// What of an optimizer goes into a checkpoint: all that the bits of the next step depend on.
#include "optim/optimizer.hpp"

namespace mp::optim {

StatesPlace Optimizer::states_place(int32_t index) const {
    const Parameter& p = parameters_.at(static_cast<std::size_t>(index));
    const Shape& shape = p.param->shape();
    const shard::ShardSlice own = piece(index);
    StatesPlace place;
    place.weight = weight_format(*p.param); // of codes for use: the owner's exact numbers
    place.formats = formats_of(p);
    place.shape.assign(shape.sizes.begin(), shape.sizes.begin() + shape.ndim);
    place.whole = p.param->count();
    place.start = own.start;
    place.count = own.count;
    place.is_everywhere = sharding_ == nullptr || sharding_->stage() == 0;
    place.is_copy = !place.is_everywhere && sharding_->groups().group() > 0;
    place.stream = options_.offload ? &context_->host_stream() : &context_->stream();
    if (p.states.has_value()) {
        place.states = &*p.states;
        place.param = weight(index);
    }
    return place;
}

std::vector<SavedTensor> Optimizer::saved_tensors(int32_t index) const {
    return mp::optim::saved_tensors(states_place(index));
}

std::vector<SavedTensor> saved_tensors(const StatesPlace& place) {
    std::vector<SavedTensor> saved;
    const auto add = [&](const std::string& state, StateFormat format, void* data, void* scales) {
        if (!format.exists()) {
            return;
        }
        const bool is_here = place.count > 0 && data != nullptr;
        SavedTensor tensor = {
            state,        format, place.shape, 0, 0, data, place.stream, place.is_everywhere,
            place.is_copy};
        tensor.start = is_here ? place.start : 0;
        tensor.count = is_here ? place.count : 0;
        saved.push_back(tensor);
        if (!format.is_scaled() && !has_blocks(format.coding)) {
            return;
        }
        SavedTensor scale = {state + "_scale_inv", scale_dtype(format), {},           0, 0, scales,
                             place.stream,         place.is_everywhere, place.is_copy};
        if (format.is_scaled()) { // whole tensors only: one number, with its owner
            scale.count = is_here ? 1 : 0;
        } else {
            const int64_t block = block_size(format.coding);
            scale.shape = {scale_count(format, place.whole)};
            scale.start = tensor.start / block;
            scale.count = (tensor.count + block - 1) / block;
        }
        saved.push_back(std::move(scale));
    };

    UpdateSegment s;
    if (place.states != nullptr) {
        place.states->fill(s);
    }
    add("param", place.weight, place.param.ref.data, place.param.scale_inv);
    const numerics::RuleInfo rule = numerics::rule_info(place.formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        add(rule.states[k].name, place.formats.states[k], s.states[k].data, s.states[k].scale_inv);
    }
    add("compensation", place.formats.compensation, s.compensation.data, s.compensation.scale_inv);
    add("master", place.formats.master, s.master.data, s.master.scale_inv);
    return saved;
}

OptimizerCounts Optimizer::counts(Stream& stream) const {
    const StepCounts read = memory_.read(stream);
    OptimizerCounts counts;
    counts.step = read.state.step;
    counts.skipped_steps = read.state.skipped_steps;
    counts.seed = options_.seed;
    counts.groups = groups_;
    counts.group_steps = read.group_steps;
    counts.group_steps.resize(groups_.size()); // groups added since the last step have taken none
    return counts;
}

void Optimizer::check_counts(const OptimizerCounts& counts) const {
    if (counts.groups.size() != groups_.size() || counts.group_steps.size() != groups_.size()) {
        fail(Code::bad_state, "optimizer: %zu group(s) were saved, but there are %zu",
             counts.groups.size(), groups_.size());
    }
    bool is_negative = counts.step < 0 || counts.skipped_steps < 0;
    for (const int64_t step : counts.group_steps) {
        is_negative = is_negative || step < 0;
    }
    if (is_negative) {
        fail(Code::corrupt_data, "optimizer: a saved number of steps is negative");
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        check_hyper(counts.groups[i]);
        if (!numerics::have_same_states(counts.groups[i].rule, groups_[i].rule)) {
            fail(Code::bad_state,
                 "optimizer: group %zu was saved with rule %s, whose states %s does not have; add "
                 "the group with the rule that was saved",
                 i, numerics::rule_info(counts.groups[i].rule).name,
                 numerics::rule_info(groups_[i].rule).name);
        }
    }
}

RestoredCounts Optimizer::prepare_restore(Stream& stream, OptimizerCounts counts) {
    check_counts(counts);
    refresh(stream); // so that every group has a count
    RestoredCounts restored = {std::move(counts), memory_.read(stream)};
    restored.memory.state.step = restored.counts.step;
    restored.memory.state.skipped_steps = restored.counts.skipped_steps;
    restored.memory.group_steps = restored.counts.group_steps;
    return restored;
}

void Optimizer::restore(Stream& stream, const RestoredCounts& restored) {
    options_.seed = restored.counts.seed;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const float* device_lr = groups_[i].device_lr;
        groups_[i] = restored.counts.groups[i];
        groups_[i].device_lr = device_lr;
    }
    plan_is_stale_ = true; // other groups may be on
    memory_.write(stream, restored.memory);
    for (const Parameter& parameter : parameters_) {
        if (options_.offload) {
            copy_numbers(stream, *parameter.stepped, *parameter.param);
        }
        parameter.param->touch(); // layers have copies of it
    }
    if (sharding_ != nullptr) {
        sharding_->publish(stream); // from the owners' pieces
    }
}

} // namespace mp::optim
