# SPDX-License-Identifier: Apache-2.0
# Element types: those of Julia's, and storage types for those that Julia has not.

"16 bits of a bfloat16. A storage type: convert to `Float32` to compute. `Array{BFloat16}` is memory of dtype bf16."
primitive type BFloat16 <: AbstractFloat 16 end
"8 bits of fp8_e4m3 (\"fn\": largest 448, NaN, no infinity). A storage type."
primitive type Float8_E4M3 <: AbstractFloat 8 end
"8 bits of fp8_e5m2 (largest 57344, NaN and infinities). A storage type."
primitive type Float8_E5M2 <: AbstractFloat 8 end
"8 bits of a power-of-two scale, 2^(b - 127); 0xff is NaN. A storage type."
primitive type E8M0 <: AbstractFloat 8 end

const DTYPES = ((Float32, CAPI.MP_DTYPE_FP32), (Float16, CAPI.MP_DTYPE_FP16), (BFloat16, CAPI.MP_DTYPE_BF16),
                (Float8_E4M3, CAPI.MP_DTYPE_FP8_E4M3), (Float8_E5M2, CAPI.MP_DTYPE_FP8_E5M2),
                (E8M0, CAPI.MP_DTYPE_E8M0), (Int8, CAPI.MP_DTYPE_INT8), (Int16, CAPI.MP_DTYPE_INT16),
                (Int32, CAPI.MP_DTYPE_INT32), (Int64, CAPI.MP_DTYPE_INT64), (UInt8, CAPI.MP_DTYPE_UINT8))

# The number of an element type; `nothing` is the library's choice.
function dtype_number(::Type{T}) where {T}
    for (type, number) in DTYPES
        type === T && return number
    end
    throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE, "the library has no element type $T; it has " *
                  join((first(d) for d in DTYPES), ", ")))
end
dtype_number(::Nothing) = CAPI.MP_DTYPE_NONE

# The element type of a number; fp4, two codes to a byte, is :fp4_e2m1.
function dtype_type(number)
    for (type, n) in DTYPES
        n == number && return type
    end
    return Symbol(unsafe_string(CAPI.mp_dtype_name(number)))
end

const Storage8 = Union{Float8_E4M3,Float8_E5M2,E8M0}
const StorageFloat = Union{BFloat16,Storage8}

bits_type(::Type{BFloat16}) = UInt16
bits_type(::Type{<:Storage8}) = UInt8
bits(x::T) where {T<:StorageFloat} = reinterpret(bits_type(T), x)

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(bits(x)) << 16)

# To nearest, ties to even; NaN stays NaN.
function BFloat16(x::Float32)
    isnan(x) && return reinterpret(BFloat16, UInt16(reinterpret(UInt32, x) >> 16) | 0x0040)
    u = reinterpret(UInt32, x)
    return reinterpret(BFloat16, UInt16((u + 0x7fff + ((u >> 16) & 1)) >> 16))
end

# exponent bits, mantissa bits, bias
layout(::Type{Float8_E4M3}) = (4, 3, 7)
layout(::Type{Float8_E5M2}) = (5, 2, 15)

function Base.Float32(x::T) where {T<:Union{Float8_E4M3,Float8_E5M2}}
    (_, mantissa_bits, bias), u = layout(T), bits(x)
    magnitude = u & 0x7f
    sign = u == magnitude ? 1.0f0 : -1.0f0
    if T === Float8_E4M3
        magnitude == 0x7f && return NaN32
    else
        magnitude == 0x7c && return sign * Inf32
        magnitude > 0x7c && return NaN32
    end
    exponent, fraction = Int(magnitude >> mantissa_bits), Int(magnitude & ((1 << mantissa_bits) - 1))
    value = exponent == 0 ? ldexp(Float32(fraction), 1 - bias - mantissa_bits) :
            ldexp(Float32(fraction + (1 << mantissa_bits)), exponent - bias - mantissa_bits)
    return sign * value
end

# To nearest, ties to even, as `cast!` does: finite values beyond the largest become the largest, so does infinity.
function fp8(::Type{T}, x::Float32) where {T}
    (_, mantissa_bits, bias), negative = layout(T), signbit(x)
    largest = T === Float8_E4M3 ? 448.0f0 : 57344.0f0
    isnan(x) && return reinterpret(T, UInt8(negative) << 7 | 0x7f)
    magnitude = min(abs(x), largest)
    step = max(magnitude == 0 ? 1 - bias : exponent(magnitude), 1 - bias) - mantissa_bits
    units = round(Int, ldexp(Float64(magnitude), -step), RoundNearest)
    # Units of a binade's step, counted on from its first code; a carry runs into the exponent by itself.
    code = units + ((step + mantissa_bits - (1 - bias)) << mantissa_bits)
    return reinterpret(T, UInt8(negative) << 7 | UInt8(code))
end
Float8_E4M3(x::Float32) = fp8(Float8_E4M3, x)
Float8_E5M2(x::Float32) = fp8(Float8_E5M2, x)

Base.Float32(x::E8M0) = bits(x) == 0xff ? NaN32 : ldexp(1.0f0, Int(bits(x)) - 127)
function E8M0(x::Float32)
    isnan(x) && return reinterpret(E8M0, 0xff)
    x > 0 && isfinite(x) && significand(x) == 1 || throw(InexactError(:E8M0, E8M0, x))
    return reinterpret(E8M0, UInt8(max(exponent(x), -127) + 127))
end

for T in (:BFloat16, :Float8_E4M3, :Float8_E5M2, :E8M0)
    @eval begin
        $T(x::Union{Float16,Float64,Integer}) = $T(Float32(x))
        Base.Float64(x::$T) = Float64(Float32(x))
        Base.Float16(x::$T) = Float16(Float32(x))
        Base.promote_rule(::Type{$T}, ::Type{S}) where {S<:Union{Float32,Float64}} = S
        Base.promote_rule(::Type{$T}, ::Type{<:Integer}) = Float32
        Base.promote_rule(::Type{$T}, ::Type{Float16}) = Float32
        Base.isnan(x::$T) = isnan(Float32(x))
        Base.isfinite(x::$T) = isfinite(Float32(x))
        Base.isinf(x::$T) = isinf(Float32(x))
        Base.:(==)(x::$T, y::$T) = Float32(x) == Float32(y)
        Base.:<(x::$T, y::$T) = Float32(x) < Float32(y)
        Base.:<=(x::$T, y::$T) = Float32(x) <= Float32(y)
        Base.isless(x::$T, y::$T) = isless(Float32(x), Float32(y))
        Base.hash(x::$T, h::UInt) = hash(Float32(x), h)
        Base.one(::Type{$T}) = $T(1.0f0)
        Base.show(io::IO, x::$T) = print(io, $(string(T)), "(", Float32(x), ")")
    end
end

for T in (:BFloat16, :Float8_E4M3, :Float8_E5M2) # E8M0 has no zero
    @eval Base.zero(::Type{$T}) = $T(0.0f0)
end
