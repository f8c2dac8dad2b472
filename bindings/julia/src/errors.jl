# SPDX-License-Identifier: Apache-2.0
# Statuses as errors and notes.

"""
    MPError

A failure of the library. `kind` is its status as a symbol (`:invalid_shape`, `:unknown_name`, `:timeout`, ...; see
status.h), `status` the number, `message` what was found, what was expected, and what to do. Shapes in it are the
library's, with Julia's beside them.
"""
struct MPError <: Exception
    status::Int32
    kind::Symbol
    message::String
end

MPError(status::Integer, message) = MPError(status, kind_of(status), message)

Base.showerror(io::IO, e::MPError) = print(io, "MPError(:", e.kind, "): ", e.message)

# The library names the dimensions of a row-major tensor, [2, 7]: an array of 7 x 2 here.
function with_julias_order(message)
    shaped = replace(message, r"\[\d+(, \d+)+\]" =>
                     shape -> string(shape, " (here ", join(reverse(split(shape[2:end-1], ", ")), " x "), ")"))
    for (theirs, ours) in ("first dimension" => "last", "last dimension" => "first")
        shaped = replace(shaped, theirs => "$theirs (here the $ours)")
    end
    return shaped
end

# MP_STATUS_INVALID_SHAPE -> :invalid_shape
function kind_of(status)
    name = unsafe_string(CAPI.mp_status_string(status))
    return Symbol(lowercase(replace(name, r"^MP_STATUS_" => "")))
end

"""
    last_note()

The advice of this task's last call that succeeded with one, or `nothing` before the first. It was logged as a
warning, too.
"""
last_note() = get(task_local_storage(), :mixedprec_note, nothing)

# Throws for a failure, warns for a success with advice. Nothing runs between a call and this that could replace the
# thread's message: destroying objects, which finalizers do, leaves it alone.
function check(status::Int32)
    if status == CAPI.MP_STATUS_OK
        deliver_notices()
        return
    end
    message = unsafe_string(CAPI.mp_last_error_message())
    deliver_notices()
    status == CAPI.MP_STATUS_INVALID_SHAPE && throw(MPError(status, with_julias_order(message)))
    status < 0 && throw(MPError(status, message))
    task_local_storage(:mixedprec_note, message)
    @warn message _group = :mixedprec
    return
end

# Of a call that may say that something is not done yet: whether it is.
function is_done(status::Int32)
    status == CAPI.MP_STATUS_NOT_READY && return false
    check(status)
    return true
end

# Text of a function of the form f(..., buffer, capacity, needed).
function text_of(fill)
    needed = Ref{Csize_t}(0)
    check(fill(C_NULL, 0, needed))
    while true
        buffer = Vector{UInt8}(undef, needed[])
        check(fill(buffer, length(buffer), needed))
        needed[] <= length(buffer) && return String(buffer[1:needed[]-1])
    end
end

# A name for the C library, which would stop reading at a NUL.
function c_text(text::AbstractString)
    copy = String(text)
    Base.containsnul(copy) && throw(ArgumentError("a name or path must not contain a NUL: $(repr(copy))"))
    return copy
end
