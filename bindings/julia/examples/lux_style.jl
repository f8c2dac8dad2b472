# SPDX-License-Identifier: Apache-2.0
#
# The library under a loop in the style of Lux: parameters and state apart from the model, `setup`, `apply(model, x,
# ps, st)` and `update!`. Lux itself is not needed: its few functions that matter here are declared below, in its
# shapes. The pullbacks are written by hand where Zygote would find them; the products, forward and backward, are
# the library's.
using MixedPrec
using Printf
using Random

# ---- What a layer of Lux is

struct Dense
    in::Int
    out::Int
    relu::Bool
end
struct Chain
    layers::Vector{Dense}
end

# Parameters are arrays of fp32; the state has the library's layer over them, which rounds them to fp8 for each use.
function setup(rng, context, recipe, layer::Dense)
    ps = (weight = randn(rng, Float32, layer.in, layer.out) .* sqrt(2.0f0 / layer.in), bias = zeros(Float32, layer.out))
    return ps, (linear = Linear(context, recipe, ps.weight, ps.bias),)
end
function setup(rng, context, recipe, model::Chain)
    both = [setup(rng, context, recipe, layer) for layer in model.layers]
    return first.(both), last.(both)
end

# y, and the function from dy to dx and the gradients of the parameters.
function apply(layer::Dense, x, ps, st)
    y = forward!(Matrix{Float32}(undef, layer.out, size(x, 2)), st.linear, x)
    layer.relu && (y .= max.(y, 0))
    function pullback(dy)
        layer.relu && (dy = dy .* (y .> 0))
        dx, gradient = similar(x), map(similar, ps)
        backward!(st.linear, dy; dx = dx, dw = gradient.weight, dbias = gradient.bias)
        return dx, gradient
    end
    return y, pullback
end
function apply(model::Chain, x, ps, st)
    pullbacks = map(model.layers, ps, st) do layer, p, s
        x, back = apply(layer, x, p, s)
        back
    end
    return x, dy -> reverse(map(reverse(pullbacks)) do back
        dy, gradient = back(dy)
        gradient
    end)
end

# ---- What Optimisers.setup and update! do, with a rule of the library's (see MixedPrec.MPRule)

setup_optimizer(rule, ps) = map(p -> map(x -> MixedPrec.setup(rule, x), p), ps)
update!(rule, states, ps, gradients) =
    foreach((s, p, g) -> map((s, x, dx) -> MixedPrec.apply!(rule, s, x, dx), s, p, g), states, ps, gradients)

function main()
    rng, context = MersenneTwister(1), Context()
    recipe = Recipe(context, "fp8_delayed")
    model = Chain([Dense(16, 64, true), Dense(64, 64, true), Dense(64, 16, false)])
    ps, st = setup(rng, context, recipe, model)
    rule = MixedPrec.MPRule(context; moments = BFloat16, lr = 3e-3, stochastic = (:exp_avg, :exp_avg_sq))
    states = setup_optimizer(rule, ps)
    for step in 1:200
        x = randn(rng, Float32, 16, 32)
        y, back = apply(model, x, ps, st)
        difference = y .- sort(x; dims = 1)
        update!(rule, states, ps, back(2 .* difference ./ length(y)))
        end_step!([s.linear for s in st])
        step % 50 == 0 && @printf("step %3d  loss %.4f\n", step, sum(abs2, difference) / length(y))
    end
end

main()
