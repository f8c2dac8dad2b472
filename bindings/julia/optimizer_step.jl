# SPDX-License-Identifier: Apache-2.0
# bindings/c/optimizer_step.c in Julia: must print the same lines.
using MixedPrec
const MP = MixedPrec

const STEPS, COUNT, KAHAN_COUNT, COLUMNS = 10, 37, 300, 15

hex(x::Float32) = string(reinterpret(UInt32, x), base = 16, pad = 8)
hex(x::UInt16) = string(x, base = 16, pad = 4)

function make_optimizer(context, recipe)
    optimizer = MP.Optimizer(context, MP.Recipe(context, recipe))
    group, note = MP.add_group(optimizer, weight_decay = 0.01)
    note === nothing || println("note ", recipe, ": ", note)
    optimizer, group
end

# All elements of the fp32 runs are the same; one that is not shows as a missing line.
function print_step(run, step, arrays...)
    all(a -> all(==(a[1]), a), arrays) || return
    g, p, m, v = (hex(a[1]) for a in arrays)
    println("$run step $step grad $g param $p exp_avg $m exp_avg_sq $v")
end

function run_tensors(context)
    p, g, m, v = ones(Float32, COUNT), zeros(Float32, COUNT), zeros(Float32, COUNT), zeros(Float32, COUNT)
    optimizer, group = make_optimizer(context, "fp32")
    MP.add_param(optimizer, group, "p", MP.Tensor(context, p), MP.Tensor(context, g))
    for t in 1:STEPS
        fill!(g, sin(Float64(t)))
        MP.step!(optimizer)
        MP.sync(context)
        read!(MP.state(optimizer, 0, "exp_avg"), m)
        read!(MP.state(optimizer, 0, "exp_avg_sq"), v)
        print_step("tensors", t, g, p, m, v)
        GC.gc() # the wrapped arrays must survive
    end
    stats = MP.stats(optimizer)
    println("stats step ", stats.step, " skipped ", stats.skipped_steps)
end

function run_pointers(context)
    p, g, m, v = ones(Float32, COUNT), zeros(Float32, COUNT), zeros(Float32, COUNT), zeros(Float32, COUNT)
    for t in 1:STEPS
        fill!(g, sin(Float64(t)))
        MP.step_pointers!(context, t, p, g, m, v, weight_decay = 0.01)
        print_step("pointers", t, g, p, m, v)
    end
end

next_random(state) = state[] = state[] * 0x0019660d + 0x3c6ef35f

# 24 bits, so exact in fp32, in [-1, 1).
next_fp32(state) = Float32(Int32(next_random(state) >> 8) - 8388608) / 8388608f0

# 8 bits, so exact in bf16, whose code is then the upper half of fp32's; in [-0.125, 0.125).
next_bf16(state) = UInt16(reinterpret(UInt32, Float32(Int32(next_random(state) >> 24) - 128) / 1024f0) >> 16)

function run_kahan(context)
    seed = Ref(UInt32(1))
    p, g = zeros(UInt16, KAHAN_COUNT), zeros(UInt16, KAHAN_COUNT)
    start = [next_fp32(seed) for _ in 1:KAHAN_COUNT]
    optimizer, group = make_optimizer(context, "bf16_pure_kahan")
    MP.add_param(optimizer, group, "p", MP.Tensor(context, p, dtype = MP.BF16), MP.Tensor(context, g, dtype = MP.BF16),
                 init = MP.Tensor(context, start))
    for _ in 1:STEPS
        for i in eachindex(g)
            g[i] = next_bf16(seed)
        end
        MP.step!(optimizer)
        MP.sync(context)
    end
    for name in ("param", "compensation", "exp_avg", "exp_avg_sq")
        bits = read!(MP.state(optimizer, 0, name), zeros(UInt16, KAHAN_COUNT))
        for i in 1:COLUMNS:KAHAN_COUNT
            println("kahan ", name, " ", i - 1, " ", join(hex.(bits[i:i + COLUMNS - 1]), " "))
        end
    end
    close(optimizer)
    close(optimizer) # does no harm
end

println("library ", MP.library_version())
for T in MP.STRUCTS
    println("layout ", nameof(T), " ", sizeof(T), ": ", join(fieldoffset.(T, 1:fieldcount(T)) .|> Int, " "))
end
context = MP.Context(num_threads = 2)
try
    MP.Recipe(context, "bf16_pure_kahn")
catch e
    e isa MP.MixedPrecError || rethrow()
    println("error ", e.status, " ", sprint(showerror, e))
end
run_tensors(context)
run_pointers(context)
run_kahan(context)
