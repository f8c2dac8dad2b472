# SPDX-License-Identifier: Apache-2.0
# What the library tells us while it works: log lines, monitors, memory that it no longer needs.
#
# Such calls may come from a thread of the library's, which Julia before 1.9 does not know, or from inside of a
# call, where a task must not switch. So the C callbacks here use nothing of Julia's run time: they push a node of C
# memory on a lock-free stack. `check`, after every call, hands what is there to the functions of the program, in
# the task that made the call. These may do anything, also use the library.

struct Notice
    next::Ptr{Cvoid}
    kind::Int
    id::Int      # of REGISTRY
    number::Int  # level of a log line, bytes of advice
end

const RELEASE, LOG, MONITOR = 0, 1, 2

# The newest node, or 0.
const NOTICES = Threads.Atomic{Int}(0)

# What callbacks belong to: functions of the program, and memory that the library uses.
const REGISTRY = Dict{Int,Any}()
const REGISTRY_LOCK = ReentrantLock()
const NEXT_ID = Threads.Atomic{Int}(1)

function register(value)
    id = Threads.atomic_add!(NEXT_ID, 1)
    lock(() -> REGISTRY[id] = value, REGISTRY_LOCK)
    return id
end

unregister(id) = (lock(() -> delete!(REGISTRY, id), REGISTRY_LOCK); nothing)

id_of(id::Int) = id
id_of(payload::Ptr) = reinterpret(Int, payload)

function new_notice(kind, id, number, extra)
    node = ccall(:malloc, Ptr{Cvoid}, (Csize_t,), sizeof(Notice) + extra)
    node == C_NULL || unsafe_store!(Ptr{Notice}(node), Notice(C_NULL, kind, id_of(id), number % Int))
    return node
end

# A node that says: the entry of the registry is no longer needed.
function release_notice(id)
    node = new_notice(RELEASE, id, 0, 0)
    node == C_NULL && throw(OutOfMemoryError())
    return node
end

function push_notice(node::Ptr{Cvoid})::Cvoid
    while true
        head = NOTICES[]
        unsafe_store!(Ptr{Int}(node), head)
        Threads.atomic_cas!(NOTICES, head, Int(node)) == head && return
    end
end

function on_log(level::Int32, message::Ptr{UInt8}, payload::Ptr{Cvoid})::Cvoid
    bytes = ccall(:strlen, Csize_t, (Ptr{UInt8},), message)
    node = new_notice(LOG, payload, level, bytes + 1)
    node == C_NULL && return
    ccall(:memcpy, Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{UInt8}, Csize_t), node + sizeof(Notice), message, bytes + 1)
    push_notice(node)
end

function on_monitor(payload::Ptr{Cvoid}, name::Ptr{UInt8}, stats::Ptr{Cvoid}, advice::Ptr{UInt8})::Cvoid
    bytes = advice == C_NULL ? UInt(0) : ccall(:strlen, Csize_t, (Ptr{UInt8},), advice)
    node = new_notice(MONITOR, payload, bytes, sizeof(CAPI.mp_linear_stats) + bytes)
    node == C_NULL && return
    body = node + sizeof(Notice)
    ccall(:memcpy, Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}, Csize_t), body, stats, sizeof(CAPI.mp_linear_stats))
    if bytes > 0
        ccall(:memcpy, Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{UInt8}, Csize_t), body + sizeof(CAPI.mp_linear_stats), advice,
              bytes)
    end
    push_notice(node)
end

# A checkpoint's progress: two numbers, which `progress` reads.
function on_progress(done::Int64, total::Int64, payload::Ptr{Cvoid})::Cvoid
    unsafe_store!(Ptr{Int64}(payload), done)
    unsafe_store!(Ptr{Int64}(payload), total, 2)
    return
end

const RELEASE_CALLBACK = Ref{Ptr{Cvoid}}(C_NULL)
const LOG_CALLBACK = Ref{Ptr{Cvoid}}(C_NULL)
const MONITOR_CALLBACK = Ref{Ptr{Cvoid}}(C_NULL)
const PROGRESS_CALLBACK = Ref{Ptr{Cvoid}}(C_NULL)

# Each is called once here, so that what it needs is compiled and bound before a foreign thread comes.
function prepare_notices()
    RELEASE_CALLBACK[] = @cfunction(push_notice, Cvoid, (Ptr{Cvoid},))
    LOG_CALLBACK[] = @cfunction(on_log, Cvoid, (Int32, Ptr{UInt8}, Ptr{Cvoid}))
    MONITOR_CALLBACK[] = @cfunction(on_monitor, Cvoid, (Ptr{Cvoid}, Ptr{UInt8}, Ptr{Cvoid}, Ptr{UInt8}))
    PROGRESS_CALLBACK[] = @cfunction(on_progress, Cvoid, (Int64, Int64, Ptr{Cvoid}))
    stats, text, cell = Ref(CAPI.mp_linear_stats()), "advice", zeros(Int64, 2)
    GC.@preserve stats text cell begin
        ccall(RELEASE_CALLBACK[], Cvoid, (Ptr{Cvoid},), release_notice(0))
        ccall(LOG_CALLBACK[], Cvoid, (Int32, Ptr{UInt8}, Ptr{Cvoid}), 0, pointer(text), C_NULL)
        ccall(MONITOR_CALLBACK[], Cvoid, (Ptr{Cvoid}, Ptr{UInt8}, Ptr{Cvoid}, Ptr{UInt8}), C_NULL, pointer(text),
              Base.unsafe_convert(Ptr{CAPI.mp_linear_stats}, stats), pointer(text))
        ccall(PROGRESS_CALLBACK[], Cvoid, (Int64, Int64, Ptr{Cvoid}), 0, 0, pointer(cell))
    end
    deliver_notices()
    return
end

deliver_notices() = NOTICES[] == 0 ? nothing : deliver_all()

@noinline function deliver_all()
    newest, nodes = Ptr{Cvoid}(Threads.atomic_xchg!(NOTICES, 0)), Ptr{Cvoid}[]
    while newest != C_NULL
        push!(nodes, newest)
        newest = unsafe_load(Ptr{Notice}(newest)).next
    end
    for node in reverse!(nodes)
        notice, body = unsafe_load(Ptr{Notice}(node)), node + sizeof(Notice)
        if notice.kind == RELEASE
            unregister(notice.id)
        elseif notice.kind == LOG
            tell(notice.id, notice.number, unsafe_string(Ptr{UInt8}(body)))
        else
            stats = linear_stats(unsafe_load(Ptr{CAPI.mp_linear_stats}(body)))
            words = notice.number == 0 ? nothing :
                    unsafe_string(Ptr{UInt8}(body) + sizeof(CAPI.mp_linear_stats), notice.number)
            tell(notice.id, stats, words)
        end
        Libc.free(node)
    end
    return
end

# A function of the program that throws must not undo what the library has done.
function tell(id, arguments...)
    f = lock(() -> get(REGISTRY, id, nothing), REGISTRY_LOCK)
    f === nothing && return
    try
        f(arguments...)
    catch problem
        @error "a log or monitor function has failed" exception = (problem, catch_backtrace())
    end
    return
end
