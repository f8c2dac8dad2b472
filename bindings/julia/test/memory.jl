# SPDX-License-Identifier: Apache-2.0
# Arrays that the library uses are neither freed nor moved.
c = Context(threads = 1)

p, g = ones(Float32, 100_000), ones(Float32, 100_000)
o = Optimizer(c, Recipe(c, "fp32"))
add_param!(add_group!(o; lr = 0.5), "p", p; grad = g)
if VERSION < v"1.11" # later ones give the grown array other memory, and leave this one to the library
    @test_throws ErrorException append!(p, zeros(Float32, 5_000_000))
    @test_throws ErrorException push!(p, 1)
    @test_throws ErrorException resize!(p, 10)
    @test_throws ErrorException empty!(p)
    v = zeros(Float32, 10)
    Tensor(c, view(v, 1:5))
    @test_throws ErrorException push!(v, 1)
    v = zeros(Float32, 10)
    Slot(v, v, v, v)
    @test_throws ErrorException push!(v, 1)
end
step!(o)
@test p[1] ≈ 0.5

# Kept by the library, though nothing here keeps them.
function forgotten()
    o = Optimizer(c, Recipe(c, "fp32"))
    param = add_param!(o, "p", fill(3.0f0, 100_000); grad = ones(Float32, 100_000))
    return o, param
end
o, param = forgotten()
GC.gc()
victims = [fill(7.0f0, 100_000) for _ in 1:20]
step!(o)
@test all(v -> all(==(7.0f0), v), victims)
@test all(x -> isapprox(x, 2.999), read_state(param, :fp32_param))

# What cannot be used says so.
A = reshape(Float32.(1:24), 4, 6)
@test Array(Tensor(c, view(A, :, 2:3))) == A[:, 2:3]
@test Array(Tensor(c, view(A, 2:3, 2))) == A[2:3, 2]
@test Array(Tensor(c, reshape(A, 24))) == vec(A)
@test Array(Tensor(c, reinterpret(Float32, collect(reinterpret(UInt8, vec(A)))))) == vec(A)
@test occursin("do not lie behind one another", words(() -> Tensor(c, view(A, 1:2, :))))
@test occursin("do not lie behind one another", words(() -> Tensor(c, view(A, :, 1:2:5))))
@test occursin("copy it first", words(() -> Tensor(c, A')))
@test occursin("copy it first", words(() -> Tensor(c, 1:4)))
@test kind(() -> Tensor(c, ones(Float64, 4))) === :invalid_dtype
@test kind(() -> Tensor(c, Any[1.0f0])) === :invalid_dtype
@test kind(() -> Tensor(c, ["a"])) === :invalid_dtype
@test kind(() -> Tensor(c, zeros(UInt16, 4), dtype = Float32)) === :invalid_dtype
@test kind(() -> Tensor(c, zeros(UInt8, 4), dtype = BFloat16)) === :invalid_dtype
@test kind(() -> Tensor(c, zeros(Float32, 4), dtype = Float16)) === :invalid_dtype
@test kind(() -> Tensor(c, zeros(Float32, ntuple(_ -> 1, 9)))) === :invalid_shape
@test eltype(Tensor(c, zeros(UInt16, 4), dtype = BFloat16)) === BFloat16

@test kind(() -> Tensor(c, view(A, [1, 2], 1))) === ArgumentError
@test kind(() -> Tensor(c, reshape(view(A, 1:2, :), 12))) === ArgumentError
@test kind(() -> Tensor(c, reinterpret(Float32, view(zeros(Float64, 4, 4), 1:2, :)))) === ArgumentError
@test kind(() -> Tensor(c, Union{Missing,Float32}[1])) === :invalid_dtype
@test Array(Tensor(c, PermutedDimsArray(A, (1, 2)).parent)) == A

# A view that is older than its parent's size.
parent = zeros(Float32, 1000)
old = view(parent, 1:1000)
resize!(parent, 10)
@test kind(() -> Tensor(c, old)) === ArgumentError
@test size(Tensor(c, zeros(Float32, 0, 3))) == (0, 3)
