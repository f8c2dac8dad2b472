# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
m, n, k = 5, 7, 6
A, B, C, v = randn(Float32, m, k), randn(Float32, k, n), randn(Float32, m, n), randn(Float32, m)
D = zeros(Float32, m, n)
@test gemm!(Gemm(c, m, n, k), D, A, B) ≈ A * B
@test gemm!(Gemm(c, m, n, k; transpose_a = true), D, permutedims(A), B) ≈ A * B
@test gemm!(Gemm(c, m, n, k; transpose_b = true), D, A, permutedims(B)) ≈ A * B
@test gemm!(Gemm(c, m, n, k; transpose_a = true, transpose_b = true), D, permutedims(A), permutedims(B)) ≈ A * B
@test gemm!(Gemm(c, m, n, k; alpha = 2, beta = 3, bias = Float32), D, A, B; C = C, bias = v) ≈ 2A * B + 3C .+ v
D .= C
@test gemm!(Gemm(c, m, n, k; beta = 1), D, A, B; C = D) ≈ A * B + C
@test gemm!(Gemm(c, m, n, k), Tensor(c, D), Tensor(c, A), Tensor(c, B)) isa Tensor
@test D ≈ A * B
batch = zeros(Float32, m, n, 3)
A3, B3 = randn(Float32, m, k, 3), randn(Float32, k, n, 3)
gemm!(Gemm(c, m, n, k; batch = 3), batch, A3, B3)
@test all(batch[:, :, i] ≈ A3[:, :, i] * B3[:, :, i] for i in 1:3)
wide = zeros(Float32, 9, k)
wide[1:m, :] .= A
@test gemm!(Gemm(c, m, n, k; lda = 9), D, wide, B) ≈ A * B
# fp8 operands with a scale each; both differ, so that mixing them up would show.
a = QuantizedTensor(c, Float8_E4M3, m, k)
b = QuantizedTensor(c, Float8_E4M3, k, n)
quantize!(a, A)
quantize!(b, 8B)
gemm!(Gemm(c, m, n, k; a = Float8_E4M3, scale_a = (Float32, 0, 0), scale_b = (Float32, 0, 0)), D, a, b)
@test D ≈ 8A * B rtol = 0.1
# A product as codes is a product and a quantization.
codes, expected = (QuantizedTensor(c, Float8_E4M3, m, n; quant = Quant(:row)) for _ in 1:2)
gemm!(Gemm(c, m, n, k; d = Float8_E4M3, quant_d = Quant(:row)), codes, A, B)
quantize!(expected, gemm!(Gemm(c, m, n, k), D, A, B))
one, other = zeros(Float32, m, n), zeros(Float32, m, n)
dequantize!(one, codes)
dequantize!(other, expected)
@test one == other && any(one .!= 0)
@test kind(() -> gemm!(Gemm(c, m, n, k; d = Float8_E4M3), codes, A, B)) === :invalid_dtype
@test occursin("fp32", describe(Gemm(c, m, n, k)))
@test kind(() -> gemm!(Gemm(c, m, n, k), D, A, zeros(Float32, 2, 2))) === :invalid_shape
@test kind(() -> gemm!(Gemm(c, m, n, k), D, A, zeros(Float16, k, n))) === :invalid_dtype
@test kind(() -> gemm!(Gemm(c, m, n, k), A, A, B)) in (:invalid_argument, :invalid_shape)
@test kind(() -> Gemm(c, -1, n, k)) === :invalid_shape
@test kind(() -> Gemm(c, m, n, k; a = Int8)) === :invalid_dtype
@test kind(() -> Gemm(c, m, n, k; implementation = "fastest")) === :unknown_name
