// SPDX-License-Identifier: Apache-2.0
// What of an optimizer goes into a checkpoint: all that the bits of the next step depend on.
#include "optim/optimizer.hpp"

namespace mp {

// Every rank lists all that there is, also what it has no element of.
std::vector<SavedTensor> Optimizer::saved_tensors(int32_t index) const {
    const Parameter& p = parameters_.at(static_cast<std::size_t>(index));
    const Shape& shape = p.param->shape();
    const StateFormat weight_format = format_of(*p.param);
    const StateFormats formats = state_formats(recipe_, weight_format, p.param->count());
    const ShardPiece own = piece(index);
    const bool is_sharded = sharding_ != nullptr && sharding_->stage() > 0;
    const bool is_copy = is_sharded && sharding_->groups().group() > 0;
    const Stream* stream = options_.offload ? &context_->host_stream() : &context_->stream();
    std::vector<SavedTensor> saved;

    const auto add = [&](const std::string& state, StateFormat format, void* data, float* scales) {
        if (!format.exists()) {
            return;
        }
        const bool is_here = own.count > 0 && data != nullptr;
        SavedTensor tensor = {state, format, {}, 0, 0, data, stream, !is_sharded, is_copy};
        tensor.shape.assign(shape.sizes.begin(), shape.sizes.begin() + shape.ndim);
        tensor.start = is_here ? own.start : 0;
        tensor.count = is_here ? own.count : 0;
        saved.push_back(tensor);
        if (!format.is_scaled() && !has_blocks(format.coding)) {
            return;
        }
        SavedTensor scale = {state + "_scale_inv", DType::fp32, {}, 0, 0, scales, stream,
                             !is_sharded,          is_copy};
        if (format.is_scaled()) { // whole tensors only: one number, with its owner
            scale.count = is_here ? 1 : 0;
        } else {
            const int64_t block = block_size(format.coding);
            scale.shape = {scale_count(format, p.param->count())};
            scale.start = tensor.start / block;
            scale.count = (tensor.count + block - 1) / block;
        }
        saved.push_back(std::move(scale));
    };

    AdamwSegment s;
    TensorPiece param;
    if (p.states.has_value()) {
        p.states->fill(s);
        param = weight(index);
    }
    add("param", weight_format, param.ref.data, param.scale_inv);
    add("exp_avg", formats.exp_avg, s.exp_avg, s.exp_avg_scale_inv);
    add("exp_avg_sq", formats.exp_avg_sq, s.exp_avg_sq, s.exp_avg_sq_scale_inv);
    add("compensation", formats.compensation, s.compensation, nullptr);
    add("master", formats.master, s.master, s.master_scale_inv);
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
    for (const numerics::AdamwHyper& hyper : counts.groups) {
        check_hyper(hyper);
    }
}

void Optimizer::restore(Stream& stream, const OptimizerCounts& counts) {
    check_counts(counts);
    options_.seed = counts.seed;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const float* device_lr = groups_[i].device_lr;
        groups_[i] = counts.groups[i];
        groups_[i].device_lr = device_lr;
    }
    plan_is_stale_ = true; // other groups may be on
    refresh(stream);
    StepCounts written = memory_.read(stream);
    written.state.step = counts.step;
    written.state.skipped_steps = counts.skipped_steps;
    written.group_steps = counts.group_steps;
    memory_.write(stream, written);
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

} // namespace mp
