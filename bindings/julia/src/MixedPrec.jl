# SPDX-License-Identifier: Apache-2.0
"""
Low-precision training in Julia, by libmixedprec. Start with `Context`, `Recipe`, `Optimizer` and `Linear`; the README
and `examples/` show them together.

- `MIXEDPREC_DIR` is an installation's prefix or a build folder; without it the system's loader looks for the library.
- Every failure is an `MPError`. Advice of the library is a warning, and stays in `last_note()`.
- Shapes: the library is row-major, so a Julia array has the dimensions of the library's tensor in the opposite order,
  and no copy is made. A weight is `in x out`, activations are `features x rows`.
- Everything of the C ABI, as it is there, is in `MixedPrec.CAPI`.
"""
module MixedPrec

include("capi.jl")
include("errors.jl")
include("notices.jl")
include("handles.jl")
include("dtypes.jl")
include("memory.jl")
include("context.jl")
include("recipe.jl")
include("tensor.jl")
include("gemm.jl")
include("comm.jl")
include("transport.jl")
include("linear.jl")
include("scaler.jl")
include("optimizer.jl")
include("slots.jl")
include("sharding.jl")
include("first_values.jl")
include("watch.jl")
include("checkpoint.jl")
include("rule.jl")

export MPError, last_note, library_version, library_info,
       BFloat16, Float8_E4M3, Float8_E5M2, E8M0,
       Context, Queue, Event, sync, record, wait_event, describe, threads, device_count, device_available, device_name,
       device_memory,
       Recipe, presets, recipe_keys, to_json, validate, for_layer, for_param, frozen, reason, plan_memory, plan_tensors,
       weight, weight_codes,
       Tensor, cast!, amax!, amax, QuantizedTensor, Quant, quantize!, dequantize!, scales, quantized_amax, scale_grid,
       Gemm, gemm!,
       Linear, forward!, backward!, backward_data!, backward_weight!, end_step!, stats, clear_stats!, advice, monitor!,
       scaling, set_scaling!, Saved, saved_bytes, set_memory!, gradient_rounding, set_gradient_rounding!, operand_format,
       set_weight_codes!, weight_codes_of, multiply_tensor,
       Scaler, scale, update_scale!, state, set_state!, check_finite!, scale_tensor, found_inf_tensor, combine!,
       Optimizer, Group, Param, add_group!, add_param!, add_params!, set_frozen!, frozen, step!, step_begin!,
       step_params!, step_end!, zero_grad!, mark_unused!, set_linears!, set_lr!, set_enabled!, enabled,
       set_max_grad_norm!, set_norm_comm!, grad, read_state, write_state!, sync_master!, set_step!, steps, groups,
       parameters, memory, offload_traffic, hyperparameters, grad_norm_tensor, set_grad_scale!,
       set_guard!, guard, set_loss!, set_history!, records, bad_tensor,
       Slot, StepPlan, run!, set_args!,
       Comm, thread_comms, mpi_comm, comm_rank, comm_size, comm_node, barrier, all_gather!, all_to_all!, bcast!, max!,
       split_comm, abort_comm, comm_status, traffic, deadline, set_deadline!, Request, all_reduce!, reduce_scatter!,
       all_gather_values!, wire_bytes, Transport, Operation,
       shard!, grad_ready!, end_microbatch!, acquire_grad!, gather_begin!, gather_wait!, gather_free!, slice, progress,
       set_layer_params!, layer_begin!, layer_end!, grad_mu, init_params!, load_params!,
       Checkpoint, add!, save, load!, inspect, describe_checkpoint, export_weights

# The library's path under MIXEDPREC_DIR, or what the system's loader is to look for.
function library_path()
    directory = get(ENV, "MIXEDPREC_DIR", "")
    name = Sys.isapple() ? "libmixedprec.dylib" : "libmixedprec.so"
    isempty(directory) && return Sys.isapple() ? name : "libmixedprec.so.0"
    path = joinpath(directory, "lib", name)
    isfile(path) || error("MIXEDPREC_DIR is \"$directory\", and there is no lib/$name in it; " *
                          "it must be an installation's prefix or a build folder")
    return path
end

function __init__()
    path = library_path()
    try
        CAPI.load(path)
    catch problem
        error("cannot open libmixedprec as \"$path\": $(sprint(showerror, problem)); " *
              "set MIXEDPREC_DIR to its prefix or build folder")
    end
    found, wanted = library_version(), VersionNumber(CAPI.MP_VERSION ÷ 10000, CAPI.MP_VERSION ÷ 100 % 100)
    found < wanted && error("libmixedprec is version $found; this package needs $wanted or a later 0.x")
    prepare_notices()
    return
end

"Version of the loaded library."
function library_version()
    n = Int(CAPI.mp_library_version())
    return VersionNumber(n ÷ 10000, n ÷ 100 % 100, n % 100)
end

"Version, compiler and what was built in, as one line for bug reports."
library_info() = unsafe_string(CAPI.mp_library_build_info())

end # module MixedPrec
