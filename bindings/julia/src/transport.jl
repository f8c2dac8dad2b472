# SPDX-License-Identifier: Apache-2.0
# Communicators over functions of the program's own.
#
# These functions answer at once, so they run inside of the library's call, on the thread that made it: a thread of
# Julia's (the library is not told MP_COMM_TAKES_ANY_THREAD). That thread has let the collector go, and takes it
# back first.

"""
    abstract type Transport

A way for ranks to exchange bytes. A subtype has these methods, which must not wait for other ranks, nor for
anything else that switches tasks, nor use the communicator:

    MixedPrec.begin_operation(transport, operation)::Any     start it; gives a request, any object
    MixedPrec.poll_operation(transport, request)::Bool       move it on; true when all is received and sent
    MixedPrec.end_operation(transport, request)              its memory is not touched any more, done or not
    MixedPrec.abort_transport(transport, status, reason)     this rank gives up (optional)
    MixedPrec.split_transport(transport, group)              a transport for `group`, a named tuple of color, key,
                                                             rank, members and context (optional)

`end_operation` and `abort_transport` may run in a finalizer. What is thrown ends the communicator with kind
`:callback_failed`. `Comm(transport; rank, size)` makes the communicator.
"""
abstract type Transport end

"""
One operation of a transport: `kind` (`:all_to_all`, `:all_gather`, `:broadcast`, `:barrier`, `:max_u32`),
`sequence` (the same on every rank) and `root`. `send` and `receive` have the bytes for and from each rank, as
arrays over the library's memory, which may be used until `end_operation`. Of `:all_gather`, `send` has one element;
of `:broadcast` and `:max_u32` `receive` has one: the data, in place (for `:max_u32` numbers of 4 bytes, of which
each becomes its maximum over the ranks).
"""
struct Operation
    kind::Symbol
    sequence::Int
    root::Int
    send::Vector{Vector{UInt8}}
    receive::Vector{Vector{UInt8}}
end

begin_operation(t::Transport, operation) = error("$(typeof(t)) has no begin_operation")
poll_operation(t::Transport, request) = error("$(typeof(t)) has no poll_operation")
end_operation(t::Transport, request) = nothing
abort_transport(t::Transport, status, reason) = nothing
split_transport(t::Transport, group) = error("$(typeof(t)) cannot be split")

# What the table's payload points to. The registry keeps it until the table's destroy.
mutable struct TransportState
    transport::Transport
    size::Int
    requests::Dict{Int,Any}
    guard::ReentrantLock
    id::Int
    node::Ptr{Cvoid}
end

const OPERATIONS = (all_to_all = CAPI.MP_COMM_ALL_TO_ALL, all_gather = CAPI.MP_COMM_ALL_GATHER,
                    broadcast = CAPI.MP_COMM_BROADCAST, barrier = CAPI.MP_COMM_BARRIER, max_u32 = CAPI.MP_COMM_MAX_U32)

view_bytes(base, offset, count) =
    count == 0 ? UInt8[] : unsafe_wrap(Array, Ptr{UInt8}(base + offset), count)

function operation_of(raw::CAPI.mp_comm_operation, size)
    kind = choice_name(OPERATIONS, raw.kind)
    many(base, bytes, offsets) =
        [view_bytes(base, unsafe_load(offsets, i), unsafe_load(bytes, i)) for i in 1:size]
    one(base, count) = [view_bytes(base, 0, count)]
    none = Vector{UInt8}[]
    send = kind === :all_to_all ? many(raw.send, raw.send_bytes, raw.send_offsets) :
           kind === :all_gather ? one(raw.send, unsafe_load(raw.send_bytes)) : none
    receive = kind in (:all_to_all, :all_gather) ? many(raw.receive, raw.receive_bytes, raw.receive_offsets) :
              kind === :broadcast ? one(raw.receive, unsafe_load(raw.receive_bytes)) :
              kind === :max_u32 ? one(raw.receive, 4raw.count) : none
    return Operation(kind, raw.sequence, raw.root, send, receive)
end

# What is thrown becomes a status; nothing may leave a callback.
function attempt(f, payload)
    try
        current_task().sticky = true # if it waits all the same, it must come back on this thread
        f(unsafe_pointer_to_objref(payload)::TransportState)
        return CAPI.MP_STATUS_OK
    catch problem
        @error "a function of a transport has failed" exception = (problem, catch_backtrace())
        return CAPI.MP_STATUS_CALLBACK_FAILED
    end
end

transport_begin(operation, request, payload) = attempt(payload) do state
    raw = unsafe_load(operation)
    started = begin_operation(state.transport, operation_of(raw, state.size))
    key = Int(raw.sequence) + 1
    lock(() -> state.requests[key] = started, state.guard)
    unsafe_store!(request, Ptr{Cvoid}(key))
end

transport_poll(request, done, payload) = attempt(payload) do state
    found = lock(() -> state.requests[Int(request)], state.guard)
    unsafe_store!(done, Int32(poll_operation(state.transport, found)::Bool))
end

transport_release(request, payload) = attempt(payload) do state
    end_operation(state.transport, lock(() -> pop!(state.requests, Int(request)), state.guard))
end

transport_abort(status, reason, payload) = attempt(payload) do state
    abort_transport(state.transport, kind_of(status), reason == C_NULL ? "" : unsafe_string(reason))
end

transport_split(raw, out, payload) = attempt(payload) do state
    g = unsafe_load(raw)
    members = [Int(unsafe_load(g.members, i)) for i in 1:g.count]
    group = (color = Int(g.color), key = Int(g.key), rank = Int(g.rank), members = members, context = Int(g.context))
    child = split_transport(state.transport, group)
    g.color < 0 || unsafe_store!(out, transport_table(child::Transport, group.rank, length(members))[1])
end

transport_destroy(payload) = attempt(state -> push_notice(state.node), payload)

# Methods of a program that come later must not make Julia compile the C callbacks anew, or call them in a slower
# way that allocates: what they do is looked up behind this.
@noinline function looked_up(f, arguments...)::Int32
    try
        return Base.invokelatest(f, arguments...)::Int32
    catch # such as logging in a finalizer
        return CAPI.MP_STATUS_CALLBACK_FAILED
    end
end

# Not inlined, so that the callbacks below have no frame with objects before the collector knows of their thread again.
@noinline call_begin(operation, request, payload) = looked_up(transport_begin, operation, request, payload)
@noinline call_poll(request, done, payload) = looked_up(transport_poll, request, done, payload)
@noinline call_release(request, payload) = looked_up(transport_release, request, payload)
@noinline call_abort(status, reason, payload) = looked_up(transport_abort, status, reason, payload)
@noinline call_split(group, out, payload) = looked_up(transport_split, group, out, payload)
@noinline call_destroy(payload) = looked_up(transport_destroy, payload)

# The C callbacks: no objects of Julia's are touched before the collector is told that this thread is one of its own
# again.
macro unsafe_for_collector(call)
    quote
        state = ccall(:jl_gc_unsafe_enter, Int8, ())
        result = $(esc(call))
        ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
        result
    end
end

on_begin(operation::Ptr{CAPI.mp_comm_operation}, request::Ptr{Ptr{Cvoid}}, payload::Ptr{Cvoid})::Int32 =
    @unsafe_for_collector call_begin(operation, request, payload)
on_poll(request::Ptr{Cvoid}, done::Ptr{Int32}, payload::Ptr{Cvoid})::Int32 =
    @unsafe_for_collector call_poll(request, done, payload)
on_release(request::Ptr{Cvoid}, payload::Ptr{Cvoid})::Cvoid =
    (@unsafe_for_collector call_release(request, payload); nothing)
on_abort(status::Int32, reason::Ptr{UInt8}, payload::Ptr{Cvoid})::Cvoid =
    (@unsafe_for_collector call_abort(status, reason, payload); nothing)
on_split(group::Ptr{CAPI.mp_comm_group}, out::Ptr{CAPI.mp_comm_callbacks}, payload::Ptr{Cvoid})::Int32 =
    @unsafe_for_collector call_split(group, out, payload)
on_destroy(payload::Ptr{Cvoid})::Cvoid = (@unsafe_for_collector call_destroy(payload); nothing)

# The table for the library, and the state behind it, which the registry keeps.
function transport_table(t::Transport, rank, size)
    state = TransportState(t, size, Dict{Int,Any}(), ReentrantLock(), 0, C_NULL)
    state.id = register(state)
    state.node = release_notice(state.id)
    table = CAPI.mp_comm_callbacks(
        rank = rank, size = size,
        var"begin" = @cfunction(on_begin, Int32, (Ptr{CAPI.mp_comm_operation}, Ptr{Ptr{Cvoid}}, Ptr{Cvoid})),
        poll = @cfunction(on_poll, Int32, (Ptr{Cvoid}, Ptr{Int32}, Ptr{Cvoid})),
        release = @cfunction(on_release, Cvoid, (Ptr{Cvoid}, Ptr{Cvoid})),
        abort = @cfunction(on_abort, Cvoid, (Int32, Ptr{UInt8}, Ptr{Cvoid})),
        split = @cfunction(on_split, Int32, (Ptr{CAPI.mp_comm_group}, Ptr{CAPI.mp_comm_callbacks}, Ptr{Cvoid})),
        destroy = @cfunction(on_destroy, Cvoid, (Ptr{Cvoid},)), payload = pointer_from_objref(state))
    return table, state
end

"""
    Comm(transport; rank, size, deadline_ms = 0)

A communicator over a transport of one's own, on rank `rank` (from 0) of `size`.
"""
function Comm(t::Transport; rank::Integer, size::Integer, rest...)
    table, state = transport_table(t, rank, size)
    try
        pointer = made(out -> CAPI.mp_comm_create_callbacks(comm_desc(; rest...), Ref(table), out), CAPI.mp_comm)
        return Comm(pointer, t)
    catch
        unregister(state.id)
        Libc.free(state.node)
        rethrow()
    end
end
