# SPDX-License-Identifier: Apache-2.0
# Steps on arrays of the program's own: no tensors, no recipe, no state in the library.

const CODINGS = (plain = CAPI.MP_CODING_PLAIN, fp8_block = CAPI.MP_CODING_FP8_BLOCK, dynamic8 = CAPI.MP_CODING_DYNAMIC8,
                 dynamic4 = CAPI.MP_CODING_DYNAMIC4, remainder = CAPI.MP_CODING_REMAINDER,
                 fp8_block128 = CAPI.MP_CODING_FP8_BLOCK128, companded8 = CAPI.MP_CODING_COMPANDED8)
# Elements of a block, and the type of its scale.
const BLOCKS = (fp8_block = (256, Float32), dynamic8 = (256, Float32), dynamic4 = (128, Float32),
                fp8_block128 = (128, Float32), companded8 = (32, Float16))

"""
    Slot(param, grad, exp_avg, exp_avg_sq = nothing; compensation = nothing, master = nothing, uid = 0,
         first_element = 0, param_amax = nothing, exp_avg_coding = :plain, exp_avg_sq_coding = :plain,
         compensation_coding = :plain, param_scale_inv, grad_scale_inv, exp_avg_scale_inv, exp_avg_sq_scale_inv,
         master_scale_inv, compensation_scale_inv)

One parameter with its gradient and states, all arrays of as many elements, for `step!(context, slots)`. `:lion` has
no `exp_avg_sq`. The element types say how each is stored; `BFloat16` is bf16. A `master` of `Int16` beside a
`BFloat16` parameter is the 16 bits that it lacks. Codings in blocks (`:fp8_block`, `:fp8_block128`, `:dynamic8`,
`:dynamic4`, `:companded8`) need a `..._scale_inv` with a scale a block; codes with one scale need one `Float32`.
The arrays cannot be resized any more.
"""
struct Slot
    raw::CAPI.mp_step_slot
    kept::Vector{Any}
end

function Slot(param, grad, exp_avg, exp_avg_sq = nothing; compensation = nothing, master = nothing, uid = 0,
              first_element = 0, param_amax = nothing, exp_avg_coding::Symbol = :plain,
              exp_avg_sq_coding::Symbol = :plain, compensation_coding::Symbol = :plain, param_scale_inv = nothing,
              grad_scale_inv = nothing, exp_avg_scale_inv = nothing, exp_avg_sq_scale_inv = nothing,
              master_scale_inv = nothing, compensation_scale_inv = nothing)
    kept, count = Any[], length(param)

    function part(array, what, coding = :plain)
        array === nothing && return (C_NULL, CAPI.MP_DTYPE_NONE)
        held = Memory(array)
        expected = coding === :dynamic4 ? cld(count, 2) : count
        held.elements == expected || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
            "$what has $(held.elements) elements; a parameter of $count needs $expected"))
        push!(kept, held)
        return (held.address, dtype_number(held.type))
    end
    function scale_part(array, what, coding = :plain)
        array === nothing && return Ptr{Float32}(C_NULL)
        held = Memory(array)
        block, type = coding === :plain ? (count, Float32) : BLOCKS[coding]
        expected = coding === :plain ? 1 : cld(count, block)
        held.elements == expected && held.type === type || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
            "$what has $(held.elements) elements of $(held.type); this coding needs $expected of $type"))
        push!(kept, held)
        return Ptr{Float32}(held.address)
    end
    for (coding, scales, what) in ((exp_avg_coding, exp_avg_scale_inv, "exp_avg"),
                                   (exp_avg_sq_coding, exp_avg_sq_scale_inv, "exp_avg_sq"),
                                   (compensation_coding, compensation_scale_inv, "compensation"))
        choice(CODINGS, coding, "$(what)_coding")
        coding === :remainder && throw(ArgumentError(":remainder is a coding of the master weight"))
        coding === :plain || scales !== nothing ||
            throw(ArgumentError("$(what)_coding is :$coding, and there is no $(what)_scale_inv"))
    end
    array(memory, what, scales; coding = :plain, amax = Ptr{Float32}(C_NULL)) = begin
        data, dtype = part(memory, what, coding)
        CAPI.mp_array(data = data, dtype = dtype, coding = CODINGS[coding], amax = amax,
                      scale_inv = scale_part(scales, "$(what)_scale_inv", coding === :remainder ? :plain : coding))
    end
    amax = param_amax === nothing ? Ptr{Float32}(C_NULL) : scale_part(param_amax, "param_amax")
    remainder = master !== nothing && eltype(master) === Int16
    raw = CAPI.mp_step_slot(
        count = count, uid = uid, first_element = first_element,
        param = array(param, "param", param_scale_inv; amax = amax), grad = array(grad, "grad", grad_scale_inv),
        master = array(master, "master", master_scale_inv; coding = remainder ? :remainder : :plain),
        compensation = array(compensation, "compensation", compensation_scale_inv; coding = compensation_coding),
        states = (array(exp_avg, "exp_avg", exp_avg_scale_inv; coding = exp_avg_coding),
                  array(exp_avg_sq, "exp_avg_sq", exp_avg_sq_scale_inv; coding = exp_avg_sq_coding),
                  CAPI.mp_array(), CAPI.mp_array()))
    return Slot(raw, kept)
end

Base.show(io::IO, s::Slot) = print(io, "Slot(", s.raw.count, " elements)")

function step_args(; step = 1, seed = 0, max_grad_norm = 0, grad_scale = 1, check_finite = false, zero_grad = false,
                   stochastic = (), rest...)
    fields, literal = hyper_fields(; rest...)
    states = map(k -> CAPI.MP_STEP_SR_STATE << (k - 1), rule_states(fields.rule))
    roundings = merge((param = CAPI.MP_STEP_SR_PARAM,), states)
    rounded = stochastic isa Symbol ? (stochastic,) : stochastic
    bits = flags(CAPI.MP_OPTIMIZER_CHECK_FINITE => check_finite, CAPI.MP_OPTIMIZER_ZERO_GRAD => zero_grad,
                 (choice(roundings, name, "stochastic") => true for name in rounded)...)
    return Pointing(CAPI.mp_step_args(; fields..., flags = fields.flags | bits, step = step, seed = seed,
                                      max_grad_norm = max_grad_norm, grad_scale = grad_scale), literal)
end

"""
    step!(context, slots; step, lr, beta1, beta2, eps, weight_decay, rule = :adamw,
          max_grad_norm = 0, grad_scale = 1, check_finite = false, zero_grad = false, seed = 0, stochastic = (),
          maximize = false, bias_correction = true, scaler = nothing, queue = nothing)

One step on arrays of the program's own: a `Slot` or several. `step` is t, from 1, without skipped steps.
`stochastic` names what is rounded stochastically (`:param` and states of the rule). What the step writes may share no
memory. The result says what happened, as `stats(optimizer)`.
"""
function step!(c::Context, slots::AbstractVector{Slot}; scaler = nothing, queue = nothing, rest...)
    raw, args, result = [s.raw for s in slots], step_args(; rest...), Ref(CAPI.mp_optimizer_stats())
    GC.@preserve slots begin
        check(CAPI.mp_optimizer_step_pointers(c, queue, args, raw, length(raw), scaler, result))
    end
    return step_stats(result[])
end
step!(c::Context, slot::Slot; rest...) = step!(c, [slot]; rest...)

@handle StepPlan step_plan """
    StepPlan(context, slots; hyperparameters...)

The same step prepared once, for loops that must not allocate: `run!(plan; scaler)`. The plan counts the steps, from
`step` on. Keywords as of `step!(context, slots)`.
"""
function StepPlan(c::Context, slots::AbstractVector{Slot}; rest...)
    raw, args, kept = [s.raw for s in slots], step_args(; rest...), copy(slots)
    plan = made(out -> CAPI.mp_step_plan_create(c, args, raw, length(raw), out), CAPI.mp_step_plan)
    return StepPlan(plan, c, kept)
end
StepPlan(c::Context, slot::Slot; rest...) = StepPlan(c, [slot]; rest...)

"A step of a plan."
run!(plan::StepPlan; scaler = nothing, queue = nothing) = check(CAPI.mp_step_plan_run(plan, queue, scaler))

"Other hyperparameters from the next run on; rule, step and zero_grad as they were."
set_args!(plan::StepPlan; queue = nothing, rest...) =
    check(CAPI.mp_step_plan_set_args(plan, queue, step_args(; rest...)))

"What a plan was told last."
hyperparameters(plan::StepPlan) = named(filled(box -> CAPI.mp_step_plan_get_args(plan, box), CAPI.mp_step_args()))

stats(plan::StepPlan; queue = nothing) =
    step_stats(filled(box -> CAPI.mp_step_plan_get_stats(plan, queue, box), CAPI.mp_optimizer_stats()))
