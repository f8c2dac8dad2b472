# SPDX-License-Identifier: Apache-2.0
c, comm = Context(threads = 1), Comm()
@test comm_rank(comm) == 0 && comm_size(comm) == 1 && comm_node(comm, 0) == 0 && repr(comm) == "Comm(rank 0 of 1)"
receive = zeros(Float64, 3)
all_gather!(comm, receive, [1.0f0, 2, 3] .+ 0.0) # any plain numbers
@test receive == [1, 2, 3]
all_to_all!(comm, receive, [4.0, 5, 6])
@test receive == [4, 5, 6]
bcast!(comm, receive)
max!(comm, UInt32[1, 2])
barrier(comm)
r = all_gather!(comm, receive, [7.0, 8, 9]; async = true)
wait(r)
@test MixedPrec.test(r) && receive == [7, 8, 9]
close(r)
@test kind(() -> wait(r)) === :invalid_handle
@test kind(() -> all_gather!(comm, receive, zeros(2))) === :invalid_shape
@test kind(() -> all_gather!(comm, receive, zeros(Float32, 6))) === :invalid_dtype
@test kind(() -> all_gather!(comm, receive, zeros(3); counts = [1, 2])) === :invalid_shape
@test kind(() -> all_to_all!(comm, receive, zeros(3); send_counts = [-3])) === :invalid_argument
@test kind(() -> bcast!(comm, receive; root = 1)) === :invalid_argument
t, u = Tensor(c, Float32[1, 2, 3]), Tensor(c, Float32, 3)
all_reduce!(comm, u, t)
@test Array(u) == [1, 2, 3]
wait(all_reduce!(comm, u, [t]; async = true, wire_dtype = BFloat16))
reduce_scatter!(comm, u, t; counts = [3])
all_gather_values!(comm, u, t; order = :rank)
@test Array(u) == [1, 2, 3]
@test kind(() -> all_reduce!(comm, u, Tensor(c, Float32, 4))) === :invalid_shape
@test kind(() -> all_reduce!(comm, u, t; order = :best)) === ArgumentError
@test kind(() -> reduce_scatter!(comm, u, t; counts = [1, 2])) === :invalid_shape
@test wire_bytes(128, Float8_E4M3) > 128
set_deadline!(comm, 5000)
@test deadline(comm) == 5000
@test traffic(comm).calls > 0
@test occursin("rank 0", describe(comm))
child = split_comm(comm, 0)
@test comm_size(child) == 1 && split_comm(comm, -1) === nothing
@test comm_status(comm) === nothing
abort_comm(comm, "enough")
@test comm_status(comm).kind === :aborted && kind(() -> barrier(comm)) === :aborted
@test kind(() -> thread_comms(Threads.nthreads() + 1)) === ArgumentError
close(comm)
@test kind(() -> comm_status(comm)) === :invalid_handle

# A transport of one's own, alone: what it sends it receives.
struct Alone <: Transport
    log::Vector{Any}
end
function MixedPrec.begin_operation(t::Alone, op::Operation)
    push!(t.log, op.kind)
    foreach((to, from) -> copyto!(to, from), op.kind in (:all_to_all, :all_gather) ? op.receive : [],
            op.kind === :broadcast ? [] : op.send)
    return (op, zeros(1000)) # anything; the collector may come
end
MixedPrec.poll_operation(t::Alone, request) = (GC.gc(false); true)
MixedPrec.end_operation(t::Alone, request) = push!(t.log, :end)
MixedPrec.split_transport(t::Alone, group) = Alone(t.log)
log = []
own = Comm(Alone(log); rank = 0, size = 1)
GC.gc()
all_gather!(own, receive, [1.0, 2, 3])
@test receive == [1, 2, 3] && log == [:all_gather, :end]
barrier(own)
max!(own, UInt32[1])
o = Optimizer(c, Recipe(c, "bf16_mixed"); comm = own, stage = 2)
w = add_param!(o, "w", Tensor(c, Float32, 20_000))
shard!(o)
acquire_grad!(w)
copyto!(grad(w), ones(Float32, 20_000))
grad_ready!(w)
step!(o)
@test !progress(o).has_thread && !isempty(progress(o).reason)
@test stats(o).step == 1

mktempdir() do folder
    k = Checkpoint(c; comm = own)
    add!(k, o)
    save(k, folder, 1)
    @test inspect(folder).step == 1
    # The library's thread would call the transport.
    VERSION < v"1.9" && @test kind(() -> save(k, folder, 2; background = true)) === :unsupported
    close(k)
end
child = split_comm(own, 0)
@test MixedPrec.over_transport(child) && comm_size(child) == 1

struct Broken <: Transport end
broken = Comm(Broken(); rank = 0, size = 1)
@test_logs (:error,) (@test kind(() -> barrier(broken)) === :callback_failed)
@test kind(() -> Comm(Broken(); rank = 2, size = 1)) === :invalid_argument
