# SPDX-License-Identifier: Apache-2.0
# For users of Optimisers.jl: a rule whose state is stored as one likes, stepped by the library.

"""
    MixedPrec.MPRule(context; moments = Float32, compensation = nothing, master = nothing, lr, ...)

The arithmetic of a rule in the shape of Optimisers.jl: `setup(x)` gives the state of one array, `apply!(state, x,
dx)` steps `x` in place, `adjust(rule; lr)` is the rule with other hyperparameters (those of `step!(context,
slots)`). `moments`, `compensation` and `master` are element types. Optimisers.jl wants a subtype of its
`AbstractRule`, which is these lines; `nothing` says that `x` has been stepped already (tested against a stand-in of
the same shape):

    struct MixedRule <: Optimisers.AbstractRule
        rule::MixedPrec.MPRule
    end
    Optimisers.init(r::MixedRule, x::AbstractArray) = MixedPrec.setup(r.rule, x)
    Optimisers.apply!(r::MixedRule, state, x, dx) = (MixedPrec.apply!(r.rule, state, x, dx), nothing)
    Optimisers.adjust(r::MixedRule, eta::Real) = MixedRule(MixedPrec.adjust(r.rule; lr = eta))
"""
struct MPRule
    context::Context
    moments::DataType
    compensation::Union{DataType,Nothing}
    master::Union{DataType,Nothing}
    options::NamedTuple
end

MPRule(c::Context; moments = Float32, compensation = nothing, master = nothing, options...) =
    (step_args(; options...); MPRule(c, moments, compensation, master, values_of(options)))

values_of(options) = NamedTuple{keys(options)}(values(options))

# Storage of `T` with the bits of zero, which is zero in each of them.
zero_bits(T, A) = fill!(Array{T}(undef, size(A)...), zero(T))

"State of a rule for one array: the moments and what else the rule keeps, and the count of steps."
mutable struct RuleState
    exp_avg::Array
    exp_avg_sq::Union{Array,Nothing}
    compensation::Union{Array,Nothing}
    master::Union{Array,Nothing}
    step::Int
end

"The state of a rule for one array; `master` starts as its values, and is left out where it would be of the same type."
function setup(r::MPRule, x::AbstractArray)
    has_second = haskey(rule_states(rule_number(get(r.options, :rule, :adamw))), :exp_avg_sq)
    return RuleState(zero_bits(r.moments, x), has_second ? zero_bits(r.moments, x) : nothing,
                     r.compensation === nothing ? nothing : zero_bits(r.compensation, x),
                     r.master in (nothing, eltype(x)) ? nothing : convert(Array{r.master}, x), 0)
end

"Step `x` in place by its gradient `dx`; a skipped step (`check_finite = true`) changes nothing. Gives the state."
function apply!(r::MPRule, s::RuleState, x::AbstractArray, dx::AbstractArray)
    slot = Slot(x, dx, s.exp_avg, s.exp_avg_sq; compensation = s.compensation, master = s.master)
    result = step!(r.context, slot; r.options..., step = s.step + 1)
    result.found_inf || (s.step += 1)
    return s
end

"The rule with other hyperparameters."
adjust(r::MPRule; options...) =
    MPRule(r.context; moments = r.moments, compensation = r.compensation, master = r.master,
           merge(r.options, values_of(options))...)
