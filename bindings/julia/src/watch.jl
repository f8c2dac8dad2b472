# SPDX-License-Identifier: Apache-2.0
# A guard that skips steps which stand out, and a history of the last steps.

"""
    set_guard!(optimizer; max_grad_norm_z = 0, max_loss_z = 0, window = 0, queue = nothing)
    set_guard!(optimizer, nothing)

Skip steps that stand out from now on: whose gradient norm, or loss of `set_loss!`, lies more than so many standard
deviations above the mean of the last `window` values (0: 128). 0: not watched. `nothing` ends it. The same on all ranks.
"""
set_guard!(o::Optimizer; max_grad_norm_z = 0, max_loss_z = 0, window = 0, queue = nothing) =
    check(CAPI.mp_optimizer_set_guard(o, queue, Ref(CAPI.mp_guard_desc(max_grad_norm_z = max_grad_norm_z,
                                                                       max_loss_z = max_loss_z, window = window))))
set_guard!(o::Optimizer, ::Nothing; queue = nothing) = check(CAPI.mp_optimizer_set_guard(o, queue, C_NULL))

"The guard as it is: window, max_grad_norm_z, max_loss_z; or `nothing`."
function guard(o::Optimizer)
    found = named(filled(box -> CAPI.mp_optimizer_get_guard(o, box), CAPI.mp_guard_desc()))
    return found.max_grad_norm_z == 0 && found.max_loss_z == 0 ? nothing : found
end

"The loss of the step to come, not multiplied by the loss scale."
set_loss!(o::Optimizer, loss::Real) = check(CAPI.mp_optimizer_set_loss(o, loss))

"""
    set_history!(optimizer, steps; path = nothing)

Keep so many of the last steps (0: none). The first step that is skipped because something is not finite names the first
bad tensor, and writes the steps to `path`. Begins anew. See `records` and `bad_tensor`.
"""
set_history!(o::Optimizer, steps::Integer; path = nothing) =
    check(CAPI.mp_optimizer_set_history(o, steps, path === nothing ? C_NULL : c_text(path)))

const OUTCOMES = (taken = CAPI.MP_STEP_TAKEN, non_finite = CAPI.MP_STEP_NON_FINITE, outlier = CAPI.MP_STEP_OUTLIER)

"The steps of the history, the oldest first; the `outcome` of each is `:taken`, `:non_finite` or `:outlier`."
function records(o::Optimizer)
    count = filled(box -> CAPI.mp_optimizer_get_record_count(o, box), Int32(0))
    return map(0:count-1) do i
        record = named(filled(box -> CAPI.mp_optimizer_get_record(o, i, box), CAPI.mp_step_record()))
        merge(record, (outcome = choice_name(OUTCOMES, record.outcome),))
    end
end

"The first tensor that was not finite, in words; empty: there was none since the history began."
bad_tensor(o::Optimizer) = text_of((b, n, needed) -> CAPI.mp_optimizer_get_bad_tensor(o, b, n, needed))
