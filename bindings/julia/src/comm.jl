# SPDX-License-Identifier: Apache-2.0
# Ranks that exchange bytes, and sums over them.

@handle Comm comm """
    Comm(; deadline_ms = 0)

The communicator of one rank. Others: `thread_comms`, `mpi_comm`, `Comm(transport)` for a transport of one's own.
Ranks count from 0. Every rank makes the same calls in the same order, one task at a time for each communicator. A
rank that is lost, stops or asks for something else is an `MPError` on the others within the deadline, and ends the
communicator. An exchange waits, or with `async = true` gives a `Request` to `wait` for.
"""

comm_desc(; deadline_ms = 0, ranks_per_node = 0) =
    Ref(CAPI.mp_comm_desc(deadline_ms = deadline_ms, ranks_per_node = ranks_per_node))

Comm(; rest...) = Comm(made(out -> CAPI.mp_comm_create_self(comm_desc(; rest...), out), CAPI.mp_comm))

"""
    thread_comms(count; deadline_ms = 0, ranks_per_node = 0)

Communicators for ranks that are tasks on threads of this process: one for each, which one task at a time may use. Ranks
wait for each other while they hold their thread, so Julia must have at least `count` of them.
"""
function thread_comms(count::Integer; rest...)
    1 <= count <= Threads.nthreads() || throw(ArgumentError(
        "$count ranks need as many threads, and Julia has $(Threads.nthreads()): set JULIA_NUM_THREADS"))
    out = fill(Ptr{CAPI.mp_comm}(C_NULL), count)
    check(CAPI.mp_comm_create_threads(comm_desc(; rest...), count, out))
    return map(p -> Comm(p), out)
end

"""
    mpi_comm(; native = nothing, deadline_ms = 0)

A communicator over MPI, by the library's module for it. `native` is a `Ref` to an `MPI_Comm` (with MPI.jl:
`Ref(comm.val)`), which is duplicated; `nothing` is `MPI_COMM_WORLD`.
"""
function mpi_comm(; native = nothing, rest...)
    GC.@preserve native begin
        address = native === nothing ? C_NULL : Ptr{Cvoid}(Base.unsafe_convert(Ptr{eltype(native)}, native))
        return Comm(made(out -> CAPI.mp_comm_create_mpi(comm_desc(; rest...), address, out), CAPI.mp_comm))
    end
end

"This rank's number, from 0."
comm_rank(c::Comm) = Int(filled(box -> CAPI.mp_comm_get_rank(c, box), Int32(0)))
"The number of ranks."
comm_size(c::Comm) = Int(filled(box -> CAPI.mp_comm_get_size(c, box), Int32(0)))
"Which machine a rank is on, from 0."
comm_node(c::Comm, r::Integer) = Int(filled(box -> CAPI.mp_comm_get_node(c, r, box), Int32(0)))
"The deadline of calls in milliseconds."
deadline(c::Comm) = Int(filled(box -> CAPI.mp_comm_get_deadline(c, box), Int64(0)))
"Set the deadline of calls from now on; 0: 300 seconds."
set_deadline!(c::Comm, milliseconds::Integer) = check(CAPI.mp_comm_set_deadline(c, milliseconds))
"What this rank has sent so far: calls and bytes."
traffic(c::Comm) = named(filled(box -> CAPI.mp_comm_get_traffic(c, box), CAPI.mp_comm_traffic()))
describe(c::Comm) = text_of((b, n, needed) -> CAPI.mp_comm_describe(c, b, n, needed))
summary_of(c::Comm) = "rank $(comm_rank(c)) of $(comm_size(c))"

"Give the communicator up; other ranks learn it, and a call that waits on another thread throws."
abort_comm(c::Comm, reason::AbstractString = "") = check(CAPI.mp_comm_abort(c, c_text(reason)))

"`nothing` while the communicator works, else the `MPError` that ended it (not thrown)."
function comm_status(c::Comm)
    try
        check(CAPI.mp_comm_get_status(c))
        return nothing
    catch problem
        problem isa MPError && isopen(c) || rethrow()
        return problem
    end
end

"Communicators of the ranks of one color each, ordered by key; `nothing` on ranks whose color is below 0."
function split_comm(c::Comm, color::Integer, key::Integer = 0)
    pointer = made(out -> CAPI.mp_comm_split(c, color, key, out), CAPI.mp_comm)
    return pointer == C_NULL ? nothing : Comm(pointer, c.kept...)
end

@handle Request comm_request """
An exchange that is under way, from `async = true`: `wait(request)`, `test(request)`. It keeps the arrays; until it
is done they must be left alone. Dropping one that is not done ends its communicator.
"""

"Wait until an exchange is done; throws where it failed."
Base.wait(r::Request) = check(CAPI.mp_comm_request_wait(r))
test(r::Request) = is_done(CAPI.mp_comm_request_test(r))

# Runs call(request or NULL), with what it works on kept.
function exchange(call, async, kept...)
    if !async
        GC.@preserve kept check(call(C_NULL))
        return nothing
    end
    return GC.@preserve kept Request(made(call, CAPI.mp_comm_request), kept...)
end

function same_type(a, b)
    a.type === b.type || throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE, "one array has $(a.type), the other $(b.type)"))
end

# Bytes and offsets of parts with so many elements, checked against the array that holds them.
function parts(counts, memory, what)
    all(>=(0), counts) || throw(MPError(CAPI.MP_STATUS_INVALID_ARGUMENT, "$what has a negative count"))
    sum(counts) == memory.elements || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "$what adds up to $(sum(counts)) elements, and the array has $(memory.elements)"))
    bytes = Int64.(counts .* sizeof(memory.type))
    return bytes, cumsum(bytes) .- bytes
end

function counts_of(counts, memory, ranks, what)
    if counts === nothing
        memory.elements % ranks == 0 || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
            "$(memory.elements) elements are not the same number for each of $ranks ranks; give $what"))
        return fill(memory.elements ÷ ranks, ranks)
    end
    length(counts) == ranks || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "$what has $(length(counts)) numbers for $ranks ranks"))
    return collect(Int64, counts)
end

"""
    all_gather!(comm, receive, send; counts = nothing, async = false, deadline_ms = 0)

Every rank gets every rank's elements, one after another in `receive`. `counts` has those of each rank; default: equal.
"""
function all_gather!(c::Comm, receive::AbstractArray, send::AbstractArray; counts = nothing, async = false,
                     deadline_ms = 0)
    to, from = Memory(receive), Memory(send)
    same_type(to, from)
    numbers = counts_of(counts, to, comm_size(c), "counts")
    bytes, offsets = parts(numbers, to, "counts")
    numbers[comm_rank(c)+1] == from.elements || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "send has $(from.elements) elements, and this rank's count is $(numbers[comm_rank(c)+1])"))
    sent = Int64[from.bytes]
    GC.@preserve bytes offsets sent begin
        what = Ref(CAPI.mp_comm_exchange(send = from.address, send_bytes = pointer(sent), receive = to.address,
                                         receive_bytes = pointer(bytes), receive_offsets = pointer(offsets),
                                         deadline_ms = deadline_ms))
        return exchange(request -> CAPI.mp_comm_all_gather(c, nothing, what, request), async, to, from)
    end
end

"""
    all_to_all!(comm, receive, send; receive_counts = nothing, send_counts = nothing, async = false, deadline_ms = 0)

Every rank gives every rank elements of its own, which lie by rank in both arrays; default: equally many.
"""
function all_to_all!(c::Comm, receive::AbstractArray, send::AbstractArray; receive_counts = nothing,
                     send_counts = nothing, async = false, deadline_ms = 0)
    to, from, n = Memory(receive), Memory(send), comm_size(c)
    same_type(to, from)
    receive_bytes, receive_offsets = parts(counts_of(receive_counts, to, n, "receive_counts"), to, "receive_counts")
    send_bytes, send_offsets = parts(counts_of(send_counts, from, n, "send_counts"), from, "send_counts")
    GC.@preserve receive_bytes receive_offsets send_bytes send_offsets begin
        what = Ref(CAPI.mp_comm_exchange(send = from.address, send_bytes = pointer(send_bytes),
                                         send_offsets = pointer(send_offsets), receive = to.address,
                                         receive_bytes = pointer(receive_bytes),
                                         receive_offsets = pointer(receive_offsets), deadline_ms = deadline_ms))
        return exchange(request -> CAPI.mp_comm_all_to_all(c, nothing, what, request), async, to, from)
    end
end

"All ranks get the elements of rank `root`."
function bcast!(c::Comm, data::AbstractArray; root::Integer = 0, async = false)
    m = Memory(data)
    return exchange(request -> CAPI.mp_comm_broadcast(c, nothing, m.address, m.bytes, root, request), async, m)
end

"Replace values by their maxima over the ranks."
function max!(c::Comm, values::Vector{UInt32}; async = false)
    m = Memory(values)
    return exchange(request -> CAPI.mp_comm_max_u32(c, Ptr{UInt32}(m.address), m.elements, request), async, m)
end

"Return when every rank has called it."
barrier(c::Comm; async = false) = exchange(request -> CAPI.mp_comm_barrier(c, request), async)

# ---- Reductions

const REDUCE_OPS = (sum = CAPI.MP_COMM_OP_SUM, max_abs_bits = CAPI.MP_COMM_OP_MAX_ABS_BITS)
const ORDERS = (rank = CAPI.MP_COMM_ORDER_RANK, tree = CAPI.MP_COMM_ORDER_TREE, exact = CAPI.MP_COMM_ORDER_EXACT,
                fast = CAPI.MP_COMM_ORDER_FAST)
const ACCUMULATES = (default = CAPI.MP_COMM_ACCUMULATE_DEFAULT, fp32 = CAPI.MP_COMM_ACCUMULATE_FP32,
                     fp64 = CAPI.MP_COMM_ACCUMULATE_FP64, fixed = CAPI.MP_COMM_ACCUMULATE_FIXED)
const WIRE_SCALES = (default = CAPI.MP_COMM_SCALE_DEFAULT, tensor = CAPI.MP_COMM_SCALE_TENSOR,
                     block = CAPI.MP_COMM_SCALE_BLOCK, mx = CAPI.MP_COMM_SCALE_MX, shared = CAPI.MP_COMM_SCALE_SHARED)

function reduce_desc(; op::Symbol = :sum, order::Symbol = :rank, accumulate::Symbol = :default, slots = 0,
                     wire_dtype = nothing, wire_scale::Symbol = :default, gather_dtype = nothing,
                     gather_scale::Symbol = :default, stochastic = false, first_element = 0, seed = 0, uid = 0,
                     step = 0, microbatch = 0, deadline_ms = 0)
    return CAPI.mp_comm_reduce_desc(
        flags = flags(CAPI.MP_REDUCE_STOCHASTIC => stochastic), op = choice(REDUCE_OPS, op, "op"),
        order = choice(ORDERS, order, "order"), accumulate = choice(ACCUMULATES, accumulate, "accumulate"),
        slots = slots,
        wire_dtype = dtype_number(wire_dtype), wire_scale = choice(WIRE_SCALES, wire_scale, "wire_scale"),
        gather_dtype = dtype_number(gather_dtype), gather_scale = choice(WIRE_SCALES, gather_scale, "gather_scale"),
        first_element = first_element, seed = seed, uid = uid, step = step, microbatch = microbatch,
        deadline_ms = deadline_ms)
end

as_list(source::Union{Tensor,Nothing}) = source === nothing ? Tensor[] : [source]
as_list(sources) = collect(Tensor, sources)

"""
    all_reduce!(comm, destination, source; order = :rank, op = :sum, wire_dtype = nothing, async = false, ...)

The same sums of all elements on every rank. `source` is a tensor, or several where the rank has several slots. The
keywords, with their defaults, are those of `mp_comm_reduce_desc`:

    op = :sum, order = :rank, accumulate = :default, slots = 0, wire_dtype = nothing, wire_scale = :default,
    gather_dtype = nothing, gather_scale = :default, stochastic = false, first_element = 0, seed = 0, uid = 0, step = 0,
    microbatch = 0, deadline_ms = 0
"""
function all_reduce!(c::Comm, destination::Tensor, source; queue = nothing, async = false, rest...)
    all, desc = as_list(source), Ref(reduce_desc(; rest...))
    raw = pointers(CAPI.mp_tensor, all)
    return exchange(async, all, destination) do request
        CAPI.mp_comm_all_reduce(c, queue, desc, raw, length(raw), destination, request)
    end
end

"Each rank gets the sum of its share: `counts[rank + 1]` elements, default even shares. Keywords as of `all_reduce!`."
function reduce_scatter!(c::Comm, destination::Tensor, source; counts = nothing, queue = nothing, async = false,
                         rest...)
    all, desc, shares = as_list(source), Ref(reduce_desc(; rest...)), shares_of(c, counts)
    raw = pointers(CAPI.mp_tensor, all)
    return exchange(async, all, destination) do request
        CAPI.mp_comm_reduce_scatter(c, queue, desc, raw, length(raw), shares, destination, request)
    end
end

"Every rank gets all ranks' values in `wire_dtype`. Keywords as of `all_reduce!`."
function all_gather_values!(c::Comm, destination::Tensor, shard::Tensor; counts = nothing, queue = nothing,
                            async = false, rest...)
    desc, shares = Ref(reduce_desc(; rest...)), shares_of(c, counts)
    return exchange(async, shard, destination) do request
        CAPI.mp_comm_all_gather_values(c, queue, desc, shard, shares, destination, request)
    end
end

shares_of(c, ::Nothing) = C_NULL
function shares_of(c, counts)
    length(counts) == comm_size(c) || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "counts has $(length(counts)) numbers for $(comm_size(c)) ranks"))
    return collect(Int64, counts)
end

"Bytes that so many elements of a type take on the wire, scales included."
wire_bytes(count::Integer, T::Type; scale::Symbol = :default) =
    Int(filled(box -> CAPI.mp_comm_get_wire_bytes(count, dtype_number(T), choice(WIRE_SCALES, scale, "scale"), box),
               Int64(0)))
