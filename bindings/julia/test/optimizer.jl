# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
p, g = ones(Float32, 8), fill(0.5f0, 8)
o = Optimizer(c, Recipe(c, "fp32"); max_grad_norm = 0.0)
group = add_group!(o; lr = 0.1)
param = add_param!(group, "p", p; grad = g)
@test repr(o) == "Optimizer(1 parameters in 1 groups)" && repr(param) == "Param(0, \"p\")" && repr(group) == "Group(0)"
step!(o)
@test p ≈ fill(0.9f0, 8) && stats(o).step == 1 && !stats(o).found_inf
@test Array(state(param, :exp_avg)) ≈ fill(0.05f0, 8)
@test read_state(param, :exp_avg_sq) ≈ fill(0.00025f0, 8)
write_state!(param, :exp_avg, fill(0.25f0, 8))
@test read_state(param, "exp_avg") == fill(0.25f0, 8)
@test kind(() -> write_state!(param, :exp_avg, zeros(Float32, 7))) === :invalid_shape
@test kind(() -> state(param, :momentum)) === :unknown_name
@test kind(() -> add_param!(group, "p", zeros(Float32, 3))) === :invalid_argument
@test kind(() -> add_param!(group, "q", p)) === :invalid_argument # the same memory under two names
@test kind(() -> add_param!(group, "q\0", zeros(Float32, 3))) === ArgumentError
@test kind(() -> add_param!(group, "q", zeros(Float32, 3); grad = zeros(Float32, 4))) === :invalid_shape
@test kind(() -> add_param!(group, "q", zeros(Int32, 3))) === :invalid_dtype
@test kind(() -> add_group!(o; lr = -1)) === :invalid_argument
@test kind(() -> add_group!(o; rule = :sgd)) === ArgumentError
@test kind(() -> Optimizer(c, Recipe(c, "fp32"); stage = 2)) === ArgumentError
set_lr!(group, 0.0)
before = copy(p)
step!(o)
@test p == before && hyperparameters(group).lr == 0.0
set_lr!(o, Tensor(c, Float32[0.1]))
step!(o)
@test p != before
set_lr!(group, nothing)
set_enabled!(group, false)
before = copy(p)
step!(o)
@test p == before && !enabled(group)
set_enabled!(o, true)
set_max_grad_norm!(o, 1.0)
set_lr!(o, 0.1)
step!(o)
@test stats(o).grad_norm ≈ 0.5 * sqrt(8) && Array(grad_norm_tensor(o))[1] ≈ 0.5f0 * sqrt(8.0f0)
@test Array(found_inf_tensor(o))[1] == 0
set_grad_scale!(o, Tensor(c, Float32[2]))
step!(o)
@test stats(o).grad_norm ≈ 0.25 * sqrt(8)
set_grad_scale!(o, nothing)
zero_grad!(o)
@test all(iszero, g)
set_step!(o, 2^32 + 7)
@test stats(o).step == 2^32 + 7 && steps(group) == 2^32 + 7
set_step!(group, 3)
@test steps(group) == 3
mark_unused!(parameters(o))
step!(o)
@test steps(group) == 3
set_frozen!(parameters(o))
@test frozen(parameters(o)[1]) && steps(group) == 0
set_frozen!(parameters(o), false)
@test !frozen(parameters(o)[1]) && all(iszero, Array(grad(parameters(o)[1])))
set_step!(group, 3)
@test memory(o).parameter_count == 8
@test MixedPrec.optimizer_info(o).max_grad_norm == 1.0
lion = add_group!(o; rule = :lion, state_formats = (exp_avg = "bf16",), maximize = true)
h = hyperparameters(lion)
@test h.rule === :lion && h.lr == 1e-4 && h.beta2 == 0.99 && h.maximize
@test !hyperparameters(add_group!(o; bias_correction = false)).bias_correction
@test h.state_formats == (exp_avg = "bf16",)
@test hyperparameters(add_group!(o; state_formats = Dict("exp_avg_sq" => "fp16"))).state_formats.exp_avg_sq == "fp16"
@test words(() -> add_group!(o; rule = :lion, state_formats = (exp_avg_sq = "fp32",))) ==
      "ArgumentError: a state of state_formats is :exp_avg_sq; it must be one of :exp_avg"
literal = hyperparameters(add_group!(o; lr = 0, beta1 = 0))
@test literal.lr == 0 && literal.beta1 == 0 && literal.beta2 == 0.999
q = add_param!(lion, "q", Float32[1, 2, 3, 4, 5, 6])
copyto!(grad(q), fill(1.0f0, 6))
step!(o)
@test length(groups(o)) == 5 && [x.name for x in parameters(o)] == ["p", "q"] && parameters(o)[2].group.index == 1
@test size(Array(state(q, :param))) == (6,)

# A guard skips what stands out; a history names what is not finite.
watched = Optimizer(c, Recipe(c, "fp32"); check_finite = true)
gradient = zeros(Float32, 4)
add_param!(watched, "w", ones(Float32, 4); grad = gradient)
@test guard(watched) === nothing
set_guard!(watched; max_loss_z = 3, window = 2)
@test guard(watched) == (window = 2, max_grad_norm_z = 0.0, max_loss_z = 3.0)
mktempdir() do folder
    set_history!(watched, 8; path = joinpath(folder, "steps.json"))
    for loss in (1.0, 1.1, 100.0, 1.0)
        set_loss!(watched, loss)
        step!(watched)
    end
    @test stats(watched).outlier_steps == 1 && [r.outcome for r in records(watched)] == [:taken, :taken, :outlier, :taken]
    @test records(watched)[3].loss == 100 && records(watched)[3].loss_z > 3 && bad_tensor(watched) == ""
    gradient[2] = Inf32
    @test kind(() -> step!(watched)) === :bad_state # without its loss
    set_loss!(watched, 1)
    step!(watched)
    @test records(watched)[5].outcome === :non_finite && bad_tensor(watched) == "the gradient of 'w'"
    @test isfile(joinpath(folder, "steps.json"))
end
set_guard!(watched, nothing)
@test guard(watched) === nothing
@test kind(() -> set_guard!(watched)) === :invalid_argument
@test kind(() -> set_guard!(watched; max_loss_z = 1, window = 1)) === :invalid_argument
set_history!(watched, 0)
@test isempty(records(watched))

# A narrow recipe: what rounding the weight loses is in the master weight.
values = randn(Float32, 4, 6)
for name in ("bf16_pure_kahan", "bf16_mixed_dual", "bf16_pure_remainder", "msamp_o2")
    r = Recipe(c, name)
    # bf16 second moments come with advice
    o2 = Optimizer(c, r)
    w = weight(c, r, values)
    group2 = name == "bf16_pure_kahan" ? (@test_logs (:warn,) add_group!(o2; lr = 0.01)) : add_group!(o2; lr = 0.01)
    param2 = add_param!(group2, "w", w; init = values)
    @test read_state(param2, :fp32_param) ≈ values rtol = (name == "msamp_o2" ? 1e-3 : 1e-4)
    close(w)
    step!(o2)
    sync_master!(param2)
    sync_master!(o2)
    @test size(read_state(param2, :fp32_param)) == (4, 6)
end
# The optimizer's scaler: an overflow is skipped.
fp16 = Recipe(c, "fp16_mixed")
s, o3 = Scaler(c, fp16), Optimizer(c, fp16; zero_grad = true)
param3 = add_param!(o3, "w", weight(c, fp16, values); init = values)
copyto!(grad(param3), fill(typemax(eltype(grad(param3))), 4, 6))
step!(o3; scaler = s)
update_scale!(s)
@test stats(o3).found_inf && stats(o3).skipped_steps == 1 && scale(s) == 32768
offloaded = Optimizer(c, Recipe(c, "fp32"); offload = true)
p4 = ones(Float32, 100)
add_param!(offloaded, "p", p4; grad = ones(Float32, 100))
step!(offloaded)
@test p4[1] ≈ 0.999
@test offload_traffic(offloaded).steps == 1 && offload_traffic(offloaded).to_host_bytes == 400
set_norm_comm!(offloaded, Comm())
step!(offloaded)
@test kind(() -> shard!(offloaded)) === :bad_state
# A step in parts has the weights of a whole one.
function three(; options...)
    optimizer, weights = Optimizer(c, Recipe(c, "fp32"); options...), [Float32[1, 2, 3, 4] for _ in 1:3]
    return optimizer, weights, [add_param!(optimizer, name, w) for (name, w) in zip(("a", "b", "c"), weights)]
end
(whole, expected, all3), (parts, found, of_parts), (lent, others, of_lent) = three(), three(), three(grads_given = true)
for step in 1:2
    gradients = [Float32[i - 2, step - i, 0.5, -step] for i in 1:3]
    foreach((x, y, g) -> (copyto!(grad(x), g); copyto!(grad(y), g)), all3, of_parts, gradients)
    step!(whole)
    step_begin!(parts)
    step_params!([of_parts[3]])
    step_params!([of_parts[2]])
    step_end!(parts)
    step_begin!(lent)
    step_params!(of_lent[[3, 1]]; grads = gradients[[3, 1]])
    step_params!(of_lent[2:2]; grads = [Tensor(c, gradients[2])])
    step_end!(lent)
    @test found == expected && others == expected && expected[1] != expected[2]
end
@test kind(() -> step_params!(of_parts)) === :bad_state
step_begin!(parts; scaler = nothing)
@test kind(() -> step_params!(of_parts; grads = [zeros(Float32, 4)])) === ArgumentError
@test kind(() -> step_params!(of_parts; grads = [])) === ArgumentError
@test kind(() -> step_params!(of_parts[1:1]; grads = [zeros(Float32, 3)])) === :invalid_shape
@test kind(() -> step!(parts)) === :bad_state
step_end!(parts)
# Closed things
close(o)
@test kind(() -> step!(o)) === :invalid_handle && kind(() -> state(param, :param)) === :invalid_handle
@test repr(o) == "Optimizer(closed)" && repr(param) == "Param(0)"
@test kind(() -> set_lr!(group, 1)) === :invalid_handle

# First values, of a parameter without memory until the optimizer has it.
fresh = Optimizer(c, Recipe(c, "fp32"))
deferred = Tensor(c, Float32, 10; deferred = true)
w = add_param!(fresh, "w", deferred)
@test kind(() -> step!(fresh)) === :bad_state
init_params!([w => (:normal, 0.0, 1.0)]; seed = 1)
@test Array(deferred)[[1, 10]] == Float32[-0.10356707125902176, -0.7378919124603271]
init_params!([w => (:constant, 0.25)])
@test all(Array(deferred) .== 0.25f0)
@test kind(() -> init_params!([w => (:uniform, 1.0, 0.0)])) === :invalid_argument
@test kind(() -> load_params!([w], "/no/such/file")) === :io_error
step!(fresh)

# Memory that is named in advance, and gradients of the host's.
place = Float32[1, 2, 3]
later = Tensor(c, place; deferred = true)
@test kind(() -> Array(later)) === :bad_state && place == [1, 2, 3]
named = Optimizer(c, Recipe(c, "fp32"))
add_param!(named, "w", later)
place[2] = 5
@test Array(later) == [0, 5, 0]
hosts = Optimizer(c, Recipe(c, "fp32"); offload = true, offload_grads = true)
p5 = ones(Float32, 100)
w5 = add_param!(hosts, "p", p5)
@test kind(() -> Array(grad(w5))) === :bad_state
acquire_grad!(w5)
copyto!(grad(w5), ones(Float32, 100))
grad_ready!(w5)
step!(hosts)
@test p5[100] ≈ 0.999
@test memory(hosts).grad_bytes == 448 # lines of 64 bytes, on the host
