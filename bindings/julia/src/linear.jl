# SPDX-License-Identifier: Apache-2.0
# Linear layers.

@handle Linear linear """
    Linear(context, recipe, weight, bias = nothing; inference = false, cache_weight = false, first_or_last = false,
           stats = false, frozen = false)

y = transpose(w) * x .+ bias and its gradients, in the forms of the recipe. For Julia's arrays the shapes are: `x`
is `in x rows`, `w` is `in x out`, `bias` has `out` elements, `y` is `out x rows`; `dx`, `dw`, `dbias` and `dy` are
alike. All are tensors or arrays. The layer keeps weight and bias, and reads them at every call. `forward!` keeps
what `backward!` needs. Call `end_step!` after each optimizer step, or name the layers to the optimizer once by
`set_linears!`.
"""

function Linear(c::Context, r::Recipe, weight, bias = nothing; inference = false, cache_weight = false,
                first_or_last = false, stats = false, frozen = false)
    return given(c, weight, bias) do w, b
        dims = size(w)
        length(dims) == 2 || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
            "the weight has $(length(dims)) dimensions; it must be in x out"))
        desc = CAPI.mp_linear_desc(
            flags = flags(CAPI.MP_LINEAR_INFERENCE => inference, CAPI.MP_LINEAR_CACHE_WEIGHT => cache_weight,
                          CAPI.MP_LINEAR_FIRST_OR_LAST => first_or_last, CAPI.MP_LINEAR_STATS => stats,
                          CAPI.MP_LINEAR_FROZEN => frozen),
            in_features = dims[1], out_features = dims[2])
        Linear(made(out -> CAPI.mp_linear_create(c, r, Ref(desc), w, b, out), CAPI.mp_linear), c)
    end
end

"Sizes and flags that a layer was made with."
linear_info(l::Linear) = filled(box -> CAPI.mp_linear_get_desc(l, box), CAPI.mp_linear_desc())

function summary_of(l::Linear)
    info = linear_info(l)
    return "$(info.in_features) => $(info.out_features)"
end

"""
    forward!(y, layer, x; saved = nothing, drop = false, recompute = false, queue = nothing)

y = transpose(w) * x .+ bias. What the gradients need is kept in the layer, or in `saved`; where `x` has the
recipe's dtype already that is `x` itself, which must not change before backward. With `drop` only the scaling of
`x` is kept, and the same `x` is given once more with `recompute` (then `y` may be `nothing`) before backward.
"""
function forward!(y, l::Linear, x; saved = nothing, drop = false, recompute = false, queue = nothing)
    bits = flags(CAPI.MP_FORWARD_DROP => drop, CAPI.MP_FORWARD_RECOMPUTE => recompute)
    given(context(l), x, y) do tx, ty
        check(saved === nothing && bits == 0 ? CAPI.mp_linear_forward(l, queue, tx, ty) :
              CAPI.mp_linear_forward_saved(l, queue, tx, ty, saved, bits))
    end
    return y
end

"""
    backward!(layer, dy; dx = nothing, dw = nothing, dbias = nothing, accumulate = false, saved = nothing,
              queue = nothing)

The gradients that are given a place: `dx`, `dw`, `dbias`, with what the last forward kept, or that of `saved`. With
`accumulate` `dw` and `dbias` are added to.
"""
function backward!(l::Linear, dy; dx = nothing, dw = nothing, dbias = nothing, accumulate = false, saved = nothing,
                   queue = nothing)
    bits = flags(CAPI.MP_BACKWARD_ACCUMULATE => accumulate)
    given(context(l), dy, dx, dw, dbias) do tdy, tdx, tdw, tdbias
        if saved !== nothing || tdw === nothing
            check(tdw === nothing && tdx !== nothing && tdbias === nothing ?
                  CAPI.mp_linear_backward_data(l, queue, tdy, tdx) :
                  CAPI.mp_linear_backward_saved(l, queue, saved, tdy, tdx, tdw, tdbias, bits))
        else
            check(CAPI.mp_linear_backward(l, queue, tdy, tdx, tdw, tdbias, bits))
        end
    end
    return
end

"`dx` alone; needs no forward before it."
function backward_data!(dx, l::Linear, dy; queue = nothing)
    given((tdx, tdy) -> check(CAPI.mp_linear_backward_data(l, queue, tdy, tdx)), context(l), dx, dy)
    return dx
end

"`dw`, and `dbias` where wanted, with the x that the last forward kept."
function backward_weight!(dw, l::Linear, dy; dbias = nothing, accumulate = false, queue = nothing)
    bits = flags(CAPI.MP_BACKWARD_ACCUMULATE => accumulate)
    given(context(l), dw, dy, dbias) do tdw, tdy, tdbias
        check(CAPI.mp_linear_backward_weight(l, queue, tdy, tdw, tdbias, bits))
    end
    return dw
end

"""
    end_step!(layers; comm = nothing, queue = nothing)

The end of an optimizer step for these layers (all of one context): delayed scales move, cached weights go, monitors
are told. With `comm` ranks scale alike. Not for layers that an optimizer has by `set_linears!`.
"""
end_step!(layers; comm = nothing, queue = nothing) = end_layers(collect(Linear, layers), comm, queue)
end_step!(layer::Linear; rest...) = end_step!((layer,); rest...)
function end_layers(layers, comm, queue)
    GC.@preserve layers check(CAPI.mp_linear_end_step(pointers(CAPI.mp_linear, layers), length(layers), queue, comm))
end

describe(l::Linear) = text_of((b, n, needed) -> CAPI.mp_linear_describe(l, b, n, needed))

const OPERANDS = (input = CAPI.MP_OPERAND_INPUT, weight = CAPI.MP_OPERAND_WEIGHT,
                  grad_output = CAPI.MP_OPERAND_GRAD_OUTPUT)
const PRODUCTS = (fprop = CAPI.MP_PRODUCT_FPROP, dgrad = CAPI.MP_PRODUCT_DGRAD, wgrad = CAPI.MP_PRODUCT_WGRAD)

linear_stats(s::CAPI.mp_linear_stats) =
    merge(named(s), (operand = choice_name(OPERANDS, s.operand), dtype = dtype_type(s.dtype)))

"""
    stats(layer, operand)

What happened to the elements of `:input`, `:weight` or `:grad_output` since the counts were cleared, with the
delayed scale. The layer counts with `stats = true` or a monitor.
"""
stats(l::Linear, operand::Symbol) =
    linear_stats(filled(box -> CAPI.mp_linear_get_stats(l, choice(OPERANDS, operand, "operand"), box),
                        CAPI.mp_linear_stats()))

"Set the counts of all operands to zero."
clear_stats!(l::Linear; queue = nothing) = check(CAPI.mp_linear_clear_stats(l, queue))

"One sentence that names the recipe's key to change where an operand saturates or vanishes; empty where all is well."
advice(l::Linear, operand::Symbol) =
    text_of((b, n, needed) -> CAPI.mp_linear_get_advice(l, choice(OPERANDS, operand, "operand"), b, n, needed))

"""
    monitor!(f, layer, name; every = 100)
    monitor!(nothing, layer)

Have `f(name, stats, advice)` called for each operand every so many steps, in the task that ends the step, after the
call. `advice` is a sentence or `nothing`. `f` may use the library. `nothing` ends it, and so does the end of the
`Linear`.
"""
function monitor!(f, l::Linear, name::AbstractString; every::Integer = 100)
    title = c_text(name)
    every > 0 || throw(ArgumentError("every is $every; it must be at least 1"))
    listener = Registration((stats, words) -> f(title, stats, words))
    check(CAPI.mp_linear_set_monitor(l, title, every, MONITOR_CALLBACK[], Ptr{Cvoid}(listener.id)))
    replace_listener(l, listener)
end
function monitor!(::Nothing, l::Linear)
    check(CAPI.mp_linear_set_monitor(l, "", 0, C_NULL, C_NULL))
    replace_listener(l, nothing)
end
function replace_listener(l, listener)
    resize!(l.kept, 1)
    push!(l.kept, listener)
    return
end

"What a layer must remember for training to go on bit for bit (delayed scales, amax histories), as bytes."
function scaling(l::Linear)
    needed = Ref{Csize_t}(0)
    check(CAPI.mp_linear_get_scaling(l, C_NULL, 0, needed))
    bytes = Vector{UInt8}(undef, needed[])
    check(CAPI.mp_linear_get_scaling(l, bytes, length(bytes), needed))
    return bytes
end

"Put back what `scaling` gave, of a layer of the same recipe."
set_scaling!(l::Linear, bytes::Vector{UInt8}) = check(CAPI.mp_linear_set_scaling(l, bytes, length(bytes)))

"How gradients in fp16 or bf16 are rounded, as the keywords of `cast!`."
gradient_rounding(l::Linear) =
    named(filled(box -> CAPI.mp_linear_get_gradient_rounding(l, box), CAPI.mp_cast_desc()))

"Round `dw` in fp16 or bf16 so from now on: the keywords of `cast!`; set them before each micro-batch."
set_gradient_rounding!(l::Linear; rest...) = check(CAPI.mp_linear_set_gradient_rounding(l, Ref(cast_desc(; rest...))))

"""
    operand_format(layer, product, operand)

In which form a product (`:fprop`, `:dgrad`, `:wgrad`) takes an operand: the element type and a `Quant`, which is
`nothing` where there are no scales.
"""
function operand_format(l::Linear, product::Symbol, operand::Symbol)
    dtype, quant = Ref{Int32}(0), Ref(CAPI.mp_quant_desc())
    check(CAPI.mp_linear_get_operand_format(l, choice(PRODUCTS, product, "product"), choice(OPERANDS, operand, "operand"),
                                          dtype, quant))
    return (dtype = dtype_type(dtype[]), quant = quant[].scaling == 0 ? nothing : Quant(quant[]))
end

"""
    quantize!(codes, layer, product, operand, source; queue = nothing)

Round an operand as the product would, into codes of one's own, counted by the layer.
"""
function quantize!(codes::Tensor, l::Linear, product::Symbol, operand::Symbol, source; queue = nothing)
    p, o = choice(PRODUCTS, product, "product"), choice(OPERANDS, operand, "operand")
    given(from -> check(CAPI.mp_linear_quantize(l, queue, p, o, from, codes)), context(l), source)
    return codes
end

"Have products take these codes instead of rounding the weight; `nothing`: the weight is rounded."
set_weight_codes!(l::Linear, fprop; dgrad = nothing) = check(CAPI.mp_linear_set_weight_codes(l, fprop, dgrad))

"The codes that `set_weight_codes!` was given for `:fprop` or `:dgrad`, or `nothing`."
function weight_codes_of(l::Linear, product::Symbol)
    found = made(out -> CAPI.mp_linear_get_weight_codes(l, choice(PRODUCTS, product, "product"), out), CAPI.mp_tensor)
    return found == C_NULL ? nothing : Tensor(found, context(l))
end

"The delayed scale of an operand as a tensor of one `Float32` that moves with the steps."
multiply_tensor(l::Linear, operand::Symbol) =
    Tensor(made(out -> CAPI.mp_linear_get_multiply_tensor(l, choice(OPERANDS, operand, "operand"), out),
                CAPI.mp_tensor), context(l))

@handle Saved saved """
    Saved(layer)

What one forward keeps for its backward: `forward!(y, layer, x; saved)`, `backward!(layer, dy; saved, ...)`. Several
may wait at once.
"""
Saved(l::Linear) = Saved(made(out -> CAPI.mp_saved_create(l, out), CAPI.mp_saved), context(l), l)

"Bytes that `set_memory!` needs for a forward of so many rows."
saved_bytes(l::Linear, rows::Integer) =
    Int(filled(box -> CAPI.mp_linear_get_saved_bytes(l, rows, box), Csize_t(0)))

"""
    set_memory!(saved, bytes)

Keep in `bytes`, a `Vector{UInt8}` whose address is a multiple of 256 (`aligned_bytes` makes one), what `saved`
keeps. After a forward the bytes must have been copied to the new place first. `nothing`: the library's memory
again.
"""
function set_memory!(s::Saved, bytes::AbstractVector{UInt8})
    memory = Memory(bytes)
    check(CAPI.mp_saved_set_memory(s, memory.address, memory.bytes))
    keep_memory(s, memory)
end
function set_memory!(s::Saved, ::Nothing)
    check(CAPI.mp_saved_set_memory(s, C_NULL, 0))
    keep_memory(s, nothing)
end
function keep_memory(s, memory)
    resize!(s.kept, 2)
    push!(s.kept, memory)
    return
end

"So many bytes at an address that is a multiple of 256."
function aligned_bytes(count::Integer)
    bytes = Vector{UInt8}(undef, count + 255)
    return view(bytes, (1:count) .+ Int(mod(-UInt(pointer(bytes)), 256)))
end
