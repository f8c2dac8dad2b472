# SPDX-License-Identifier: Apache-2.0
# Checkpoints.

@handle Checkpoint checkpoint """
    Checkpoint(context; comm = nothing, keep = 0)

Saves and loads all that the next step depends on: `add!` an optimizer, a scaler, layers and data, then `save` and
`load!`. `keep` is how many checkpoints of a directory stay (0: all). With `comm` all but `add!`, `test`, `wait` and
`close` are collective. Close it by hand after a save in the background: closing waits for it.
"""

function Checkpoint(c::Context; comm = nothing, keep = 0)
    # Where the library's thread writes its progress; it is gone before the object is, which keeps this.
    cell = zeros(Int64, 2)
    desc = Ref(CAPI.mp_checkpoint_desc(keep = keep, progress = PROGRESS_CALLBACK[], payload = pointer(cell)))
    GC.@preserve cell begin
        return Checkpoint(made(out -> CAPI.mp_checkpoint_create(c, comm, desc, out), CAPI.mp_checkpoint), c, cell, comm)
    end
end

function progress(x::Checkpoint)
    live_pointer(x)
    cell = x.kept[2]::Vector{Int64}
    return (done = cell[1], total = cell[2])
end

"""
    add!(checkpoint, optimizer)
    add!(checkpoint, scaler)
    add!(checkpoint, name, layer)
    add!(checkpoint, name, data)

What belongs to the training: one optimizer and one scaler at most, layers (their scales) and data of the program's
by name: an array or a `Ref` of plain numbers, which a save reads and a load writes.
"""
add!(x::Checkpoint, o::Optimizer) = (check(CAPI.mp_checkpoint_add_optimizer(x, o)); push!(x.kept, o); nothing)
add!(x::Checkpoint, s::Scaler) = (check(CAPI.mp_checkpoint_add_scaler(x, s)); push!(x.kept, s); nothing)
add!(x::Checkpoint, name::AbstractString, l::Linear) =
    (check(CAPI.mp_checkpoint_add_linear(x, c_text(name), l)); push!(x.kept, l); nothing)
function add!(x::Checkpoint, name::AbstractString, data::AbstractArray)
    m = Memory(data)
    push!(x.kept, m) # first: the memory must stay until the object is closed
    check(CAPI.mp_checkpoint_add_data(x, c_text(name), m.address, m.bytes))
end
function add!(x::Checkpoint, name::AbstractString, data::Base.RefValue{T}) where {T}
    isbitstype(T) || throw(ArgumentError("a Ref of $T is no plain memory"))
    push!(x.kept, data)
    check(CAPI.mp_checkpoint_add_data(x, c_text(name), Base.unsafe_convert(Ptr{T}, data), sizeof(T)))
end

"""
    save(checkpoint, directory, step; background = false)

Save a new checkpoint in a directory of them. With `background` it returns when the state is copied: see `test` and
`wait`.
"""
function save(x::Checkpoint, directory::AbstractString, step::Integer; background = false)
    # The library's thread would call the transport, and Julia before 1.9 does not know that thread.
    background && VERSION < v"1.9" && isopen(x) && over_transport(x.kept[3]) && throw(MPError(
        CAPI.MP_STATUS_UNSUPPORTED, "a save in the background over a Transport of the program's own needs Julia 1.9"))
    check(CAPI.mp_checkpoint_save(x, c_text(directory), step, flags(CAPI.MP_SAVE_BACKGROUND => background)))
end

over_transport(comm) = comm !== nothing && any(k -> k isa Transport, comm.kept)

"""
    load!(checkpoint, path; verify_all = false, other_recipe = false, convert = false)

Load into what was added, from a checkpoint, or the newest whole one of a directory. Where anything is wrong nothing
has changed. `other_recipe` takes one of another recipe with the same types, `convert` rounds its numbers into the
types here. The result is as that of `inspect`, with what the rounding lost (of states by name).
"""
function load!(x::Checkpoint, path::AbstractString; verify_all = false, other_recipe = false, convert = false)
    bits = flags(CAPI.MP_LOAD_VERIFY_ALL => verify_all, CAPI.MP_LOAD_OTHER_RECIPE => other_recipe,
                 CAPI.MP_LOAD_CONVERT => convert)
    return checkpoint_info(box -> CAPI.mp_checkpoint_load(x, c_text(path), bits, box))
end

function checkpoint_info(call)
    i = filled(call, CAPI.mp_checkpoint_info())
    return merge(named(i), (state_largest_error = by_state(i.state_largest_error),
                            state_rms_error = by_state(i.state_rms_error)))
end

test(x::Checkpoint) = is_done(CAPI.mp_checkpoint_test(x))

"Wait until a save in the background has ended; throws where it failed."
Base.wait(x::Checkpoint) = check(CAPI.mp_checkpoint_wait(x))

"""
    inspect(path)

What a checkpoint is (or the newest of a directory), without loading it: step, ranks, tensors, bytes and so on.
"""
inspect(path::AbstractString) = checkpoint_info(box -> CAPI.mp_checkpoint_inspect(c_text(path), box))

"The same in words: the checkpoints of a directory, or a checkpoint's recipe, files and tensors."
describe_checkpoint(path::AbstractString) =
    text_of((b, n, needed) -> CAPI.mp_checkpoint_describe(c_text(path), b, n, needed))

"Write the optimizer's parameters alone as an ordinary safetensors file, which must not exist."
export_weights(x::Checkpoint, file::AbstractString) = check(CAPI.mp_checkpoint_export_weights(x, c_text(file)))
