# SPDX-License-Identifier: Apache-2.0
# Loss scaling.

@handle Scaler scaler """
    Scaler(context, recipe)
    Scaler(context; preset = :torch, kind, growth_interval, hysteresis, count_offset, init_scale, growth_factor,
           backoff_factor, min_scale, max_scale, refill_on_good_step, error_at_min)

The loss scale and the rule that moves it: what the recipe asks for, or a preset (`:torch`, `:megatron`,
`:deepspeed`, `:apex`) with some values replaced. `kind` is `:dynamic`, `:static` or `:none`. In a loop: multiply
the loss by `scale(scaler)`, give the scaler to the optimizer's step, then `update_scale!(scaler)`.
"""
Scaler(c::Context, r::Recipe) = Scaler(made(out -> CAPI.mp_scaler_create_from_recipe(c, r, out), CAPI.mp_scaler), c)

const SCALER_KINDS = (dynamic = CAPI.MP_SCALER_DYNAMIC, static = CAPI.MP_SCALER_STATIC, none = CAPI.MP_SCALER_NONE)

function Scaler(c::Context; preset = :torch, kind::Symbol = :dynamic, refill_on_good_step = nothing,
                error_at_min = nothing, values...)
    base = filled(CAPI.mp_scaler_desc()) do box
        CAPI.mp_scaler_desc_preset(box, sizeof(CAPI.mp_scaler_desc), c_text(string(preset)))
    end
    bits = base.flags
    for (flag, on) in ((CAPI.MP_SCALER_REFILL_ON_GOOD_STEP, refill_on_good_step),
                       (CAPI.MP_SCALER_ERROR_AT_MIN, error_at_min))
        on === nothing || (bits = on ? bits | flag : bits & ~flag)
    end
    settings = merge(named(base), values.data, (flags = bits, kind = choice(SCALER_KINDS, kind, "kind")))
    desc = Ref(CAPI.mp_scaler_desc(; settings...))
    return Scaler(made(out -> CAPI.mp_scaler_create(c, desc, out), CAPI.mp_scaler), c)
end

"The loss scale after all work so far: multiply the loss by it."
scale(s::Scaler; queue = nothing) = filled(box -> CAPI.mp_scaler_get_scale(s, queue, box), 0.0)

"Move the scale by its rule, once a step, after the optimizer's step."
update_scale!(s::Scaler; queue = nothing) = check(CAPI.mp_scaler_update(s, queue))

"Everything that save and resume need, as a named tuple; `set_state!` puts it back."
state(s::Scaler; queue = nothing) =
    named(filled(box -> CAPI.mp_scaler_get_state(s, queue, box), CAPI.mp_scaler_state()))

"Replace the whole state by what `state` gave."
function set_state!(s::Scaler, values::NamedTuple; queue = nothing)
    keys(values) == filter(!=(:struct_size), fieldnames(CAPI.mp_scaler_state)) ||
        throw(ArgumentError("a scaler's state has the fields that `state(scaler)` gives"))
    check(CAPI.mp_scaler_set_state(s, queue, Ref(CAPI.mp_scaler_state(; values...))))
end

"""
    check_finite!(scaler, gradients; queue = nothing)

Look whether these arrays (fp32, fp16, bf16) are finite, for loops without an optimizer of the library's. Adds to
what the next `update_scale!` sees.
"""
function check_finite!(s::Scaler, gradients; queue = nothing)
    all = [Memory(g) for g in gradients]
    addresses, dtypes = [m.address for m in all], Int32[dtype_number(m.type) for m in all]
    elements = Int64[m.elements for m in all]
    GC.@preserve all check(CAPI.mp_scaler_check_pointers(s, queue, length(all), addresses, dtypes, elements))
end
check_finite!(s::Scaler, gradient::AbstractArray{<:AbstractFloat}; rest...) = check_finite!(s, (gradient,); rest...)

"The loss scale as a tensor of one `Float32` over the scaler's memory."
scale_tensor(s::Scaler) = Tensor(made(out -> CAPI.mp_scaler_get_scale_tensor(s, out), CAPI.mp_tensor), context(s))

"Whether gradients were not finite (0 or 1), as a tensor of one element over the memory of a scaler or an optimizer."
found_inf_tensor(s::Scaler) =
    Tensor(made(out -> CAPI.mp_scaler_get_found_inf_tensor(s, out), CAPI.mp_tensor), context(s))

"What is not finite on any rank of the communicator is so on all, before `update_scale!`."
combine!(s::Scaler, comm; queue = nothing) = check(CAPI.mp_scaler_combine(s, queue, comm))
