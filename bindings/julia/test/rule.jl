# SPDX-License-Identifier: Apache-2.0
# Optimisers.jl is not a dependency: this module declares what a rule needs, with the package's names and shapes.
module Optimisers
abstract type AbstractRule end
function init end
function apply! end
function adjust end
mutable struct Leaf{R,S}
    rule::R
    state::S
end
setup(rule::AbstractRule, model::NamedTuple) = map(x -> Leaf(rule, init(rule, x)), model)
subtract!(x, change) = change === nothing ? x : (x .-= change)
function update!(leaves, model, gradient)
    for key in keys(model)
        leaf = leaves[key]
        leaf.state, change = apply!(leaf.rule, leaf.state, model[key], gradient[key])
        subtract!(model[key], change)
    end
    return leaves, model
end
adjust!(leaves, eta) = foreach(leaf -> leaf.rule = adjust(leaf.rule, eta), leaves)
end

# As the documentation of MPRule has it.
struct MixedRule <: Optimisers.AbstractRule
    rule::MixedPrec.MPRule
end
Optimisers.init(r::MixedRule, x::AbstractArray) = MixedPrec.setup(r.rule, x)
Optimisers.apply!(r::MixedRule, state, x, dx) = (MixedPrec.apply!(r.rule, state, x, dx), nothing)
Optimisers.adjust(r::MixedRule, eta::Real) = MixedRule(MixedPrec.adjust(r.rule; lr = eta))

c = Context(threads = 1)
model = (w = ones(BFloat16, 3, 4), b = ones(Float32, 4))
gradient = (w = fill(BFloat16(0.5), 3, 4), b = fill(0.5f0, 4))
leaves = Optimisers.setup(MixedRule(MixedPrec.MPRule(c; moments = Float32, master = Float32, lr = 0.01)), model)
leaves, model = Optimisers.update!(leaves, model, gradient)
@test model.b ≈ fill(0.99f0, 4) && Float32.(model.w) == Float32.(BFloat16.(fill(0.99f0, 3, 4)))
@test leaves.w.state.step == 1 && leaves.w.state.master ≈ fill(0.99f0, 3, 4)
Optimisers.adjust!(leaves, 0.0)
before = copy(model.b)
Optimisers.update!(leaves, model, gradient)
@test model.b == before
skipping = MixedPrec.MPRule(c; check_finite = true)
x = ones(Float32, 4)
kept = MixedPrec.setup(skipping, x)
MixedPrec.apply!(skipping, kept, x, [NaN32, 1, 1, 1])
@test kept.step == 0 && all(==(1), x)
@test MixedPrec.setup(MixedPrec.MPRule(c; rule = :lion), x).exp_avg_sq === nothing
@test kind(() -> MixedPrec.MPRule(c; learning_rate = 1)) === MethodError
