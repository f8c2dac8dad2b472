# SPDX-License-Identifier: Apache-2.0
# Contexts, queues and events.

@handle Context context """
    Context(; threads = 0, device = :host, device_index = 0, backend = nothing, bind_threads = false, log = nothing,
            log_level = :warning)

The host and at most one accelerator, with their threads and memory; any task may use it. `threads` is the number of
host threads (0: one for each physical core that the process may use). `device` is `:host`, `:cuda` or `:hip`; a
device that cannot be opened is an error that says why. `backend` is `"host"`, `"reference"` or `"kokkos"`.
`log(level, message)` gets the library's lines up to `log_level` (`:error`, `:warning`, `:info`, `:debug`), after
the call that they belong to.
"""

const DEVICES = (host = CAPI.MP_DEVICE_HOST, cuda = CAPI.MP_DEVICE_CUDA, hip = CAPI.MP_DEVICE_HIP)
const LOG_LEVELS = (error = CAPI.MP_LOG_ERROR, warning = CAPI.MP_LOG_WARNING, info = CAPI.MP_LOG_INFO,
                    debug = CAPI.MP_LOG_DEBUG)

# Ends an entry of the registry with the object that keeps this; usable from finalizers.
mutable struct Registration
    id::Int
    node::Ptr{Cvoid}
    function Registration(value)
        id = register(value)
        return finalizer(end_registration, new(id, release_notice(id)))
    end
end
function end_registration(r::Registration)
    node, r.node = r.node, C_NULL
    node == C_NULL || push_notice(node)
    return
end

function Context(; threads = 0, device::Symbol = :host, device_index = 0, backend = nothing, bind_threads = false,
                 log = nothing, log_level::Symbol = :warning)
    kind, level = choice(DEVICES, device, "device"), choice(LOG_LEVELS, log_level, "log_level")
    name = backend === nothing ? nothing : c_text(backend)
    listener = log === nothing ? nothing :
               Registration((number, message) -> log(choice_name(LOG_LEVELS, number), message))
    pointer = GC.@preserve name made(CAPI.mp_context) do out
        CAPI.mp_context_create(Ref(CAPI.mp_context_desc(
            flags = flags(CAPI.MP_CONTEXT_BIND_THREADS => bind_threads), api_version = CAPI.MP_VERSION,
            device_kind = kind, device_index = device_index, num_threads = threads, log_level = level,
            backend = name === nothing ? C_NULL : Base.pointer(name), log = log === nothing ? C_NULL : LOG_CALLBACK[],
            log_payload = Ptr{Cvoid}(log === nothing ? 0 : listener.id))), out)
    end
    return Context(pointer, listener)
end

"Number of host threads that a context works with."
threads(c::Context) = Int(filled(box -> CAPI.mp_context_get_num_threads(c, box), Int32(0)))

"""
    describe(object)

What a context, a plan of a product, a layer or a communicator found and decided, as text (of a context: JSON).
"""
describe(c::Context) = text_of((b, n, needed) -> CAPI.mp_context_describe(c, b, n, needed))

summary_of(c::Context) = "$(threads(c)) threads"

"""
    sync(context)
    sync(queue)
    sync(event)

Wait for the work of the context's default queue, of a queue, or before an event; throws what went wrong in it.
"""
sync(c::Context) = check(CAPI.mp_context_sync(c))

"Number of devices of a kind (`:host`, `:cuda`, `:hip`); throws with the reason where there is none."
device_count(kind::Symbol) =
    Int(filled(box -> CAPI.mp_device_get_count(choice(DEVICES, kind, "device"), box), Int32(0)))

"""
    device_available(kind, index = 0)

`true` where a context could open the device, else the reason as an `MPError` (not thrown).
"""
function device_available(kind::Symbol, index = 0)
    try
        check(CAPI.mp_device_available(choice(DEVICES, kind, "device"), index))
        return true
    catch problem
        problem isa MPError || rethrow()
        return problem
    end
end

"What its driver calls a device."
device_name(kind::Symbol, index = 0) =
    text_of((b, n, needed) -> CAPI.mp_device_get_name(choice(DEVICES, kind, "device"), index, b, n, needed))

"Bytes of a device's memory."
device_memory(kind::Symbol, index = 0) =
    filled(box -> CAPI.mp_device_get_memory(choice(DEVICES, kind, "device"), index, box), Int64(0))

@handle Queue queue """
    Queue(context)

An in-order stream of work. Functions take it as `queue = q`; without one they use the context's default queue.
"""
Queue(c::Context) = Queue(made(out -> CAPI.mp_queue_create(c, out), CAPI.mp_queue), c)
sync(q::Queue) = check(CAPI.mp_queue_sync(q))

"The most memory that work on this queue has held at once, in bytes."
workspace_peak(q::Queue) = Int(filled(box -> CAPI.mp_queue_get_workspace_peak(q, box), Csize_t(0)))

@handle Event event """
    Event(context)

A point in a queue's work: `record(event; queue)` sets it, `wait_event(queue, event)` makes another queue wait for it,
`test(event)` says whether it has been reached, `sync(event)` waits.
"""
Event(c::Context) = Event(made(out -> CAPI.mp_event_create(c, out), CAPI.mp_event), c)

"The event is now after the queue's work so far."
record(e::Event; queue = nothing) = check(CAPI.mp_event_record(e, queue))

"What is put on the queue from now on begins after the event."
wait_event(q::Queue, e::Event) = check(CAPI.mp_queue_wait_event(q, e))

"""
    test(event)
    test(request)
    test(checkpoint)

Whether an event has been reached, an exchange is done, or no save is running. Does not wait.
"""
test(e::Event) = is_done(CAPI.mp_event_test(e))
sync(e::Event) = check(CAPI.mp_event_sync(e))
