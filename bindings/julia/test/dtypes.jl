# SPDX-License-Identifier: Apache-2.0
# The storage types have the library's bits.
c = Context(threads = 1)
values = Float32[0, -0.0, 1, -1.5, 448, 449, 464, 465, 500, 57344, 61440, 65504, 1e9, Inf, -Inf, 2.0f0^-9, 2.0f0^-10,
                 2.0f0^-10 * 1.01f0, 2.0f0^-16, 2.0f0^-17, 3.3f-3, 1e-30, 1.00390625, 1.01171875]
append!(values, reinterpret(Float32, rand(UInt32, 20_000)))
append!(values, randn(Float32, 20_000))
append!(values, exp.(20 .* randn(Float32, 20_000)))
for T in (Float16, BFloat16, Float8_E4M3, Float8_E5M2)
    wide = T === Float16 ? values : values
    codes = Vector{T}(undef, length(wide))
    cast!(c, codes, wide)
    bits(x) = reinterpret(sizeof(T) == 2 ? UInt16 : UInt8, x)
    for (code, x) in zip(codes, wide)
        isnan(x) ? isnan(code) || @test(isnan(code)) : bits(T(x)) == bits(code) || @test (x, T(x)) == (x, code)
    end
    back = zeros(Float32, length(codes))
    cast!(c, back, codes)
    @test isequal(Float32.(codes), back)
    @test isnan(T(NaN32))
    @test zero(T) == 0 && one(T) == 1
end
for byte in 0x00:0xff, T in (Float8_E4M3, Float8_E5M2)
    x = reinterpret(T, byte)
    isfinite(x) && @test reinterpret(UInt8, T(Float32(x))) == byte
end
@test repr(Float8_E4M3(1.5)) == "Float8_E4M3(1.5)"
@test Float32(reinterpret(E8M0, 0x80)) == 2 && isnan(reinterpret(E8M0, 0xff)) && E8M0(0.25) == 0.25
@test_throws InexactError E8M0(3)
@test BFloat16(1.5) + 1 === 2.5f0
@test BFloat16(1) < BFloat16(2)
# Stochastic rounding: two neighbours, by the seed, the same each time.
t, x = Tensor(c, BFloat16, 1000), fill(1.001953125f0, 1000)
first_bits = Array(cast!(t, x; rounding = :stochastic, seed = 7, step = 3))
@test sort(unique(Float32.(first_bits))) == [1.0f0, 1.0078125f0]
@test Array(cast!(t, x; rounding = :stochastic, seed = 7, step = 3)) == first_bits
@test Array(cast!(t, x; rounding = :stochastic, seed = 8, step = 3)) != first_bits
