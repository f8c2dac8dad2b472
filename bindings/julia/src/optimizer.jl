# SPDX-License-Identifier: Apache-2.0
# Optimizers with states of the library's.

@handle Optimizer optimizer """
    Optimizer(context, recipe; seed = 0, max_grad_norm = 0, check_finite = false, zero_grad = false, offload = false,
              offload_grads = false, grads_given = false, comm = nothing, stage = 1, ...)

An optimizer whose states are in the dtypes of the recipe. Add groups by `add_group!`, parameters by `add_param!`,
then `step!`. `max_grad_norm` clips the global norm (0: no clipping); `zero_grad` has a step clear the gradients;
`offload` keeps states on the host, `offload_grads` gradients beside them; with `grads_given` parameters have no gradients
of their own, and `step_params!` is given them. With `comm` the ranks share the states (ZeRO), and the keywords of
sharding are taken:

    stage = 1, kind = :flat, bucket_elements = 0, wire_dtype = nothing, wire_scale = :default, order = :rank, slots = 0,
    shard_ranks = 0, node_ranks = 0, check_every = 0, sum_gradients = false, progress_thread = true
"""

function optimizer_desc(; seed = 0, max_grad_norm = 0, check_finite = false, zero_grad = false, offload = false,
                        offload_grads = false, grads_given = false)
    return CAPI.mp_optimizer_desc(
        flags = flags(CAPI.MP_OPTIMIZER_CHECK_FINITE => check_finite, CAPI.MP_OPTIMIZER_ZERO_GRAD => zero_grad,
                      CAPI.MP_OPTIMIZER_OFFLOAD => offload, CAPI.MP_OPTIMIZER_OFFLOAD_GRADS => offload_grads,
                      CAPI.MP_OPTIMIZER_GRADS_GIVEN => grads_given),
        seed = seed, max_grad_norm = max_grad_norm)
end

function Optimizer(c::Context, r::Recipe; seed = 0, max_grad_norm = 0, check_finite = false, zero_grad = false,
                   offload = false, offload_grads = false, grads_given = false, comm = nothing, sharding...)
    desc = Ref(optimizer_desc(seed = seed, max_grad_norm = max_grad_norm, check_finite = check_finite,
                              zero_grad = zero_grad, offload = offload, offload_grads = offload_grads,
                              grads_given = grads_given))
    if comm === nothing
        isempty(sharding) || throw(ArgumentError("$(first(keys(sharding))) is for an optimizer with comm = ..."))
        return Optimizer(made(out -> CAPI.mp_optimizer_create(c, r, desc, out), CAPI.mp_optimizer), c, nothing)
    end
    zero = Ref(sharding_desc(; sharding...))
    return Optimizer(made(out -> CAPI.mp_optimizer_create_sharded(c, r, desc, comm, zero, out), CAPI.mp_optimizer), c,
                     comm)
end

"A group of parameters of an optimizer, with hyperparameters of its own."
struct Group
    optimizer::Optimizer
    index::Int32
end

"A parameter of an optimizer."
struct Param
    optimizer::Optimizer
    index::Int32
end

Base.show(io::IO, g::Group) = print(io, "Group(", g.index, ")")
Base.show(io::IO, p::Param) = print(io, "Param(", p.index, isopen(p.optimizer) ? ", $(repr(p.name)))" : ")")
Base.getproperty(p::Param, field::Symbol) = field === :name ? param_name(p) : field === :group ? param_group(p) :
                                            getfield(p, field)

# The fields that groups and steps have in common, and the zeros among them by name: a field's 0 is the usual value.
function hyper_fields(; lr = nothing, beta1 = nothing, beta2 = nothing, eps = nothing, weight_decay = nothing,
                      rule::Symbol = :adamw, maximize = false, bias_correction = true)
    number = rule_number(rule)
    usual = usual_hyper(number)
    told = (lr = lr, beta1 = beta1, beta2 = beta2, eps = eps, weight_decay = weight_decay)
    values = NamedTuple{keys(told)}(map(name -> something(told[name], get(usual, name, 0.0)), keys(told)))
    zero_names = [name for (name, known) in usual if known != 0 && get(values, name, known) == 0]
    literal = CAPI.mp_hyper[CAPI.mp_hyper(name = lasting(name)) for name in zero_names]
    return (flags = flags(CAPI.MP_RULE_MAXIMIZE => maximize, CAPI.MP_RULE_NO_BIAS_CORRECTION => !bias_correction),
            rule = number, values..., hypers = pointer(literal), hyper_count = length(literal)), literal
end

"""
    add_group!(optimizer; lr, beta1, beta2, eps, weight_decay, rule = :adamw, maximize = false, bias_correction = true,
               state_formats = (exp_avg = "fp32", ...))

A group of parameters; `rule` is `:adamw`, `:adam` or `:lion`. What is left out is as usual for it. The formats of states
are `"fp32"`, `"int8_block256"` and the like; those that are left out are the recipe's.
"""
function add_group!(o::Optimizer; state_formats = NamedTuple(), rest...)
    fields, literal = hyper_fields(; rest...)
    desc = CAPI.mp_param_group_desc(; fields..., state_formats = formats_in_order(fields.rule, state_formats))
    index = Ref{Int32}(-1)
    check(CAPI.mp_optimizer_add_group(o, Pointing(desc, literal), index))
    return Group(o, index[])
end

"""
    add_param!(group, name, param; grad = nothing, init = nothing, norm_elsewhere = false, frozen = false)
    add_param!(optimizer, name, param; ...)

Add a parameter, a tensor or an array, which the optimizer keeps; the second form puts it in the first group, which
it makes where there is none. `grad` is its main gradient (`nothing`: one is made, see `grad`), `init` its exact
initial value in fp32. One that is `frozen` is not trained, and has neither gradient nor states.
"""
function add_param!(g::Group, name::AbstractString, param; grad = nothing, init = nothing, norm_elsewhere = false,
                    frozen = false)
    o, title, index = g.optimizer, c_text(name), Ref{Int32}(-1)
    given(context(o), param, grad, init) do p, d, i
        GC.@preserve title p d i begin
            desc = CAPI.mp_param_desc(name = pointer(title), param = optional(p), grad = optional(d),
                                      init_fp32 = optional(i),
                                      flags = flags(CAPI.MP_PARAM_NORM_ELSEWHERE => norm_elsewhere,
                                                    CAPI.MP_PARAM_FROZEN => frozen))
            check(CAPI.mp_optimizer_add_param(o, g.index, Ref(desc), index))
        end
    end
    return Param(o, index[])
end
add_param!(o::Optimizer, name::AbstractString, param; rest...) =
    add_param!(isempty(groups(o)) ? add_group!(o) : Group(o, 0), name, param; rest...)

"""
    add_params!(group, names_and_params; frozen = false)

Add parameters, pairs such as `"w" => w`, all or none. Where ranks have cut the parameters the call is collective, as
`add_param!` is, and there is one exchange for all.
"""
function add_params!(g::Group, pairs; frozen = false)
    o, first = g.optimizer, Ref{Int32}(-1)
    titles = [c_text(name) for (name, _) in pairs]
    given(context(o), (param for (_, param) in pairs)...) do tensors...
        GC.@preserve titles tensors begin
            descs = [CAPI.mp_param_desc(name = pointer(title), param = optional(tensor),
                                        flags = flags(CAPI.MP_PARAM_FROZEN => frozen))
                     for (title, tensor) in zip(titles, tensors)]
            check(CAPI.mp_optimizer_add_params(o, g.index, descs, length(descs), first))
        end
    end
    return [Param(o, first[] + i - 1) for i in eachindex(titles)]
end

"""
    set_frozen!(params, on = true; queue = nothing)

These parameters are not trained from now on, and lose gradient and states; or they are trained again, with new ones of
zeros and a bias correction that begins anew. Collective where ranks have cut the parameters.
"""
function set_frozen!(params, on::Bool = true; queue = nothing)
    o, indices = indices_of(params)
    check(CAPI.mp_optimizer_set_frozen(o, queue, indices, length(indices), on))
end
"Whether a parameter is frozen."
frozen(p::Param) = filled(box -> CAPI.mp_optimizer_get_frozen(p.optimizer, p.index, box), Int32(0)) != 0

"All groups of an optimizer."
groups(o::Optimizer) = [Group(o, i) for i in 0:filled(box -> CAPI.mp_optimizer_get_group_count(o, box), Int32(0))-1]

"All parameters of an optimizer."
parameters(o::Optimizer) = [Param(o, i) for i in 0:filled(box -> CAPI.mp_optimizer_get_param_count(o, box), Int32(0))-1]

param_name(p::Param) =
    text_of((b, n, needed) -> CAPI.mp_optimizer_get_param_name(p.optimizer, p.index, b, n, needed))
param_group(p::Param) =
    Group(p.optimizer, filled(box -> CAPI.mp_optimizer_get_param_group(p.optimizer, p.index, box), Int32(0)))

summary_of(o::Optimizer) = "$(length(parameters(o))) parameters in $(length(groups(o))) groups"

"""
    step!(optimizer; scaler = nothing, queue = nothing)

One step of all groups. `scaler`'s scale is divided out, and a step whose gradients are not finite changes nothing:
see `stats`.
"""
step!(o::Optimizer; scaler = nothing, queue = nothing) = check(CAPI.mp_optimizer_step(o, queue, scaler))

"""
    step_begin!(optimizer; scaler = nothing, queue = nothing)
    step_params!(params; grads = nothing, queue = nothing)
    step_end!(optimizer; queue = nothing)

A step in parts, whose bits are those of `step!`. Its begin decides it. Then each parameter is written as soon as its
gradient is final, in any order, while backward goes on. `grads` has a gradient for each of `params`, a tensor or an
array, which is not kept (`nothing`: their own). The end writes what is left. The scaler may not look for infinities.
"""
step_begin!(o::Optimizer; scaler = nothing, queue = nothing) = check(CAPI.mp_optimizer_step_begin(o, queue, scaler))
function step_params!(params; grads = nothing, queue = nothing)
    o, indices = indices_of(params)
    count = length(indices)
    grads === nothing && return check(CAPI.mp_optimizer_step_params(o, queue, indices, count, C_NULL))
    length(grads) == count || throw(ArgumentError("there are $(length(grads)) gradients; there must be one for each of " *
                                                  "$count parameters"))
    given(context(o), grads...) do tensors...
        handles = pointers(CAPI.mp_tensor, tensors)
        GC.@preserve tensors check(CAPI.mp_optimizer_step_params(o, queue, indices, count, handles))
    end
end
step_end!(o::Optimizer; queue = nothing) = check(CAPI.mp_optimizer_step_end(o, queue))
@doc (@doc step_begin!) step_params!
@doc (@doc step_begin!) step_end!

"Set all gradients to zero."
zero_grad!(o::Optimizer; queue = nothing) = check(CAPI.mp_optimizer_zero_grad(o, queue))

"""
    mark_unused!(params; queue = nothing)

These parameters had no part in the loss. The next step passes over them: no decay, no change of weight or states.
"""
function mark_unused!(params; queue = nothing)
    o, indices = indices_of(params)
    check(CAPI.mp_optimizer_mark_unused(o, queue, indices, length(indices)))
end

"Name the layers whose step ends with the optimizer's, in place of `end_step!`. The optimizer keeps them."
function set_linears!(o::Optimizer, layers)
    all = collect(Linear, layers)
    GC.@preserve all check(CAPI.mp_optimizer_set_linears(o, pointers(CAPI.mp_linear, all), length(all)))
    resize!(o.kept, 2)
    push!(o.kept, all) # their monitors
    return
end

"What the last step did: found_inf, step, skipped_steps, grad_norm, grad_mul. Waits."
stats(o::Optimizer; queue = nothing) = step_stats(filled(box -> CAPI.mp_optimizer_get_stats(o, queue, box),
                                                         CAPI.mp_optimizer_stats()))
step_stats(s::CAPI.mp_optimizer_stats) = merge(named(s), (found_inf = s.found_inf != 0,))

"Set the learning rate of a group, or of all, from the next step on: a number, or a tensor that each step reads."
set_lr!(g::Group, lr::Real) = check(CAPI.mp_optimizer_set_lr(g.optimizer, g.index, lr))
set_lr!(o::Optimizer, lr::Real) = check(CAPI.mp_optimizer_set_lr(o, -1, lr))
set_lr!(g::Group, lr::Union{Tensor,Nothing}) = check(CAPI.mp_optimizer_set_lr_tensor(g.optimizer, g.index, lr))
set_lr!(o::Optimizer, lr::Union{Tensor,Nothing}) = check(CAPI.mp_optimizer_set_lr_tensor(o, -1, lr))

"Turn a group (or all) on or off: steps do not touch the parameters of one that is off."
set_enabled!(g::Group, on::Bool) = check(CAPI.mp_optimizer_set_enabled(g.optimizer, g.index, on))
set_enabled!(o::Optimizer, on::Bool) = check(CAPI.mp_optimizer_set_enabled(o, -1, on))

"Whether a group is on."
enabled(g::Group) = filled(box -> CAPI.mp_optimizer_get_enabled(g.optimizer, g.index, box), Int32(0)) != 0

"The norm that gradients are clipped to from the next step on; 0: none."
set_max_grad_norm!(o::Optimizer, norm::Real) = check(CAPI.mp_optimizer_set_max_grad_norm(o, norm))

"Divide the gradients by a tensor's one `Float32`, too (micro-batches, tokens); `nothing`: by nothing."
set_grad_scale!(o::Optimizer, divisor::Union{Tensor,Nothing}) =
    check(CAPI.mp_optimizer_set_grad_scale_tensor(o, divisor))

"Norm and finite check cover the ranks of `comm`, which hold other parameters; `nothing`: this rank's alone."
set_norm_comm!(o::Optimizer, comm) = check(CAPI.mp_optimizer_set_norm_comm(o, comm))

"The norm of the last step's gradients as a tensor of one `Float32` over the optimizer's memory."
grad_norm_tensor(o::Optimizer) =
    Tensor(made(out -> CAPI.mp_optimizer_get_grad_norm_tensor(o, out), CAPI.mp_tensor), context(o))
found_inf_tensor(o::Optimizer) =
    Tensor(made(out -> CAPI.mp_optimizer_get_found_inf_tensor(o, out), CAPI.mp_tensor), context(o))

"A group's hyperparameters as they are now."
function hyperparameters(g::Group)
    d = filled(box -> CAPI.mp_optimizer_get_group(g.optimizer, g.index, box), CAPI.mp_param_group_desc())
    return (lr = d.lr, beta1 = d.beta1, beta2 = d.beta2, eps = d.eps, weight_decay = d.weight_decay,
            rule = choice_name(rules(), d.rule), maximize = d.flags & CAPI.MP_RULE_MAXIMIZE != 0,
            bias_correction = d.flags & CAPI.MP_RULE_NO_BIAS_CORRECTION == 0,
            state_formats = map(k -> unsafe_string(d.state_formats[k]), rule_states(d.rule)))
end

"Seed, flags and norm that an optimizer was made with."
optimizer_info(o::Optimizer) = named(filled(box -> CAPI.mp_optimizer_get_desc(o, box), CAPI.mp_optimizer_desc()))

"""
    state(param, name)

A tensor over a state of the parameter, as it is stored: `:param`, `:grad`, `:exp_avg`, `:exp_avg_sq`,
`:compensation`, `:master`, and for codes with a scale that scale, such as `:exp_avg_scale_inv`.
"""
state(p::Param, name) =
    Tensor(made(out -> CAPI.mp_optimizer_get_state(p.optimizer, p.index, c_text(string(name)), out), CAPI.mp_tensor),
           context(p.optimizer))

"The main gradient of a parameter, as a tensor."
grad(p::Param) = state(p, :grad)

"""
    read_state(param, name; queue = nothing)

The values of a state as an array of `Float32`, whatever they are stored as: `:exp_avg`, `:exp_avg_sq`, `:compensation`,
`:fp32_param` (the weight with all bits that the optimizer has).
"""
function read_state(p::Param, name; queue = nothing)
    values = Array{Float32}(undef, size(state(p, :param))...)
    given(context(p.optimizer), values) do t
        check(CAPI.mp_optimizer_read_state(p.optimizer, queue, p.index, c_text(string(name)), t))
    end
    return values
end
"""
    write_state!(param, name, values; queue = nothing)

Store values from elsewhere (fp32, fp16, bf16) in a state of `read_state`, rounded to nearest. `:fp32_param` writes the
parameter too, and keeps what rounding it loses.
"""
function write_state!(p::Param, name, values; queue = nothing)
    given(context(p.optimizer), values) do t
        check(CAPI.mp_optimizer_write_state(p.optimizer, queue, p.index, c_text(string(name)), t))
    end
end

"After the program wrote into a parameter (or all): master weights become the parameters, compensations zero."
sync_master!(p::Param; queue = nothing) = check(CAPI.mp_optimizer_sync_master(p.optimizer, queue, p.index))
sync_master!(o::Optimizer; queue = nothing) = check(CAPI.mp_optimizer_sync_master(o, queue, -1))

"Set the count of steps of an optimizer and all groups, or of one group."
set_step!(o::Optimizer, step::Integer; queue = nothing) = check(CAPI.mp_optimizer_set_step(o, queue, step))
set_step!(g::Group, step::Integer; queue = nothing) =
    check(CAPI.mp_optimizer_set_group_step(g.optimizer, queue, g.index, step))

"Steps that a group took part in."
steps(g::Group; queue = nothing) =
    Int(filled(box -> CAPI.mp_optimizer_get_group_step(g.optimizer, queue, g.index, box), Int64(0)))

"Bytes held for the parameters so far, by class of tensor."
memory(o::Optimizer) = memory_report(filled(box -> CAPI.mp_optimizer_get_memory(o, box), CAPI.mp_memory_report()))

"What steps with `offload` have moved, in bytes, and how long they took, in nanoseconds."
offload_traffic(o::Optimizer) =
    named(filled(box -> CAPI.mp_optimizer_get_offload_traffic(o, box), CAPI.mp_offload_traffic()))
