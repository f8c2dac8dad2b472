# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 2)
@test threads(c) == 2
@test occursin("\"host\"", describe(c))
@test repr(c) == "Context(2 threads)"
sync(c)
@test device_count(:host) == 1
@test device_available(:host) === true
@test device_name(:host) == "host"
@test device_memory(:host) > 0
@test device_available(:cuda, 99) isa MPError
@test kind(() -> Context(threads = -1)) === :invalid_argument
@test kind(() -> Context(backend = "gpu")) === :unknown_name
@test kind(() -> Context(device = :tpu)) === ArgumentError
@test kind(() -> Context(backend = "ho\0st")) === ArgumentError

# Log lines are told after the call, and may use the library; a function that throws is logged, and undoes nothing.
lines = []
logged = Context(threads = 1, log_level = :debug, log = (level, text) -> push!(lines, (level, text, library_version())))
@test any(l -> l[1] === :info && occursin("thread", l[2]), lines)
@test_logs (:error,) (:error,) Context(threads = 1, log_level = :info, log = (level, text) -> error("no"))
close(logged)

q, e = Queue(c), Event(c)
record(e; queue = q)
wait_event(q, e)
@test MixedPrec.test(e)
sync(e)
sync(q)
@test MixedPrec.workspace_peak(q) >= 0
close(q)
@test kind(() -> sync(q)) === :invalid_handle
@test kind(() -> record(e; queue = q)) === :invalid_handle # not the default queue by accident
close(q)
@test repr(q) == "Queue(closed)"
close(c)
@test kind(() -> threads(c)) === :invalid_handle
@test kind(() -> Recipe(c, "fp32")) === :invalid_handle
