# SPDX-License-Identifier: Apache-2.0
# MIXEDPREC_DIR names the library's prefix or build folder. Ranks as threads need JULIA_NUM_THREADS=2; without it a
# second Julia runs those tests. Arguments such as --no-examples leave parts out.
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

const here = @__DIR__

# Another Julia with this package, as a user would start it: Pkg.test's own load path is not handed on.
function julia(script, arguments...; threads = 1)
    environment = filter(e -> e.first != "JULIA_LOAD_PATH", merge(copy(ENV), Dict("JULIA_NUM_THREADS" => "$threads")))
    return setenv(`$(Base.julia_cmd()) -O0 --project=$(dirname(here)) $script $arguments`, environment)
end

const parts = ("layout", "context", "memory", "dtypes", "recipe", "tensor", "gemm", "linear", "scaler", "optimizer",
               "slots", "comm", "checkpoint", "rule", "misuse", "leaks", "examples", "threads")
const left_out = ["--no-$part" for part in parts]
all(in(left_out), ARGS) || error("arguments are $(join(left_out, ", ")), not $(join(ARGS, " "))")

@testset "MixedPrec" begin
    for part in parts
        "--no-$part" in ARGS && continue
        @testset "$part" begin
            own = Module(Symbol("Test_", part))
            Core.eval(own, :(using MixedPrec, Test; const kind, words, julia, here = $kind, $words, $julia, $here))
            Base.include(own, joinpath(here, "$part.jl"))
        end
    end
end
