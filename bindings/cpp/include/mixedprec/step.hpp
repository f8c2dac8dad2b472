// SPDX-License-Identifier: Apache-2.0
// The update only, on the caller's own arrays: a step at a time, or checked once and run often.
#pragma once

#include "context.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** A slot over arrays of one size, all fp32 or 16 bits; the rest of mp_step_slot may be set after. grad may be const, but not
 * under MP_OPTIMIZER_ZERO_GRAD, which writes it. */
template <class Param, class Grad, class M, class V>
result<StepSlot> slot(Param&& param, Grad&& grad, M&& exp_avg, V&& exp_avg_sq) {
    StepSlot slot;
    slot.count = detail::count_of(param);
    if (detail::count_of(grad) != slot.count || detail::count_of(exp_avg) != slot.count ||
        detail::count_of(exp_avg_sq) != slot.count) {
        return detail::fail<StepSlot>(
            MP_STATUS_INVALID_SHAPE,
            "slot: param has " + std::to_string(slot.count) +
                " elements, and grad, exp_avg, exp_avg_sq must have as many");
    }
    slot.param.data = std::data(param), slot.param.dtype = dtype_in<Param>;
    slot.grad.data = const_cast<std::remove_const_t<element_of<Grad>>*>(std::data(grad));
    slot.grad.dtype = dtype_in<Grad>;
    slot.states[0].data = std::data(exp_avg), slot.states[0].dtype = dtype_in<M>;
    slot.states[1].data = std::data(exp_avg_sq), slot.states[1].dtype = dtype_in<V>;
    return slot;
}

/** One step on the caller's own memory. */
inline result<OptimizerStats> step(const Context& context, const StepArgs& args,
                                   span<const mp_step_slot> slots, ScalerRef scaler = {},
                                   QueueRef queue = {}) {
    return detail::value<OptimizerStats>(mp_optimizer_step_pointers, context, queue, &args,
                                         slots.data(), detail::count_of(slots), scaler);
}
inline result<OptimizerStats> step(const Context& context, const StepArgs& args,
                                   const StepSlot& slot, ScalerRef scaler = {},
                                   QueueRef queue = {}) {
    return step(context, args, span<const mp_step_slot>(&slot, 1), scaler, queue);
}

/** The same, checked once and run often. */
class StepPlan : public Handle<mp_step_plan, mp_step_plan_destroy> {
  public:
    using Handle::Handle;
    static result<StepPlan> create(const Context& context, const StepArgs& args,
                                   span<const mp_step_slot> slots) {
        return detail::make<StepPlan>(mp_step_plan_create, context, &args, slots.data(),
                                      detail::count_of(slots));
    }
    result<void> run(ScalerRef scaler = {}, QueueRef queue = {}) {
        return call(mp_step_plan_run, queue, scaler);
    }
    result<void> set_args(const StepArgs& args, QueueRef queue = {}) {
        return call(mp_step_plan_set_args, queue, &args);
    }
    result<StepArgs> args() const { return value<StepArgs>(mp_step_plan_get_args); }
    result<OptimizerStats> stats(QueueRef queue = {}) {
        return value<OptimizerStats>(mp_step_plan_get_stats, queue);
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
