# SPDX-License-Identifier: Apache-2.0
"""
Low-precision training from Julia: a small layer over the C ABI of libmixedprec, as far as `optimizer_step.jl` needs
it. Set `MIXEDPREC_DIR` to the library's prefix or build folder where the loader does not find it.
"""
module MixedPrec

using Libdl: dlopen, dlsym, RTLD_LAZY, RTLD_LOCAL

include("abi.jl")

"A negative status, with its text."
struct MixedPrecError <: Exception
    status::Int32
    name::String
    message::String
end
Base.showerror(io::IO, e::MixedPrecError) = print(io, e.name, ": ", e.message)

# The advice that came with a positive status, or nothing. A finalizer that runs in between does no harm: giving objects
# back leaves the thread's message as it is.
function check(status::Int32)
    status == 0 && return nothing
    message = unsafe_string(ccall(fn(:mp_last_error_message), Ptr{UInt8}, ()))
    status > 0 && return message
    throw(MixedPrecError(status, unsafe_string(ccall(fn(:mp_status_string), Ptr{UInt8}, (Int32,), status)), message))
end

"Version of the loaded library."
function library_version()
    n = ccall(fn(:mp_library_version), UInt32, ())
    VersionNumber(n ÷ 10000, n ÷ 100 % 100, n % 100)
end

# A reference of ours to an object of the library. The function that gives it back is found now, so that the finalizer
# needs nothing else; what the object uses of Julia's memory is in `roots`.
mutable struct Handle
    pointer::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    roots::Vector{Any}
    Handle(pointer, noun, roots...) =
        finalizer(close, new(pointer, fn(Symbol("mp_", noun, "_destroy")), Any[roots...]))
end

function Base.close(handle::Handle)
    pointer, handle.pointer = handle.pointer, C_NULL
    pointer == C_NULL || ccall(handle.destroy, Cvoid, (Ptr{Cvoid},), pointer)
    empty!(handle.roots)
    return
end

for (T, text) in ((:Context, "The host with its threads and memory."),
                  (:Recipe, "Which dtype every class of tensor has, and how it is rounded."),
                  (:Tensor, "A tensor of the library, over an array of the caller's or its own memory."),
                  (:Optimizer, "AnyPrecisionAdamW over tensors."))
    @eval begin
        @doc $text struct $T
            handle::Handle
        end
        "Give the object back now; otherwise the garbage collector does it."
        Base.close(x::$T) = close(x.handle)
        Base.unsafe_convert(::Type{Ptr{Cvoid}}, x::$T) = x.handle.pointer
        Base.cconvert(::Type{Ptr{Cvoid}}, x::$T) = x
    end
end

function Context(; num_threads = 0)
    out = Ref(C_NULL)
    desc = Ref(mp_context_desc(api_version = MP_VERSION, device_kind = HOST, num_threads = num_threads))
    check(ccall(fn(:mp_context_create), Int32, (Ref{mp_context_desc}, Ref{Ptr{Cvoid}}), desc, out))
    Context(Handle(out[], :context))
end

"Wait for all work of the context."
sync(context::Context) = check(ccall(fn(:mp_context_sync), Int32, (Ptr{Cvoid},), context))

function Recipe(context::Context, name::AbstractString)
    out = Ref(C_NULL)
    check(ccall(fn(:mp_recipe_create), Int32, (Ptr{Cvoid}, Cstring, Ref{Ptr{Cvoid}}), context, name, out))
    Recipe(Handle(out[], :recipe))
end

dtype_of(::Array{Float32}) = FP32
dtype_of(::Array{Float16}) = FP16

"A tensor over `data`, whose dimensions it has in the opposite order; bf16 is `UInt16` with `dtype = BF16`."
function Tensor(context::Context, data::Array; dtype = dtype_of(data))
    out = Ref(C_NULL)
    sizes = reverse(size(data))
    shape = ntuple(i -> i <= length(sizes) ? Int64(sizes[i]) : Int64(0), 8)
    desc = Ref(mp_tensor_desc(dtype = dtype, ndim = ndims(data), shape = shape, device_kind = HOST))
    check(ccall(fn(:mp_tensor_wrap), Int32,
                (Ptr{Cvoid}, Ref{mp_tensor_desc}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ref{Ptr{Cvoid}}),
                context, desc, data, C_NULL, C_NULL, out))
    Tensor(Handle(out[], :tensor, data))
end

"Copy the elements of a tensor into `out`, which has as many bytes."
function Base.read!(tensor::Tensor, out::Array)
    check(ccall(fn(:mp_tensor_read), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t),
                tensor, C_NULL, out, sizeof(out)))
    out
end

function Optimizer(context::Context, recipe::Recipe)
    out = Ref(C_NULL)
    check(ccall(fn(:mp_optimizer_create), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ref{Ptr{Cvoid}}),
                context, recipe, C_NULL, out))
    Optimizer(Handle(out[], :optimizer))
end

"""
Add a group of parameters: its number, and the library's advice or `nothing`. `rule` is `RULE_ADAMW`, `RULE_ADAM` or
`RULE_LION` (whose `eps` is 0).
"""
function add_group(optimizer::Optimizer; lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0,
                   rule = RULE_ADAMW)
    index = Ref(Int32(-1))
    desc = Ref(mp_param_group_desc(flags = HYPERPARAMETERS_EXPLICIT, lr = lr, beta1 = beta1, beta2 = beta2, eps = eps,
                                   weight_decay = weight_decay, rule = rule))
    note = check(ccall(fn(:mp_optimizer_add_group), Int32, (Ptr{Cvoid}, Ref{mp_param_group_desc}, Ref{Int32}),
                       optimizer, desc, index))
    (index[], note)
end

"Add a parameter with its main gradient; `init` is its exact start in fp32 where `param` is narrower."
function add_param(optimizer::Optimizer, group, name::String, param::Tensor, grad::Tensor; init = nothing)
    index = Ref(Int32(-1))
    GC.@preserve name param grad init begin
        desc = Ref(mp_param_desc(name = pointer(name), param = param.handle.pointer, grad = grad.handle.pointer,
                                 init_fp32 = init === nothing ? C_NULL : init.handle.pointer))
        check(ccall(fn(:mp_optimizer_add_param), Int32, (Ptr{Cvoid}, Int32, Ref{mp_param_desc}, Ref{Int32}),
                    optimizer, group, desc, index))
    end
    push!(optimizer.handle.roots, param, grad)
    stats(optimizer) # waits: `init` may go now
    index[]
end

"One step of all groups."
step!(optimizer::Optimizer) =
    check(ccall(fn(:mp_optimizer_step), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), optimizer, C_NULL, C_NULL))

"What the last step did."
function stats(optimizer::Optimizer)
    out = Ref(mp_optimizer_stats())
    check(ccall(fn(:mp_optimizer_get_stats), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ref{mp_optimizer_stats}),
                optimizer, C_NULL, out))
    out[]
end

"A tensor of one parameter, by the name of its state."
function state(optimizer::Optimizer, index, name::AbstractString)
    out = Ref(C_NULL)
    check(ccall(fn(:mp_optimizer_get_state), Int32, (Ptr{Cvoid}, Int32, Cstring, Ref{Ptr{Cvoid}}),
                optimizer, index, name, out))
    Tensor(Handle(out[], :tensor, optimizer))
end

"""
    step_pointers!(context, step, param, grad, exp_avg, exp_avg_sq; lr, beta1, beta2, eps, weight_decay)

Step number `step` (from 1) straight on the caller's arrays.
"""
function step_pointers!(context::Context, step, param::Array, grad::Array, exp_avg::Array, exp_avg_sq::Array;
                        lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0)
    length(param) == length(grad) == length(exp_avg) == length(exp_avg_sq) ||
        throw(DimensionMismatch("parameter, gradient and moments must have the same length"))
    args = Ref(mp_step_args(flags = HYPERPARAMETERS_EXPLICIT, step = step, lr = lr, beta1 = beta1, beta2 = beta2,
                             eps = eps, weight_decay = weight_decay, grad_scale = 1))
    GC.@preserve param grad exp_avg exp_avg_sq begin
        slot = Ref(mp_step_slot(count = length(param), param = pointer(param), grad = pointer(grad),
                                 exp_avg = pointer(exp_avg), exp_avg_sq = pointer(exp_avg_sq),
                                 param_dtype = dtype_of(param), grad_dtype = dtype_of(grad),
                                 exp_avg_dtype = dtype_of(exp_avg), exp_avg_sq_dtype = dtype_of(exp_avg_sq)))
        stats = Ref(mp_optimizer_stats()) # asking for them makes the call wait
        check(ccall(fn(:mp_optimizer_step_pointers), Int32,
                    (Ptr{Cvoid}, Ptr{Cvoid}, Ref{mp_step_args}, Ref{mp_step_slot}, Int64, Ptr{Cvoid},
                     Ref{mp_optimizer_stats}),
                    context, C_NULL, args, slot, 1, C_NULL, stats))
    end
    return
end

end
