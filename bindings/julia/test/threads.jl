# SPDX-License-Identifier: Apache-2.0
# Ranks that are threads, while the collector runs. Alone (`julia threads.jl`) or in a second Julia with two threads.
using MixedPrec
using Test

@isdefined(kind) ||
    (kind(f) = try f(); :nothing_thrown catch problem; problem isa MPError ? problem.kind : typeof(problem) end)

# Runs f(rank, communicator) on two threads, with a time limit of the communicators.
function on_ranks(f; rest...)
    comms, results = thread_comms(2; deadline_ms = 20_000, rest...), Vector{Any}(undef, 2)
    Threads.@threads for i in 1:2
        results[i] = try f(i - 1, comms[i]) catch problem; problem end
        results[i] isa Exception && close(comms[i])
    end
    foreach(close, comms)
    return results
end

# Ordinary allocation on one rank, full collections on the other.
rubbish(rank, step) = rank == 0 ? sum(length, [zeros(100) for _ in 1:2000]) : step % 20 == 0 ? GC.gc() : GC.gc(false)

function train(context, rank, comm, stage, steps)
    o = Optimizer(context, Recipe(context, "bf16_mixed"); comm = comm, stage = stage)
    values = Float32.(sin.(1:40_000))
    w = stage == 1 ? copy(values) : Tensor(context, Float32, 40_000)
    stage == 1 || copyto!(w, values)
    p = add_param!(add_group!(o; lr = 0.01), "w", w)
    shard!(o)
    for step in 1:steps
        acquire_grad!(p)
        copyto!(grad(p), fill(Float32(rank + 1), 40_000))
        grad_ready!(p)
        rubbish(rank, step)
        step!(o)
    end
    @assert !isempty(slice(p, rank)) && progress(o).begun >= 1 && traffic(o).total_bytes > 0
    return stage == 1 ? w : Array(w)
end

# Two layers of one parameter each, whose gradients are sums of two micro-batches.
function train_by_layers(context, rank, comm, stage)
    o = Optimizer(context, Recipe(context, "fp32"); comm = comm, stage = stage)
    group = add_group!(o; lr = 0.01)
    weights = [Tensor(context, Float32, 40_000) for _ in 1:2]
    foreach(w -> copyto!(w, ones(Float32, 40_000)), weights)
    layers = [[add_param!(group, "w$i", w)] for (i, w) in enumerate(weights)]
    set_layer_params!(o, layers)
    shard!(o)
    for step in 1:4
        for layer in 1:2
            layer_begin!(o, layer)
            @assert length(Array(weights[layer])) == 40_000
            layer_end!(o, layer)
            @assert (kind(() -> Array(weights[layer])) === :nothing_thrown) == (stage < 3)
        end
        for pass in (:accumulate, :backward), layer in (2, 1)
            layer_begin!(o, layer; pass = pass)
            g = grad(layers[layer][1])
            # The first of them stays for the second.
            values = pass === :accumulate ? fill(Float32(rank), 40_000) : Array(g) .+ 1.0f0
            copyto!(g, values)
            rubbish(rank, step)
            layer_end!(o, layer; pass = pass)
        end
        step!(o)
    end
    layer_begin!(o, 2)
    result = Array(weights[2])
    layer_end!(o, 2)
    return result
end

function thread_tests()
    c = Context(threads = 1)
    for stage in (1, 2)
        results = on_ranks((rank, comm) -> train(c, rank, comm, stage, 60))
        @test results[1] isa Vector{Float32} && results[1] == results[2] && results[1][1] < sin(1) - 0.5
    end
    # Stage 3: weights come and go.
    results = on_ranks() do rank, comm
        local o = Optimizer(c, Recipe(c, "fp32"); comm = comm, stage = 3)
        w = Tensor(c, Float32, 40_000)
        copyto!(w, ones(Float32, 40_000))
        p = add_param!(o, "w", w)
        shard!(o)
        for step in 1:10
            gather_begin!([p])
            gather_wait!([p])
            acquire_grad!(p)
            copyto!(grad(p), ones(Float32, 40_000))
            rubbish(rank, step)
            gather_free!([p])
            step!(o)
        end
        gather_begin!([p])
        gather_wait!([p])
        result = Array(w)
        gather_free!([p])
        result
    end
    @test results[1] isa Vector{Float32} && results[1] == results[2] && results[1][1] ≈ 0.99
    # Layers do it by one call, in each stage with the same bits.
    results = [on_ranks((rank, comm) -> train_by_layers(c, rank, comm, stage)) for stage in 0:3]
    @test all(pair -> pair[1] isa Vector{Float32} && pair[1] == pair[2] == results[1][1], results)
    @test 0.95 < results[1][1][1] < 0.97
    # First values, where one rank has no files, or a rule that is none.
    file = joinpath(mktempdir(), "w.safetensors")
    header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[0,40]}}"
    write(file, htol(UInt64(sizeof(header))), header, zeros(Float32, 10))
    results = on_ranks() do rank, comm
        local o = Optimizer(c, Recipe(c, "fp32"); comm = comm)
        w = Tensor(c, Float32, 10; deferred = true)
        p = add_param!(o, "w", w)
        shard!(o)
        failures = (kind(() -> load_params!([p], rank == 0 ? "/no/such/file" : file)),
                    kind(() -> init_params!([p => (rank == 0 ? :normal : :mine, 0.0, 1.0)])))
        init_params!([p => (:constant, 2.0)])
        (failures, Array(w))
    end
    @test results[1] == ((:io_error, :peer_error), fill(2.0f0, 10))
    @test results[2] == ((:peer_error, ArgumentError), fill(2.0f0, 10))
    # Exchanges, waited for and in flight, while the collector runs.
    results = on_ranks() do rank, comm
        all = zeros(Int64, 2)
        for step in 1:100
            all_gather!(comm, all, [10rank + step])
            @assert all == [step, 10 + step]
            request = all_to_all!(comm, all, [rank, rank + 2]; async = true)
            rubbish(rank, step)
            wait(request)
            @assert all == (rank == 0 ? [0, 1] : [2, 3])
        end
        flag = UInt32[rank]
        max!(comm, flag)
        sum = Tensor(c, Float32, 256)
        all_reduce!(comm, sum, Tensor(c, fill(Float32(rank + 1), 256)))
        half = split_comm(comm, rank)
        (Int(flag[1]), Array(sum)[1], comm_size(half))
    end
    @test results == [(1, 3.0f0, 1), (1, 3.0f0, 1)]
    # A request that is dropped while it is in flight gives its memory back and ends the communicator.
    results = on_ranks() do rank, comm
        rank == 1 && return (sleep_here(0.3); kind(() -> barrier(comm)))
        all_gather!(comm, zeros(2), [1.0]; async = true) |> close
        kind(() -> barrier(comm))
    end
    @test all(k -> k in (:aborted, :peer_lost, :rank_mismatch), results)
    # A rank that leaves, and one that asks for something else.
    results = on_ranks((rank, comm) -> rank == 0 ? close(comm) : kind(() -> barrier(comm)))
    @test results[2] === :peer_lost
    results = on_ranks((rank, comm) -> kind(() -> rank == 0 ? barrier(comm) : max!(comm, UInt32[1])))
    @test :rank_mismatch in results
    # One optimizer, two threads at once: refused, nothing worse.
    o = Optimizer(c, Recipe(c, "fp32"))
    add_param!(o, "w", ones(Float32, 1_000_000); grad = ones(Float32, 1_000_000))
    taken = zeros(Int, 2)
    Threads.@threads for i in 1:2
        for _ in 1:50
            k = kind(() -> step!(o))
            k === :nothing_thrown ? (taken[i] += 1) : @assert k === :bad_state
        end
    end
    @test stats(o).step == sum(taken) > 0
    # Closing what another thread is using.
    for _ in 1:20
        t = Tensor(c, ones(Float32, 100_000))
        kinds = Vector{Any}(undef, 2)
        Threads.@threads for i in 1:2
            kinds[i] = i == 1 ? (close(t); :closed) : kind(() -> Array(t))
        end
        @test kinds[2] in (:nothing_thrown, :invalid_handle)
    end
    # A log function while both threads work; a save in the background with a thread of the library's.
    lines = Threads.Atomic{Int}(0)
    loud = Context(threads = 2, log_level = :debug, log = (level, text) -> Threads.atomic_add!(lines, 1))
    mktempdir() do folder
        o = Optimizer(loud, Recipe(loud, "fp32"))
        add_param!(o, "w", ones(Float32, 1_000_000))
        k = Checkpoint(loud)
        add!(k, o)
        for step in 1:3
            save(k, folder, step; background = true)
            while !MixedPrec.test(k)
                GC.gc(false)
                progress(k)
            end
            wait(k)
        end
        save(k, folder, 4; background = true)
        close(k) # waits
        @test inspect(folder).step == 4
    end
    @test lines[] >= 4
    own_transport(c)
    # The library may give memory back, or log, on a thread that Julia does not know.
    node = MixedPrec.release_notice(MixedPrec.register("memory"))
    id, known = unsafe_load(Ptr{MixedPrec.Notice}(node)).id, () -> haskey(MixedPrec.REGISTRY, id)
    @test known()
    thread = Ref{Culong}(0)
    @test ccall(:pthread_create, Cint, (Ref{Culong}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), thread, C_NULL,
                MixedPrec.RELEASE_CALLBACK[], node) == 0
    @test ccall(:pthread_join, Cint, (Culong, Ptr{Cvoid}), thread[], C_NULL) == 0
    sync(c)
    @test !known()
end

sleep_here(seconds) = (until = time() + seconds; while time() < until; GC.safepoint(); end)

# A transport of the program's own between two threads: a mailbox. Its functions run inside of the library's calls.
struct Mailbox <: Transport
    rank::Int
    members::Vector{Int}
    context::Vector{Int}
    letters::Dict{Any,Vector{UInt8}}
    guard::Threads.SpinLock
end
struct Delivery
    operation::Operation
    done::BitVector
end
address(t::Mailbox, op, from, to) = (t.context, op.sequence, t.members[from+1], t.members[to+1])
# What the lock guards must not allocate long, so that no collection waits for a thread that spins.
locked(f, t::Mailbox) = (while !trylock(t.guard); GC.safepoint(); end; try f() finally unlock(t.guard) end)
function MixedPrec.begin_operation(t::Mailbox, op::Operation)
    size = length(t.members)
    for to in 0:size-1
        bytes = op.kind === :all_to_all ? op.send[to+1] : op.kind === :all_gather ? op.send[1] :
                op.kind === :broadcast && t.rank != op.root ? UInt8[] : op.kind === :barrier ? UInt8[] : op.receive[1]
        locked(() -> t.letters[address(t, op, t.rank, to)] = copy(bytes), t)
    end
    return Delivery(op, falses(size))
end
function MixedPrec.poll_operation(t::Mailbox, d::Delivery)
    op = d.operation
    for from in findall(!, d.done) .- 1
        letter = locked(() -> pop!(t.letters, address(t, op, from, t.rank), nothing), t)
        letter === nothing && continue
        d.done[from+1] = true
        rand() < 0.1 && GC.gc(false)
        op.kind in (:all_to_all, :all_gather) && copyto!(op.receive[from+1], letter)
        op.kind === :broadcast && from == op.root && copyto!(op.receive[1], letter)
        if op.kind === :max_u32
            mine, theirs = reinterpret(UInt32, op.receive[1]), reinterpret(UInt32, letter)
            mine .= max.(mine, theirs)
        end
    end
    return all(d.done)
end
MixedPrec.split_transport(t::Mailbox, g) =
    Mailbox(g.rank, t.members[g.members.+1], vcat(t.context, g.context, g.color), t.letters, t.guard)

function own_transport(c)
    letters, guard, results = Dict{Any,Vector{UInt8}}(), Threads.SpinLock(), Vector{Any}(undef, 2)
    Threads.@threads for i in 1:2
        results[i] = try
            comm = Comm(Mailbox(i - 1, [0, 1], Int[], letters, guard); rank = i - 1, size = 2, deadline_ms = 20_000)
            all = zeros(Int64, 2)
            for step in 1:50
                all_gather!(comm, all, [10i + step])
                rubbish(i - 1, step)
            end
            data = i == 1 ? [1.0, 2.0] : [0.0, 0.0]
            bcast!(comm, data)
            flags = UInt32[i, 3 - i]
            max!(comm, flags)
            (all, data, flags, train(c, i - 1, comm, 1, 20)[1])
        catch problem
            problem
        end
    end
    @test results[1] isa Tuple && results[1] == results[2]
    @test results[1] isa Tuple && results[1][1:3] == ([60, 70], [1.0, 2.0], UInt32[2, 2])
end

if Threads.nthreads() >= 2
    @testset "ranks" begin thread_tests() end
else
    command = julia(joinpath(here, "threads.jl"); threads = 2)
    process = run(pipeline(command, stdout = stdout, stderr = stderr), wait = false)
    @test timedwait(() -> process_exited(process), 240.0) === :ok && success(process)
    process_running(process) && kill(process, 9)
end
