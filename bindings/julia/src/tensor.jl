# SPDX-License-Identifier: Apache-2.0
# Tensors, plain and quantized.

@handle Tensor tensor """
    Tensor(context, A; dtype = eltype(A), deferred = false)
    Tensor(context, T, dims...; deferred = false)

A dense array of one element type. The first form is over the memory of `A`, an `Array` or a dense view, reshape or
reinterpret of one, without a copy: what is written through one is seen through the other. The library keeps the
memory as long as anything uses it, and `A` cannot be resized any more. `dtype` names another element type of as
many bytes, such as `BFloat16` for a `Vector{UInt16}`. The second form is zeros in the library's memory, of `T` =
`Float32`, `Float16`, `BFloat16`, `Float8_E4M3` and others. A `deferred` one has no memory: it is a parameter's or a
gradient's, and the optimizer that it is added to gives it memory. That is `A` in the first form, while the optimizer has it
in use; others may name the same, those of layers that come one after another.

`size(t)` is in Julia's order, which is the opposite of the library's. `Array(t)` copies the elements out,
`copyto!(t, A)` and `copyto!(A, t)` copy in and out.
"""

# The library's description of an array with these dimensions in Julia's order.
function tensor_desc(dtype, dims, flags = 0)
    length(dims) <= CAPI.MP_MAX_DIMS ||
        throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE, "$(length(dims)) dimensions; there can be $(CAPI.MP_MAX_DIMS)"))
    shape = ntuple(i -> i <= length(dims) ? Int64(dims[length(dims)+1-i]) : Int64(0), Int(CAPI.MP_MAX_DIMS))
    return CAPI.mp_tensor_desc(flags = flags, dtype = dtype, ndim = length(dims), shape = shape)
end

function Tensor(c::Context, ::Type{T}, dims::Integer...; deferred::Bool = false) where {T}
    desc = Ref(tensor_desc(dtype_number(T), dims, flags(CAPI.MP_TENSOR_DEFERRED => deferred)))
    return Tensor(made(out -> CAPI.mp_tensor_create(c, desc, out), CAPI.mp_tensor), c)
end
Tensor(c::Context, ::Type{T}, dims::Tuple; rest...) where {T} = Tensor(c, T, dims...; rest...)

function Tensor(c::Context, A::AbstractArray; dtype::Type = eltype(A), deferred::Bool = false)
    memory = Memory(A)
    number = dtype_number(dtype)
    sizeof(dtype) == sizeof(memory.type) || throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE,
        "dtype $dtype has $(sizeof(dtype)) bytes an element, and this array's $(memory.type) $(sizeof(memory.type))"))
    desc = tensor_desc(number, size(A), flags(CAPI.MP_TENSOR_DEFERRED => deferred))
    return wrapped(c, memory) do node, out
        CAPI.mp_tensor_wrap(c, Ref(CAPI.mp_tensor_desc(flags = desc.flags, dtype = desc.dtype, ndim = desc.ndim,
                                                       shape = desc.shape, device_kind = CAPI.MP_DEVICE_HOST)),
                            memory.address, RELEASE_CALLBACK[], node, out)
    end
end

# A tensor over memory that is kept until the library calls the deleter: then nothing of it uses the memory any more.
function wrapped(wrap, c, memory)
    id = register(memory)
    node = release_notice(id)
    try
        return Tensor(made(out -> wrap(node, out), CAPI.mp_tensor), c)
    catch
        unregister(id)
        Libc.free(node) # of a failure the deleter is not called
        rethrow()
    end
end

# Arrays are taken where tensors are.
as_tensor(c, t::Tensor) = t
as_tensor(c, A::AbstractArray) = Tensor(c, A)
as_tensor(c, ::Nothing) = nothing

# f of tensors; those made of arrays here are given back after it. What the library goes on using it keeps itself.
function given(f, c, objects...)
    tensors = map(x -> as_tensor(c, x), objects)
    try
        return f(tensors...)
    finally
        foreach((x, t) -> x isa AbstractArray && close(t), objects, tensors)
    end
end

context(x::Handle) = x.kept[1]::Context

tensor_info(t::Tensor) = filled(box -> CAPI.mp_tensor_get_desc(t, box), CAPI.mp_tensor_desc())

"The element type, as a Julia type (`:fp4_e2m1` of codes of fp4, which has none)."
Base.eltype(t::Tensor) = dtype_type(tensor_info(t).dtype)
function Base.size(t::Tensor)
    desc = tensor_info(t)
    return ntuple(i -> Int(desc.shape[desc.ndim+1-i]), Int(desc.ndim))
end
Base.size(t::Tensor, d::Integer) = d <= ndims(t) ? size(t)[d] : 1
Base.ndims(t::Tensor) = Int(tensor_info(t).ndim)
Base.length(t::Tensor) = prod(size(t))

summary_of(t::Tensor) = "$(eltype(t)), $(isempty(size(t)) ? "scalar" : join(size(t), "x"))"

"The device of a tensor, `:host`, `:cuda` or `:hip`."
device(t::Tensor) = choice_name(DEVICES, tensor_info(t).device_kind)

# Bytes of a tensor; of fp4, packed in pairs.
tensor_bytes(t::Tensor) = eltype(t) isa Symbol ? cld(length(t), 2) : length(t) * sizeof(eltype(t))

function check_bytes(t::Tensor, memory)
    type = eltype(t)
    type isa Symbol || sizeof(type) == sizeof(memory.type) || throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE,
        "the tensor's elements are $type, and the array's $(memory.type)"))
    tensor_bytes(t) == memory.bytes || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "the tensor has $(tensor_bytes(t)) bytes, and the array $(memory.bytes)"))
end

"""
    copyto!(tensor, A; queue = nothing)
    copyto!(A, tensor; queue = nothing)
    copyto!(tensor, tensor; queue = nothing)

Copy all elements; the element types have the same size, and there are as many. Waits where an array takes part.
"""
function Base.copyto!(t::Tensor, A::AbstractArray; queue = nothing)
    memory = Memory(A)
    check_bytes(t, memory)
    GC.@preserve memory check(CAPI.mp_tensor_write(t, queue, memory.address, memory.bytes))
    return t
end
function Base.copyto!(A::AbstractArray, t::Tensor; queue = nothing)
    memory = Memory(A)
    check_bytes(t, memory)
    GC.@preserve memory check(CAPI.mp_tensor_read(t, queue, memory.address, memory.bytes))
    return A
end
function Base.copyto!(to::Tensor, from::Tensor; queue = nothing)
    check(CAPI.mp_tensor_copy(from, queue, to))
    return to
end

"The elements as a new array; packed bytes of fp4."
function Base.Array(t::Tensor)
    type = eltype(t)
    A = type isa Symbol ? Vector{UInt8}(undef, tensor_bytes(t)) : Array{type}(undef, size(t)...)
    check(CAPI.mp_tensor_read(t, nothing, A, sizeof(A)))
    return A
end

"""
    fill!(tensor, 0)

All bytes zero; other values are not supported. `queue` as everywhere.
"""
function Base.fill!(t::Tensor, zero::Number; queue = nothing)
    iszero(zero) || throw(ArgumentError("a tensor can be filled with 0 only"))
    check(CAPI.mp_tensor_zero(t, queue))
    return t
end

"""
    view(tensor, offset, dims...)

`dims` elements from element `offset` on (from 0, in memory's order), as a tensor that shares them and keeps
`tensor` alive.
"""
function Base.view(t::Tensor, offset::Integer, dims::Integer...)
    shape = collect(Int64, reverse(dims))
    return Tensor(made(out -> CAPI.mp_tensor_create_view(t, offset, length(shape), shape, out), CAPI.mp_tensor),
                  context(t))
end

const ROUNDINGS = (nearest = CAPI.MP_ROUND_NEAREST, stochastic = CAPI.MP_ROUND_STOCHASTIC)

function cast_desc(; rounding::Symbol = :nearest, saturate = nothing, seed = 0, uid = 0, step = 0, microbatch = 0)
    return CAPI.mp_cast_desc(flags = flags(CAPI.MP_CAST_SATURATE => saturate === true,
                                           CAPI.MP_CAST_NO_SATURATE => saturate === false),
                             rounding = choice(ROUNDINGS, rounding, "rounding"), microbatch = microbatch, seed = seed,
                             uid = uid, step = step)
end

"""
    cast!(destination, source; rounding = :nearest, saturate = nothing, seed = 0, uid = 0, step = 0, microbatch = 0,
          queue = nothing)

Convert between fp32, fp16, bf16 and fp8, elementwise, tensors or arrays. `saturate` is by default `true` for fp8
and `false` for others. `rounding = :stochastic` draws bits by `seed`, `uid`, `step` and `microbatch`.
"""
function cast!(destination, source; queue = nothing, rest...)
    c = destination isa Tensor ? context(destination) : source isa Tensor ? context(source) :
        throw(ArgumentError("one of the two must be a Tensor; or use cast!(context, destination, source)"))
    return cast!(c, destination, source; queue = queue, rest...)
end
function cast!(c::Context, destination, source; queue = nothing, rest...)
    desc = Ref(cast_desc(; rest...))
    given((to, from) -> check(CAPI.mp_tensor_cast(from, queue, to, desc)), c, destination, source)
    return destination
end

"The largest absolute value (NaN beats infinity beats numbers), into a tensor of one `Float32`."
amax!(result::Tensor, t::Tensor; queue = nothing) = (check(CAPI.mp_tensor_amax(t, queue, result)); result)
"The largest absolute value of a tensor, as a number; NaN beats infinity beats numbers."
function amax(t::Tensor)
    result = Tensor(context(t), Float32, 1)
    value = Array(amax!(result, t))[1]
    close(result)
    return value
end

# ---- Quantized tensors

const SCALINGS = (tensor = CAPI.MP_SCALING_TENSOR, row = CAPI.MP_SCALING_ROW, column = CAPI.MP_SCALING_COLUMN,
                  block_1x128 = CAPI.MP_SCALING_BLOCK_1X128, block_128x1 = CAPI.MP_SCALING_BLOCK_128X1,
                  block_128x128 = CAPI.MP_SCALING_BLOCK_128X128, mx_1x32 = CAPI.MP_SCALING_MX_1X32,
                  mx_32x1 = CAPI.MP_SCALING_MX_32X1, nvfp4 = CAPI.MP_SCALING_NVFP4)
const SCALE_RULES = (default = Int32(0), current = CAPI.MP_SCALE_RULE_CURRENT, float64 = CAPI.MP_SCALE_RULE_FLOAT64,
                     msamp = CAPI.MP_SCALE_RULE_MSAMP, deepseek = CAPI.MP_SCALE_RULE_DEEPSEEK,
                     mx_rceil = CAPI.MP_SCALE_RULE_MX_RCEIL, mx_floor = CAPI.MP_SCALE_RULE_MX_FLOOR,
                     mx_ceil = CAPI.MP_SCALE_RULE_MX_CEIL, mx_even = CAPI.MP_SCALE_RULE_MX_EVEN,
                     nvfp4 = CAPI.MP_SCALE_RULE_NVFP4)

"""
    Quant(scaling = :tensor; rule = :default, power_of_two = false, amax_epsilon = 0, margin = 0)

How codes are scaled: value = code * scale_inv. `scaling` is in the library's rows and columns: a row is a column of
the Julia array. It is `:tensor`, `:row`, `:column`, `:block_1x128`, `:block_128x1`, `:block_128x128`, `:mx_1x32`,
`:mx_32x1` or `:nvfp4`; `rule`, from amax to scale, is `:current`, `:float64`, `:msamp`, `:deepseek`, `:mx_rceil`,
`:mx_floor`, `:mx_ceil`, `:mx_even`, `:nvfp4`, or the scaling's usual one.
"""
struct Quant
    desc::CAPI.mp_quant_desc
end
Quant(scaling::Symbol = :tensor; rule::Symbol = :default, power_of_two = false, amax_epsilon = 0, margin = 0) =
    Quant(CAPI.mp_quant_desc(scaling = choice(SCALINGS, scaling, "scaling"),
                             flags = flags(CAPI.MP_QUANT_POWER_OF_TWO => power_of_two),
                             rule = choice(SCALE_RULES, rule, "rule"), amax_epsilon = amax_epsilon, margin = margin))
Base.show(io::IO, q::Quant) =
    print(io, "Quant(:", choice_name(SCALINGS, q.desc.scaling), "; rule = :", choice_name(SCALE_RULES, q.desc.rule),
          ")")

# The number of a code type: a Julia type, or :fp4_e2m1.
function code_number(type)
    type isa Type && return dtype_number(type)
    type === :fp4_e2m1 && return CAPI.MP_DTYPE_FP4_E2M1
    throw(MPError(CAPI.MP_STATUS_INVALID_DTYPE, "codes are a type such as Float8_E4M3, or :fp4_e2m1, not $type"))
end

"""
    QuantizedTensor(context, T, dims...; quant = Quant())
    QuantizedTensor(context, codes, scale_inv, T, dims...; quant = Quant(), amax = nothing)

A tensor of codes with scales beside them: `T` is `Float8_E4M3`, `Float8_E5M2`, `Float16` (rule `:msamp`) or
`:fp4_e2m1`. The second form is over arrays that have codes and scales already, with as many scales as `scale_grid`
says. `amax` is a `Vector{Float32}` of one element; `:nvfp4` needs it.
"""
QuantizedTensor(c::Context, T, dims::Integer...; quant::Quant = Quant()) =
    Tensor(made(CAPI.mp_tensor) do out
               CAPI.mp_tensor_create_quantized(c, Ref(tensor_desc(code_number(T), dims)), Ref(quant.desc), out)
           end, c)
function QuantizedTensor(c::Context, codes::AbstractArray, scale_inv::AbstractArray, T, dims::Integer...;
                         quant::Quant = Quant(), amax = nothing)
    pieces = (Memory(codes), Memory(scale_inv), amax === nothing ? nothing : Memory(amax))
    count = prod(dims)
    bytes = T isa Type ? count * sizeof(T) : cld(count, 2)
    pieces[1].bytes == bytes || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "codes have $(pieces[1].bytes) bytes; $(join(dims, "x")) of $T need $bytes"))
    columns = isempty(dims) ? 1 : dims[1]
    grid = scale_grid(columns == 0 ? 0 : count ÷ columns, columns; quant = quant)
    needed = grid.rows * grid.columns * sizeof(grid.dtype)
    pieces[2].bytes == needed || throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE,
        "scale_inv has $(pieces[2].bytes) bytes; $(grid.rows) x $(grid.columns) scales of $(grid.dtype) need $needed"))
    amax === nothing || pieces[3].type === Float32 && pieces[3].elements == 1 ||
        throw(MPError(CAPI.MP_STATUS_INVALID_SHAPE, "amax must be a Vector{Float32} of one element"))
    desc = tensor_desc(code_number(T), dims)
    return wrapped(c, pieces) do node, out
        CAPI.mp_tensor_wrap_quantized(c, Ref(desc), Ref(quant.desc), pieces[1].address, pieces[2].address,
                                      amax === nothing ? C_NULL : Ptr{Float32}(pieces[3].address),
                                      RELEASE_CALLBACK[], node, out)
    end
end

"""
    scale_grid(rows, columns; quant = Quant())

How many scales a matrix has, in the library's rows and columns, and their element type.
"""
function scale_grid(rows::Integer, columns::Integer; quant::Quant = Quant())
    grid, dtype = (Ref{Int64}(0), Ref{Int64}(0)), Ref{Int32}(0)
    check(CAPI.mp_tensor_get_scale_grid(Ref(quant.desc), rows, columns, grid[1], grid[2], dtype))
    return (rows = Int(grid[1][]), columns = Int(grid[2][]), dtype = dtype_type(dtype[]))
end

"""
    quantize!(destination, source; transposed = nothing, stats = false, rounding = :nearest, seed = 0, uid = 0,
              step = 0, microbatch = 0, first_element = 0, queue = nothing)

Round `source` (fp32, fp16 or bf16, the shape of `destination`) to codes, and compute their scales. `transposed`
receives the same codes turned. With `stats` the result is a named tuple of what happened to the elements, and the
call waits.
"""
function quantize!(destination::Tensor, source; transposed = nothing, stats = false, rounding::Symbol = :nearest,
                   seed = 0, uid = 0, step = 0, microbatch = 0, first_element = 0, queue = nothing)
    args = CAPI.mp_quantize_args(rounding = choice(ROUNDINGS, rounding, "rounding"), microbatch = microbatch,
                                 seed = seed, uid = uid, step = step, first_element = first_element)
    result = stats ? Ref(CAPI.mp_quant_stats()) : C_NULL
    given(context(destination), source) do from
        check(CAPI.mp_tensor_quantize(from, queue, destination, transposed, Ref(args), result))
    end
    return stats ? named(result[]) : destination
end

"""
    dequantize!(destination, source; queue = nothing)

destination = code * scale_inv of the quantized tensor `source`, in fp32, rounded to fp32, fp16 or bf16.
"""
function dequantize!(destination, source::Tensor; queue = nothing)
    given(to -> check(CAPI.mp_tensor_dequantize(source, queue, to)), context(source), destination)
    return destination
end

"The scales (scale_inv) of a quantized tensor, as a tensor over their memory."
scales(t::Tensor) = Tensor(made(out -> CAPI.mp_tensor_get_scales(t, out), CAPI.mp_tensor), context(t))

"The largest |x| of what was quantized last, as a tensor of one element over its memory."
quantized_amax(t::Tensor) =
    Tensor(made(out -> CAPI.mp_tensor_get_quantized_amax(t, out), CAPI.mp_tensor), context(t))

"How a tensor is quantized; throws for one without scales."
Quant(t::Tensor) = Quant(filled(box -> CAPI.mp_tensor_get_quant_desc(t, box), CAPI.mp_quant_desc()))

# ---- Weights of a recipe

"""
    weight(context, recipe, values)
    weight(context, recipe, dims...)

The weight that the recipe wants, from its values in fp32 (an array), or of zeros: a tensor of its weight.dtype,
quantized where that has a scale. Give the same values to `add_param!` as `init`.
"""
weight(c::Context, r::Recipe, values::AbstractArray) =
    make_weight(CAPI.mp_recipe_create_weight, c, r, values, size(values))
weight(c::Context, r::Recipe, dims::Integer...) = make_weight(CAPI.mp_recipe_create_weight, c, r, nothing, dims)

"As `weight`, but as the fp8 codes that a layer's products take, with one scale: what a sharded optimizer gathers."
weight_codes(c::Context, r::Recipe, values::AbstractArray) =
    make_weight(CAPI.mp_recipe_create_weight_codes, c, r, values, size(values))
weight_codes(c::Context, r::Recipe, dims::Integer...) =
    make_weight(CAPI.mp_recipe_create_weight_codes, c, r, nothing, dims)

function make_weight(create, c, r, values, dims)
    shape = collect(Int64, reverse(dims))
    # Array, so that views and other element types are taken: the values are read once.
    fp32 = values === nothing ? Ptr{Float32}(C_NULL) : convert(Array{Float32}, values)
    return locked(r) do
        Tensor(made(out -> create(c, r, length(shape), shape, fp32, out), CAPI.mp_tensor), c)
    end
end
