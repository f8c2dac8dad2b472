# SPDX-License-Identifier: Apache-2.0
# What is dropped goes: objects, arrays that were lent, functions that were registered.
settle() = (foreach(_ -> GC.gc(), 1:3); MixedPrec.deliver_notices())
# Bytes that the C library's allocator has lent, modulo 2^32; what is resident is the system's to decide.
struct AllocatorInfo
    numbers::NTuple{10,Cint}
end
function lent()
    info = ccall(:mallinfo, AllocatorInfo, ()).numbers
    return info[5] % UInt32 + info[8] % UInt32 # mapped for themselves, and others in use
end
const COUNTS = occursin("linux-gnu", Sys.MACHINE)
function drop_many(context, n)
    for i in 1:n
        array = zeros(Float32, 250_000) # 1 MB
        o = Optimizer(context, Recipe(context, "fp32"))
        add_param!(o, "p", array; grad = zeros(Float32, 250_000))
        step!(o)
        l = Linear(context, Recipe(context, "fp8_delayed"), zeros(Float32, 32, 32))
        monitor!((arguments...) -> nothing, l, "l")
        i % 2 == 0 && close(o)
        i % 10 == 0 && GC.gc()
    end
end
c = Context(threads = 1)
drop_many(c, 5)
settle()
before, lent_before = length(MixedPrec.REGISTRY), COUNTS ? lent() : UInt32(0)
drop_many(c, 60)
settle()
@test length(MixedPrec.REGISTRY) <= before
COUNTS && @test (lent() - lent_before) % Int32 < 40_000_000 # 60 objects of 4 MB were made; what is compiled takes 20
for i in 1:200
    Context(threads = 1, log = (level, text) -> nothing)
    i % 50 == 0 && GC.gc()
end
settle()
@test length(MixedPrec.REGISTRY) <= before
# Tensors of a failed call leave nothing.
foreach(_ -> kind(() -> Tensor(c, zeros(Float32, ntuple(_ -> 1, 9)))), 1:10)
@test length(MixedPrec.REGISTRY) <= before
