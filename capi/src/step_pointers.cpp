// SPDX-License-Identifier: Apache-2.0
// A step on the caller's pointers, at once or prepared: step.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "boundary.hpp"
#include "optim/groups.hpp"
#include "optim/step_plan.hpp"
#include "optimizer_options.hpp"
#include "step_slots.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

constexpr double kLeastGradScale = 0x1p-126;
constexpr uint32_t sr_state(int k) { return MP_STEP_SR_STATE << k; }
constexpr uint32_t kStochastic =
    MP_STEP_SR_PARAM | (sr_state(MP_MAX_RULE_STATES) - MP_STEP_SR_STATE);
constexpr uint32_t kArgsFlags = kStepFlags | kStochastic | kRuleFlags;

template <typename T> T* aligned(T* pointer, const char* name) {
    if (!is_aligned(pointer, int64_t{alignof(T)})) {
        fail(Code::invalid_argument, "args.%s at %p is not aligned to %zu bytes", name,
             static_cast<const void*>(pointer), alignof(T));
    }
    return pointer;
}

numerics::GroupHyper checked_hyper(const mp_step_args& args) {
    numerics::GroupHyper hyper = hyper_of(args);
    optim::check_hyper(hyper);
    hyper.device_lr = aligned(args.lr_pointer, "lr_pointer");
    hyper.device_values = aligned(args.hyper_pointer, "hyper_pointer");
    if (hyper.device_lr != nullptr && hyper.device_values != nullptr) {
        fail(Code::invalid_argument,
             "args: both lr_pointer and hyper_pointer are given; the latter has the lr too");
    }
    return hyper;
}

void check_step(const mp_step_args& args) {
    if (args.step_pointer == nullptr && args.step < 1) {
        fail(Code::invalid_argument, "args.step is %lld; the first step is 1",
             static_cast<long long>(args.step));
    }
    if (args.step_pointer != nullptr && args.step != 0 && args.step != 1) {
        fail(Code::invalid_argument,
             "args.step is %lld beside a step_pointer, which has the count; leave it at 0 or 1",
             static_cast<long long>(args.step));
    }
}

optim::StepOptions options_of(const mp_step_args& args) {
    check_flags(args.flags, kArgsFlags, "args.flags");
    check_step(args);
    optim::StepOptions options;
    options.seed = args.seed;
    options.max_grad_norm = args.max_grad_norm;
    const bool is_elsewhere = args.grad_scale == 0.0 || args.grad_scale_pointer != nullptr;
    options.grad_scale = is_elsewhere ? 1.0 : args.grad_scale;
    options.device_grad_scale = aligned(args.grad_scale_pointer, "grad_scale_pointer");
    options.device_grad_mul = aligned(args.grad_mul_pointer, "grad_mul_pointer");
    options.device_step = aligned(args.step_pointer, "step_pointer");
    if (!(options.max_grad_norm >= 0.0 && options.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "args: max_grad_norm is %g; it must be 0 (no clipping) or positive, below 1e30",
             options.max_grad_norm);
    }
    if (!(options.grad_scale >= kLeastGradScale && options.grad_scale < 1e30)) {
        fail(Code::invalid_argument,
             "args: grad_scale is %g; it must be 0 (which is 1) or at least %g (its inverse is a "
             "number of fp32), and below 1e30",
             options.grad_scale, kLeastGradScale);
    }
    options.check_finite = (args.flags & MP_OPTIMIZER_CHECK_FINITE) != 0;
    options.zero_grad = (args.flags & MP_OPTIMIZER_ZERO_GRAD) != 0;
    options.stochastic_param = (args.flags & MP_STEP_SR_PARAM) != 0;
    for (int k = 0; k < MP_MAX_RULE_STATES; ++k) {
        options.stochastic_states[k] = (args.flags & sr_state(k)) != 0;
    }
    return options;
}

int64_t steps_before(const mp_step_args& args) {
    return args.step_pointer != nullptr ? 0 : args.step - 1;
}

// On the host the count can be read; elsewhere such a step is skipped.
void check_count(const Stream& stream, const mp_step_args& args) {
    if (args.step_pointer != nullptr && stream.device().is_host() && *args.step_pointer < 0) {
        fail(Code::invalid_argument,
             "args.step_pointer has the count %lld; steps taken so far are 0 or more",
             static_cast<long long>(*args.step_pointer));
    }
}

// A learning rate that was forgotten; one that is meant has its name, or a schedule gives another later.
std::string lr_warning(const mp_step_args& args) {
    const auto is_lr = [](const mp_hyper& one) { return std::string_view(one.name) == "lr"; };
    const std::span<const mp_hyper> named = hypers_of(args);
    const bool is_meant = args.lr != 0.0 || args.lr_pointer != nullptr ||
                          args.hyper_pointer != nullptr ||
                          std::any_of(named.begin(), named.end(), is_lr);
    return is_meant ? std::string()
                    : "step: args.lr is 0, so no weight moves; set it, or name it in hypers";
}

// Slots that share random bits: of one uid, with elements of the same numbers.
std::string same_bits_warning(const mp_step_args& args, std::span<const UpdateSegment> segments) {
    if ((args.flags & kStochastic) == 0) {
        return {};
    }
    std::vector<const UpdateSegment*> sorted;
    for (const UpdateSegment& segment : segments) {
        if (segment.count > 0) {
            sorted.push_back(&segment);
        }
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
        return std::pair(a->uid, a->first) < std::pair(b->uid, b->first);
    });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
        const UpdateSegment& a = *sorted[i - 1];
        const UpdateSegment& b = *sorted[i];
        if (a.uid == b.uid && b.first - a.first < a.count) {
            return "step: several slots have the uid " + std::to_string(a.uid) +
                   " and the same elements of it, so that stochastic rounding gives them the same "
                   "random bits; give each parameter a uid of its own";
        }
    }
    return {};
}

// By the count that the step goes by, where the host can read it.
bool is_first_step(const Stream& stream, const mp_step_args& args) {
    return args.step_pointer != nullptr && stream.device().is_host() ? *args.step_pointer == 0
                                                                     : args.step == 1;
}

// Once, as it holds for all steps.
std::string warning_of(const mp_step_args& args, std::span<const UpdateSegment> segments) {
    numerics::GroupHyper hyper = hyper_of(args);
    hyper.device_values = args.hyper_pointer;
    std::string warning = lr_warning(args);
    if (warning.empty()) {
        warning = same_bits_warning(args, segments);
    }
    if (warning.empty()) {
        warning = optim::eps_warning(hyper);
    }
    const int second = optim::second_moment(hyper.rule);
    for (const UpdateSegment& segment : segments) {
        if (!warning.empty() || second < 0) {
            break;
        }
        warning = optim::second_moment_warning(segment.states[second].format(),
                                               (args.flags & sr_state(second)) != 0, hyper,
                                               "MP_STEP_SR_STATE << " + std::to_string(second));
    }
    return warning;
}

optim::StepPlan plan_of(Stream& stream, const mp_step_args& args, Slots slots,
                        const scaler::LossScaler* scaler) {
    const optim::StepOptions options = options_of(args);
    const numerics::GroupHyper hyper = checked_hyper(args);
    check_count(stream, args);
    optim::StepPlan plan(stream, std::move(slots.segments), std::move(slots.amaxes), hyper, options,
                         steps_before(args));
    plan.check_apart(hyper, options, scaler);
    return plan;
}

// A run brings its scaler along: seldom another one, and each is looked at once.
void check_run(StepPlanObject& object, const scaler::LossScaler* scaler) {
    if (scaler != nullptr && scaler != object.checked_with) {
        object.plan.check_apart(object.plan.hyper(), object.plan.options(), scaler);
        object.checked_with = scaler;
    }
}

} // namespace

mp_status mp_optimizer_step_pointers(mp_context* context, mp_queue* queue, const mp_step_args* args,
                                     const mp_step_slot* slots, int64_t slot_count,
                                     mp_scaler* scaler, mp_optimizer_stats* stats) {
    return boundary([&]() -> mp_status {
        const Context& owner = *object_of(context, "context");
        const mp_step_args read = read_struct(args, "args");
        Slots arrays = read_slots(slots, slot_count, rule_of(read.rule));
        Stream& stream = stream_of(queue, owner);
        scaler::LossScaler* const loss_scaler = scaler_of(scaler, owner);
        if (stats != nullptr) {
            (void)size_of_struct(stats, "stats"); // before anything changes
        }
        const optim::StepPlan plan = plan_of(stream, read, std::move(arrays), loss_scaler);
        const std::string warning = // before the run, which counts
            is_first_step(stream, read) ? warning_of(read, plan.segments()) : std::string();
        plan.run(stream, loss_scaler);
        if (stats != nullptr) {
            write_stats(plan.read_state(stream), stats);
        } else if (!stream.device().is_host()) {
            stream.sync(); // before the tables of this call go
        }
        return warning.empty() ? MP_STATUS_OK : warn(warning);
    });
}

mp_status mp_step_plan_create(mp_context* context, const mp_step_args* args,
                              const mp_step_slot* slots, int64_t slot_count, mp_step_plan** out) {
    return boundary([&]() -> mp_status {
        output(out);
        const std::shared_ptr<Context> owner = object_of(context, "context");
        const mp_step_args read = read_struct(args, "args");
        Slots arrays = read_slots(slots, slot_count, rule_of(read.rule));
        const std::string warning = warning_of(read, arrays.segments);
        auto plan = std::make_shared<StepPlanObject>(
            StepPlanObject{owner, read, plan_of(owner->stream(), read, std::move(arrays), nullptr),
                           warning, kept_hypers(hypers_of(read), rule_of(read.rule))});
        complete(owner->stream());
        *out = make_handle<mp_step_plan>(std::move(plan));
        return warning.empty() ? MP_STATUS_OK : warn(warning);
    });
}

mp_status mp_step_plan_run(mp_step_plan* plan, mp_queue* queue, mp_scaler* scaler) {
    return boundary([&] {
        StepPlanObject& object = *object_of(plan, "plan");
        Stream& stream = stream_of(queue, *object.context);
        scaler::LossScaler* const loss_scaler = scaler_of(scaler, *object.context);
        check_count(stream, object.args);
        check_run(object, loss_scaler);
        object.plan.run(stream, loss_scaler);
    });
}

mp_status mp_step_plan_set_args(mp_step_plan* plan, mp_queue* queue, const mp_step_args* args) {
    return boundary([&]() -> mp_status {
        StepPlanObject& object = *object_of(plan, "plan");
        const mp_step_args read = read_struct(args, "args");
        if (read.rule != object.args.rule || read.step != object.args.step ||
            ((read.flags ^ object.args.flags) & MP_OPTIMIZER_ZERO_GRAD) != 0 ||
            (read.step_pointer == nullptr) != (object.args.step_pointer == nullptr)) {
            fail(Code::invalid_argument, "args: rule, step, MP_OPTIMIZER_ZERO_GRAD and whether "
                                         "there is a step_pointer must be as "
                                         "when the plan was made; it counts steps itself");
        }
        const optim::StepOptions options = options_of(read);
        const numerics::GroupHyper hyper = checked_hyper(read);
        Stream& stream = stream_of(queue, *object.context);
        object.plan.check_apart(hyper, options, nullptr);
        std::string warning = warning_of(read, object.plan.segments());
        object.plan.set(stream, hyper, options);
        object.checked_with = nullptr; // the next run looks again
        object.args = read;
        object.reported_hypers = kept_hypers(hypers_of(read), hyper.rule);
        const bool is_new = !warning.empty() && warning != object.last_warning;
        object.last_warning = std::move(warning);
        return is_new ? warn(object.last_warning) : MP_STATUS_OK;
    });
}

mp_status mp_step_plan_get_args(const mp_step_plan* plan, mp_step_args* args) {
    return boundary([&] {
        const std::shared_ptr<StepPlanObject> object = object_of(plan, "plan");
        mp_step_args reported = object->args;
        reported.hypers = object->reported_hypers.data();
        reported.hyper_count = static_cast<int32_t>(object->reported_hypers.size());
        write_struct(args, reported, "args");
    });
}

mp_status mp_step_plan_get_stats(mp_step_plan* plan, mp_queue* queue, mp_optimizer_stats* stats) {
    return boundary([&] {
        const StepPlanObject& object = *object_of(plan, "plan");
        (void)size_of_struct(stats, "stats");
        write_stats(object.plan.read_state(stream_of(queue, *object.context)), stats);
    });
}

void mp_step_plan_destroy(mp_step_plan* plan) { destroy_handle(plan); }
