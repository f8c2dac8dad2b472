// SPDX-License-Identifier: Apache-2.0
#include "optim/step_memory.hpp"

#include <algorithm>
#include <cmath>

#include "device/update_supports.hpp"
#include "dtype/divide.hpp"
#include "runtime/select.hpp"

namespace mp::optim {
namespace {

constexpr std::size_t kLine = 64;

struct Role {
    const char* name;
    FormatRoles role;
    bool optional = false;
};

// The formats that such an array may have, by name.
std::string formats_for(FormatRoles role) {
    std::string names;
    AllFormats::for_each([&](auto format) {
        const FormatId one = decltype(format)::kFormat;
        if ((format_roles(one) & role) != 0) {
            names.append(names.empty() ? "" : ", ").append(format_name(one));
        }
    });
    return names;
}

void check_format(const Role& role, const StepArray& a, int64_t count, const char* name) {
    const FormatId format = a.format();
    if ((format_roles(format) & role.role) == 0) {
        const char* how = has_blocks(a.coding)     ? " in blocks of a coding that has others"
                          : a.scale_inv != nullptr ? " with a scale"
                                                   : " without a scale";
        fail(Code::invalid_dtype, "%s: %s is %s%s; it must be one of: %s", name, role.name,
             dtype_name(a.dtype), how, formats_for(role.role).c_str());
    }
    if (has_blocks(a.coding) && a.scale_inv == nullptr && count > 0) {
        fail(Code::null_argument, "%s: %s is in blocks but its scales are NULL", name, role.name);
    }
    const ScaleGrid scales = scale_grid(format);
    const int64_t scale_size = dtype_size(scales.dtype);
    if (scales.exists() && !is_aligned(a.scale_inv, scale_size)) {
        fail(Code::invalid_argument, "%s: the scale of %s at %p is not aligned to %lld bytes", name,
             role.name, a.scale_inv, static_cast<long long>(scale_size));
    }
}

void check_role(const Role& role, const StepArray& a, int64_t count, const char* name) {
    if (!a.exists() && role.optional) {
        if (a.data != nullptr || a.scale_inv != nullptr || a.coding != Coding::plain) {
            fail(Code::invalid_argument, "%s: %s has a %s but its dtype is none", name, role.name,
                 a.coding != Coding::plain ? "coding" : "pointer");
        }
        return;
    }
    check_format(role, a, count, name);
    if (a.data == nullptr && count > 0) {
        fail(Code::null_argument, "%s: %s is NULL but there are %lld elements", name, role.name,
             static_cast<long long>(count));
    }
    if (!is_aligned(a.data, a.dtype)) {
        fail(Code::invalid_argument, "%s: %s at %p is not aligned to its %lld-byte elements", name,
             role.name, a.data, static_cast<long long>(dtype_size(a.dtype)));
    }
}

void check_states(const UpdateSegment& s, const char* name, numerics::RuleId rule) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        const StepArray& a = s.states[k];
        if (k >= info.state_count) {
            if (a.exists() || a.data != nullptr || a.scale_inv != nullptr ||
                a.coding != Coding::plain) {
                fail(Code::invalid_argument, "%s: states[%d] is given, but %s keeps %d", name, k,
                     info.name, info.state_count);
            }
            continue;
        }
        const numerics::StateSpec& state = info.state(k);
        all_of(kStateConditions, [&](const auto& condition) {
            if (!condition.holds(a.format(), state.is_signed, false)) {
                fail(Code::invalid_dtype, "%s: %s %s", name, state.name, condition.reason);
            }
            return true;
        });
        check_role({state.name, kForState}, a, s.count, name);
    }
}

void check_weights(const UpdateSegment& s, const char* name) {
    if (is_alone(s)) {
        return;
    }
    const StepLayout layout = layout_of(s);
    all_of(kLayoutConditions, [&](const auto& condition) {
        if (!condition.holds(layout)) {
            fail(condition.code, "%s: %s", name, condition.reason);
        }
        return true;
    });
    if (s.has_remainder() && s.master.scale_inv != nullptr) {
        fail(Code::invalid_dtype, "%s: a remainder has a scale; it is int16 without one", name);
    }
}

void check_range(const char* name, double value, double below) {
    if (!(value >= 0.0 && value < below)) {
        fail(Code::invalid_argument, "optimizer: %s is %g; it must be at least 0 and below %g",
             name, value, below);
    }
}

} // namespace

int second_moment(numerics::RuleId rule) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    for (int k = 0; k < info.state_count; ++k) {
        if (!info.state(k).is_signed) {
            return k;
        }
    }
    return -1;
}

void check_hyper(const numerics::GroupHyper& hyper) {
    if (static_cast<uint32_t>(hyper.rule) >= numerics::kRuleCount) {
        fail(Code::invalid_argument, "optimizer: there is no rule with number %u",
             static_cast<unsigned>(hyper.rule));
    }
    const numerics::RuleInfo rule = numerics::rule_info(hyper.rule);
    if (!rule.corrects_bias && !hyper.bias_correction) {
        fail(Code::invalid_argument, "optimizer: rule %s: it has no bias correction to leave out",
             rule.name);
    }
    for (const numerics::HyperName& known : numerics::kHyperNames) {
        const double value = hyper.*known.value;
        if (const numerics::HyperSpec* const read = find_hyper(rule, known.value);
            read != nullptr) {
            check_range(known.name, value, read->limit);
        } else if (!numerics::is_left_alone(known.value, value)) {
            fail(Code::invalid_argument, "optimizer: rule %s: it has no %s; leave it 0", rule.name,
                 known.name);
        }
    }
}

void check_gradient(const UpdateSegment& s, const char* name) {
    if (s.count < 0 || s.count > (int64_t{1} << 55)) {
        fail(Code::invalid_argument, "%s: count is %lld; it must be in 0..2^55", name,
             static_cast<long long>(s.count));
    }
    check_role({"grad", kForGrad}, s.grad, s.count, name);
}

void check_segment(const UpdateSegment& s, const char* name, numerics::RuleId rule) {
    check_gradient(s, name);
    check_kept(s, name, rule);
}

void check_kept(const UpdateSegment& s, const char* name, numerics::RuleId rule) {
    if (s.first < 0 || s.first % kSliceUnit != 0) {
        fail(Code::invalid_argument,
             "%s: first_element is %lld; it must be a multiple of 8, the elements of one block of "
             "random "
             "numbers",
             name, static_cast<long long>(s.first));
    }
    check_role({"param", kForParam}, s.param, s.count, name);
    check_states(s, name, rule);
    check_role({"compensation", kForCompensation, true}, s.compensation, s.count, name);
    check_role({"master", kForMaster, true}, s.master, s.count, name);
    check_weights(s, name);
}

std::size_t StepMemory::scalars_at() const noexcept {
    return round_up(static_cast<std::size_t>(group_count_) * sizeof(numerics::GroupHyper), kLine);
}
std::size_t StepMemory::steps_at() const noexcept {
    return scalars_at() +
           round_up(static_cast<std::size_t>(group_count_) * sizeof(numerics::GroupScalars), kLine);
}
std::size_t StepMemory::steps_bytes() const noexcept {
    return static_cast<std::size_t>(group_count_) * sizeof(int64_t);
}

numerics::GroupScalars* StepMemory::scalars() const noexcept {
    return reinterpret_cast<numerics::GroupScalars*>(groups_.as<std::byte>() + scalars_at());
}
int64_t* StepMemory::group_steps() const noexcept {
    return reinterpret_cast<int64_t*>(groups_.as<std::byte>() + steps_at());
}

StepMemory::StepMemory(Stream& stream, const std::vector<numerics::GroupHyper>& hyper,
                       const StepCounts& counts)
    : group_count_(static_cast<int32_t>(hyper.size())),
      state_(stream.allocate(sizeof(numerics::OptimizerState))),
      groups_(stream.allocate(steps_at() + steps_bytes())) {
    set_hyper(stream, hyper);
    write(stream, counts);
}

void StepMemory::set_hyper(Stream& stream, const std::vector<numerics::GroupHyper>& hyper) {
    if (!hyper.empty()) {
        stream.copy(groups_.data(), hyper.data(), hyper.size() * sizeof(numerics::GroupHyper),
                    CopyKind::host_to_device);
    }
}

void StepMemory::set_tables(StepMemory&& made) noexcept {
    made.state_ = std::move(state_);
    *this = std::move(made);
}

StepCounts StepMemory::read(Stream& stream) const {
    StepCounts counts;
    counts.group_steps.resize(static_cast<std::size_t>(group_count_));
    stream.copy(&counts.state, state_.data(), state_.bytes(), CopyKind::device_to_host);
    if (group_count_ > 0) {
        stream.copy(counts.group_steps.data(), group_steps(), steps_bytes(),
                    CopyKind::device_to_host);
    }
    stream.sync();
    return counts;
}

// Groups without a count yet begin at 0. Needs no memory: a checkpoint's load has passed the point of failure.
void StepMemory::write(Stream& stream, const StepCounts& counts) {
    stream.copy(state_.data(), &counts.state, state_.bytes(), CopyKind::host_to_device);
    if (group_count_ > 0) {
        const auto all = static_cast<std::size_t>(group_count_);
        const std::size_t given = std::min(counts.group_steps.size(), all) * sizeof(int64_t);
        if (given < steps_bytes()) {
            stream.zero(group_steps(), steps_bytes());
        }
        stream.copy(group_steps(), counts.group_steps.data(), given, CopyKind::host_to_device);
    }
    stream.sync();
}

void StepMemory::read_prepared(Stream& stream, PreparedStep& prepared) const {
    stream.copy(&prepared.state, state_.data(), state_.bytes(), CopyKind::device_to_host);
    if (group_count_ > 0) {
        stream.copy(prepared.scalars.data(), scalars(),
                    prepared.scalars.size() * sizeof(numerics::GroupScalars),
                    CopyKind::device_to_host);
    }
    stream.sync();
}

bool needs_stats(const StepOptions& options, const scaler::LossScaler* scaler) {
    return options.check_finite || options.max_grad_norm > 0.0 || options.guard != nullptr ||
           (scaler != nullptr && scaler->checks());
}

void StepMemory::prepare(Stream& stream, scaler::LossScaler* scaler,
                         const StepOptions& options) const {
    OptimizerPrepareDesc prepare{};
    prepare.kind = OpKind::optimizer_prepare;
    prepare.state = state_.as<numerics::OptimizerState>();
    prepare.scaler = scaler != nullptr ? scaler->device_state() : nullptr;
    prepare.hyper = groups_.as<numerics::GroupHyper>();
    prepare.group_steps = options.device_step != nullptr ? options.device_step : group_steps();
    prepare.scalars = scalars();
    prepare.group_count = group_count_;
    prepare.rule = {options.max_grad_norm,
                    options.grad_scale,
                    options.device_grad_scale,
                    needs_stats(options, scaler) ? 1U : 0U,
                    options.device_grad_mul,
                    options.device_step,
                    options.guard,
                    options.guard_rule};
    run_op(stream, prepare);
}

OptimizerUpdateDesc make_update(const SegmentPlan& plan, const StepMemory& memory,
                                const StepOptions& options) noexcept {
    OptimizerUpdateDesc update{};
    update.kind = OpKind::optimizer_update;
    update.table = plan.table();
    update.scalars = memory.scalars();
    update.state = memory.state();
    update.seed = options.seed;
    update.stochastic_param = options.stochastic_param;
    std::copy(std::begin(options.stochastic_states), std::end(options.stochastic_states),
              update.stochastic_states);
    update.zero_grad = options.zero_grad;
    update.scaling = plan.scaling();
    return update;
}

} // namespace mp::optim
