# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
n = 300
reference(T) = [T(1) for _ in 1:n]
# The same bits as an optimizer's.
p, q, g = reference(Float32), reference(Float32), Float32.(sin.(1:n))
o = Optimizer(c, Recipe(c, "fp32"))
add_param!(add_group!(o; lr = 0.01, weight_decay = 0.1), "p", p; grad = g)
slot = Slot(q, g, zeros(Float32, n), zeros(Float32, n))
@test repr(slot) == "Slot(300 elements)"
for t in 1:5
    step!(o)
    step!(c, slot; step = t, lr = 0.01, weight_decay = 0.1)
end
@test p == q
plan_p = reference(Float32)
plan = StepPlan(c, Slot(plan_p, g, zeros(Float32, n), zeros(Float32, n)); lr = 0.01, weight_decay = 0.1)
GC.gc() # the plan keeps its arrays
foreach(_ -> run!(plan), 1:5)
@test plan_p == p && stats(plan).step == 5
@test hyperparameters(plan).lr == 0.01 && hyperparameters(plan).beta1 == 0.9
set_args!(plan; lr = 0.0)
@test hyperparameters(plan).lr == 0
run!(plan)
@test plan_p == p
moment = zeros(Float32, n)
step!(c, Slot(reference(Float32), g, moment, zeros(Float32, n)); beta1 = 0)
@test moment == g
close(plan)
@test kind(() -> run!(plan)) === :invalid_handle
# Other storages
for T in (Float16, BFloat16)
    x = reference(T)
    s = Slot(x, T.(g), zeros(T, n), zeros(Float32, n); compensation = zeros(T, n))
    step!(c, s; step = 1, lr = 0.01)
    @test 0.98 < Float32(x[2]) < 1
end
x, w = reference(BFloat16), reference(Float32)
amax_of = zeros(Float32, 1)
step!(c, Slot(x, g, zeros(Float32, n), zeros(Float32, n); master = w, param_amax = amax_of); step = 1, lr = 0.01)
@test Float32.(x) == Float32.(BFloat16.(w)) && amax_of[1] == maximum(abs, Float32.(x))
x = reference(BFloat16)
step!(c, Slot(x, g, zeros(Float32, n), zeros(Float32, n); master = zeros(Int16, n)); step = 1)
codes(k) = zeros(UInt8, k)
for (coding, count, blocks, T) in ((:dynamic8, n, 2, Float32), (:dynamic4, n ÷ 2, 3, Float32),
                                   (:companded8, n, 10, Float16))
    s = Slot(reference(Float32), g, codes(count), codes(count); exp_avg_coding = coding, exp_avg_sq_coding = coding,
             exp_avg_scale_inv = fill(T(1), blocks), exp_avg_sq_scale_inv = fill(T(1), blocks))
    @test kind(() -> step!(c, s; step = 1)) === :nothing_thrown
end
x = reference(Float32)
fp8 = Slot(x, g, zeros(Float8_E4M3, n), zeros(Float8_E4M3, n); exp_avg_coding = :fp8_block,
           exp_avg_sq_coding = :fp8_block, exp_avg_scale_inv = ones(Float32, 2),
           exp_avg_sq_scale_inv = ones(Float32, 2))
step!(c, fp8; step = 1, lr = 0.01)
@test x[2] < 1
step!(c, Slot(x, g, zeros(Float32, n)); step = 1, rule = :lion)
bf = reference(BFloat16)
step!(c, Slot(bf, g, zeros(Float32, n), zeros(Float32, n)); step = 1, seed = 3, stochastic = :param)
# Two slots, a scaler, an overflow
s = Scaler(c)
a, b, ga = reference(Float32), reference(Float32), copy(g)
ga[3] = NaN32
both = [Slot(a, ga, zeros(Float32, n), zeros(Float32, n)), Slot(b, g, zeros(Float32, n), zeros(Float32, n))]
happened = step!(c, both; step = 1, scaler = s)
@test happened.found_inf && all(==(1), a) && all(==(1), b)
# Mistakes
f(k = n) = zeros(Float32, k)
@test kind(() -> Slot(f(), f(n - 1), f(), f())) === :invalid_shape
@test kind(() -> Slot(f(), f(), f(), f(); master = f(1))) === :invalid_shape
@test kind(() -> Slot(f(), f(), codes(n), f(); exp_avg_coding = :dynamic8)) === ArgumentError
@test kind(() -> Slot(f(), f(), codes(n), f(); exp_avg_coding = :dynamic8, exp_avg_scale_inv = f(1))) === :invalid_shape
@test kind(() -> Slot(f(), f(), f(), f(); exp_avg_scale_inv = f(2))) === :invalid_shape
@test kind(() -> Slot(f(), f(), f(), f(); exp_avg_coding = :remainder)) === ArgumentError
@test kind(() -> step!(c, Slot(f(), zeros(Float64, n), f(), f()); step = 1)) === :invalid_dtype
@test kind(() -> step!(c, Slot(f(), zeros(Int32, n), f(), f()); step = 1)) === :invalid_dtype
@test kind(() -> step!(c, Slot(f(), f(), f()); step = 1)) in (:invalid_argument, :invalid_dtype, :null_argument)
shared = f()
@test kind(() -> step!(c, Slot(shared, f(), shared, f()); step = 1)) === :invalid_argument
@test kind(() -> step!(c, [Slot(shared, f(), f(), f()), Slot(shared, f(), f(), f())]; step = 1)) === :invalid_argument
@test kind(() -> step!(c, slot; step = 0)) === :invalid_argument
@test kind(() -> step!(c, slot; step = 1, stochastic = :weights)) === ArgumentError
@test words(() -> step!(c, slot; rule = :lion, stochastic = (:exp_avg, :exp_avg_sq))) ==
      "ArgumentError: stochastic is :exp_avg_sq; it must be one of :param, :exp_avg"
