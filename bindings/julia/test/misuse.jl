# SPDX-License-Identifier: Apache-2.0
# Objects after close, in any order, and from two tasks: errors, never a crash.
c = Context(threads = 1)
function everything()
    context = Context(threads = 1)
    r = Recipe(context, "bf16_mixed")
    t, w = Tensor(context, Float32, 4, 4), Tensor(context, Float32, 4, 4)
    o, s, l = Optimizer(context, r), Scaler(context, r), Linear(context, r, w)
    add_param!(o, "w", w)
    return [context, r, t, w, o, s, l, Saved(l), view(t, 0, 4), Queue(context), Event(context), Comm(),
            Gemm(context, 2, 2, 2), Checkpoint(context), grad(parameters(o)[1])]
end
for order in 1:20
    objects = everything()
    for i in sortperm(rand(length(objects)))
        close(objects[i])
        close(objects[i])
        @test !isopen(objects[i]) && endswith(repr(objects[i]), "(closed)")
    end
end
context = Context(threads = 1)
r = Recipe(context, "fp32")
close(context)
@test kind(() -> Optimizer(context, r)) === :invalid_handle
@test frozen(r) == false # lives on

# Objects of another context
other = Context(threads = 1)
t = Tensor(other, Float32, 3)
o = Optimizer(c, Recipe(c, "fp32"))
@test kind(() -> add_param!(o, "t", t)) in (:invalid_argument, :nothing_thrown)
@test kind(() -> gather_begin!(Param[])) === ArgumentError
layered, elsewhere = add_param!(o, "w", ones(Float32, 3)), Optimizer(c, Recipe(c, "fp32"))
@test kind(() -> set_layer_params!(elsewhere, [[layered]])) === ArgumentError
@test kind(() -> layer_begin!(elsewhere, 1)) === :invalid_argument
@test kind(() -> set_layer_params!(o, [[layered, layered]])) === :invalid_argument
@test kind(() -> set_layer_params!(o, [[layered]]; prefetch = -1)) === :invalid_argument
set_layer_params!(o, [[layered], Param[]])
@test kind(() -> layer_end!(o, 1)) === :bad_state
layer_begin!(o, 1; pass = :backward)
@test kind(() -> layer_begin!(o, 1)) === :bad_state
@test kind(() -> layer_end!(o, 1)) === :bad_state
layer_end!(o, 1; pass = :backward)
@test kind(() -> layer_begin!(o, 0)) === kind(() -> layer_begin!(o, 3)) === :invalid_argument
@test kind(() -> layer_begin!(o, 2; pass = :sideways)) === ArgumentError
# Wrong types are Julia's error, not the library's memory.
@test kind(() -> step!(c, 3)) === MethodError
@test kind(() -> step!(o; scaler = 3)) === MethodError
@test kind(() -> sync(o)) === MethodError
@test kind(() -> step!(o; scaler = zeros(UInt32, 64))) === ArgumentError
@test kind(() -> step!(o; queue = Ref(1))) === MethodError
@test kind(() -> step!(o; queue = "default")) === MethodError
@test kind(() -> amax!(t, [1.0f0])) in (MethodError, ArgumentError)
@test kind(() -> quantize!(QuantizedTensor(c, Float8_E4M3, 3), ones(Float32, 3); transposed = zeros(3))) === ArgumentError
# What is read is not written.
square, x = Linear(c, Recipe(c, "fp32"), ones(Float32, 4, 4)), ones(Float32, 4, 4)
@test kind(() -> forward!(x, square, x)) in (:invalid_argument, :nothing_thrown)
@test kind(() -> cast!(c, x, x)) === :invalid_argument
@test kind(() -> copyto!(Tensor(c, x), Tensor(c, x))) === :invalid_argument
