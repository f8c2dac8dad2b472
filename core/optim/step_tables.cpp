// SPDX-License-Identifier: Apache-2.0
#include "optim/step_tables.hpp"

#include <algorithm>

#include "optim/saved_counts.hpp"
#include "system/fnv.hpp"

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
      streamed_(offload ? std::make_unique<StreamedWork>(context, parameters.host_gradients())
                        : nullptr),
      work_(offload ? static_cast<StepWork*>(streamed_.get()) : &on_device_) {}

std::vector<int32_t> StepTables::enabled() const {
    std::vector<int32_t> enabled;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const Parameter& p = parameters_[i];
        if (groups_.hyper(p.group).enabled && !p.layout.is_frozen &&
            !std::binary_search(unused_.begin(), unused_.end(), i)) {
            enabled.push_back(i);
        }
    }
    return enabled;
}

void StepTables::refuse_open() const {
    if (!open_.expired()) {
        fail(Code::bad_state, "optimizer: a step is open; end it first (mp_optimizer_step_end)");
    }
}

UpdateSegment StepTables::segment(int32_t parameter) const {
    UpdateSegment segment = parameters_.segment(parameter);
    segment.group = cohorts_.of(parameter); // a row of the device's tables
    return segment;
}

void StepTables::plan_arrays(Stream& stream, const Cohorts& cohorts) {
    if (parameters_.host_gradients() != nullptr) {
        parameters_.host_gradients()->follow_list(stream);
    }
    std::vector<UpdateSegment> segments;
    std::vector<StreamedArrays> streamed;
    for (const int32_t i : enabled()) {
        const Parameter& p = parameters_[i];
        if (!p.states.has_value() || (p.grad == nullptr && parameters_.sharding() == nullptr)) {
            continue; // not here, or it comes with its gradient
        }
        UpdateSegment segment = parameters_.segment(i);
        segment.group = cohorts.of(i); // a row of the device's tables
        segments.push_back(segment);
        if (streamed_ != nullptr) {
            streamed.push_back({parameters_.device_weight(i), parameters_.gradient(i), segment, i,
                                is_on_host(p.layout.stepped_grad().place)});
        }
    }
    SegmentPlan arrays(parameters_.gradient_stream(stream), std::move(segments));
    stream.sync(); // the old ones are no longer in use
    if (streamed_ != nullptr) {
        streamed_->plan(std::move(streamed));
    }
    arrays_ = std::move(arrays);
}

MemoryReport StepTables::held() const noexcept {
    MemoryReport report = parameters_.memory();
    report.add_staging(streamed_ != nullptr ? streamed_->staging_bytes() : 0);
    return report;
}

OffloadTraffic StepTables::offload_traffic() const noexcept {
    OffloadTraffic traffic = streamed_ != nullptr ? streamed_->traffic() : OffloadTraffic();
    if (const HostLane* const lane = parameters_.lane().get(); lane != nullptr) {
        traffic.to_host += lane->bytes_to_host();
        traffic.to_device += lane->bytes_to_device();
    }
    return traffic;
}

void StepTables::log_memory() const noexcept {
    context_->log(LogLevel::info, [&] {
        const MemoryReport held = this->held();
        std::string states;
        for (int k = 0; k < numerics::kStateIdCount; ++k) {
            states.append(numerics::kStateSpecs[k].name).append(" ");
            states.append(std::to_string(held.states[k])).append(", ");
        }
        TextLine<400> line;
        line.set(
            "optimizer: %d parameter(s) of %lld elements; bytes here: weights %lld, masters %lld, "
            "gradients %lld, %scompensations %lld, sums over ranks %lld, offload %lld; of them the "
            "host's %lld",
            parameters_.count(), static_cast<long long>(held.parameter_count),
            static_cast<long long>(held.weight), static_cast<long long>(held.master),
            static_cast<long long>(held.grad), states.c_str(),
            static_cast<long long>(held.compensation), static_cast<long long>(held.reduced_grad),
            static_cast<long long>(held.offload), static_cast<long long>(held.host));
        return std::string(line.c_str());
    });
}

// Those that are passed over keep their t, so they need rows of their own, and may share one again when they come back.
void StepTables::plan(Stream& stream) {
    StepCounts counts = memory_.read(stream);
    Cohorts next = cohorts_;
    next.extend(groups_, parameters_, counts.group_steps);
    if (!unused_.empty() || !left_out_.empty() || !restarted_.empty()) {
        next =
            Cohorts(parameters_, counts_of(next, counts.group_steps), unused_, counts.group_steps);
    }
    std::vector<int32_t> left_out = unused_;
    StepMemory tables(stream, next.hyper(groups_), counts);
    plan_arrays(stream, next);
    memory_.set_tables(std::move(tables));
    cohorts_ = std::move(next);
    left_out_ = std::move(left_out);
    restarted_.clear();
}

// A group's count is the most that any parameter of it has that is trained; 0 where there is none any more.
Cohorts::Counts StepTables::counts_of(const Cohorts& cohorts,
                                      const std::vector<int64_t>& steps) const {
    Cohorts::Counts counts = cohorts.counts(steps);
    for (const int32_t restarted : restarted_) {
        counts.parameters[static_cast<std::size_t>(restarted)] = 0;
    }
    std::vector<bool> is_counted(counts.groups.size());
    for (const int32_t restarted : restarted_) {
        const auto group = static_cast<std::size_t>(parameters_[restarted].group);
        counts.groups[group] = is_counted[group] ? counts.groups[group] : 0;
        is_counted[group] = true;
    }
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const auto group = static_cast<std::size_t>(parameters_[i].group);
        int64_t& count = counts.parameters[static_cast<std::size_t>(i)];
        if (is_counted[group]) {
            count = parameters_[i].layout.is_frozen ? 0 : count;
            counts.groups[group] = std::max(counts.groups[group], count);
        }
    }
    return counts;
}

void StepTables::restart(std::span<const int32_t> parameters) noexcept {
    for (const int32_t i : parameters) {
        restarted_.push_back(i);
        unused_.erase(std::remove(unused_.begin(), unused_.end(), i), unused_.end());
    }
}

void StepTables::begin(Stream& stream) {
    refuse_open();
    if (!unused_.empty()) {
        check(stream.queue().refuse_capture(
            "optimizer: parameters are marked as unused for this step alone"));
    }
    ParamGroups::Changes& changes = groups_.changes();
    if (changes.plan || unused_ != left_out_) {
        plan(stream);
        if (changes.plan) {
            log_memory();
        }
    } else if (changes.hyper) {
        memory_.set_hyper(stream, cohorts_.hyper(groups_));
    }
    changes = {false, false};
}

void StepTables::propose(comm::Agreement& agreement) {
    system::Fnv64 hash;
    for (const int32_t i : unused_) {
        hash.add(i);
    }
    shown_.set("none");
    if (!unused_.empty()) {
        shown_.set("%zu, the first '%s'", unused_.size(), parameters_[unused_[0]].name.c_str());
    }
    agreement.must_equal("the parameters marked as unused", hash.value(), shown_.c_str());
}

// Where it has memory.
void StepTables::zero_gradient(Stream& stream, int32_t parameter) const {
    const Tensor* const grad = parameters_[parameter].grad.get();
    if (grad != nullptr && grad->count() > 0 && grad->has_memory()) {
        stream.zero(grad->data(), grad->bytes());
    }
    if (parameters_.host_gradients() != nullptr) {
        parameters_.host_gradients()->set_zero(parameter);
    }
}

void StepTables::mark_unused(Stream& stream, std::span<const int32_t> parameters) {
    refuse_open();
    check(stream.queue().refuse_capture(
        "optimizer: parameters are marked as unused for one step, not for each replay"));
    std::vector<int32_t> unused = unused_;
    for (const int32_t i : parameters) {
        if (!parameters_[i].layout.is_frozen) {
            unused.push_back(i);
        }
    }
    std::sort(unused.begin(), unused.end());
    unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
    for (const int32_t i : parameters) {
        zero_gradient(stream, i);
    }
    unused_ = std::move(unused);
}

void StepTables::zero_grad(Stream& stream) {
    refuse_open();
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        zero_gradient(stream, i);
    }
    unused_.clear();
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
    std::vector<int64_t> steps = memory_.read(stream).group_steps;
    Cohorts now = cohorts_;
    now.extend(groups_, parameters_, steps);
    const Cohorts::Counts counts = counts_of(now, steps);
    return counts.groups[static_cast<std::size_t>(group)];
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

void StepTables::save(Stream& stream, OptimizerCounts& counts) const {
    refuse_open();
    const StepCounts read = memory_.read(stream);
    Cohorts now = cohorts_;
    std::vector<int64_t> steps = read.group_steps;
    now.extend(groups_, parameters_, steps);
    Cohorts::Counts of_all = counts_of(now, steps);
    counts.seed = seed_;
    counts.step = read.state.step;
    counts.skipped_steps = read.state.skipped_steps;
    counts.outlier_steps = read.state.outlier_steps;
    counts.group_steps = std::move(of_all.groups);
    counts.param_steps = std::move(of_all.parameters);
}

void StepTables::prepare_restore(Stream& stream, RestoredCounts& restored) const {
    refuse_open();
    const OptimizerCounts& counts = restored.counts;
    Restored& tables = restored.tables;
    tables.values = memory_.read(stream);
    tables.values.state.step = counts.step;
    tables.values.state.skipped_steps = counts.skipped_steps;
    tables.values.state.outlier_steps = counts.outlier_steps;
    tables.cohorts = Cohorts(parameters_, {counts.group_steps, counts.param_steps}, {},
                             tables.values.group_steps);
    tables.memory = StepMemory(stream, tables.cohorts.hyper(groups_), tables.values);
}

void StepTables::restore(Stream& stream, RestoredCounts& restored) {
    seed_ = restored.counts.seed;
    memory_.set_tables(std::move(restored.tables.memory));
    memory_.write(stream, restored.tables.values);
    cohorts_ = std::move(restored.tables.cohorts);
    unused_.clear();
    left_out_.clear();
    restarted_.clear();
}

} // namespace mp::optim
