# SPDX-License-Identifier: Apache-2.0
# Julia's arrays as memory that the library may use.

const Elements = Union{Float32,Float16,BFloat16,Float8_E4M3,Float8_E5M2,E8M0,Int8,Int16,Int32,Int64,UInt8,UInt16}

"""
Memory of an array that cannot be given up or moved while this object lives. `push!`, `resize!` and the like on the
array (or on the `Vector` under a view) throw "cannot resize array with shared data" from now on.
"""
struct Memory
    address::Ptr{Cvoid}
    elements::Int
    type::DataType
    bytes::Int
    kept::Any # the array, and a second array over its buffer, which is what keeps the buffer
end

# The array whose buffer this is, or nothing.
buffer(A::Array) = A
buffer(A::Union{SubArray,Base.ReshapedArray,Base.ReinterpretArray}) = buffer(parent(A))
buffer(A) = nothing

is_dense(A::Array) = true
function is_dense(A)
    try
        expected = 1
        for (n, s) in zip(size(A), strides(A))
            n == 1 || s == expected || return false
            expected *= n
        end
        return true
    catch problem
        problem isa Union{MethodError,ArgumentError,ErrorException} || rethrow()
        return false
    end
end

function Memory(A::AbstractArray{T}) where {T}
    owner = buffer(A)
    owner === nothing && throw(ArgumentError(
        "the library can use an Array, or a dense view, reshape or reinterpret of one, but not a $(typeof(A)); " *
        "copy it first: Array(A)"))
    isempty(A) || is_dense(A) || throw(ArgumentError(
        "the elements of this $(join(size(A), "x")) $(nameof(typeof(A))) do not lie behind one another; " *
        "use whole columns of its parent, or copy it first: Array(A)"))
    isbitstype(T) && isbitstype(eltype(owner)) ||
        throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE, "an array of $T is no plain memory"))
    # A second array over the same buffer: Julia then refuses to resize the first.
    shared = reshape(owner, ntuple(i -> i == 1 ? length(owner) : 1, ndims(owner) == 2 ? 3 : 2))
    address = isempty(A) ? Ptr{Cvoid}(C_NULL) : GC.@preserve(A, Ptr{Cvoid}(pointer(A)))
    # A view may have been made before its parent shrank.
    first, last = UInt(pointer(shared)), UInt(pointer(shared)) + sizeof(shared)
    isempty(A) || first <= UInt(address) && UInt(address) + length(A) * sizeof(T) <= last ||
        throw(ArgumentError("this view lies outside of its parent's $(length(owner)) elements"))
    return Memory(address, length(A), T, length(A) * sizeof(T), (A, shared))
end
