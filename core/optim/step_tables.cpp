// SPDX-License-Identifier: Apache-2.0
#include "optim/step_tables.hpp"

namespace mp::optim {
namespace {

void check_step(int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
}

} // namespace

StepTables::StepTables(const std::shared_ptr<Context>& context, ParamGroups& groups,
                       const Parameters& parameters, bool offload, uint64_t seed)
    : context_(context), groups_(groups), parameters_(parameters), seed_(seed),
      memory_(context->stream(), {}, {}),
      streamed_(offload ? std::make_unique<StreamedWork>(context) : nullptr),
      work_(offload ? static_cast<StepWork*>(streamed_.get()) : &on_device_) {}

std::vector<int32_t> StepTables::enabled() const {
    std::vector<int32_t> enabled;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const Parameter& p = parameters_[i];
        if (groups_.hyper(p.group).enabled && !p.layout.is_frozen) {
            enabled.push_back(i);
        }
    }
    return enabled;
}

void StepTables::plan_arrays(Stream& stream, const Cohorts& cohorts) {
    std::vector<UpdateSegment> segments;
    std::vector<StreamedArrays> streamed;
    for (const int32_t i : enabled()) {
        if (!parameters_[i].states.has_value()) {
            continue;
        }
        UpdateSegment segment = parameters_.segment(i);
        segment.group = cohorts.of(i); // a row of the device's tables
        segments.push_back(segment);
        if (streamed_ != nullptr) {
            streamed.push_back({parameters_.device_weight(i), parameters_.gradient(i), segment});
        }
    }
    SegmentPlan arrays(stream, std::move(segments));
    stream.sync(); // the old ones are no longer in use
    if (streamed_ != nullptr) {
        streamed_->plan(std::move(streamed));
    }
    arrays_ = std::move(arrays);
}

void StepTables::log_memory() const noexcept {
    context_->log(LogLevel::info, [&] {
        const MemoryReport held = parameters_.memory();
        std::string states;
        for (int k = 0; k < numerics::kStateIdCount; ++k) {
            states.append(numerics::kStateSpecs[k].name).append(" ");
            states.append(std::to_string(held.states[k])).append(", ");
        }
        TextLine<400> line;
        line.set(
            "optimizer: %d parameter(s) of %lld elements; bytes here: weights %lld, masters %lld, "
            "gradients %lld, %scompensations %lld, sums over ranks %lld%s",
            parameters_.count(), static_cast<long long>(held.parameter_count),
            static_cast<long long>(held.weight), static_cast<long long>(held.master),
            static_cast<long long>(held.grad), states.c_str(),
            static_cast<long long>(held.compensation), static_cast<long long>(held.reduced_grad),
            streamed_ != nullptr ? "; states are the host's" : "");
        return std::string(line.c_str());
    });
}

void StepTables::begin(Stream& stream) {
    ParamGroups::Changes& changes = groups_.changes();
    if (changes.plan) {
        std::vector<int64_t> steps = memory_.read(stream).group_steps;
        Cohorts next = cohorts_;
        next.extend(groups_, parameters_, steps);
        plan_arrays(stream, next);
        memory_.set_groups(stream, next.hyper(groups_));
        cohorts_ = std::move(next);
        log_memory();
    } else if (changes.hyper) {
        memory_.set_hyper(stream, cohorts_.hyper(groups_));
    }
    changes = {false, false};
}

numerics::OptimizerState StepTables::read_state(Stream& stream) const {
    return memory_.read(stream).state;
}

void StepTables::set_step(Stream& stream, int64_t step) {
    check_step(step);
    begin(stream); // so that every group has a count
    StepCounts counts = memory_.read(stream);
    counts.state.step = step;
    counts.group_steps.assign(cohorts_.size(), step);
    memory_.write(stream, counts);
}

int64_t StepTables::group_step(Stream& stream, int32_t group) const {
    groups_.check(group, false);
    if (!cohorts_.knows(group)) {
        return 0; // added since the last step
    }
    const auto first = static_cast<std::size_t>(cohorts_.first(group));
    return memory_.read(stream).group_steps[first];
}

void StepTables::set_group_step(Stream& stream, int32_t group, int64_t step) {
    groups_.check(group, false);
    check_step(step);
    begin(stream);
    StepCounts counts = memory_.read(stream);
    for (std::size_t c = 0; c < cohorts_.size(); ++c) {
        counts.group_steps[c] = cohorts_.group(c) == group ? step : counts.group_steps[c];
    }
    memory_.write(stream, counts);
}

StepTables::Counts StepTables::read(Stream& stream) const {
    const StepCounts read = memory_.read(stream);
    Counts counts;
    counts.seed = seed_;
    counts.state = read.state;
    Cohorts now = cohorts_;
    std::vector<int64_t> steps = read.group_steps;
    now.extend(groups_, parameters_, steps);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const int32_t first = now.first(static_cast<int32_t>(g));
        counts.groups.push_back(steps[static_cast<std::size_t>(first)]);
    }
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        counts.parameters.push_back(steps[static_cast<std::size_t>(now.of(i))]);
    }
    return counts;
}

StepTables::Restored StepTables::prepare_restore(Stream& stream, const Counts& counts) const {
    Restored restored = {counts.seed, memory_.read(stream), {}, {}};
    restored.values.state.step = counts.state.step;
    restored.values.state.skipped_steps = counts.state.skipped_steps;
    restored.values.state.outlier_steps = counts.state.outlier_steps;
    restored.cohorts =
        Cohorts(parameters_, counts.groups, counts.parameters, restored.values.group_steps);
    restored.memory = StepMemory(stream, restored.cohorts.hyper(groups_), restored.values);
    return restored;
}

void StepTables::restore(Stream& stream, Restored&& restored) {
    seed_ = restored.seed;
    memory_.set_tables(std::move(restored.memory));
    memory_.write(stream, restored.values);
    cohorts_ = std::move(restored.cohorts);
}

} // namespace mp::optim
