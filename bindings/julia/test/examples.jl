# SPDX-License-Identifier: Apache-2.0
# The example programs run; their output for every recipe is compared with the C programs' elsewhere.
run_example(name, arguments...) = read(julia(joinpath(here, "..", "examples", name), arguments...), String)
@test run_example("own_arrays.jl") == "steps 99  skipped 1  scale 32768  sum 1709.314166069  p[1] -2.009746075\n"
mktempdir() do folder
    text = joinpath(folder, "text")
    write(text, repeat("What is written here is learnt: the next byte from the eight before it. ", 40))
    lines = split(run_example("train.jl", text, "fp8_delayed", "20", joinpath(folder, "saved")), "\n")
    @test length(lines) == 3 && startswith(lines[1], "step  10  loss ")
    resumed = run_example("train.jl", text, "fp8_delayed", "30", joinpath(folder, "saved"))
    whole = run_example("train.jl", text, "fp8_delayed", "30")
    @test startswith(resumed, "resumed at step 20\n")
    @test last(split(strip(resumed), "\n")) == last(split(strip(whole), "\n"))
    losses = [parse(Float64, split(line)[4]) for line in split(strip(whole), "\n")]
    @test losses[3] < losses[1]
end
@test occursin("loss", run_example("lux_style.jl"))
