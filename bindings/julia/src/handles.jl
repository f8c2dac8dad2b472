# SPDX-License-Identifier: Apache-2.0
# Objects of the library in Julia's hands.

"An object of the library. `close` gives it back now; otherwise the garbage collector does."
abstract type Handle end

# A reference of ours to an object of the library. `kept` is what must live as long: functions, parents, memory.
macro handle(name, noun, description)
    type = esc(name)
    raw = :(CAPI.$(Symbol("mp_", noun)))
    destroy = :(CAPI.$(Symbol("mp_", noun, "_destroy")))
    quote
        @doc $(esc(description)) mutable struct $type <: Handle
            pointer::Ptr{$raw}
            kept::Vector{Any}
            $(esc(name))(pointer::Ptr{$raw}, kept...) = finalizer(close, new(pointer, Any[kept...]))
        end
        Base.unsafe_convert(::Type{Ptr{$raw}}, x::$type) = live_pointer(x)
        Base.cconvert(::Type{Ptr{$raw}}, x::$type) = x
        Base.cconvert(::Type{Ptr{$raw}}, ::Nothing) = Ptr{$raw}(C_NULL)
        # Base would hand the array's memory to the library as the object.
        Base.cconvert(::Type{Ptr{$raw}}, x::AbstractArray) = no_array($type, x)
        $(esc(:destroy))(x::$type, pointer) = $destroy(pointer)
    end
end

no_array(type, x) = throw(ArgumentError("a $(nameof(type)) is wanted here, not a $(typeof(x))"))

# The library itself recognizes a stale handle; this names the object, and keeps a closed queue from being the
# default one. The pointer is read once: another thread may close the object meanwhile.
function live_pointer(x::Handle)
    pointer = x.pointer
    pointer == C_NULL && throw(MPError(CAPI.MP_STATUS_INVALID_HANDLE, "this $(nameof(typeof(x))) has been closed"))
    return pointer
end

"""
    close(object)

Give an object of the library back. Closing twice does nothing; what other objects need of it lives on in them.
"""
function Base.close(x::Handle)
    pointer = x.pointer
    x.pointer = C_NULL
    pointer == C_NULL || destroy(x, pointer)
    return
end

"Whether the object has not been closed."
Base.isopen(x::Handle) = x.pointer != C_NULL

Base.show(io::IO, x::Handle) = print(io, nameof(typeof(x)), isopen(x) ? "(" * summary_of(x) * ")" : "(closed)")
summary_of(x::Handle) = ""

# The object that a function of the form f(..., out) makes.
function made(create, ::Type{T}) where {T}
    out = Ref(Ptr{T}(C_NULL))
    check(create(out))
    return out[]
end

# Pointers of several handles, which the caller keeps.
pointers(::Type{T}, objects) where {T} = Ptr{T}[x === nothing ? C_NULL : live_pointer(x) for x in objects]
optional(x::Handle) = live_pointer(x)
optional(::Nothing) = C_NULL

# A struct's number that one call fills in.
function filled(call, value)
    box = Ref(value)
    check(call(box))
    return box[]
end

# The number behind a symbol, or an error that names those there are.
function choice(table::NamedTuple, value::Symbol, what)
    haskey(table, value) ||
        throw(ArgumentError("$what is :$value; it must be one of $(join(repr.(keys(table)), ", "))"))
    return table[value]
end
choice_name(table::NamedTuple, number) = (for (k, v) in pairs(table); v == number && return k; end; :unknown)

# The sum of those flags whose condition holds.
flags(pairs::Pair...) = UInt32(reduce(|, (on ? UInt32(flag) : UInt32(0) for (flag, on) in pairs); init = UInt32(0)))

# A struct for one call, with the memory that it points to.
struct Pointing{T}
    box::Base.RefValue{T}
    kept::Any
end
Pointing(value, kept) = Pointing(Ref(value), kept)
Base.unsafe_convert(::Type{Ptr{T}}, x::Pointing{T}) where {T} = Base.unsafe_convert(Ptr{T}, x.box)

# A struct of the library as a named tuple, without its size and reserved fields.
function named(value)
    names = filter(n -> !(n in (:struct_size, :reserved)), fieldnames(typeof(value)))
    return NamedTuple{names}(map(n -> getfield(value, n), names))
end
