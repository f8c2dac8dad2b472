# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
fp32 = Recipe(c, "fp32")
w, bias, x = randn(Float32, 64, 32), randn(Float32, 32), randn(Float32, 64, 10)
y, dy = zeros(Float32, 32, 10), randn(Float32, 32, 10)
dx, dw, db = zero(x), zero(w), zero(bias)
l = Linear(c, fp32, w, bias)
@test repr(l) == "Linear(64 => 32)"
@test forward!(y, l, x) ≈ w' * x .+ bias
backward!(l, dy; dx = dx, dw = dw, dbias = db)
@test dx ≈ w * dy && dw ≈ x * dy' && db ≈ vec(sum(dy; dims = 2))
backward!(l, dy; dw = dw, dbias = db, accumulate = true)
@test dw ≈ 2x * dy' && db ≈ 2vec(sum(dy; dims = 2))
fill!(dx, 0)
backward!(l, dy; dx = dx)
@test dx ≈ w * dy
@test backward_data!(zero(x), l, dy) == dx
@test backward_weight!(zero(w), l, dy) ≈ x * dy'
w .*= 2 # the layer reads its weight at every call
@test forward!(y, l, x) ≈ w' * x .+ bias
# Several forwards wait for their backward.
first_x, second_x = Saved(l), Saved(l)
forward!(y, l, x; saved = first_x)
forward!(y, l, 3x; saved = second_x)
backward!(l, dy; dw = dw, saved = first_x)
@test dw ≈ x * dy'
backward!(l, dy; dw = dw, saved = second_x)
@test dw ≈ 3x * dy'
forward!(y, l, x; saved = first_x, drop = true)
@test kind(() -> backward!(l, dy; dw = dw, saved = first_x)) === :bad_state
forward!(nothing, l, x; saved = first_x, recompute = true)
backward!(l, dy; dw = dw, saved = first_x)
@test dw ≈ x * dy'
bf16 = Linear(c, Recipe(c, "bf16_mixed"), w)
place = MixedPrec.aligned_bytes(saved_bytes(bf16, 10))
kept = Saved(bf16)
set_memory!(kept, place)
forward!(y, bf16, x; saved = kept)
backward!(bf16, dy; dw = dw, saved = kept)
@test dw ≈ x * dy' rtol = 0.02
@test kind(() -> set_memory!(kept, zeros(UInt8, 1))) === :invalid_argument
set_memory!(kept, nothing)
# fp8: statistics, delayed scales, monitors
fp8 = Linear(c, Recipe(c, "fp8_delayed"), w; stats = true)
told = []
monitor!((name, s, advice) -> push!(told, (name, s.operand, s.elements, repr(fp8), advice)), fp8, "layer"; every = 2)
for i in 1:4
    forward!(y, fp8, x)
    backward!(fp8, dy; dx = dx, dw = dw)
    i == 1 && @test stats(fp8, :input).elements > 0 && stats(fp8, :input).dtype === Float8_E4M3
    @test advice(fp8, :weight) isa String
    end_step!(fp8)
end
@test [t[2] for t in told] == [:input, :weight, :grad_output, :input, :weight, :grad_output]
@test all(t -> t[1] == "layer" && t[3] > 0 && t[4] == "Linear(64 => 32)", told)
@test y ≈ w' * x rtol = 0.1
monitor!((arguments...) -> error("no"), fp8, "layer"; every = 1)
forward!(y, fp8, x)
@test_logs (:error,) (:error,) (:error,) end_step!([fp8])
monitor!(nothing, fp8)
end_step!(fp8)
counted = Linear(c, Recipe(c, "fp8_delayed"), w; stats = true)
forward!(y, counted, x)
clear_stats!(counted)
@test stats(counted, :input).elements == 0
bytes = scaling(fp8)
other = Linear(c, Recipe(c, "fp8_delayed"), w)
set_scaling!(other, bytes)
@test scaling(other) == bytes
@test kind(() -> set_scaling!(other, UInt8[1, 2])) === :parse_error
@test kind(() -> stats(other, :input)) === :bad_state
@test kind(() -> stats(other, :output)) === ArgumentError
@test length(multiply_tensor(fp8, :input)) == 1
form = operand_format(fp8, :fprop, :input)
@test form.dtype === Float8_E4M3 && form.quant isa Quant
codes = QuantizedTensor(c, form.dtype, 64, 10; quant = form.quant)
quantize!(codes, fp8, :fprop, :input, x)
held = Saved(fp8)
forward!(y, fp8, codes; saved = held)
@test y ≈ w' * x rtol = 0.1
wcodes = QuantizedTensor(c, Float8_E4M3, 64, 32; quant = operand_format(fp8, :fprop, :weight).quant)
quantize!(wcodes, fp8, :fprop, :weight, w)
set_weight_codes!(fp8, wcodes)
@test weight_codes_of(fp8, :fprop) isa Tensor
set_weight_codes!(fp8, nothing)
@test weight_codes_of(fp8, :fprop) === nothing
set_gradient_rounding!(bf16; rounding = :stochastic, seed = 3)
@test gradient_rounding(bf16).seed == 3
@test occursin("fp8", describe(fp8))
# A layer whose sizes do not fit says so.
@test_logs (:warn,) Linear(c, Recipe(c, "mxfp8"), zeros(Float32, 64, 48))
@test occursin("fp8", last_note()) || occursin("48", last_note())
@test kind(() -> forward!(zeros(Float32, 32, 9), l, x)) === :invalid_shape
@test kind(() -> forward!(y, l, zeros(Float32, 63, 10))) === :invalid_shape
sentence_of(f) = try f(); "" catch e; e.message end
sentence = sentence_of(() -> forward!(y, l, zeros(Float32, 63, 10)))
@test occursin("[10, 63] (here 63 x 10)", sentence) && occursin("last dimension (here the first) must be 64", sentence)
@test occursin("[2, 3, 4] (here 4 x 3 x 2)", sentence_of(() -> cast!(Tensor(c, zeros(Float32, 4, 3, 2)), zeros(Float32, 2))))
@test kind(() -> Linear(c, fp32, zeros(Float32, 64), bias)) === :invalid_shape
@test kind(() -> Linear(c, fp32, w, zeros(Float32, 31))) === :invalid_shape
@test kind(() -> backward!(Linear(c, fp32, w), dy; dw = dw)) === :bad_state
@test kind(() -> backward!(l, dy; dbias = db)) in (:invalid_argument, :null_argument)
@test kind(() -> Saved(Linear(c, fp32, w; inference = true))) === :bad_state
