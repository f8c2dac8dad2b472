# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
@test "bf16_mixed" in first.(presets())
@test all(p -> Recipe(c, p.first) isa Recipe, presets())
@test occursin("nearest: bf16_pure", words(() -> Recipe(c, "bf16_pur")))
@test kind(() -> Recipe(c, "bf16_pur")) === :unknown_name
@test kind(() -> Recipe(c)) === ArgumentError
r = Recipe(c, "bf16_mixed")
@test r["gemm.fprop.dtype"] == "bf16"
r["gemm.fprop.dtype"] = "fp32"
@test r["gemm.fprop.dtype"] == "fp32"
for key in recipe_keys()
    @test r[key.name] isa key.type
    r[key.name] = r[key.name]
end
@test kind(() -> r["gemm.fprop.dtipe"]) === :unknown_name
@test kind(() -> r["gemm.fprop.dtype"] = "fp3") === :invalid_argument
@test kind(() -> r["gemm.fprop.dtype"] = 3) === :invalid_argument
@test to_json(Recipe(c; json = to_json(r))) == to_json(r)
mktempdir() do folder
    path = joinpath(folder, "recipe.json")
    write(path, to_json(r))
    @test to_json(Recipe(c; file = path)) == to_json(r)
    @test kind(() -> Recipe(c; file = joinpath(folder, "none"))) === :io_error
end
@test kind(() -> Recipe(c; json = "{")) === :parse_error
validate(r)
@test !frozen(r)
Optimizer(c, r)
@test frozen(r) && repr(r) == "Recipe(frozen)"
@test kind(() -> r["gemm.fprop.dtype"] = "bf16") === :bad_state
again = copy(r)
again["gemm.fprop.dtype"] = "bf16"
again["layers"] = "lm_*: gemm.fprop.dtype=fp16"
@test for_layer(again, "lm_head")["gemm.fprop.dtype"] == "fp16" && again["gemm.fprop.dtype"] == "bf16"
@test for_param(again, "lm_head")["gemm.fprop.dtype"] == "bf16"
@test !isempty(reason(Recipe(c, "auto"))) && isempty(reason(r))
plan = plan_memory(Recipe(c, "fp32"), 1000)
@test plan.weight_bytes == 4000 && plan.total_bytes == 16000
@test plan_memory(Recipe(c, "fp32"), 1000; rule = :lion).state_bytes == (exp_avg = 4000, exp_avg_sq = 0)
@test plan_memory(Recipe(c, "fp32"), [600, 400]).total_bytes == 16000
@test plan_memory(Recipe(c, "fp32"), [40_000, 40_000]; rank = 0, ranks = 2).state_bytes.exp_avg < 320_000
@test plan_memory(Recipe(c, "fp32"), [40_000]; sharding = (stage = 3,), rank = 1, ranks = 2).weight_bytes < 80_000
@test kind(() -> plan_memory(r, -1)) === :invalid_argument
@test kind(() -> plan_memory(r, 10; rule = :sgd)) === ArgumentError

differing = plan_tensors(Recipe(c, "bf16_pure"), [1000, (count = 24, weight_dtype = Float32, rule = :lion, ndim = 1)])
@test differing.memory.weight_bytes == 2096 && differing.memory.state_bytes.exp_avg_sq == 2000
@test differing.traffic.total_bytes == 0
formats = plan_tensors(Recipe(c, "bf16_pure"), [(count = 10, state_formats = (exp_avg = "fp32", exp_avg_sq = "fp32"))])
@test formats.memory.state_bytes == (exp_avg = 40, exp_avg_sq = 40)
@test plan_tensors(Recipe(c, "fp32"), [40_000]; sharding = (stage = 3,), rank = 1, ranks = 2).traffic.all_gather_bytes > 0
@test plan_tensors(Recipe(c, "bf16_mixed"), [1000]; offload = true).memory.host_bytes > 8000
@test plan_tensors(Recipe(c, "bf16_mixed"), [1000]; grads_given = true).memory.grad_bytes == 0
@test kind(() -> plan_tensors(r, [-1])) === :invalid_argument
@test kind(() -> plan_tensors(r, [(count = 1, rule = :sgd)])) === ArgumentError
@test kind(() -> plan_tensors(r, [(count = 1, state_formats = (exp_avg = "int9",))])) in (:invalid_argument, :unknown_name)

values = randn(Float32, 32, 64)
@test Array(weight(c, Recipe(c, "fp32"), values)) == values
@test Float32.(Array(weight(c, Recipe(c, "bf16_pure"), values))) ≈ values rtol = 0.01
w = weight_codes(c, Recipe(c, "fp8_delayed"), values)
@test eltype(w) === Float8_E4M3 && size(w) == (32, 64) && length(scales(w)) == 1
@test size(weight(c, Recipe(c, "fp32"), 3, 4)) == (3, 4)
@test kind(() -> weight_codes(c, Recipe(c, "mxfp8"), values)) === :unsupported
