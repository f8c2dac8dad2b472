# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
@test scale(Scaler(c)) == 65536
@test scale(Scaler(c; preset = :megatron)) == 2.0^32
@test all(p -> Scaler(c; preset = p) isa Scaler, (:torch, :megatron, :deepspeed, :apex))
@test scale(Scaler(c; kind = :none)) == 1 && scale(Scaler(c; kind = :static, init_scale = 128)) == 128
@test scale(Scaler(c, Recipe(c, "bf16_mixed"))) == 1 && scale(Scaler(c, Recipe(c, "fp16_mixed"))) == 65536
s = Scaler(c; init_scale = 8, growth_interval = 2)
g = Float32[1, 2, 3]
check_finite!(s, g)
update_scale!(s)
check_finite!(s, [g, Float16[1]])
update_scale!(s)
@test scale(s) == 16
g[2] = Inf32
check_finite!(s, g)
@test Array(found_inf_tensor(s))[1] == 1 && state(s).found_inf == 1
update_scale!(s)
@test scale(s) == 8 && Array(scale_tensor(s)) == [8.0f0]
saved = state(s)
@test saved.overflow_steps == 1 && saved.good_steps == 2
other = Scaler(c)
set_state!(other, saved)
@test state(other) == saved
combine!(s, Comm())
@test kind(() -> set_state!(other, merge(saved, (scale = -1.0,)))) === :invalid_argument
@test kind(() -> set_state!(other, (scale = 1.0,))) === ArgumentError
@test kind(() -> check_finite!(s, Int32[1])) in (:invalid_dtype, MethodError, :unsupported)
@test kind(() -> Scaler(c; growth_factor = 0.5)) === :invalid_argument
@test kind(() -> Scaler(c; preset = :jax)) === :unknown_name
@test kind(() -> Scaler(c; kind = :often)) === ArgumentError
least = Scaler(c; preset = :deepspeed, init_scale = 1, hysteresis = 1, min_scale = 1)
check_finite!(least, g)
update_scale!(least)
@test kind(() -> state(least)) === :bad_state # an overflow at the smallest scale
