# SPDX-License-Identifier: Apache-2.0
# The C ABI as far as this package uses it: names, numbers and structs as in the headers, and the library itself.

const MP_VERSION = UInt32(200)
const FP32, FP16, BF16 = Int32(1), Int32(2), Int32(3)
const NO_DTYPE = Int32(0)
const HOST = Int32(1)
const HYPERPARAMETERS_EXPLICIT = UInt32(256)
const RULE_ADAMW, RULE_ADAM, RULE_LION = Int32(0), Int32(1), Int32(2)

# A C struct whose first two fields are struct_size and flags. Besides the struct: a constructor by keywords, where
# what is not named is zero.
macro cstruct(name, body)
    fields = [(line.args[1], line.args[2]) for line in body.args if line isa Expr && line.head === :(::)]
    declared = [:($(f)::$(T)) for (f, T) in fields]
    keywords = [Expr(:kw, f, :(zero_of($T))) for (f, T) in fields]
    values = [:(convert($T, $f)) for (f, T) in fields]
    esc(quote
        struct $name
            struct_size::UInt32
            flags::UInt32
            $(declared...)
            $name(; flags = 0, $(keywords...)) = new(sizeof($name), flags, $(values...))
        end
    end)
end
zero_of(::Type{T}) where {T<:Number} = zero(T)
zero_of(::Type{Ptr{T}}) where {T} = Ptr{T}(C_NULL)
zero_of(::Type{NTuple{N,T}}) where {N,T} = ntuple(_ -> zero(T), N)

@cstruct mp_context_desc begin
    api_version::UInt32
    device_kind::Int32
    device_index::Int32
    num_threads::Int32
    log_level::Int32
    reserved::Int32
    backend::Ptr{UInt8}
    allocate::Ptr{Cvoid}
    release::Ptr{Cvoid}
    allocator_payload::Ptr{Cvoid}
    log::Ptr{Cvoid}
    log_payload::Ptr{Cvoid}
    parallel::Ptr{Cvoid}
    parallel_payload::Ptr{Cvoid}
end
@cstruct mp_tensor_desc begin
    dtype::Int32
    ndim::Int32
    shape::NTuple{8,Int64}
    device_kind::Int32
    device_index::Int32
end
@cstruct mp_optimizer_desc begin
    seed::UInt64
    max_grad_norm::Float64
end
@cstruct mp_param_group_desc begin
    lr::Float64
    beta1::Float64
    beta2::Float64
    eps::Float64
    weight_decay::Float64
    rule::Int32
    reserved::Int32
    exp_avg_format::Ptr{UInt8}
    exp_avg_sq_format::Ptr{UInt8}
end
@cstruct mp_param_desc begin
    name::Ptr{UInt8}
    param::Ptr{Cvoid}
    grad::Ptr{Cvoid}
    init_fp32::Ptr{Cvoid}
end
struct mp_optimizer_stats # written by the library; its second field is not flags
    struct_size::UInt32
    found_inf::UInt32
    step::Int64
    skipped_steps::Int64
    grad_norm::Float64
    grad_mul::Float64
    mp_optimizer_stats() = new(sizeof(mp_optimizer_stats), 0, 0, 0, 0, 0)
end
@cstruct mp_step_slot begin
    count::Int64
    uid::UInt64
    param::Ptr{Cvoid}
    grad::Ptr{Cvoid}
    exp_avg::Ptr{Cvoid}
    exp_avg_sq::Ptr{Cvoid}
    compensation::Ptr{Cvoid}
    master::Ptr{Cvoid}
    param_dtype::Int32
    grad_dtype::Int32
    exp_avg_dtype::Int32
    exp_avg_sq_dtype::Int32
    compensation_dtype::Int32
    master_dtype::Int32
    param_scale_inv::Ptr{Float32}
    grad_scale_inv::Ptr{Float32}
    exp_avg_scale_inv::Ptr{Cvoid}
    exp_avg_sq_scale_inv::Ptr{Cvoid}
    master_scale_inv::Ptr{Float32}
    exp_avg_coding::Int32
    exp_avg_sq_coding::Int32
    master_coding::Int32
    compensation_coding::Int32
    compensation_scale_inv::Ptr{Cvoid}
    first_element::Int64
    param_amax::Ptr{Float32}
end
@cstruct mp_step_args begin
    step::Int64
    seed::UInt64
    lr::Float64
    beta1::Float64
    beta2::Float64
    eps::Float64
    weight_decay::Float64
    max_grad_norm::Float64
    grad_scale::Float64
    lr_pointer::Ptr{Float32}
    grad_scale_pointer::Ptr{Float32}
    rule::Int32
    reserved::Int32
    step_pointer::Ptr{Int64}
    hyper_pointer::Ptr{Float64}
    grad_mul_pointer::Ptr{Float32}
end

const STRUCTS = (mp_context_desc, mp_tensor_desc, mp_optimizer_desc, mp_param_group_desc, mp_param_desc,
                 mp_optimizer_stats, mp_step_slot, mp_step_args)

const NAMES = (:mp_library_version, :mp_status_string, :mp_last_error_message, :mp_context_create,
               :mp_context_destroy, :mp_context_sync, :mp_recipe_create, :mp_recipe_destroy, :mp_tensor_wrap,
               :mp_tensor_read, :mp_tensor_destroy, :mp_optimizer_create, :mp_optimizer_add_group,
               :mp_optimizer_add_param, :mp_optimizer_step, :mp_optimizer_get_stats, :mp_optimizer_get_state,
               :mp_optimizer_step_pointers, :mp_optimizer_destroy)
const FUNCTIONS = Dict{Symbol,Ptr{Cvoid}}()

fn(name::Symbol) = FUNCTIONS[name]

# Prefix or build folder in MIXEDPREC_DIR, otherwise wherever the loader looks.
function __init__()
    file = "libmixedprec.so.0"
    prefix = get(ENV, "MIXEDPREC_DIR", nothing)
    if prefix !== nothing
        files = [joinpath(prefix, folder, file) for folder in ("lib", "lib64")]
        found = findfirst(isfile, files)
        found === nothing && error("MIXEDPREC_DIR is '$prefix', but neither lib nor lib64 there has $file")
        file = files[found]
    end
    library = dlopen(file, RTLD_LAZY | RTLD_LOCAL)
    for name in NAMES
        FUNCTIONS[name] = dlsym(library, name)
    end
    found = ccall(fn(:mp_library_version), UInt32, ())
    found >= MP_VERSION || error("libmixedprec is version $found, this package needs $MP_VERSION or newer")
end
