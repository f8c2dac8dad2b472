# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
A = reshape(Float32.(1:24), 2, 3, 4)
t = Tensor(c, A)
@test size(t) == (2, 3, 4) && ndims(t) == 3 && length(t) == 24 && eltype(t) === Float32 && size(t, 2) == 3
@test repr(t) == "Tensor(Float32, 2x3x4)" && MixedPrec.device(t) === :host
# The library's shape is the opposite: [4, 3, 2].
@test MixedPrec.tensor_info(t).shape[1:3] == (4, 3, 2)
@test Array(t) == A
own = Tensor(c, Float32, 2, 3, 4)
@test all(iszero, Array(own))
copyto!(own, t)
@test Array(own) == A
copyto!(own, 2A)
B = similar(A)
@test copyto!(B, own) == 2A
A[1] = 100
@test Array(t)[1] == 100 # one memory
fill!(own, 0)
@test all(iszero, Array(own))
@test kind(() -> fill!(own, 1)) === ArgumentError
part = view(t, 6, 2, 3)
@test Array(part) == A[:, :, 2]
@test kind(() -> view(t, 20, 6)) === :invalid_shape
@test kind(() -> copyto!(own, zeros(Float32, 23))) === :invalid_shape
@test kind(() -> copyto!(own, zeros(Int32, 24))) === :nothing_thrown # as many bytes: its bits
@test kind(() -> copyto!(own, zeros(Float16, 48))) === :invalid_dtype
@test kind(() -> copyto!(zeros(Float32, 3), own)) === :invalid_shape
@test kind(() -> copyto!(t, part)) === :invalid_shape
@test kind(() -> Tensor(c, Float64, 3)) === :invalid_dtype
@test kind(() -> Tensor(c, Float32, -1)) === :invalid_shape
@test amax(Tensor(c, Float32[1, -5, 3])) == 5 && isnan(amax(Tensor(c, Float32[1, NaN, Inf])))
half = Tensor(c, Float16, 24)
cast!(half, own)
@test kind(() -> cast!(half, Tensor(c, Float32, 25))) === :invalid_shape
@test kind(() -> cast!(half, own; rounding = :up)) === ArgumentError
close(t)
@test kind(() -> Array(t)) === :invalid_handle
@test Array(part) == A[:, :, 2] # the view keeps the memory
@test size(Tensor(c, Float32)) == ()

# Quantized
x = randn(Float32, 64, 48)
for (scaling, grid) in ((:tensor, (1, 1)), (:row, (48, 1)), (:column, (1, 64)), (:mx_1x32, (48, 2)),
                        (:block_128x128, (1, 1)))
    q = QuantizedTensor(c, Float8_E4M3, 64, 48; quant = Quant(scaling))
    happened = quantize!(q, x; stats = true)
    @test happened.elements == 64 * 48 && happened.saturated == 0 && happened.amax == maximum(abs, x)
    y = similar(x)
    dequantize!(y, q)
    @test y ≈ x rtol = 0.05
    s = scales(q)
    @test size(s) == reverse(grid)
    g = scale_grid(48, 64; quant = Quant(scaling))
    @test (g.rows, g.columns) == grid && g.dtype === eltype(s)
    @test Array(quantized_amax(q))[1] == maximum(abs, x)
    @test repr(Quant(q)) == repr(Quant(q)) && occursin(string(scaling), repr(Quant(q)))
    # Codes and scales of one's own.
    mine = QuantizedTensor(c, Array(q), Array(s), Float8_E4M3, 64, 48; quant = Quant(scaling))
    z = similar(x)
    dequantize!(z, mine)
    @test z == y
end
q = QuantizedTensor(c, Float8_E5M2, 64, 48)
turned = Tensor(c, Float8_E5M2, 48, 64)
quantize!(q, x; transposed = turned)
@test Float32.(Array(turned)) == permutedims(Float32.(Array(q)))
fp4 = QuantizedTensor(c, :fp4_e2m1, 64, 48; quant = Quant(:nvfp4))
quantize!(fp4, x)
@test length(Array(fp4)) == 32 * 48 && eltype(fp4) === :fp4_e2m1
@test kind(() -> quantize!(q, zeros(Float32, 3))) === :invalid_shape
@test kind(() -> quantize!(own, x)) === :invalid_argument
@test kind(() -> QuantizedTensor(c, zeros(Float8_E4M3, 3), ones(Float32, 1), Float8_E4M3, 4)) === :invalid_shape
@test kind(() -> QuantizedTensor(c, zeros(Float8_E4M3, 4), ones(Float32, 2), Float8_E4M3, 4)) === :invalid_shape
@test kind(() -> QuantizedTensor(c, Float64, 4)) === :invalid_dtype
@test kind(() -> scales(own)) === :invalid_argument
@test kind(() -> Quant(own)) === :invalid_argument
