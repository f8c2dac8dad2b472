# SPDX-License-Identifier: Apache-2.0
# MIXEDPREC_DIR names the library's prefix or build folder. Ranks as threads need JULIA_NUM_THREADS=2; without it a
# second Julia runs those tests.
using MixedPrec
using Test

# The kind of the MPError that f throws; what it throws otherwise.
function kind(f)
    try
        f()
        return :nothing_thrown
    catch problem
        return problem isa MPError ? problem.kind : typeof(problem)
    end
end
words(f) = try f(); "" catch problem; sprint(showerror, problem) end

@testset "MixedPrec" begin
    for part in ("layout", "context", "memory", "dtypes", "recipe", "tensor", "gemm", "linear", "scaler", "optimizer", "slots",
                 "comm", "checkpoint", "rule", "misuse", "leaks", "examples", "threads")
        @testset "$part" begin
            own = Module(Symbol("Test_", part))
            Core.eval(own, :(using MixedPrec, Test; const kind, words, here = $kind, $words, $(@__DIR__)))
            Base.include(own, joinpath(@__DIR__, "$part.jl"))
        end
    end
end
