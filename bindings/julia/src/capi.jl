# SPDX-License-Identifier: Apache-2.0
# Made by bindings/generate/generate.py from the public headers. Do not edit.
"""
The C ABI as it is: constants, structs with the defaults of their initializers as keywords, and every function.
`CAPI.load(path)` opens the library. Functions that may wait, if only for another thread that uses the same object, let
the garbage collector run meanwhile.
"""
module CAPI

import Libdl

# The functions' addresses, in the order of NAMES; filled by load.
const ADDRESSES = Ptr{Cvoid}[]

function load(path)
    handle = Libdl.dlopen(path, Libdl.RTLD_NOW | Libdl.RTLD_LOCAL)
    empty!(ADDRESSES)
    append!(ADDRESSES, [Libdl.dlsym(handle, name) for name in NAMES])
    check_layout()
    return handle
end

# A ccall during which the garbage collector may run. Arguments are converted before, and kept alive; nothing of Julia's
# is touched in between.
macro waiting(index, result, types, arguments...)
    converted = [gensym() for _ in arguments]
    raw = [gensym() for _ in arguments]
    before = [:($c = Base.cconvert($t, $(esc(a)))) for (c, t, a) in zip(converted, types.args, arguments)]
    pointers = [:($r = Base.unsafe_convert($t, $c)) for (r, t, c) in zip(raw, types.args, converted)]
    quote
        address = ADDRESSES[$index]
        $(before...)
        GC.@preserve $(converted...) begin
            $(pointers...)
            state = ccall(:jl_gc_safe_enter, Int8, ())
            value = ccall(address, $result, $types, $(raw...))
            ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
        end
        value
    end
end

struct mp_context end
struct mp_queue end
struct mp_event end
struct mp_tensor end
struct mp_recipe end
struct mp_gemm end
struct mp_linear end
struct mp_saved end
struct mp_scaler end
struct mp_step_plan end
struct mp_optimizer end
struct mp_checkpoint end
struct mp_comm end
struct mp_comm_request end
struct DLManagedTensorVersioned end

const MP_CODING_PLAIN = Int32(0)
const MP_CODING_FP8_BLOCK = Int32(2)
const MP_CODING_DYNAMIC8 = Int32(3)
const MP_CODING_DYNAMIC4 = Int32(4)
const MP_CODING_REMAINDER = Int32(5)
const MP_CODING_FP8_BLOCK128 = Int32(6)
const MP_CODING_COMPANDED8 = Int32(7)
const MP_SAVE_BACKGROUND = UInt32(1)
const MP_LOAD_VERIFY_ALL = UInt32(1)
const MP_LOAD_OTHER_RECIPE = UInt32(2)
const MP_LOAD_CONVERT = UInt32(4)
const MP_COMM_ALL_TO_ALL = Int32(0)
const MP_COMM_ALL_GATHER = Int32(1)
const MP_COMM_BROADCAST = Int32(2)
const MP_COMM_BARRIER = Int32(3)
const MP_COMM_MAX_U32 = Int32(4)
const MP_COMM_SUM_F32 = Int32(5)
const MP_COMM_HAS_SUM_F32 = UInt32(1)
const MP_COMM_HAS_DEVICE_MEMORY = UInt32(2)
const MP_COMM_TAKES_ANY_THREAD = UInt32(4)
const MP_COMM_UNIQUE_ID_BYTES = Int32(128)
const MP_LOG_ERROR = Int32(1)
const MP_LOG_WARNING = Int32(2)
const MP_LOG_INFO = Int32(3)
const MP_LOG_DEBUG = Int32(4)
const MP_CONTEXT_BIND_THREADS = UInt32(1)
const MP_CAST_SATURATE = UInt32(1)
const MP_CAST_NO_SATURATE = UInt32(2)
const MP_SCALING_TENSOR = Int32(1)
const MP_SCALING_ROW = Int32(2)
const MP_SCALING_COLUMN = Int32(3)
const MP_SCALING_BLOCK_1X128 = Int32(4)
const MP_SCALING_BLOCK_128X1 = Int32(5)
const MP_SCALING_BLOCK_128X128 = Int32(6)
const MP_SCALING_MX_1X32 = Int32(7)
const MP_SCALING_MX_32X1 = Int32(8)
const MP_SCALING_NVFP4 = Int32(9)
const MP_SCALE_RULE_CURRENT = Int32(1)
const MP_SCALE_RULE_FLOAT64 = Int32(2)
const MP_SCALE_RULE_MSAMP = Int32(3)
const MP_SCALE_RULE_DEEPSEEK = Int32(4)
const MP_SCALE_RULE_MX_RCEIL = Int32(5)
const MP_SCALE_RULE_MX_FLOOR = Int32(6)
const MP_SCALE_RULE_MX_CEIL = Int32(7)
const MP_SCALE_RULE_MX_EVEN = Int32(8)
const MP_SCALE_RULE_NVFP4 = Int32(9)
const MP_QUANT_POWER_OF_TWO = UInt32(1)
const MP_QUANTIZE_CHECK_AMAX = UInt32(1)
const MP_GEMM_TRANS_A = UInt32(1)
const MP_GEMM_TRANS_B = UInt32(2)
const MP_GEMM_BIAS = UInt32(4)
const MP_GEMM_GELU = UInt32(8)
const MP_GEMM_HAS_ALPHA = UInt32(16)
const MP_GEMM_POWER_OF_TWO_SCALES = UInt32(32)
const MP_GEMM_FAST_ACCUMULATION = UInt32(64)
const MP_LINEAR_INFERENCE = UInt32(1)
const MP_LINEAR_CACHE_WEIGHT = UInt32(2)
const MP_LINEAR_FIRST_OR_LAST = UInt32(4)
const MP_LINEAR_STATS = UInt32(8)
const MP_LINEAR_FROZEN = UInt32(16)
const MP_LINEAR_COPY_INPUT = UInt32(32)
const MP_OPERAND_INPUT = Int32(0)
const MP_OPERAND_WEIGHT = Int32(1)
const MP_OPERAND_GRAD_OUTPUT = Int32(2)
const MP_OPERAND_COUNT = Int32(3)
const MP_BACKWARD_ACCUMULATE = UInt32(1)
const MP_OPTIMIZER_OFFLOAD = UInt32(4)
const MP_PARAM_NORM_ELSEWHERE = UInt32(1)
const MP_RECIPE_TYPE_STRING = Int32(1)
const MP_RECIPE_TYPE_FLOAT = Int32(2)
const MP_RECIPE_TYPE_INT = Int32(3)
const MP_RECIPE_GEMM_FPROP_DTYPE = "gemm.fprop.dtype"
const MP_RECIPE_GEMM_DGRAD_DTYPE = "gemm.dgrad.dtype"
const MP_RECIPE_GEMM_WGRAD_DTYPE = "gemm.wgrad.dtype"
const MP_RECIPE_WEIGHT_DTYPE = "weight.dtype"
const MP_RECIPE_MASTER_DTYPE = "master.dtype"
const MP_RECIPE_GRAD_DTYPE = "grad.dtype"
const MP_RECIPE_GRAD_REDUCE_DTYPE = "grad.reduce.dtype"
const MP_RECIPE_GRAD_REDUCE_SCALE = "grad.reduce.scale"
const MP_RECIPE_WEIGHT_GATHER_DTYPE = "weight.gather.dtype"
const MP_RECIPE_EXP_AVG_DTYPE = "optimizer.exp_avg.dtype"
const MP_RECIPE_EXP_AVG_SQ_DTYPE = "optimizer.exp_avg_sq.dtype"
const MP_RECIPE_COMPENSATION_DTYPE = "optimizer.compensation.dtype"
const MP_RECIPE_BLOCK_MIN_ELEMENTS = "optimizer.block_min_elements"
const MP_RECIPE_WEIGHT_ROUNDING = "optimizer.weight.rounding"
const MP_RECIPE_EXP_AVG_ROUNDING = "optimizer.exp_avg.rounding"
const MP_RECIPE_EXP_AVG_SQ_ROUNDING = "optimizer.exp_avg_sq.rounding"
const MP_RECIPE_GEMM_SCALING = "gemm.scaling"
const MP_RECIPE_FP8_FORMAT = "fp8.format"
const MP_RECIPE_GEMM_FPROP_QUANTIZED = "gemm.fprop.quantized"
const MP_RECIPE_GEMM_DGRAD_QUANTIZED = "gemm.dgrad.quantized"
const MP_RECIPE_GEMM_WGRAD_QUANTIZED = "gemm.wgrad.quantized"
const MP_RECIPE_GEMM_SCALE_RULE = "gemm.scale_rule"
const MP_RECIPE_GEMM_POWER_OF_TWO_SCALE = "gemm.power_of_two_scale"
const MP_RECIPE_GEMM_AMAX_EPSILON = "gemm.amax_epsilon"
const MP_RECIPE_GEMM_MARGIN = "gemm.margin"
const MP_RECIPE_GEMM_INTERVAL = "gemm.interval"
const MP_RECIPE_GEMM_AMAX_HISTORY_LEN = "gemm.amax_history_len"
const MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO = "gemm.amax_compute_algo"
const MP_RECIPE_GEMM_WARM_UP = "gemm.warm_up"
const MP_RECIPE_GEMM_REDUCE_AMAX = "gemm.reduce_amax"
const MP_RECIPE_GEMM_FAST_ACCUMULATION = "gemm.fast_accumulation"
const MP_RECIPE_WEIGHT_GATHER_CODES = "weight.gather.codes"
const MP_RECIPE_GEMM_WEIGHT_COPY = "gemm.weight_copy"
const MP_RECIPE_GEMM_FILTER_MULTIPLE_OF = "gemm.filter.multiple_of"
const MP_RECIPE_GEMM_FILTER_FIRST_LAST = "gemm.filter.first_last"
const MP_RECIPE_GEMM_FILTER_SIZE = "gemm.filter.size"
const MP_RECIPE_GEMM_FILTER_NAMES = "gemm.filter.names"
const MP_RECIPE_SCALER_KIND = "scaler.kind"
const MP_RECIPE_SCALER_INIT_SCALE = "scaler.init_scale"
const MP_RECIPE_SCALER_GROWTH_FACTOR = "scaler.growth_factor"
const MP_RECIPE_SCALER_BACKOFF_FACTOR = "scaler.backoff_factor"
const MP_RECIPE_SCALER_GROWTH_INTERVAL = "scaler.growth_interval"
const MP_RECIPE_SCALER_HYSTERESIS = "scaler.hysteresis"
const MP_RECIPE_SCALER_REFILL = "scaler.hysteresis_refill"
const MP_RECIPE_SCALER_MIN_SCALE = "scaler.min_scale"
const MP_RECIPE_SCALER_MAX_SCALE = "scaler.max_scale"
const MP_RECIPE_SCALER_AT_MIN = "scaler.at_min"
const MP_RECIPE_SCALER_COUNT_OFFSET = "scaler.count_offset"
const MP_COMM_OP_SUM = Int32(0)
const MP_COMM_OP_MAX_ABS_BITS = Int32(1)
const MP_COMM_ORDER_RANK = Int32(0)
const MP_COMM_ORDER_TREE = Int32(1)
const MP_COMM_ORDER_EXACT = Int32(2)
const MP_COMM_ORDER_FAST = Int32(3)
const MP_COMM_ACCUMULATE_DEFAULT = Int32(0)
const MP_COMM_ACCUMULATE_FP32 = Int32(1)
const MP_COMM_ACCUMULATE_FP64 = Int32(2)
const MP_COMM_ACCUMULATE_FIXED = Int32(3)
const MP_COMM_SCALE_DEFAULT = Int32(0)
const MP_COMM_SCALE_TENSOR = Int32(1)
const MP_COMM_SCALE_BLOCK = Int32(2)
const MP_COMM_SCALE_MX = Int32(3)
const MP_COMM_SCALE_SHARED = Int32(4)
const MP_REDUCE_STOCHASTIC = UInt32(1)
const MP_RULE_ADAMW = Int32(0)
const MP_RULE_ADAM = Int32(1)
const MP_RULE_LION = Int32(2)
const MP_STATE_EXP_AVG = Int32(0)
const MP_STATE_EXP_AVG_SQ = Int32(1)
const MP_MAX_RULE_STATES = Int32(4)
const MP_MAX_STATES = Int32(16)
const MP_RULE_MAXIMIZE = UInt32(1024)
const MP_RULE_NO_BIAS_CORRECTION = UInt32(2048)
const MP_FORWARD_DROP = UInt32(1)
const MP_FORWARD_RECOMPUTE = UInt32(2)
const MP_PRODUCT_FPROP = Int32(0)
const MP_PRODUCT_DGRAD = Int32(1)
const MP_PRODUCT_WGRAD = Int32(2)
const MP_SCALER_DYNAMIC = Int32(0)
const MP_SCALER_STATIC = Int32(1)
const MP_SCALER_NONE = Int32(2)
const MP_SCALER_REFILL_ON_GOOD_STEP = UInt32(1)
const MP_SCALER_ERROR_AT_MIN = UInt32(2)
const MP_SHARD_FLAT = Int32(0)
const MP_SHARD_PER_PARAMETER = Int32(1)
const MP_SHARD_GREEDY = Int32(2)
const MP_SHARDING_SUM_GRADIENTS = UInt32(1)
const MP_SHARDING_NO_PROGRESS_THREAD = UInt32(2)
const MP_SHARDING_STAGE_0 = Int32(-1)
const MP_STATUS_OK = Int32(0)
const MP_STATUS_WARNING = Int32(1)
const MP_STATUS_NOT_READY = Int32(2)
const MP_STATUS_NULL_ARGUMENT = Int32(-1)
const MP_STATUS_INVALID_ARGUMENT = Int32(-2)
const MP_STATUS_INVALID_SHAPE = Int32(-3)
const MP_STATUS_INVALID_DTYPE = Int32(-4)
const MP_STATUS_UNKNOWN_NAME = Int32(-5)
const MP_STATUS_STRUCT_TOO_NEW = Int32(-6)
const MP_STATUS_BAD_STATE = Int32(-7)
const MP_STATUS_INVALID_HANDLE = Int32(-8)
const MP_STATUS_PARSE_ERROR = Int32(-9)
const MP_STATUS_UNSUPPORTED = Int32(-20)
const MP_STATUS_DEVICE_UNAVAILABLE = Int32(-21)
const MP_STATUS_MODULE_NOT_FOUND = Int32(-22)
const MP_STATUS_VERSION_MISMATCH = Int32(-23)
const MP_STATUS_OUT_OF_MEMORY = Int32(-40)
const MP_STATUS_IO_ERROR = Int32(-41)
const MP_STATUS_CALLBACK_FAILED = Int32(-42)
const MP_STATUS_TIMEOUT = Int32(-43)
const MP_STATUS_PEER_LOST = Int32(-44)
const MP_STATUS_PEER_ERROR = Int32(-45)
const MP_STATUS_RANK_MISMATCH = Int32(-46)
const MP_STATUS_ABORTED = Int32(-47)
const MP_STATUS_CORRUPT_DATA = Int32(-48)
const MP_STATUS_ONEDNN_ERROR = Int32(-60)
const MP_STATUS_CUDA_ERROR = Int32(-61)
const MP_STATUS_CUBLAS_ERROR = Int32(-62)
const MP_STATUS_NCCL_ERROR = Int32(-63)
const MP_STATUS_MPI_ERROR = Int32(-64)
const MP_STATUS_KOKKOS_ERROR = Int32(-65)
const MP_STATUS_DEVICE_ERROR = Int32(-66)
const MP_STATUS_INTERNAL = Int32(-80)
const MP_OPTIMIZER_CHECK_FINITE = UInt32(1)
const MP_OPTIMIZER_ZERO_GRAD = UInt32(2)
const MP_STEP_SR_PARAM = UInt32(16)
const MP_STEP_SR_STATE = UInt32(32)
const MP_DTYPE_NONE = Int32(0)
const MP_DTYPE_FP32 = Int32(1)
const MP_DTYPE_FP16 = Int32(2)
const MP_DTYPE_BF16 = Int32(3)
const MP_DTYPE_FP8_E4M3 = Int32(4)
const MP_DTYPE_FP8_E5M2 = Int32(5)
const MP_DTYPE_E8M0 = Int32(6)
const MP_DTYPE_INT8 = Int32(7)
const MP_DTYPE_INT16 = Int32(8)
const MP_DTYPE_INT32 = Int32(9)
const MP_DTYPE_INT64 = Int32(10)
const MP_DTYPE_UINT8 = Int32(11)
const MP_DTYPE_FP4_E2M1 = Int32(12)
const MP_DEVICE_DEFAULT = Int32(0)
const MP_DEVICE_HOST = Int32(1)
const MP_DEVICE_CUDA = Int32(2)
const MP_DEVICE_HIP = Int32(3)
const MP_ROUND_NEAREST = Int32(0)
const MP_ROUND_STOCHASTIC = Int32(1)
const MP_MAX_DIMS = Int32(8)
const MP_VERSION_MAJOR = Int32(0)
const MP_VERSION_MINOR = Int32(2)
const MP_VERSION_PATCH = Int32(0)
const MP_VERSION = Int32(200)
const MP_STEP_TAKEN = UInt32(0)
const MP_STEP_NON_FINITE = UInt32(1)
const MP_STEP_OUTLIER = UInt32(2)

"See mixedprec/array.h."
struct mp_array
    data::Ptr{Cvoid}
    scale_inv::Ptr{Cvoid}
    amax::Ptr{Float32}
    dtype::Int32
    coding::Int32
    mp_array(;
        data = C_NULL,
        scale_inv = C_NULL,
        amax = C_NULL,
        dtype = 0,
        coding = 0) =
        new(data, scale_inv, amax, dtype, coding)
end

"See mixedprec/rule.h."
struct mp_hyper
    name::Ptr{UInt8}
    value::Float64
    mp_hyper(;
        name = C_NULL,
        value = 0.0) =
        new(name, value)
end

"See mixedprec/checkpoint.h."
struct mp_checkpoint_desc
    struct_size::UInt32
    flags::UInt32
    keep::Int32
    reserved::Int32
    progress::Ptr{Cvoid}
    payload::Ptr{Cvoid}
    mp_checkpoint_desc(;
        flags = 0,
        keep = 0,
        reserved = 0,
        progress = C_NULL,
        payload = C_NULL) =
        new(sizeof(mp_checkpoint_desc), flags, keep, reserved, progress, payload)
end

"See mixedprec/checkpoint.h."
struct mp_checkpoint_info
    struct_size::UInt32
    format::Int32
    step::Int64
    sequence::Int64
    world::Int64
    tensor_count::Int64
    bytes::Int64
    applied_step::Int64
    seed::UInt64
    converted::Int32
    reserved::Int32
    weight_largest_error::Float64
    weight_rms_error::Float64
    state_largest_error::NTuple{16,Float64}
    state_rms_error::NTuple{16,Float64}
    mp_checkpoint_info(;
        format = 0,
        step = 0,
        sequence = 0,
        world = 0,
        tensor_count = 0,
        bytes = 0,
        applied_step = 0,
        seed = 0,
        converted = 0,
        reserved = 0,
        weight_largest_error = 0.0,
        weight_rms_error = 0.0,
        state_largest_error = ntuple(_ -> Float64(0), 16),
        state_rms_error = ntuple(_ -> Float64(0), 16)) =
        new(sizeof(mp_checkpoint_info), format, step, sequence, world, tensor_count, bytes, applied_step, seed, converted, reserved, weight_largest_error, weight_rms_error, state_largest_error, state_rms_error)
end

"See mixedprec/comm.h."
struct mp_comm_desc
    struct_size::UInt32
    flags::UInt32
    deadline_ms::Int64
    ranks_per_node::Int32
    reserved::Int32
    mp_comm_desc(;
        flags = 0,
        deadline_ms = 0,
        ranks_per_node = 0,
        reserved = 0) =
        new(sizeof(mp_comm_desc), flags, deadline_ms, ranks_per_node, reserved)
end

"See mixedprec/comm.h."
struct mp_comm_exchange
    struct_size::UInt32
    flags::UInt32
    send::Ptr{Cvoid}
    send_bytes::Ptr{Int64}
    send_offsets::Ptr{Int64}
    receive::Ptr{Cvoid}
    receive_bytes::Ptr{Int64}
    receive_offsets::Ptr{Int64}
    deadline_ms::Int64
    site::Ptr{UInt8}
    mp_comm_exchange(;
        flags = 0,
        send = C_NULL,
        send_bytes = C_NULL,
        send_offsets = C_NULL,
        receive = C_NULL,
        receive_bytes = C_NULL,
        receive_offsets = C_NULL,
        deadline_ms = 0,
        site = C_NULL) =
        new(sizeof(mp_comm_exchange), flags, send, send_bytes, send_offsets, receive, receive_bytes, receive_offsets, deadline_ms, site)
end

"See mixedprec/comm.h."
struct mp_comm_traffic
    struct_size::UInt32
    flags::UInt32
    calls::Int64
    total_bytes::Int64
    all_to_all_bytes::Int64
    all_gather_bytes::Int64
    broadcast_bytes::Int64
    max_u32_bytes::Int64
    sum_f32_bytes::Int64
    mp_comm_traffic(;
        flags = 0,
        calls = 0,
        total_bytes = 0,
        all_to_all_bytes = 0,
        all_gather_bytes = 0,
        broadcast_bytes = 0,
        max_u32_bytes = 0,
        sum_f32_bytes = 0) =
        new(sizeof(mp_comm_traffic), flags, calls, total_bytes, all_to_all_bytes, all_gather_bytes, broadcast_bytes, max_u32_bytes, sum_f32_bytes)
end

"See mixedprec/comm.h."
struct mp_comm_operation
    struct_size::UInt32
    kind::Int32
    sequence::UInt64
    send::Ptr{Cvoid}
    send_bytes::Ptr{Int64}
    send_offsets::Ptr{Int64}
    receive::Ptr{Cvoid}
    receive_bytes::Ptr{Int64}
    receive_offsets::Ptr{Int64}
    count::Int64
    root::Int32
    reserved::Int32
    native::Ptr{Cvoid}
    mp_comm_operation(;
        kind = 0,
        sequence = 0,
        send = C_NULL,
        send_bytes = C_NULL,
        send_offsets = C_NULL,
        receive = C_NULL,
        receive_bytes = C_NULL,
        receive_offsets = C_NULL,
        count = 0,
        root = 0,
        reserved = 0,
        native = C_NULL) =
        new(sizeof(mp_comm_operation), kind, sequence, send, send_bytes, send_offsets, receive, receive_bytes, receive_offsets, count, root, reserved, native)
end

"See mixedprec/comm.h."
struct mp_comm_group
    struct_size::UInt32
    color::Int32
    key::Int32
    count::Int32
    rank::Int32
    context::Int32
    members::Ptr{Int32}
    mp_comm_group(;
        color = 0,
        key = 0,
        count = 0,
        rank = 0,
        context = 0,
        members = C_NULL) =
        new(sizeof(mp_comm_group), color, key, count, rank, context, members)
end

"See mixedprec/comm.h."
struct mp_comm_callbacks
    struct_size::UInt32
    flags::UInt32
    rank::Int32
    size::Int32
    nodes::Ptr{Int32}
    name::Ptr{UInt8}
    var"begin"::Ptr{Cvoid}
    poll::Ptr{Cvoid}
    release::Ptr{Cvoid}
    abort::Ptr{Cvoid}
    pause::Ptr{Cvoid}
    split::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    payload::Ptr{Cvoid}
    mp_comm_callbacks(;
        flags = 0,
        rank = 0,
        size = 0,
        nodes = C_NULL,
        name = C_NULL,
        var"begin" = C_NULL,
        poll = C_NULL,
        release = C_NULL,
        abort = C_NULL,
        pause = C_NULL,
        split = C_NULL,
        destroy = C_NULL,
        payload = C_NULL) =
        new(sizeof(mp_comm_callbacks), flags, rank, size, nodes, name, var"begin", poll, release, abort, pause, split, destroy, payload)
end

"See mixedprec/context.h."
struct mp_context_desc
    struct_size::UInt32
    flags::UInt32
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
    mp_context_desc(;
        flags = 0,
        api_version = 200,
        device_kind = 0,
        device_index = 0,
        num_threads = 0,
        log_level = 0,
        reserved = 0,
        backend = C_NULL,
        allocate = C_NULL,
        release = C_NULL,
        allocator_payload = C_NULL,
        log = C_NULL,
        log_payload = C_NULL,
        parallel = C_NULL,
        parallel_payload = C_NULL) =
        new(sizeof(mp_context_desc), flags, api_version, device_kind, device_index, num_threads, log_level, reserved, backend, allocate, release, allocator_payload, log, log_payload, parallel, parallel_payload)
end

"See mixedprec/convert.h."
struct mp_cast_desc
    struct_size::UInt32
    flags::UInt32
    rounding::Int32
    microbatch::Int32
    seed::UInt64
    uid::UInt64
    step::UInt64
    mp_cast_desc(;
        flags = 0,
        rounding = 0,
        microbatch = 0,
        seed = 0,
        uid = 0,
        step = 0) =
        new(sizeof(mp_cast_desc), flags, rounding, microbatch, seed, uid, step)
end

"See mixedprec/convert.h."
struct mp_quant_desc
    struct_size::UInt32
    flags::UInt32
    scaling::Int32
    rule::Int32
    amax_epsilon::Float64
    margin::Int32
    reserved::Int32
    mp_quant_desc(;
        flags = 0,
        scaling = 0,
        rule = 0,
        amax_epsilon = 0.0,
        margin = 0,
        reserved = 0) =
        new(sizeof(mp_quant_desc), flags, scaling, rule, amax_epsilon, margin, reserved)
end

"See mixedprec/convert.h."
struct mp_quantize_args
    struct_size::UInt32
    flags::UInt32
    rounding::Int32
    microbatch::Int32
    seed::UInt64
    uid::UInt64
    step::UInt64
    first_element::Int64
    amax_pointer::Ptr{Float32}
    mp_quantize_args(;
        flags = 0,
        rounding = 0,
        microbatch = 0,
        seed = 0,
        uid = 0,
        step = 0,
        first_element = 0,
        amax_pointer = C_NULL) =
        new(sizeof(mp_quantize_args), flags, rounding, microbatch, seed, uid, step, first_element, amax_pointer)
end

"See mixedprec/convert.h."
struct mp_quantized_memory
    struct_size::UInt32
    dtype::Int32
    rows::Int64
    columns::Int64
    codes::Ptr{Cvoid}
    transposed::Ptr{Cvoid}
    scale_inv::Ptr{Cvoid}
    amax::Ptr{Float32}
    mp_quantized_memory(;
        dtype = 0,
        rows = 0,
        columns = 0,
        codes = C_NULL,
        transposed = C_NULL,
        scale_inv = C_NULL,
        amax = C_NULL) =
        new(sizeof(mp_quantized_memory), dtype, rows, columns, codes, transposed, scale_inv, amax)
end

"See mixedprec/gemm.h."
struct mp_gemm_desc
    struct_size::UInt32
    flags::UInt32
    m::Int64
    n::Int64
    k::Int64
    lda::Int64
    ldb::Int64
    ldc::Int64
    ldd::Int64
    batch_count::Int64
    batch_stride_a::Int64
    batch_stride_b::Int64
    batch_stride_c::Int64
    batch_stride_d::Int64
    alpha::Float64
    beta::Float64
    dtype_a::Int32
    dtype_b::Int32
    dtype_c::Int32
    dtype_d::Int32
    dtype_bias::Int32
    reserved::Int32
    scale_a_dtype::Int32
    scale_a_rows::Int32
    scale_a_columns::Int32
    scale_b_dtype::Int32
    scale_b_rows::Int32
    scale_b_columns::Int32
    implementation::Ptr{UInt8}
    quant_d::Ptr{mp_quant_desc}
    mp_gemm_desc(;
        flags = 0,
        m = 0,
        n = 0,
        k = 0,
        lda = 0,
        ldb = 0,
        ldc = 0,
        ldd = 0,
        batch_count = 0,
        batch_stride_a = 0,
        batch_stride_b = 0,
        batch_stride_c = 0,
        batch_stride_d = 0,
        alpha = 0.0,
        beta = 0.0,
        dtype_a = 0,
        dtype_b = 0,
        dtype_c = 0,
        dtype_d = 0,
        dtype_bias = 0,
        reserved = 0,
        scale_a_dtype = 0,
        scale_a_rows = 0,
        scale_a_columns = 0,
        scale_b_dtype = 0,
        scale_b_rows = 0,
        scale_b_columns = 0,
        implementation = C_NULL,
        quant_d = C_NULL) =
        new(sizeof(mp_gemm_desc), flags, m, n, k, lda, ldb, ldc, ldd, batch_count, batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, alpha, beta, dtype_a, dtype_b, dtype_c, dtype_d, dtype_bias, reserved, scale_a_dtype, scale_a_rows, scale_a_columns, scale_b_dtype, scale_b_rows, scale_b_columns, implementation, quant_d)
end

"See mixedprec/gemm.h."
struct mp_gemm_args
    struct_size::UInt32
    reserved::UInt32
    a::Ptr{mp_tensor}
    b::Ptr{mp_tensor}
    bias::Ptr{mp_tensor}
    c::Ptr{mp_tensor}
    d::Ptr{mp_tensor}
    scale_a::Ptr{mp_tensor}
    scale_b::Ptr{mp_tensor}
    multiply_d::Ptr{mp_tensor}
    amax_d::Ptr{mp_tensor}
    mp_gemm_args(;
        reserved = 0,
        a = C_NULL,
        b = C_NULL,
        bias = C_NULL,
        c = C_NULL,
        d = C_NULL,
        scale_a = C_NULL,
        scale_b = C_NULL,
        multiply_d = C_NULL,
        amax_d = C_NULL) =
        new(sizeof(mp_gemm_args), reserved, a, b, bias, c, d, scale_a, scale_b, multiply_d, amax_d)
end

"See mixedprec/linear.h."
struct mp_linear_desc
    struct_size::UInt32
    flags::UInt32
    in_features::Int64
    out_features::Int64
    name::Ptr{UInt8}
    mp_linear_desc(;
        flags = 0,
        in_features = 0,
        out_features = 0,
        name = C_NULL) =
        new(sizeof(mp_linear_desc), flags, in_features, out_features, name)
end

"See mixedprec/linear.h."
struct mp_linear_stats
    struct_size::UInt32
    flags::UInt32
    operand::Int32
    dtype::Int32
    elements::Int64
    saturated::Int64
    underflowed::Int64
    non_finite::Int64
    amax::Float64
    scale_inv::Float64
    history_amax::Float64
    history_len::Int32
    updates::Int32
    mp_linear_stats(;
        flags = 0,
        operand = 0,
        dtype = 0,
        elements = 0,
        saturated = 0,
        underflowed = 0,
        non_finite = 0,
        amax = 0.0,
        scale_inv = 0.0,
        history_amax = 0.0,
        history_len = 0,
        updates = 0) =
        new(sizeof(mp_linear_stats), flags, operand, dtype, elements, saturated, underflowed, non_finite, amax, scale_inv, history_amax, history_len, updates)
end

"See mixedprec/optimizer.h."
struct mp_optimizer_desc
    struct_size::UInt32
    flags::UInt32
    seed::UInt64
    max_grad_norm::Float64
    mp_optimizer_desc(;
        flags = 0,
        seed = 0,
        max_grad_norm = 0.0) =
        new(sizeof(mp_optimizer_desc), flags, seed, max_grad_norm)
end

"See mixedprec/optimizer.h."
struct mp_param_group_desc
    struct_size::UInt32
    flags::UInt32
    lr::Float64
    beta1::Float64
    beta2::Float64
    eps::Float64
    weight_decay::Float64
    rule::Int32
    hyper_count::Int32
    hypers::Ptr{mp_hyper}
    state_formats::NTuple{4,Ptr{UInt8}}
    mp_param_group_desc(;
        flags = 0,
        lr = 0.0,
        beta1 = 0.0,
        beta2 = 0.0,
        eps = 0.0,
        weight_decay = 0.0,
        rule = 0,
        hyper_count = 0,
        hypers = C_NULL,
        state_formats = ntuple(_ -> Ptr{UInt8}(0), 4)) =
        new(sizeof(mp_param_group_desc), flags, lr, beta1, beta2, eps, weight_decay, rule, hyper_count, hypers, state_formats)
end

"See mixedprec/optimizer.h."
struct mp_param_desc
    struct_size::UInt32
    flags::UInt32
    name::Ptr{UInt8}
    param::Ptr{mp_tensor}
    grad::Ptr{mp_tensor}
    init_fp32::Ptr{mp_tensor}
    mp_param_desc(;
        flags = 0,
        name = C_NULL,
        param = C_NULL,
        grad = C_NULL,
        init_fp32 = C_NULL) =
        new(sizeof(mp_param_desc), flags, name, param, grad, init_fp32)
end

"See mixedprec/quant.h."
struct mp_quant_stats
    struct_size::UInt32
    flags::UInt32
    elements::Int64
    saturated::Int64
    underflowed::Int64
    non_finite::Int64
    amax::Float64
    mp_quant_stats(;
        flags = 0,
        elements = 0,
        saturated = 0,
        underflowed = 0,
        non_finite = 0,
        amax = 0.0) =
        new(sizeof(mp_quant_stats), flags, elements, saturated, underflowed, non_finite, amax)
end

"See mixedprec/recipe.h."
struct mp_recipe_key_desc
    struct_size::UInt32
    type::Int32
    name::Ptr{UInt8}
    allowed::Ptr{UInt8}
    text::Ptr{UInt8}
    fp32_value::Ptr{UInt8}
    mp_recipe_key_desc(;
        type = 0,
        name = C_NULL,
        allowed = C_NULL,
        text = C_NULL,
        fp32_value = C_NULL) =
        new(sizeof(mp_recipe_key_desc), type, name, allowed, text, fp32_value)
end

"See mixedprec/recipe.h."
struct mp_memory_report
    struct_size::UInt32
    flags::UInt32
    parameter_count::Int64
    weight_bytes::Int64
    master_bytes::Int64
    grad_bytes::Int64
    compensation_bytes::Int64
    total_bytes::Int64
    reduced_grad_bytes::Int64
    state_bytes::NTuple{16,Int64}
    mp_memory_report(;
        flags = 0,
        parameter_count = 0,
        weight_bytes = 0,
        master_bytes = 0,
        grad_bytes = 0,
        compensation_bytes = 0,
        total_bytes = 0,
        reduced_grad_bytes = 0,
        state_bytes = ntuple(_ -> Int64(0), 16)) =
        new(sizeof(mp_memory_report), flags, parameter_count, weight_bytes, master_bytes, grad_bytes, compensation_bytes, total_bytes, reduced_grad_bytes, state_bytes)
end

"See mixedprec/reduce.h."
struct mp_comm_reduce_desc
    struct_size::UInt32
    flags::UInt32
    op::Int32
    order::Int32
    accumulate::Int32
    slots::Int32
    wire_dtype::Int32
    wire_scale::Int32
    gather_dtype::Int32
    gather_scale::Int32
    first_element::Int64
    seed::UInt64
    uid::UInt64
    step::UInt64
    deadline_ms::Int64
    site::Ptr{UInt8}
    microbatch::Int32
    reserved::Int32
    mp_comm_reduce_desc(;
        flags = 0,
        op = 0,
        order = 0,
        accumulate = 0,
        slots = 0,
        wire_dtype = 0,
        wire_scale = 0,
        gather_dtype = 0,
        gather_scale = 0,
        first_element = 0,
        seed = 0,
        uid = 0,
        step = 0,
        deadline_ms = 0,
        site = C_NULL,
        microbatch = 0,
        reserved = 0) =
        new(sizeof(mp_comm_reduce_desc), flags, op, order, accumulate, slots, wire_dtype, wire_scale, gather_dtype, gather_scale, first_element, seed, uid, step, deadline_ms, site, microbatch, reserved)
end

"See mixedprec/rule.h."
struct mp_rule_info
    struct_size::UInt32
    corrects_bias::Int32
    name::Ptr{UInt8}
    state_count::Int32
    hyper_count::Int32
    mp_rule_info(;
        corrects_bias = 0,
        name = C_NULL,
        state_count = 0,
        hyper_count = 0) =
        new(sizeof(mp_rule_info), corrects_bias, name, state_count, hyper_count)
end

"See mixedprec/rule.h."
struct mp_rule_state
    struct_size::UInt32
    is_signed::Int32
    name::Ptr{UInt8}
    number::Int32
    reserved::Int32
    mp_rule_state(;
        is_signed = 0,
        name = C_NULL,
        number = 0,
        reserved = 0) =
        new(sizeof(mp_rule_state), is_signed, name, number, reserved)
end

"See mixedprec/rule.h."
struct mp_rule_hyper
    struct_size::UInt32
    reserved::Int32
    name::Ptr{UInt8}
    usual::Float64
    limit::Float64
    mp_rule_hyper(;
        reserved = 0,
        name = C_NULL,
        usual = 0.0,
        limit = 0.0) =
        new(sizeof(mp_rule_hyper), reserved, name, usual, limit)
end

"See mixedprec/scaler.h."
struct mp_scaler_desc
    struct_size::UInt32
    flags::UInt32
    kind::Int32
    growth_interval::Int32
    hysteresis::Int32
    count_offset::Int32
    init_scale::Float64
    growth_factor::Float64
    backoff_factor::Float64
    min_scale::Float64
    max_scale::Float64
    mp_scaler_desc(;
        flags = 0,
        kind = 0,
        growth_interval = 0,
        hysteresis = 0,
        count_offset = 0,
        init_scale = 0.0,
        growth_factor = 0.0,
        backoff_factor = 0.0,
        min_scale = 0.0,
        max_scale = 0.0) =
        new(sizeof(mp_scaler_desc), flags, kind, growth_interval, hysteresis, count_offset, init_scale, growth_factor, backoff_factor, min_scale, max_scale)
end

"See mixedprec/scaler.h."
struct mp_scaler_state
    struct_size::UInt32
    found_inf::UInt32
    scale::Float64
    growth_tracker::Int32
    hysteresis_tracker::Int32
    good_steps::Int64
    overflow_steps::Int64
    mp_scaler_state(;
        found_inf = 0,
        scale = 0.0,
        growth_tracker = 0,
        hysteresis_tracker = 0,
        good_steps = 0,
        overflow_steps = 0) =
        new(sizeof(mp_scaler_state), found_inf, scale, growth_tracker, hysteresis_tracker, good_steps, overflow_steps)
end

"See mixedprec/sharding.h."
struct mp_sharding_desc
    struct_size::UInt32
    flags::UInt32
    stage::Int32
    kind::Int32
    bucket_elements::Int64
    wire_dtype::Int32
    wire_scale::Int32
    order::Int32
    slots::Int32
    shard_ranks::Int32
    check_every::Int32
    node_ranks::Int32
    reserved::Int32
    mp_sharding_desc(;
        flags = 0,
        stage = 0,
        kind = 0,
        bucket_elements = 0,
        wire_dtype = 0,
        wire_scale = 0,
        order = 0,
        slots = 0,
        shard_ranks = 0,
        check_every = 0,
        node_ranks = 0,
        reserved = 0) =
        new(sizeof(mp_sharding_desc), flags, stage, kind, bucket_elements, wire_dtype, wire_scale, order, slots, shard_ranks, check_every, node_ranks, reserved)
end

"See mixedprec/sharding.h."
struct mp_sharding_progress
    struct_size::UInt32
    has_thread::Int32
    begun::Int64
    finished::Int64
    finished_by_thread::Int64
    reason::Ptr{UInt8}
    mp_sharding_progress(;
        has_thread = 0,
        begun = 0,
        finished = 0,
        finished_by_thread = 0,
        reason = C_NULL) =
        new(sizeof(mp_sharding_progress), has_thread, begun, finished, finished_by_thread, reason)
end

"See mixedprec/sharding.h."
struct mp_planned_tensor
    struct_size::UInt32
    weight_dtype::Int32
    count::Int64
    rule::Int32
    ndim::Int32
    state_formats::NTuple{4,Ptr{UInt8}}
    mp_planned_tensor(;
        weight_dtype = 0,
        count = 0,
        rule = 0,
        ndim = 0,
        state_formats = ntuple(_ -> Ptr{UInt8}(0), 4)) =
        new(sizeof(mp_planned_tensor), weight_dtype, count, rule, ndim, state_formats)
end

"See mixedprec/step.h."
struct mp_optimizer_stats
    struct_size::UInt32
    found_inf::UInt32
    step::Int64
    skipped_steps::Int64
    grad_norm::Float64
    grad_mul::Float64
    outlier_steps::Int64
    grad_norm_z::Float64
    loss_z::Float64
    mp_optimizer_stats(;
        found_inf = 0,
        step = 0,
        skipped_steps = 0,
        grad_norm = 0.0,
        grad_mul = 0.0,
        outlier_steps = 0,
        grad_norm_z = 0.0,
        loss_z = 0.0) =
        new(sizeof(mp_optimizer_stats), found_inf, step, skipped_steps, grad_norm, grad_mul, outlier_steps, grad_norm_z, loss_z)
end

"See mixedprec/step.h."
struct mp_step_slot
    struct_size::UInt32
    flags::UInt32
    count::Int64
    uid::UInt64
    first_element::Int64
    param::mp_array
    grad::mp_array
    master::mp_array
    compensation::mp_array
    states::NTuple{4,mp_array}
    mp_step_slot(;
        flags = 0,
        count = 0,
        uid = 0,
        first_element = 0,
        param = mp_array(),
        grad = mp_array(),
        master = mp_array(),
        compensation = mp_array(),
        states = ntuple(_ -> mp_array(), 4)) =
        new(sizeof(mp_step_slot), flags, count, uid, first_element, param, grad, master, compensation, states)
end

"See mixedprec/step.h."
struct mp_step_args
    struct_size::UInt32
    flags::UInt32
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
    hyper_count::Int32
    hypers::Ptr{mp_hyper}
    step_pointer::Ptr{Int64}
    hyper_pointer::Ptr{Float64}
    grad_mul_pointer::Ptr{Float32}
    mp_step_args(;
        flags = 0,
        step = 1,
        seed = 0,
        lr = 0.0,
        beta1 = 0.0,
        beta2 = 0.0,
        eps = 0.0,
        weight_decay = 0.0,
        max_grad_norm = 0.0,
        grad_scale = 0.0,
        lr_pointer = C_NULL,
        grad_scale_pointer = C_NULL,
        rule = 0,
        hyper_count = 0,
        hypers = C_NULL,
        step_pointer = C_NULL,
        hyper_pointer = C_NULL,
        grad_mul_pointer = C_NULL) =
        new(sizeof(mp_step_args), flags, step, seed, lr, beta1, beta2, eps, weight_decay, max_grad_norm, grad_scale, lr_pointer, grad_scale_pointer, rule, hyper_count, hypers, step_pointer, hyper_pointer, grad_mul_pointer)
end

"See mixedprec/tensor.h."
struct mp_tensor_desc
    struct_size::UInt32
    flags::UInt32
    dtype::Int32
    ndim::Int32
    shape::NTuple{8,Int64}
    device_kind::Int32
    device_index::Int32
    mp_tensor_desc(;
        flags = 0,
        dtype = 0,
        ndim = 0,
        shape = ntuple(_ -> Int64(0), 8),
        device_kind = 0,
        device_index = 0) =
        new(sizeof(mp_tensor_desc), flags, dtype, ndim, shape, device_kind, device_index)
end

"See mixedprec/watch.h."
struct mp_guard_desc
    struct_size::UInt32
    window::Int32
    max_grad_norm_z::Float64
    max_loss_z::Float64
    mp_guard_desc(;
        window = 0,
        max_grad_norm_z = 0.0,
        max_loss_z = 0.0) =
        new(sizeof(mp_guard_desc), window, max_grad_norm_z, max_loss_z)
end

"See mixedprec/watch.h."
struct mp_step_record
    struct_size::UInt32
    outcome::UInt32
    call::Int64
    step::Int64
    loss::Float64
    loss_scale::Float64
    lr::Float64
    grad_norm::Float64
    grad_mul::Float64
    grad_norm_z::Float64
    loss_z::Float64
    mp_step_record(;
        outcome = 0,
        call = 0,
        step = 0,
        loss = 0.0,
        loss_scale = 0.0,
        lr = 0.0,
        grad_norm = 0.0,
        grad_mul = 0.0,
        grad_norm_z = 0.0,
        loss_z = 0.0) =
        new(sizeof(mp_step_record), outcome, call, step, loss, loss_scale, lr, grad_norm, grad_mul, grad_norm_z, loss_z)
end

const LAYOUT = (
    (mp_array, 32, (0, 8, 16, 24, 28,)),
    (mp_hyper, 16, (0, 8,)),
    (mp_checkpoint_desc, 32, (0, 4, 8, 12, 16, 24,)),
    (mp_checkpoint_info, 344, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 80, 88, 216,)),
    (mp_comm_desc, 24, (0, 4, 8, 16, 20,)),
    (mp_comm_exchange, 72, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64,)),
    (mp_comm_traffic, 64, (0, 4, 8, 16, 24, 32, 40, 48, 56,)),
    (mp_comm_operation, 88, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 76, 80,)),
    (mp_comm_group, 32, (0, 4, 8, 12, 16, 20, 24,)),
    (mp_comm_callbacks, 96, (0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88,)),
    (mp_context_desc, 96, (0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88,)),
    (mp_cast_desc, 40, (0, 4, 8, 12, 16, 24, 32,)),
    (mp_quant_desc, 32, (0, 4, 8, 12, 16, 24, 28,)),
    (mp_quantize_args, 56, (0, 4, 8, 12, 16, 24, 32, 40, 48,)),
    (mp_quantized_memory, 56, (0, 4, 8, 16, 24, 32, 40, 48,)),
    (mp_gemm_desc, 184, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 124, 128, 132, 136, 140, 144, 148, 152, 156, 160, 164, 168, 176,)),
    (mp_gemm_args, 80, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72,)),
    (mp_linear_desc, 32, (0, 4, 8, 16, 24,)),
    (mp_linear_stats, 80, (0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 76,)),
    (mp_optimizer_desc, 24, (0, 4, 8, 16,)),
    (mp_param_group_desc, 96, (0, 4, 8, 16, 24, 32, 40, 48, 52, 56, 64,)),
    (mp_param_desc, 40, (0, 4, 8, 16, 24, 32,)),
    (mp_quant_stats, 48, (0, 4, 8, 16, 24, 32, 40,)),
    (mp_recipe_key_desc, 40, (0, 4, 8, 16, 24, 32,)),
    (mp_memory_report, 192, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64,)),
    (mp_comm_reduce_desc, 96, (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 88, 92,)),
    (mp_rule_info, 24, (0, 4, 8, 16, 20,)),
    (mp_rule_state, 24, (0, 4, 8, 16, 20,)),
    (mp_rule_hyper, 32, (0, 4, 8, 16, 24,)),
    (mp_scaler_desc, 64, (0, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56,)),
    (mp_scaler_state, 40, (0, 4, 8, 16, 20, 24, 32,)),
    (mp_sharding_desc, 56, (0, 4, 8, 12, 16, 24, 28, 32, 36, 40, 44, 48, 52,)),
    (mp_sharding_progress, 40, (0, 4, 8, 16, 24, 32,)),
    (mp_planned_tensor, 56, (0, 4, 8, 16, 20, 24,)),
    (mp_optimizer_stats, 64, (0, 4, 8, 16, 24, 32, 40, 48, 56,)),
    (mp_step_slot, 288, (0, 4, 8, 16, 24, 32, 64, 96, 128, 160,)),
    (mp_step_args, 136, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 100, 104, 112, 120, 128,)),
    (mp_tensor_desc, 88, (0, 4, 8, 12, 16, 80, 84,)),
    (mp_guard_desc, 24, (0, 4, 8, 16,)),
    (mp_step_record, 80, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72,)),
)

const NAMES = (
    :mp_checkpoint_create,
    :mp_checkpoint_add_optimizer,
    :mp_checkpoint_add_scaler,
    :mp_checkpoint_add_linear,
    :mp_checkpoint_add_data,
    :mp_checkpoint_save,
    :mp_checkpoint_load,
    :mp_checkpoint_destroy,
    :mp_checkpoint_test,
    :mp_checkpoint_wait,
    :mp_checkpoint_inspect,
    :mp_checkpoint_read_manifest,
    :mp_checkpoint_describe,
    :mp_checkpoint_export_weights,
    :mp_comm_create_self,
    :mp_comm_create_threads,
    :mp_comm_create_mpi,
    :mp_comm_get_nccl_unique_id,
    :mp_comm_create_nccl,
    :mp_comm_get_rank,
    :mp_comm_get_size,
    :mp_comm_all_to_all,
    :mp_comm_all_gather,
    :mp_comm_broadcast,
    :mp_comm_max_u32,
    :mp_comm_barrier,
    :mp_comm_destroy,
    :mp_comm_request_wait,
    :mp_comm_request_test,
    :mp_comm_request_destroy,
    :mp_comm_set_deadline,
    :mp_comm_get_deadline,
    :mp_comm_split,
    :mp_comm_get_node,
    :mp_comm_wrap_nccl,
    :mp_comm_create_callbacks,
    :mp_comm_abort,
    :mp_comm_get_status,
    :mp_comm_get_traffic,
    :mp_comm_describe,
    :mp_context_create,
    :mp_context_destroy,
    :mp_device_get_count,
    :mp_device_available,
    :mp_device_get_name,
    :mp_device_get_memory,
    :mp_context_get_num_threads,
    :mp_context_describe,
    :mp_tensor_cast_pointers,
    :mp_tensor_get_scale_grid,
    :mp_tensor_quantize_pointers,
    :mp_tensor_dequantize_pointers,
    :mp_dlpack_import,
    :mp_dlpack_export,
    :mp_event_create,
    :mp_event_record,
    :mp_queue_wait_event,
    :mp_event_test,
    :mp_event_sync,
    :mp_event_destroy,
    :mp_gemm_create,
    :mp_gemm_run,
    :mp_gemm_destroy,
    :mp_gemm_run_scaled,
    :mp_gemm_describe,
    :mp_linear_create,
    :mp_linear_forward,
    :mp_linear_backward,
    :mp_linear_end_step,
    :mp_linear_destroy,
    :mp_linear_create_pointers,
    :mp_linear_forward_pointers,
    :mp_linear_backward_pointers,
    :mp_linear_backward_data,
    :mp_linear_backward_weight,
    :mp_linear_describe,
    :mp_linear_get_desc,
    :mp_linear_get_stats,
    :mp_linear_clear_stats,
    :mp_linear_get_advice,
    :mp_linear_set_monitor,
    :mp_linear_get_scaling,
    :mp_linear_set_scaling,
    :mp_optimizer_create,
    :mp_optimizer_add_group,
    :mp_optimizer_add_param,
    :mp_optimizer_step,
    :mp_optimizer_zero_grad,
    :mp_optimizer_set_linears,
    :mp_optimizer_get_stats,
    :mp_optimizer_set_lr,
    :mp_optimizer_set_enabled,
    :mp_optimizer_set_max_grad_norm,
    :mp_optimizer_destroy,
    :mp_optimizer_set_lr_tensor,
    :mp_optimizer_set_grad_scale_tensor,
    :mp_optimizer_get_grad_norm_tensor,
    :mp_optimizer_get_found_inf_tensor,
    :mp_optimizer_set_norm_comm,
    :mp_optimizer_get_state,
    :mp_optimizer_read_state,
    :mp_optimizer_write_state,
    :mp_optimizer_sync_master,
    :mp_optimizer_set_step,
    :mp_optimizer_get_group_step,
    :mp_optimizer_set_group_step,
    :mp_optimizer_get_desc,
    :mp_optimizer_get_group_count,
    :mp_optimizer_get_group,
    :mp_optimizer_get_enabled,
    :mp_optimizer_get_param_count,
    :mp_optimizer_get_param_name,
    :mp_optimizer_get_param_group,
    :mp_optimizer_get_memory,
    :mp_tensor_create_quantized,
    :mp_tensor_quantize,
    :mp_tensor_dequantize,
    :mp_tensor_get_scales,
    :mp_tensor_wrap_quantized,
    :mp_tensor_get_quant_desc,
    :mp_tensor_get_quantized_amax,
    :mp_context_sync,
    :mp_queue_create,
    :mp_queue_sync,
    :mp_queue_destroy,
    :mp_queue_wrap_native,
    :mp_queue_get_native,
    :mp_queue_get_workspace_peak,
    :mp_queue_set_workspace,
    :mp_queue_get_workspace,
    :mp_recipe_create,
    :mp_recipe_create_weight,
    :mp_recipe_create_weight_codes,
    :mp_recipe_destroy,
    :mp_recipe_set_string,
    :mp_recipe_set_float,
    :mp_recipe_set_int,
    :mp_recipe_get_string,
    :mp_recipe_get_float,
    :mp_recipe_get_int,
    :mp_recipe_create_from_json,
    :mp_recipe_create_from_file,
    :mp_recipe_to_json,
    :mp_recipe_validate,
    :mp_recipe_clone,
    :mp_recipe_get_frozen,
    :mp_recipe_get_reason,
    :mp_recipe_preset_count,
    :mp_recipe_get_preset_info,
    :mp_recipe_key_count,
    :mp_recipe_get_key_info,
    :mp_recipe_plan_memory,
    :mp_recipe_plan_memory_of_tensors,
    :mp_comm_all_reduce,
    :mp_comm_reduce_scatter,
    :mp_comm_all_gather_values,
    :mp_comm_get_wire_bytes,
    :mp_rule_get_count,
    :mp_rule_get_number,
    :mp_rule_get_info,
    :mp_rule_get_state,
    :mp_rule_get_hyper,
    :mp_rule_state_name,
    :mp_saved_create,
    :mp_linear_forward_saved,
    :mp_linear_backward_saved,
    :mp_linear_get_saved_bytes,
    :mp_saved_set_memory,
    :mp_saved_get_memory,
    :mp_saved_destroy,
    :mp_linear_set_gradient_rounding,
    :mp_linear_get_gradient_rounding,
    :mp_linear_get_operand_format,
    :mp_linear_quantize,
    :mp_linear_set_weight_codes,
    :mp_linear_get_weight_codes,
    :mp_linear_get_multiply_tensor,
    :mp_scaler_create_from_recipe,
    :mp_scaler_create,
    :mp_scaler_get_scale,
    :mp_scaler_update,
    :mp_scaler_destroy,
    :mp_scaler_check_pointers,
    :mp_scaler_get_scale_tensor,
    :mp_scaler_get_found_inf_tensor,
    :mp_scaler_combine,
    :mp_scaler_get_state,
    :mp_scaler_set_state,
    :mp_scaler_desc_preset,
    :mp_optimizer_create_sharded,
    :mp_optimizer_shard,
    :mp_optimizer_grad_ready,
    :mp_optimizer_end_microbatch,
    :mp_optimizer_acquire_grad,
    :mp_optimizer_gather_begin,
    :mp_optimizer_gather_wait,
    :mp_optimizer_gather_free,
    :mp_optimizer_get_slice,
    :mp_optimizer_get_progress,
    :mp_optimizer_get_grad_mu,
    :mp_optimizer_get_traffic,
    :mp_recipe_plan_memory_sharded,
    :mp_recipe_plan_tensors,
    :mp_status_string,
    :mp_last_error_message,
    :mp_last_error_copy,
    :mp_optimizer_step_pointers,
    :mp_step_plan_create,
    :mp_step_plan_run,
    :mp_step_plan_set_args,
    :mp_step_plan_get_args,
    :mp_step_plan_get_stats,
    :mp_step_plan_destroy,
    :mp_tensor_create,
    :mp_tensor_write,
    :mp_tensor_read,
    :mp_tensor_copy,
    :mp_tensor_zero,
    :mp_tensor_cast,
    :mp_tensor_destroy,
    :mp_tensor_wrap,
    :mp_tensor_create_view,
    :mp_tensor_get_desc,
    :mp_tensor_get_data,
    :mp_tensor_amax,
    :mp_dtype_name,
    :mp_dtype_from_name,
    :mp_dtype_size,
    :mp_library_version,
    :mp_library_build_info,
    :mp_library_shutdown,
    :mp_optimizer_set_guard,
    :mp_optimizer_get_guard,
    :mp_optimizer_set_loss,
    :mp_optimizer_set_history,
    :mp_optimizer_get_record_count,
    :mp_optimizer_get_record,
    :mp_optimizer_get_bad_tensor,
)

"""
Makes an empty checkpoint object. Collective with a communicator, which is not used after this call.
"""
mp_checkpoint_create(context, comm, desc, out) =
    @waiting(1, Int32, (Ptr{mp_context}, Ptr{mp_comm}, Ptr{mp_checkpoint_desc}, Ptr{Ptr{mp_checkpoint}},), context, comm, desc, out)

"""
Adds an optimizer, one at most: its parameters, states, groups and seed. It is kept alive. Parameters and groups that
are added to it later are saved, too. Of one that ranks share
(mp_optimizer_create_sharded) each writes its slices, else rank 0 all.
"""
mp_checkpoint_add_optimizer(checkpoint, optimizer) =
    @waiting(2, Int32, (Ptr{mp_checkpoint}, Ptr{mp_optimizer},), checkpoint, optimizer)

"""
Adds a loss scaler, one at most: scale and counters. It is kept alive.
"""
mp_checkpoint_add_scaler(checkpoint, scaler) =
    @waiting(3, Int32, (Ptr{mp_checkpoint}, Ptr{mp_scaler},), checkpoint, scaler)

"""
Adds a layer's delayed scales and amax histories; its weight belongs to the optimizer. It is kept alive. Amaxes of a step that
has begun (a backward has run, its end has not) are saved as the largest over the ranks; what was evaluated leaves none.
"""
mp_checkpoint_add_linear(checkpoint, name, linear) =
    @waiting(4, Int32, (Ptr{mp_checkpoint}, Ptr{UInt8}, Ptr{mp_linear},), checkpoint, name, linear)

"""
Adds bytes of the caller: the position in the data, a schedule, a random state. A save copies them as they are then; a
load of the same size writes them. With a communicator those of rank 0 are saved, and every rank gets them.
"""
mp_checkpoint_add_data(checkpoint, name, data, bytes) =
    @waiting(5, Int32, (Ptr{mp_checkpoint}, Ptr{UInt8}, Ptr{Cvoid}, Csize_t,), checkpoint, name, data, bytes)

"""
Saves a new checkpoint. Blocks until it is on the disk, or with MP_SAVE_BACKGROUND until the state is copied.
After a failure the checkpoints are those of before, unless only the last sync of the directory failed.
"""
mp_checkpoint_save(checkpoint, directory, step, flags) =
    @waiting(6, Int32, (Ptr{mp_checkpoint}, Ptr{UInt8}, Int64, UInt32,), checkpoint, directory, step, flags)

"""
Loads into what was added, from a checkpoint of the same things saved by any number of ranks. A group is known by its
parameters, in whatever order groups were added; one without parameters by its place among such groups. Where ranks share an
optimizer that has not stepped yet it is shared out first (mp_optimizer_shard), also where the checkpoint is then refused. A
scaler whose scale does not move keeps its own. Blocks.
"""
mp_checkpoint_load(checkpoint, path, flags, info) =
    @waiting(7, Int32, (Ptr{mp_checkpoint}, Ptr{UInt8}, UInt32, Ptr{mp_checkpoint_info},), checkpoint, path, flags, info)

"""
Gives the caller's reference back. Blocks while a save is running.
"""
mp_checkpoint_destroy(checkpoint) =
    @waiting(8, Cvoid, (Ptr{mp_checkpoint},), checkpoint)

"""
Whether a save in the background has ended. Does not block.
"""
mp_checkpoint_test(checkpoint) =
    @waiting(9, Int32, (Ptr{mp_checkpoint},), checkpoint)

"""
Blocks until a save in the background has ended, and gives its status, once.
"""
mp_checkpoint_wait(checkpoint) =
    @waiting(10, Int32, (Ptr{mp_checkpoint},), checkpoint)

"""
What a checkpoint is, without loading it. Blocks.
"""
mp_checkpoint_inspect(path, info) =
    @waiting(11, Int32, (Ptr{UInt8}, Ptr{mp_checkpoint_info},), path, info)

"""
The manifest that a load would take, for programs: {\"name\": ..., \"manifest\": ...}. The name is of the checkpoint in the
directory, or \"\" where the path is a checkpoint itself; what a manifest has is in docs/checkpoints.md. Its file is read once,
and everything in it is checked. Blocks.
"""
mp_checkpoint_read_manifest(path, buffer, capacity, needed) =
    @waiting(12, Int32, (Ptr{UInt8}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), path, buffer, capacity, needed)

"""
The same in words: the checkpoints of a directory, newest first, each as a load would see it; or a checkpoint's recipe, files
and tensors. Blocks.
"""
mp_checkpoint_describe(path, buffer, capacity, needed) =
    @waiting(13, Int32, (Ptr{UInt8}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), path, buffer, capacity, needed)

"""
Writes the optimizer's parameters alone as one ordinary safetensors file, each under its name, and for one of codes with
a scale that scale under its name and \"_param_scale_inv\". Blocks.
"""
mp_checkpoint_export_weights(checkpoint, file) =
    @waiting(14, Int32, (Ptr{mp_checkpoint}, Ptr{UInt8},), checkpoint, file)

"""
The communicator of one rank: what it sends, it receives.
"""
mp_comm_create_self(desc, out) =
    @waiting(15, Int32, (Ptr{mp_comm_desc}, Ptr{Ptr{mp_comm}},), desc, out)

"""
Communicators for ranks that are threads of this process: one handle for each, which any one thread may use.
Destroying one tells the others that its rank is lost.
"""
mp_comm_create_threads(desc, count, out) =
    @waiting(16, Int32, (Ptr{mp_comm_desc}, Int32, Ptr{Ptr{mp_comm}},), desc, count, out)

"""
A communicator over MPI, by the module libmixedprec-mpi.so. Collective over the MPI communicator. The caller's one
is duplicated and may be freed. Without one it is MPI_COMM_WORLD, and if MPI is not initialized it is, with
MPI_THREAD_MULTIPLE, and ended at exit or by mp_library_shutdown. Memory of the caller is never in a pending MPI
call. After MPI_Finalize calls that talk to other ranks, this one too, are MP_STATUS_BAD_STATE, and all can be destroyed.
Blocks.
"""
mp_comm_create_mpi(desc, native, out) =
    @waiting(17, Int32, (Ptr{mp_comm_desc}, Ptr{Cvoid}, Ptr{Ptr{mp_comm}},), desc, native, out)

"""
What the ranks of a new NCCL communicator find each other by: one rank calls it and hands the bytes to the others.
"""
mp_comm_get_nccl_unique_id(id, size) =
    ccall(ADDRESSES[18], Int32, (Ptr{Cvoid}, Csize_t,), id, size)

"""
A communicator over NCCL on the context's GPU, without blocking calls of NCCL's. Collective over its ranks. Blocks.
Exchanges take device memory, or host memory, which is staged.
"""
mp_comm_create_nccl(context, desc, unique_id, rank, size, out) =
    @waiting(19, Int32, (Ptr{mp_context}, Ptr{mp_comm_desc}, Ptr{Cvoid}, Int32, Int32, Ptr{Ptr{mp_comm}},), context, desc, unique_id, rank, size, out)

"""
This rank's number.
"""
mp_comm_get_rank(comm, rank) =
    @waiting(20, Int32, (Ptr{mp_comm}, Ptr{Int32},), comm, rank)

"""
The number of ranks.
"""
mp_comm_get_size(comm, size) =
    @waiting(21, Int32, (Ptr{mp_comm}, Ptr{Int32},), comm, size)

"""
Every rank gives every rank its own bytes. Blocks, unless it has a request. With a queue, what is enqueued there
comes first.
"""
mp_comm_all_to_all(comm, queue, exchange, request) =
    @waiting(22, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{mp_comm_exchange}, Ptr{Ptr{mp_comm_request}},), comm, queue, exchange, request)

"""
Every rank gets every rank's bytes. `send` may be where this rank receives its own. Blocks, unless it has a request.
"""
mp_comm_all_gather(comm, queue, exchange, request) =
    @waiting(23, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{mp_comm_exchange}, Ptr{Ptr{mp_comm_request}},), comm, queue, exchange, request)

"""
All ranks get the root's bytes. Blocks, unless it has a request.
"""
mp_comm_broadcast(comm, queue, data, bytes, root, request) =
    @waiting(24, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{Cvoid}, Int64, Int32, Ptr{Ptr{mp_comm_request}},), comm, queue, data, bytes, root, request)

"""
Replaces values in host memory by their maxima over the ranks: for flags, and for the bits of magnitudes, which as
unsigned numbers keep NaN above infinity above all else. Blocks, unless it has a request.
"""
mp_comm_max_u32(comm, values, count, request) =
    @waiting(25, Int32, (Ptr{mp_comm}, Ptr{UInt32}, Int64, Ptr{Ptr{mp_comm_request}},), comm, values, count, request)

"""
Returns when every rank has called it. Blocks, unless it has a request.
"""
mp_comm_barrier(comm, request) =
    @waiting(26, Int32, (Ptr{mp_comm}, Ptr{Ptr{mp_comm_request}},), comm, request)

"""
Gives the caller's reference back. Requests and calls under way keep it; optimizers and checkpoints have communicators of
their own. With the last reference it ends, in the thread that gives it back, and other ranks that wait for this one are told
where the transport can. Over MPI below MPI_THREAD_MULTIPLE the thread that used it last calls MPI: if it is another one, in
its next call over MPI. Waits for nobody, except over NCCL, where ncclCommFinalize has the deadline, 5 seconds at most, to
reach all ranks: for the communicator and its groups together.
"""
mp_comm_destroy(comm) =
    @waiting(27, Cvoid, (Ptr{mp_comm},), comm)

"""
Waits until the operation is done, has failed, or its deadline, counted from its begin, has passed. Blocks.
"""
mp_comm_request_wait(request) =
    @waiting(28, Int32, (Ptr{mp_comm_request},), request)

"""
Moves all operations of the communicator on, without waiting.
"""
mp_comm_request_test(request) =
    @waiting(29, Int32, (Ptr{mp_comm_request},), request)

"""
Gives a request back, and the memory of its operation: when the call returns nobody touches that any more. So one that is
neither done nor failed ends its communicator, as mp_comm_abort does. While a wait for it is under way in another
thread it stays until that is over. Waits for no rank; beside a call of another thread on the communicator, for one look of
that at what is in flight, and for an mp_comm_split that is under way.
"""
mp_comm_request_destroy(request) =
    @waiting(30, Cvoid, (Ptr{mp_comm_request},), request)

"""
Sets the deadline of calls from now on.
"""
mp_comm_set_deadline(comm, deadline_ms) =
    @waiting(31, Int32, (Ptr{mp_comm}, Int64,), comm, deadline_ms)

"""
The deadline of calls.
"""
mp_comm_get_deadline(comm, deadline_ms) =
    @waiting(32, Int32, (Ptr{mp_comm}, Ptr{Int64},), comm, deadline_ms)

"""
Makes communicators of the ranks of one color each, ordered by key and then by rank, with this one's deadline.
They live on their own. Blocks.
"""
mp_comm_split(comm, color, key, out) =
    @waiting(33, Int32, (Ptr{mp_comm}, Int32, Int32, Ptr{Ptr{mp_comm}},), comm, color, key, out)

"""
Which machine a rank is on: ranks with equal numbers share one.
"""
mp_comm_get_node(comm, rank, node) =
    @waiting(34, Int32, (Ptr{mp_comm}, Int32, Ptr{Int32},), comm, rank, node)

"""
A communicator over the caller's NCCL communicator, which stays the caller's, outlives this one, must be on the
context's GPU, have been made with blocking = 0, and is aborted when this one fails. Blocks.
"""
mp_comm_wrap_nccl(context, desc, native, out) =
    @waiting(35, Int32, (Ptr{mp_context}, Ptr{mp_comm_desc}, Ptr{Cvoid}, Ptr{Ptr{mp_comm}},), context, desc, native, out)

"""
A communicator over the caller's own functions. After a failure the table's destroy has not been called.
"""
mp_comm_create_callbacks(desc, callbacks, out) =
    @waiting(36, Int32, (Ptr{mp_comm_desc}, Ptr{mp_comm_callbacks}, Ptr{Ptr{mp_comm}},), desc, callbacks, out)

"""
Ends the communicator here, and tells the other ranks where the transport can. A call that waits on another thread
returns MP_STATUS_ABORTED.
"""
mp_comm_abort(comm, reason) =
    @waiting(37, Int32, (Ptr{mp_comm}, Ptr{UInt8},), comm, reason)

"""
Whether the communicator still works: the failure that ended it, with its message.
"""
mp_comm_get_status(comm) =
    @waiting(38, Int32, (Ptr{mp_comm},), comm)

"""
What this rank has sent so far.
"""
mp_comm_get_traffic(comm, traffic) =
    @waiting(39, Int32, (Ptr{mp_comm}, Ptr{mp_comm_traffic},), comm, traffic)

"""
One line: rank, transport and what it found, deadline, operations and bytes so far, what ended it.
"""
mp_comm_describe(comm, buffer, capacity, needed) =
    @waiting(40, Int32, (Ptr{mp_comm}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), comm, buffer, capacity, needed)

"""
Opens the host and, if asked for, one accelerator. The module of an accelerator is looked for beside
the library and in MIXEDPREC_MODULE_PATH and loaded here, on first use; a missing module, driver or
device is a status that says which and what to do, never a silent hop to another device.
MIXEDPREC_NUM_THREADS is read here and counts where num_threads is 0.
"""
mp_context_create(desc, out) =
    @waiting(41, Int32, (Ptr{mp_context_desc}, Ptr{Ptr{mp_context}},), desc, out)

"""
Gives the caller's reference back. The devices close when the last object made from them is gone.
"""
mp_context_destroy(context) =
    @waiting(42, Cvoid, (Ptr{mp_context},), context)

"""
Number of devices of a kind. Opens nothing.
"""
mp_device_get_count(device_kind, count) =
    ccall(ADDRESSES[43], Int32, (Int32, Ptr{Int32},), device_kind, count)

"""
Whether a device can be opened, and if not, why: a query that opens nothing.
"""
mp_device_available(device_kind, device_index) =
    ccall(ADDRESSES[44], Int32, (Int32, Int32,), device_kind, device_index)

"""
What its driver calls a device; \"host\" for the host. Opens nothing.
"""
mp_device_get_name(device_kind, device_index, buffer, capacity, needed) =
    ccall(ADDRESSES[45], Int32, (Int32, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), device_kind, device_index, buffer, capacity, needed)

"""
A device's memory in all. Opens nothing.
"""
mp_device_get_memory(device_kind, device_index, bytes) =
    ccall(ADDRESSES[46], Int32, (Int32, Int32, Ptr{Int64},), device_kind, device_index, bytes)

"""
Number of host threads the context works with.
"""
mp_context_get_num_threads(context, num_threads) =
    @waiting(47, Int32, (Ptr{mp_context}, Ptr{Int32},), context, num_threads)

"""
Everything the context found and decided, as a JSON object: \"host\" and, where there is one, \"accelerator\". Each has its
\"kind\" and \"index\", \"threads\", \"backend\", \"instruction_set\", what else its backend says (versions, topology, reasons), and as
\"candidates\" for each operation the names of its implementations, the one asked first at the beginning.
"""
mp_context_describe(context, buffer, capacity, needed) =
    @waiting(48, Int32, (Ptr{mp_context}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), context, buffer, capacity, needed)

"""
mp_tensor_cast straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it returns.
"""
mp_tensor_cast_pointers(context, queue, source, source_dtype, destination, destination_dtype, count, desc) =
    @waiting(49, Int32, (Ptr{mp_context}, Ptr{mp_queue}, Ptr{Cvoid}, Int32, Ptr{Cvoid}, Int32, Int64, Ptr{mp_cast_desc},), context, queue, source, source_dtype, destination, destination_dtype, count, desc)

"""
How many scales a matrix has.
"""
mp_tensor_get_scale_grid(quant, rows, columns, grid_rows, grid_columns, dtype) =
    ccall(ADDRESSES[50], Int32, (Ptr{mp_quant_desc}, Int64, Int64, Ptr{Int64}, Ptr{Int64}, Ptr{Int32},), quant, rows, columns, grid_rows, grid_columns, dtype)

"""
mp_tensor_quantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
returns.
"""
mp_tensor_quantize_pointers(context, queue, source, source_dtype, quant, destination, args) =
    @waiting(51, Int32, (Ptr{mp_context}, Ptr{mp_queue}, Ptr{Cvoid}, Int32, Ptr{mp_quant_desc}, Ptr{mp_quantized_memory}, Ptr{mp_quantize_args},), context, queue, source, source_dtype, quant, destination, args)

"""
mp_tensor_dequantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
returns.
"""
mp_tensor_dequantize_pointers(context, queue, source, quant, destination, destination_dtype) =
    @waiting(52, Int32, (Ptr{mp_context}, Ptr{mp_queue}, Ptr{mp_quantized_memory}, Ptr{mp_quant_desc}, Ptr{Cvoid}, Int32,), context, queue, source, quant, destination, destination_dtype)

"""
Takes over a DLPack tensor without copying. Takes ownership on success and on failure: the producer's
deleter runs when the tensor and the work on it end (as an mp_deleter_fn), or at once on failure (also for a major version
other than 1, after which nothing else of the struct is read). Accepts NULL strides, byte_offset, and any strides that are
row-major for the shape. A read-only tensor is refused: tensors here are writable. No synchronization: see above.
"""
mp_dlpack_import(context, managed, out) =
    @waiting(53, Int32, (Ptr{mp_context}, Ptr{DLManagedTensorVersioned}, Ptr{Ptr{mp_tensor}},), context, managed, out)

"""
Lends a tensor as DLPack 1.1 without copying. The tensor's memory stays alive until the consumer calls
the deleter. No synchronization: see above.
"""
mp_dlpack_export(tensor, out) =
    @waiting(54, Int32, (Ptr{mp_tensor}, Ptr{Ptr{DLManagedTensorVersioned}},), tensor, out)

"""
Makes an event of the context's device.
"""
mp_event_create(context, out) =
    @waiting(55, Int32, (Ptr{mp_context}, Ptr{Ptr{mp_event}},), context, out)

"""
The event is now after the queue's work so far. Recorded again it is another point; who waits already waits for the old one.
Enqueues.
"""
mp_event_record(event, queue) =
    @waiting(56, Int32, (Ptr{mp_event}, Ptr{mp_queue},), event, queue)

"""
What is put on the queue from now on begins after the event. Does not wait itself; an event that was never recorded holds
nothing up. Enqueues.
"""
mp_queue_wait_event(queue, event) =
    @waiting(57, Int32, (Ptr{mp_queue}, Ptr{mp_event},), queue, event)

"""
Whether the event has been reached. Does not block.
"""
mp_event_test(event) =
    @waiting(58, Int32, (Ptr{mp_event},), event)

"""
Waits until the event has been reached, and reports what went wrong in the work before it. Blocks.
"""
mp_event_sync(event) =
    @waiting(59, Int32, (Ptr{mp_event},), event)

"""
Gives the caller's reference back. Who waits for the event goes on waiting.
"""
mp_event_destroy(event) =
    @waiting(60, Cvoid, (Ptr{mp_event},), event)

"""
Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
"""
mp_gemm_create(context, desc, out) =
    @waiting(61, Int32, (Ptr{mp_context}, Ptr{mp_gemm_desc}, Ptr{Ptr{mp_gemm}},), context, desc, out)

"""
Computes the product. Enqueues.
"""
mp_gemm_run(gemm, queue, a, b, bias, c, d) =
    @waiting(62, Int32, (Ptr{mp_gemm}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor},), gemm, queue, a, b, bias, c, d)

"""
Gives the caller's reference back.
"""
mp_gemm_destroy(gemm) =
    @waiting(63, Cvoid, (Ptr{mp_gemm},), gemm)

"""
Computes the product, of scaled operands too. Enqueues.
"""
mp_gemm_run_scaled(gemm, queue, args) =
    @waiting(64, Int32, (Ptr{mp_gemm}, Ptr{mp_queue}, Ptr{mp_gemm_args},), gemm, queue, args)

"""
What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
"""
mp_gemm_describe(gemm, buffer, capacity, needed) =
    @waiting(65, Int32, (Ptr{mp_gemm}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), gemm, buffer, capacity, needed)

"""
Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
changes to them (by an optimizer, say) count at once. Freezes the recipe.
"""
mp_linear_create(context, recipe, desc, weight, bias, out) =
    @waiting(66, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Ptr{mp_linear_desc}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{Ptr{mp_linear}},), context, recipe, desc, weight, bias, out)

"""
y = x * w^T + bias. Enqueues.
"""
mp_linear_forward(linear, queue, x, y) =
    @waiting(67, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor},), linear, queue, x, y)

"""
Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
both GEMMs want the same type. The same bits as the two calls. Enqueues.
"""
mp_linear_backward(linear, queue, dy, dx, dw, dbias, flags) =
    @waiting(68, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, UInt32,), linear, queue, dy, dx, dw, dbias, flags)

"""
The end of an optimizer step, for many layers at once: delayed scales follow from the amaxes since the last
call, of forwards whose backward has run (where none has run in any of the layers: of all), cached weights are let go, and monitors are called where their step has come. Call it once a step after
the optimizer, whichever the recipe. Enqueues; blocks where a monitor is called, and with `comm`.

Where ranks train the same layers, `comm` makes them scale alike: every amax becomes the largest of all ranks before delayed
scales move on, unless gemm.reduce_amax is \"off\". One small message for all layers, which every rank names in the same order;
none at all with mp_optimizer_set_linears, where the optimizer is shared.
"""
mp_linear_end_step(linears, count, queue, comm) =
    @waiting(69, Int32, (Ptr{Ptr{mp_linear}}, Int32, Ptr{mp_queue}, Ptr{mp_comm},), linears, count, queue, comm)

"""
Gives the caller's reference back.
"""
mp_linear_destroy(linear) =
    @waiting(70, Cvoid, (Ptr{mp_linear},), linear)

"""
mp_linear_create over plain memory, for programs that have no tensors.
"""
mp_linear_create_pointers(context, recipe, desc, weight, weight_dtype, bias, bias_dtype, out) =
    @waiting(71, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Ptr{mp_linear_desc}, Ptr{Cvoid}, Int32, Ptr{Cvoid}, Int32, Ptr{Ptr{mp_linear}},), context, recipe, desc, weight, weight_dtype, bias, bias_dtype, out)

"""
mp_linear_forward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
"""
mp_linear_forward_pointers(linear, queue, rows, x, y, dtype) =
    @waiting(72, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Int64, Ptr{Cvoid}, Ptr{Cvoid}, Int32,), linear, queue, rows, x, y, dtype)

"""
mp_linear_backward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
"""
mp_linear_backward_pointers(linear, queue, rows, dy, dx, dtype, dw, dbias, grad_dtype, flags) =
    @waiting(73, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Int64, Ptr{Cvoid}, Ptr{Cvoid}, Int32, Ptr{Cvoid}, Ptr{Cvoid}, Int32, UInt32,), linear, queue, rows, dy, dx, dtype, dw, dbias, grad_dtype, flags)

"""
dx = dy * w. Enqueues. Needs no forward before it.
"""
mp_linear_backward_data(linear, queue, dy, dx) =
    @waiting(74, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor},), linear, queue, dy, dx)

"""
dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
rows are fp32 and are rounded once into dw and dbias. Enqueues.
"""
mp_linear_backward_weight(linear, queue, dy, dw, dbias, flags) =
    @waiting(75, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, UInt32,), linear, queue, dy, dw, dbias, flags)

"""
What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
"""
mp_linear_describe(linear, buffer, capacity, needed) =
    @waiting(76, Int32, (Ptr{mp_linear}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), linear, buffer, capacity, needed)

"""
What the layer was made with.
"""
mp_linear_get_desc(linear, desc) =
    @waiting(77, Int32, (Ptr{mp_linear}, Ptr{mp_linear_desc},), linear, desc)

"""
What happened to an operand since the counts were last cleared: at creation, by a monitor's turn, or by
mp_linear_clear_stats. Each forward counts x and the weight (a copy of it that is kept: when it is made), each backward dy.
Where a call rounds an operand to codes, that rounding counts, each one if there are several. Where it rounds none, as in high
precision or of codes that are given, a pass of its own counts elements, non_finite and amax; nothing saturates or underflows
there. mp_linear_quantize counts, too, so that its codes count again where they are used. An evaluation counts nothing: a
forward with `saved` NULL (saved.h). Blocks.
"""
mp_linear_get_stats(linear, operand, stats) =
    @waiting(78, Int32, (Ptr{mp_linear}, Int32, Ptr{mp_linear_stats},), linear, operand, stats)

"""
Sets the counts of all operands to zero. Enqueues.
"""
mp_linear_clear_stats(linear, queue) =
    @waiting(79, Int32, (Ptr{mp_linear}, Ptr{mp_queue},), linear, queue)

"""
One sentence that names the recipe key to change where an operand saturates, underflows or is not finite;
empty where all is well.
"""
mp_linear_get_advice(linear, operand, buffer, capacity, needed) =
    @waiting(80, Int32, (Ptr{mp_linear}, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), linear, operand, buffer, capacity, needed)

"""
Has every so many steps' statistics handed to a function by mp_linear_end_step, and cleared after it.
"""
mp_linear_set_monitor(linear, name, every, monitor, payload) =
    @waiting(81, Int32, (Ptr{mp_linear}, Ptr{UInt8}, Int32, Ptr{Cvoid}, Ptr{Cvoid},), linear, name, every, monitor, payload)

"""
Copies out what the layer must remember for training to go on bit for bit: delayed scales and amax histories.
A few bytes for recipes without them. Blocks.
"""
mp_linear_get_scaling(linear, buffer, capacity, needed) =
    @waiting(82, Int32, (Ptr{mp_linear}, Ptr{Cvoid}, Csize_t, Ptr{Csize_t},), linear, buffer, capacity, needed)

"""
Puts back what mp_linear_get_scaling copied out of a layer of the same recipe. Blocks.
"""
mp_linear_set_scaling(linear, data, bytes) =
    @waiting(83, Int32, (Ptr{mp_linear}, Ptr{Cvoid}, Csize_t,), linear, data, bytes)

"""
Makes an optimizer without groups. Freezes the recipe.
"""
mp_optimizer_create(context, recipe, desc, out) =
    @waiting(84, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Ptr{mp_optimizer_desc}, Ptr{Ptr{mp_optimizer}},), context, recipe, desc, out)

"""
Adds a group of parameters with its own hyperparameters.
"""
mp_optimizer_add_group(optimizer, desc, index) =
    @waiting(85, Int32, (Ptr{mp_optimizer}, Ptr{mp_param_group_desc}, Ptr{Int32},), optimizer, desc, index)

"""
Adds a parameter and allocates its states, all zero. Allowed also between steps: its bias correction then begins with its own
first step, whatever t its group has; t that was set before the group's first parameter is that parameter's.
"""
mp_optimizer_add_param(optimizer, group, desc, index) =
    @waiting(86, Int32, (Ptr{mp_optimizer}, Int32, Ptr{mp_param_desc}, Ptr{Int32},), optimizer, group, desc, index)

"""
One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
the layers of mp_optimizer_set_linears, and calls their monitors.
"""
mp_optimizer_step(optimizer, queue, scaler) =
    @waiting(87, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{mp_scaler},), optimizer, queue, scaler)

"""
Sets all gradients to zero. Enqueues. Not needed under MP_OPTIMIZER_ZERO_GRAD.
"""
mp_optimizer_zero_grad(optimizer, queue) =
    @waiting(88, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue},), optimizer, queue)

"""
Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own agreement,
without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
Replaces the layers named before. The optimizer keeps them alive. Blocks where ranks share it: every rank then names as
many layers, of the same sizes and recipes, in the same order, before or after mp_optimizer_shard.
"""
mp_optimizer_set_linears(optimizer, linears, count) =
    @waiting(89, Int32, (Ptr{mp_optimizer}, Ptr{Ptr{mp_linear}}, Int32,), optimizer, linears, count)

"""
What the last step did. Blocks.
"""
mp_optimizer_get_stats(optimizer, queue, stats) =
    @waiting(90, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{mp_optimizer_stats},), optimizer, queue, stats)

"""
Sets the learning rate of a group from the next step on. Replaces a tensor of mp_optimizer_set_lr_tensor.
"""
mp_optimizer_set_lr(optimizer, group, lr) =
    @waiting(91, Int32, (Ptr{mp_optimizer}, Int32, Float64,), optimizer, group, lr)

"""
Turns a group on or off. Parameters of a group that is off are not touched by a step, and their gradients count
neither in the norm nor in the finite check; its t stays. Groups are on at first.
"""
mp_optimizer_set_enabled(optimizer, group, enabled) =
    @waiting(92, Int32, (Ptr{mp_optimizer}, Int32, Int32,), optimizer, group, enabled)

"""
The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share the
optimizer, the same on each.
"""
mp_optimizer_set_max_grad_norm(optimizer, max_grad_norm) =
    @waiting(93, Int32, (Ptr{mp_optimizer}, Float64,), optimizer, max_grad_norm)

"""
Gives the caller's reference back.
"""
mp_optimizer_destroy(optimizer) =
    @waiting(94, Cvoid, (Ptr{mp_optimizer},), optimizer)

"""
Lets every step read a group's learning rate from a tensor, on the device and in the order of the step's queue: a
schedule that runs on the device, or a captured graph, needs neither the host nor a new upload. Its value is taken as
it is, without a check.
"""
mp_optimizer_set_lr_tensor(optimizer, group, lr) =
    @waiting(95, Int32, (Ptr{mp_optimizer}, Int32, Ptr{mp_tensor},), optimizer, group, lr)

"""
Lets every step divide the gradients by a number in device memory, beside the scaler's scale: a count of
micro-batches or tokens. Read like mp_optimizer_set_lr_tensor's; the norm is that of the divided gradients.
"""
mp_optimizer_set_grad_scale_tensor(optimizer, grad_scale) =
    @waiting(96, Int32, (Ptr{mp_optimizer}, Ptr{mp_tensor},), optimizer, grad_scale)

"""
grad_norm of the last step in device memory: one fp32 element that shares the optimizer's memory, for loops that log it
without waiting.
"""
mp_optimizer_get_grad_norm_tensor(optimizer, out) =
    @waiting(97, Int32, (Ptr{mp_optimizer}, Ptr{Ptr{mp_tensor}},), optimizer, out)

"""
1 where the last step was skipped, else 0, likewise.
"""
mp_optimizer_get_found_inf_tensor(optimizer, out) =
    @waiting(98, Int32, (Ptr{mp_optimizer}, Ptr{Ptr{mp_tensor}},), optimizer, out)

"""
Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same model:
tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks one
after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside mp_optimizer_create_sharded this
is another communicator, of ranks that do not share parameters. Implies MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of
before the step is not asked for: mp_scaler_combine.
"""
mp_optimizer_set_norm_comm(optimizer, comm) =
    @waiting(99, Int32, (Ptr{mp_optimizer}, Ptr{mp_comm},), optimizer, comm)

"""
A tensor of one parameter, by name: \"param\", \"grad\", \"exp_avg\", \"exp_avg_sq\", \"compensation\", \"master\"; and
for one of codes with a scale that scale, by its name and \"_scale_inv\". Contents may be read and written between
steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
"""
mp_optimizer_get_state(optimizer, index, state, out) =
    @waiting(100, Int32, (Ptr{mp_optimizer}, Int32, Ptr{UInt8}, Ptr{Ptr{mp_tensor}},), optimizer, index, state, out)

"""
The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
  \"exp_avg\"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
  \"exp_avg_sq\"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
  \"compensation\"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
  \"fp32_param\"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
                  joined, parameter plus compensation, or the parameter alone
                                             Megatron-Core: fp32_param, param; apex: master
t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
"""
mp_optimizer_read_state(optimizer, queue, index, state, values) =
    @waiting(101, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32, Ptr{UInt8}, Ptr{mp_tensor},), optimizer, queue, index, state, values)

"""
Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
scales. \"fp32_param\" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
compensation, write the parameter, call mp_optimizer_sync_master, then write \"compensation\". Numbers
must be finite, second moments not negative. Blocks.
"""
mp_optimizer_write_state(optimizer, queue, index, state, values) =
    @waiting(102, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32, Ptr{UInt8}, Ptr{mp_tensor},), optimizer, queue, index, state, values)

"""
After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
compensations zero. Enqueues; blocks for parameters with a scale.
"""
mp_optimizer_sync_master(optimizer, queue, index) =
    @waiting(103, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32,), optimizer, queue, index)

"""
Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
"""
mp_optimizer_set_step(optimizer, queue, step) =
    @waiting(104, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int64,), optimizer, queue, step)

"""
t of one group: the steps it took part in, torch's `step` of its parameters. Of those that were added after a step it
is ahead: they count their own, which checkpoints keep. Blocks.
"""
mp_optimizer_get_group_step(optimizer, queue, group, step) =
    @waiting(105, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32, Ptr{Int64},), optimizer, queue, group, step)

"""
Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
"""
mp_optimizer_set_group_step(optimizer, queue, group, step) =
    @waiting(106, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32, Int64,), optimizer, queue, group, step)

"""
What the optimizer was made with; the seed is a checkpoint's where one was loaded.
"""
mp_optimizer_get_desc(optimizer, desc) =
    @waiting(107, Int32, (Ptr{mp_optimizer}, Ptr{mp_optimizer_desc},), optimizer, desc)

"""
Number of groups added.
"""
mp_optimizer_get_group_count(optimizer, count) =
    @waiting(108, Int32, (Ptr{mp_optimizer}, Ptr{Int32},), optimizer, count)

"""
A group as it is now: with what mp_optimizer_set_lr and mp_checkpoint_load have changed. A new group made with it is alike.
"""
mp_optimizer_get_group(optimizer, group, desc) =
    @waiting(109, Int32, (Ptr{mp_optimizer}, Int32, Ptr{mp_param_group_desc},), optimizer, group, desc)

"""
Whether a group is on.
"""
mp_optimizer_get_enabled(optimizer, group, enabled) =
    @waiting(110, Int32, (Ptr{mp_optimizer}, Int32, Ptr{Int32},), optimizer, group, enabled)

"""
Number of parameters added.
"""
mp_optimizer_get_param_count(optimizer, count) =
    @waiting(111, Int32, (Ptr{mp_optimizer}, Ptr{Int32},), optimizer, count)

"""
A parameter's name.
"""
mp_optimizer_get_param_name(optimizer, index, buffer, capacity, needed) =
    @waiting(112, Int32, (Ptr{mp_optimizer}, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), optimizer, index, buffer, capacity, needed)

"""
A parameter's group.
"""
mp_optimizer_get_param_group(optimizer, index, group) =
    @waiting(113, Int32, (Ptr{mp_optimizer}, Int32, Ptr{Int32},), optimizer, index, group)

"""
Bytes really held for the parameters added so far, by class.
"""
mp_optimizer_get_memory(optimizer, report) =
    @waiting(114, Int32, (Ptr{mp_optimizer}, Ptr{mp_memory_report},), optimizer, report)

"""
Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
"""
mp_tensor_create_quantized(context, desc, quant, out) =
    @waiting(115, Int32, (Ptr{mp_context}, Ptr{mp_tensor_desc}, Ptr{mp_quant_desc}, Ptr{Ptr{mp_tensor}},), context, desc, quant, out)

"""
Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
The scale of a block never is infinite or negative, whatever its elements are.
"""
mp_tensor_quantize(source, queue, destination, transposed, args, stats) =
    @waiting(116, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_quantize_args}, Ptr{mp_quant_stats},), source, queue, destination, transposed, args, stats)

"""
destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
"""
mp_tensor_dequantize(source, queue, destination) =
    @waiting(117, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{mp_tensor},), source, queue, destination)

"""
The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
fp8_e4m3. The handle shares their memory, which changes with every quantization.
"""
mp_tensor_get_scales(tensor, out) =
    @waiting(118, Int32, (Ptr{mp_tensor}, Ptr{Ptr{mp_tensor}},), tensor, out)

"""
Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of memory
holds for all three pieces.
"""
mp_tensor_wrap_quantized(context, desc, quant, codes, scale_inv, amax, deleter, payload, out) =
    @waiting(119, Int32, (Ptr{mp_context}, Ptr{mp_tensor_desc}, Ptr{mp_quant_desc}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Float32}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{mp_tensor}},), context, desc, quant, codes, scale_inv, amax, deleter, payload, out)

"""
How a tensor is quantized.
"""
mp_tensor_get_quant_desc(tensor, desc) =
    @waiting(120, Int32, (Ptr{mp_tensor}, Ptr{mp_quant_desc},), tensor, desc)

"""
The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
the tensor's memory.
"""
mp_tensor_get_quantized_amax(tensor, out) =
    @waiting(121, Int32, (Ptr{mp_tensor}, Ptr{Ptr{mp_tensor}},), tensor, out)

"""
Waits for the context's default queue. Blocks.
"""
mp_context_sync(context) =
    @waiting(122, Int32, (Ptr{mp_context},), context)

"""
Makes a queue on the context's device.
"""
mp_queue_create(context, out) =
    @waiting(123, Int32, (Ptr{mp_context}, Ptr{Ptr{mp_queue}},), context, out)

"""
Waits until all work enqueued so far is done, and reports what went wrong in it. Blocks.
"""
mp_queue_sync(queue) =
    @waiting(124, Int32, (Ptr{mp_queue},), queue)

"""
Gives the caller's reference back; the queue ends when its work is done.
"""
mp_queue_destroy(queue) =
    @waiting(125, Cvoid, (Ptr{mp_queue},), queue)

"""
Makes a queue over the caller's own stream, which stays the caller's and must outlive the queue.
"""
mp_queue_wrap_native(context, native, out) =
    @waiting(126, Int32, (Ptr{mp_context}, Ptr{Cvoid}, Ptr{Ptr{mp_queue}},), context, native, out)

"""
The stream under a queue, for work of one's own between the library's. It stays whose it was. Enqueues nothing.
"""
mp_queue_get_native(queue, native, size) =
    @waiting(127, Int32, (Ptr{mp_queue}, Ptr{Cvoid}, Csize_t,), queue, native, size)

"""
The most memory that work on this queue has held at once for a while (rounded operands, sums), as mp_queue_set_workspace
needs it: run one step, ask, and hand so much over. Enqueues nothing.
"""
mp_queue_get_workspace_peak(queue, bytes) =
    @waiting(128, Int32, (Ptr{mp_queue}, Ptr{Csize_t},), queue, bytes)

"""
Has work on this queue use the caller's memory instead of memory of the library's. What does not fit makes a call fail
with MP_STATUS_OUT_OF_MEMORY and a message that says how many bytes are needed. What layers and optimizers keep is not
there, nor what oneDNN takes for itself; cuBLASLt's workspace is. Blocks.
"""
mp_queue_set_workspace(queue, memory, bytes) =
    @waiting(129, Int32, (Ptr{mp_queue}, Ptr{Cvoid}, Csize_t,), queue, memory, bytes)

"""
What mp_queue_set_workspace was given. Enqueues nothing.
"""
mp_queue_get_workspace(queue, memory, bytes) =
    @waiting(130, Int32, (Ptr{mp_queue}, Ptr{Ptr{Cvoid}}, Ptr{Csize_t},), queue, memory, bytes)

"""
Makes a recipe from a preset.
"""
mp_recipe_create(context, name, out) =
    @waiting(131, Int32, (Ptr{mp_context}, Ptr{UInt8}, Ptr{Ptr{mp_recipe}},), context, name, out)

"""
The weight that a recipe wants, from its values in fp32: a tensor of its weight.dtype, quantized where that has a scale, on the
context's device. Give the same values as mp_param_desc.init_fp32 too, so that a master weight or a compensation has what
rounding them loses. Blocks.
"""
mp_recipe_create_weight(context, recipe, ndim, shape, values, out) =
    @waiting(132, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Int32, Ptr{Int64}, Ptr{Float32}, Ptr{Ptr{mp_tensor}},), context, recipe, ndim, shape, values, out)

"""
The weight of an fp8 layer as the codes that its products take, with one scale: what a sharded optimizer gathers under
weight.gather.codes, a byte an element. Its owner keeps the exact numbers of its slice, in weight.dtype: give the same values as
mp_param_desc.init_fp32. A layer over such a weight keeps no copy of it between forward and backward. Blocks.
"""
mp_recipe_create_weight_codes(context, recipe, ndim, shape, values, out) =
    @waiting(133, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Int32, Ptr{Int64}, Ptr{Float32}, Ptr{Ptr{mp_tensor}},), context, recipe, ndim, shape, values, out)

"""
Gives the caller's reference back.
"""
mp_recipe_destroy(recipe) =
    @waiting(134, Cvoid, (Ptr{mp_recipe},), recipe)

"""
Sets a key that holds a string.
"""
mp_recipe_set_string(recipe, key, value) =
    @waiting(135, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Ptr{UInt8},), recipe, key, value)

"""
Sets a key that holds a floating-point number.
"""
mp_recipe_set_float(recipe, key, value) =
    @waiting(136, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Float64,), recipe, key, value)

"""
Sets a key that holds an integer.
"""
mp_recipe_set_int(recipe, key, value) =
    @waiting(137, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Int64,), recipe, key, value)

"""
Reads a key that holds a string.
"""
mp_recipe_get_string(recipe, key, value) =
    @waiting(138, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Ptr{Ptr{UInt8}},), recipe, key, value)

"""
Reads a key that holds a floating-point number.
"""
mp_recipe_get_float(recipe, key, value) =
    @waiting(139, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Ptr{Float64},), recipe, key, value)

"""
Reads a key that holds an integer.
"""
mp_recipe_get_int(recipe, key, value) =
    @waiting(140, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Ptr{Int64},), recipe, key, value)

"""
Makes a recipe from JSON: {\"recipe\": \"preset\", \"key\": value, ...}. \"recipe\" defaults to \"fp32\"; keys are
the dotted names of recipe_keys.h. Unknown or repeated keys, wrong types and impossible combinations are
refused with all reasons. At most 1 MiB.
"""
mp_recipe_create_from_json(context, json, length, out) =
    @waiting(141, Int32, (Ptr{mp_context}, Ptr{UInt8}, Csize_t, Ptr{Ptr{mp_recipe}},), context, json, length, out)

"""
Makes a recipe from a JSON file. Blocks.
"""
mp_recipe_create_from_file(context, path, out) =
    @waiting(142, Int32, (Ptr{mp_context}, Ptr{UInt8}, Ptr{Ptr{mp_recipe}},), context, path, out)

"""
The recipe as JSON in canonical form: every key, in the order of mp_recipe_get_key_info. Read back by
mp_recipe_create_from_json it gives the same recipe.
"""
mp_recipe_to_json(recipe, buffer, capacity, needed) =
    @waiting(143, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), recipe, buffer, capacity, needed)

"""
Checks the combination and reports every problem at once in mp_last_error_message().
"""
mp_recipe_validate(recipe) =
    @waiting(144, Int32, (Ptr{mp_recipe},), recipe)

"""
A copy that can be changed, also of a recipe that is in use.
"""
mp_recipe_clone(recipe, out) =
    @waiting(145, Int32, (Ptr{mp_recipe}, Ptr{Ptr{mp_recipe}},), recipe, out)

"""
Whether something uses the recipe, so that it can no longer change.
"""
mp_recipe_get_frozen(recipe, frozen) =
    @waiting(146, Int32, (Ptr{mp_recipe}, Ptr{Int32},), recipe, frozen)

"""
Why the device's choice fell on this preset, in words; empty for a recipe that was not made by \"auto\".
"""
mp_recipe_get_reason(recipe, buffer, capacity, needed) =
    @waiting(147, Int32, (Ptr{mp_recipe}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), recipe, buffer, capacity, needed)

"""
Number of presets.
"""
mp_recipe_preset_count() =
    ccall(ADDRESSES[148], Int32, ())

"""
Name and one-line description of a preset.
"""
mp_recipe_get_preset_info(index, name, text) =
    ccall(ADDRESSES[149], Int32, (Int32, Ptr{Ptr{UInt8}}, Ptr{Ptr{UInt8}},), index, name, text)

"""
Number of keys.
"""
mp_recipe_key_count() =
    ccall(ADDRESSES[150], Int32, ())

"""
Everything about one key.
"""
mp_recipe_get_key_info(index, desc) =
    ccall(ADDRESSES[151], Int32, (Int32, Ptr{mp_recipe_key_desc},), index, desc)

"""
Exact bytes that a recipe needs for so many parameters, before anything is allocated: elements, and the
scales of one tensor where the recipe has scaled codes. Scratch and activations are not in it.
"""
mp_recipe_plan_memory(recipe, rule, parameter_count, report) =
    @waiting(152, Int32, (Ptr{mp_recipe}, Int32, Int64, Ptr{mp_memory_report},), recipe, rule, parameter_count, report)

"""
The same for a model's tensors of the recipe's weight.dtype, each with scales of its own.
"""
mp_recipe_plan_memory_of_tensors(recipe, rule, counts, tensor_count, report) =
    @waiting(153, Int32, (Ptr{mp_recipe}, Int32, Ptr{Int64}, Int64, Ptr{mp_memory_report},), recipe, rule, counts, tensor_count, report)

"""
The same sums of all elements on every rank: a reduce-scatter, then a gather in gather_dtype. With op MAX_ABS_BITS, the
largest |x| of each element over the ranks as fp32. Blocks, unless it has a request; a maximum takes none.
"""
mp_comm_all_reduce(comm, queue, desc, sources, source_count, destination, request) =
    @waiting(154, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{mp_comm_reduce_desc}, Ptr{Ptr{mp_tensor}}, Int32, Ptr{mp_tensor}, Ptr{Ptr{mp_comm_request}},), comm, queue, desc, sources, source_count, destination, request)

"""
Rank r gets the sum of its share of all ranks' elements: those from counts[0] + ... + counts[r - 1] on. Shares may be
empty. The destination may be fp32, or fp16 or bf16, to which the sum is rounded once. What is not finite on any rank
is not finite in the sum. Blocks, unless it has a request; what is enqueued on the queue comes first.
"""
mp_comm_reduce_scatter(comm, queue, desc, sources, source_count, counts, destination, request) =
    @waiting(155, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{mp_comm_reduce_desc}, Ptr{Ptr{mp_tensor}}, Int32, Ptr{Int64}, Ptr{mp_tensor}, Ptr{Ptr{mp_comm_request}},), comm, queue, desc, sources, source_count, counts, destination, request)

"""
Every rank gets all ranks' values in wire_dtype: of fp8 all get the decoded ones, the owner too. Of the descriptor,
order, slots, accumulate and the gather's fields are not read. Blocks, unless it has a request.
"""
mp_comm_all_gather_values(comm, queue, desc, shard, counts, destination, request) =
    @waiting(156, Int32, (Ptr{mp_comm}, Ptr{mp_queue}, Ptr{mp_comm_reduce_desc}, Ptr{mp_tensor}, Ptr{Int64}, Ptr{mp_tensor}, Ptr{Ptr{mp_comm_request}},), comm, queue, desc, shard, counts, destination, request)

"""
Bytes that so many elements take on the wire, scales included.
"""
mp_comm_get_wire_bytes(count, dtype, scale, bytes) =
    ccall(ADDRESSES[157], Int32, (Int64, Int32, Int32, Ptr{Int64},), count, dtype, scale, bytes)

"""
How many rules there are.
"""
mp_rule_get_count(count) =
    ccall(ADDRESSES[158], Int32, (Ptr{Int32},), count)

"""
The number of a rule.
"""
mp_rule_get_number(name, rule) =
    ccall(ADDRESSES[159], Int32, (Ptr{UInt8}, Ptr{Int32},), name, rule)

"""
What a rule is.
"""
mp_rule_get_info(rule, info) =
    ccall(ADDRESSES[160], Int32, (Int32, Ptr{mp_rule_info},), rule, info)

"""
One of a rule's states.
"""
mp_rule_get_state(rule, index, state) =
    ccall(ADDRESSES[161], Int32, (Int32, Int32, Ptr{mp_rule_state},), rule, index, state)

"""
One of the hyperparameters that a rule reads.
"""
mp_rule_get_hyper(rule, index, hyper) =
    ccall(ADDRESSES[162], Int32, (Int32, Int32, Ptr{mp_rule_hyper},), rule, index, hyper)

"""
The name of a state.
"""
mp_rule_state_name(state) =
    ccall(ADDRESSES[163], Ptr{UInt8}, (Int32,), state)

"""
Makes a place for what one forward of this layer keeps. It holds memory from its first forward on.
"""
mp_saved_create(linear, out) =
    @waiting(164, Int32, (Ptr{mp_linear}, Ptr{Ptr{mp_saved}},), linear, out)

"""
mp_linear_forward that keeps what backward needs in `saved` instead of in the layer. What was in it is replaced. Enqueues.
x may be codes (a quantized tensor). In the format of the product they serve as they are, and their amax
(mp_tensor_get_quantized_amax) enters the delayed scale; other codes are read to fp32 and rounded again.
"""
mp_linear_forward_saved(linear, queue, x, y, saved, flags) =
    @waiting(165, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_saved}, UInt32,), linear, queue, x, y, saved, flags)

"""
mp_linear_backward with what that forward kept. It stays there: a second backward may follow. Enqueues. dy may be codes,
as x may; dbias is then the sum of their values.
"""
mp_linear_backward_saved(linear, queue, saved, dy, dx, dw, dbias, flags) =
    @waiting(166, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Ptr{mp_saved}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, Ptr{mp_tensor}, UInt32,), linear, queue, saved, dy, dx, dw, dbias, flags)

"""
Bytes that mp_saved_set_memory needs for a forward of so many rows: x in the format of the weight gradient, and its scales.
"""
mp_linear_get_saved_bytes(linear, rows, bytes) =
    @waiting(167, Int32, (Ptr{mp_linear}, Int64, Ptr{Csize_t},), linear, rows, bytes)

"""
Has what is kept lie in the caller's memory. Where a forward has been, the bytes that were at the old place of the caller's
are taken to be at the new one: copy them first. A saved whose x lies in the library's memory cannot be moved.
"""
mp_saved_set_memory(saved, memory, bytes) =
    @waiting(168, Int32, (Ptr{mp_saved}, Ptr{Cvoid}, Csize_t,), saved, memory, bytes)

"""
The caller's memory that mp_saved_set_memory named.
"""
mp_saved_get_memory(saved, memory, bytes) =
    @waiting(169, Int32, (Ptr{mp_saved}, Ptr{Ptr{Cvoid}}, Ptr{Csize_t},), saved, memory, bytes)

"""
Gives the caller's reference back.
"""
mp_saved_destroy(saved) =
    @waiting(170, Cvoid, (Ptr{mp_saved},), saved)

"""
How dw in fp16 or bf16 is rounded from now on, by mp_linear_backward too. Under MP_ROUND_STOCHASTIC the product is added
to dw in fp32 and rounded once, by the bits of (seed, uid, element, step, microbatch): set them before each micro-batch.
A dw in fp32 is not rounded.
"""
mp_linear_set_gradient_rounding(linear, desc) =
    @waiting(171, Int32, (Ptr{mp_linear}, Ptr{mp_cast_desc},), linear, desc)

"""
What mp_linear_set_gradient_rounding was told.
"""
mp_linear_get_gradient_rounding(linear, desc) =
    @waiting(172, Int32, (Ptr{mp_linear}, Ptr{mp_cast_desc},), linear, desc)

"""
The format in which a product takes an operand: for codes that the caller makes, and for memory that holds them.
"""
mp_linear_get_operand_format(linear, product, operand, dtype, quant) =
    @waiting(173, Int32, (Ptr{mp_linear}, Int32, Int32, Ptr{Int32}, Ptr{mp_quant_desc},), linear, product, operand, dtype, quant)

"""
Rounds an operand as the product would, into codes of the caller's: by the layer's delayed scale where it has one, and
counted by the layer at once, so not for an evaluation. Enqueues. Give them to the calls above as x or dy, or to mp_linear_set_weight_codes.
"""
mp_linear_quantize(linear, queue, product, operand, source, codes) =
    @waiting(174, Int32, (Ptr{mp_linear}, Ptr{mp_queue}, Int32, Int32, Ptr{mp_tensor}, Ptr{mp_tensor},), linear, queue, product, operand, source, codes)

"""
Has products take these codes of the caller's instead of rounding the weight: who changes the weight makes them anew.
Their amax enters the delayed scale. Kept alive.
"""
mp_linear_set_weight_codes(linear, fprop, dgrad) =
    @waiting(175, Int32, (Ptr{mp_linear}, Ptr{mp_tensor}, Ptr{mp_tensor},), linear, fprop, dgrad)

"""
What mp_linear_set_weight_codes was given.
"""
mp_linear_get_weight_codes(linear, product, out) =
    @waiting(176, Int32, (Ptr{mp_linear}, Int32, Ptr{Ptr{mp_tensor}},), linear, product, out)

"""
The delayed scale of an operand, for kernels of the caller's that make codes: what x is multiplied by before it is
rounded; scale_inv = RN(1 / multiply). One fp32 element in device memory that moves with mp_linear_end_step. In the
first steps of a recipe with a warm-up it is not used.
"""
mp_linear_get_multiply_tensor(linear, operand, out) =
    @waiting(177, Int32, (Ptr{mp_linear}, Int32, Ptr{Ptr{mp_tensor}},), linear, operand, out)

"""
Makes the scaler a recipe asks for; for a recipe without loss scaling one of kind MP_SCALER_NONE, so that
the caller's loop is the same for every recipe. Freezes the recipe.
"""
mp_scaler_create_from_recipe(context, recipe, out) =
    @waiting(178, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Ptr{Ptr{mp_scaler}},), context, recipe, out)

"""
Makes a scaler on the context's device.
"""
mp_scaler_create(context, desc, out) =
    @waiting(179, Int32, (Ptr{mp_context}, Ptr{mp_scaler_desc}, Ptr{Ptr{mp_scaler}},), context, desc, out)

"""
The loss scale as it is after all enqueued work. Blocks.
"""
mp_scaler_get_scale(scaler, queue, scale) =
    @waiting(180, Int32, (Ptr{mp_scaler}, Ptr{mp_queue}, Ptr{Float64},), scaler, queue, scale)

"""
Moves the scale by the rule, once a step, and clears found_inf. Enqueues.
"""
mp_scaler_update(scaler, queue) =
    @waiting(181, Int32, (Ptr{mp_scaler}, Ptr{mp_queue},), scaler, queue)

"""
Gives the caller's reference back.
"""
mp_scaler_destroy(scaler) =
    @waiting(182, Cvoid, (Ptr{mp_scaler},), scaler)

"""
Looks whether gradients in the caller's own memory are finite; for loops without mp_optimizer. Adds to
found_inf until the next update: every step until then is skipped. Enqueues; on the host the memory is read before the call returns.
"""
mp_scaler_check_pointers(scaler, queue, count, grads, dtypes, elements) =
    @waiting(183, Int32, (Ptr{mp_scaler}, Ptr{mp_queue}, Int64, Ptr{Ptr{Cvoid}}, Ptr{Int32}, Ptr{Int64},), scaler, queue, count, grads, dtypes, elements)

"""
The loss scale in device memory: one fp32 element that shares the scaler's memory, for losses that are multiplied on the device
without waiting. 1 of a scaler of kind MP_SCALER_NONE.
"""
mp_scaler_get_scale_tensor(scaler, out) =
    @waiting(184, Int32, (Ptr{mp_scaler}, Ptr{Ptr{mp_tensor}},), scaler, out)

"""
found_inf, 0 or 1, likewise. Kernels of the caller's may write it before mp_scaler_update: the maximum over ranks, say.
"""
mp_scaler_get_found_inf_tensor(scaler, out) =
    @waiting(185, Int32, (Ptr{mp_scaler}, Ptr{Ptr{mp_tensor}},), scaler, out)

"""
found_inf becomes 1 where it is on any rank, before mp_scaler_update; for loops without mp_optimizer, and for ranks that hold other
parameters. One small message. Blocks.
"""
mp_scaler_combine(scaler, queue, comm) =
    @waiting(186, Int32, (Ptr{mp_scaler}, Ptr{mp_queue}, Ptr{mp_comm},), scaler, queue, comm)

"""
Reads the whole state. Blocks.
"""
mp_scaler_get_state(scaler, queue, state) =
    @waiting(187, Int32, (Ptr{mp_scaler}, Ptr{mp_queue}, Ptr{mp_scaler_state},), scaler, queue, state)

"""
Replaces the whole state, to go on exactly where a saved run stopped. Blocks.
"""
mp_scaler_set_state(scaler, queue, state) =
    @waiting(188, Int32, (Ptr{mp_scaler}, Ptr{mp_queue}, Ptr{mp_scaler_state},), scaler, queue, state)

"""
Fills a descriptor with the rule of a known system.
"""
mp_scaler_desc_preset(desc, size, name) =
    ccall(ADDRESSES[189], Int32, (Ptr{mp_scaler_desc}, Csize_t, Ptr{UInt8},), desc, size, name)

"""
As mp_optimizer_create, for an optimizer whose states the ranks of a communicator share. It makes a communicator of its
own from `comm`, which may be destroyed after. Every rank then adds the same groups and parameters, whole, with
the same names, shapes and values. Blocks.
"""
mp_optimizer_create_sharded(context, recipe, desc, comm, sharding, out) =
    @waiting(190, Int32, (Ptr{mp_context}, Ptr{mp_recipe}, Ptr{mp_optimizer_desc}, Ptr{mp_comm}, Ptr{mp_sharding_desc}, Ptr{Ptr{mp_optimizer}},), context, recipe, desc, comm, sharding, out)

"""
Cuts the parameters, makes this rank's states, and from stage 2 on takes the gradients' memory, in stage 3 the
weights'. The first step does it where nobody has. No parameter can be added after it. Blocks.
"""
mp_optimizer_shard(optimizer, queue) =
    @waiting(191, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue},), optimizer, queue)

"""
A gradient has its last addition. When all of its bucket are ready the bucket leaves. A thread of the optimizer's moves
what has left on, sums included, while backward goes on, and so it does what mp_optimizer_gather_begin began; it calls
the communicator only between calls of this optimizer, begins nothing on it (what a bucket begins later, in the order
EXACT or between groups and nodes, goes over groups that nothing else uses), sums with one thread, and sleeps when nothing
comes. Where there is none (mp_optimizer_get_progress says why) buckets move in these calls. The bits are the same. A
failure that the thread meets comes out of the next call that moves anything, and of all later ones. Every rank says it in
the same order. In stages 0 and 1 gradients stay in their tensors, so it is said once a step; under MP_OPTIMIZER_ZERO_GRAD,
and from stage 2 on, once a microbatch if wanted: what left is added to what left before. Does nothing without sharding.
Enqueues; blocks for a bucket that leaves.
"""
mp_optimizer_grad_ready(optimizer, queue, index) =
    @waiting(192, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32,), optimizer, queue, index)

"""
All gradients of one slot are there, those that were said to be ready and the rest: they are kept in the wire's type, and
zeroed. Needed after each of this rank's slots where it has several; nothing else may add to them before. Does nothing without sharding. Enqueues; blocks for
buckets that leave.
"""
mp_optimizer_end_microbatch(optimizer, queue) =
    @waiting(193, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue},), optimizer, queue)

"""
Gives a gradient its memory, of zeros, where it has none. Does nothing in stages 0 and 1, or without sharding.
Enqueues.
"""
mp_optimizer_acquire_grad(optimizer, queue, index) =
    @waiting(194, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Int32,), optimizer, queue, index)

"""
Stage 3: gives parameters memory and begins to fetch their slices; those that have memory are left alone. Several may be
under way, for layers to come. Every rank names the same parameters in the same order. Does nothing in other stages.
Blocks until this rank's own slices are ready to be sent.
"""
mp_optimizer_gather_begin(optimizer, queue, indices, count) =
    @waiting(195, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{Int32}, Int32,), optimizer, queue, indices, count)

"""
Returns when these parameters are whole. Blocks. Does nothing in other stages.
"""
mp_optimizer_gather_wait(optimizer, queue, indices, count) =
    @waiting(196, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{Int32}, Int32,), optimizer, queue, indices, count)

"""
Gives the parameters' memory back; what was written there is lost, unless mp_optimizer_sync_master took it. A step
does it for all. Blocks. Does nothing in other stages.
"""
mp_optimizer_gather_free(optimizer, queue, indices, count) =
    @waiting(197, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{Int32}, Int32,), optimizer, queue, indices, count)

"""
Which elements of a parameter a rank owns.
"""
mp_optimizer_get_slice(optimizer, index, rank, start, count) =
    @waiting(198, Int32, (Ptr{mp_optimizer}, Int32, Int32, Ptr{Int64}, Ptr{Int64},), optimizer, index, rank, start, count)

"""
Whether messages move while the caller computes, and how many have. What the thread finished was over before the
step, or whoever waits, asked for it.
"""
mp_optimizer_get_progress(optimizer, progress) =
    @waiting(199, Int32, (Ptr{mp_optimizer}, Ptr{mp_sharding_progress},), optimizer, progress)

"""
FP8-LM's factor mu of a gradient that ranks reduce under a shared scale (grad.reduce.scale \"shared\"): it begins at 1 /
sqrt(ranks), is halved by a step whose sum had to clip more than 1e-5 of its elements (one is forgiven), and doubles in
1000 steps that had not. Codes are made under it rounded down to a power of two. A checkpoint keeps it.
"""
mp_optimizer_get_grad_mu(optimizer, index, mu) =
    @waiting(200, Int32, (Ptr{mp_optimizer}, Int32, Ptr{Float64},), optimizer, index, mu)

"""
What this rank has sent for this optimizer.
"""
mp_optimizer_get_traffic(optimizer, traffic) =
    @waiting(201, Int32, (Ptr{mp_optimizer}, Ptr{mp_comm_traffic},), optimizer, traffic)

"""
mp_recipe_plan_memory for one rank of many that share an optimizer, after mp_optimizer_shard: exactly the bytes of its
own elements, and of what every rank has. The one scale of a weight or gradient is on every rank. Gradients from stage
2 on, and weights in stage 3, are not counted: they have memory while they are in use only. Every tensor is taken for a
matrix; mp_recipe_plan_tensors knows others.
"""
mp_recipe_plan_memory_sharded(recipe, rule, counts, tensor_count, sharding, rank, ranks, report) =
    @waiting(202, Int32, (Ptr{mp_recipe}, Int32, Ptr{Int64}, Int64, Ptr{mp_sharding_desc}, Int32, Int32, Ptr{mp_memory_report},), recipe, rule, counts, tensor_count, sharding, rank, ranks, report)

"""
Plans tensors of several kinds: kept in fp32 beside the recipe's weights, of groups with formats of their own, or gathered
as codes; what one rank holds, and what it sends. A model that is made so holds exactly these bytes.
"""
mp_recipe_plan_tensors(recipe, tensors, tensor_count, sharding, rank, ranks, memory, traffic) =
    @waiting(203, Int32, (Ptr{mp_recipe}, Ptr{mp_planned_tensor}, Int64, Ptr{mp_sharding_desc}, Int32, Int32, Ptr{mp_memory_report}, Ptr{mp_comm_traffic},), recipe, tensors, tensor_count, sharding, rank, ranks, memory, traffic)

"""
Symbolic name of a code, for logs (\"MP_STATUS_INVALID_SHAPE\").
"""
mp_status_string(status) =
    ccall(ADDRESSES[204], Ptr{UInt8}, (Int32,), status)

"""
What went wrong in this thread's last call, in one line: the argument, what was found, what was
expected, what to do. Every call except the query functions of this header and mp_*_destroy clears it on entry.
"""
mp_last_error_message() =
    ccall(ADDRESSES[205], Ptr{UInt8}, ())

"""
Copy of mp_last_error_message() into the caller's memory, for languages that cannot borrow.
"""
mp_last_error_copy(buffer, capacity, needed) =
    ccall(ADDRESSES[206], Int32, (Ptr{UInt8}, Csize_t, Ptr{Csize_t},), buffer, capacity, needed)

"""
One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
"""
mp_optimizer_step_pointers(context, queue, args, slots, slot_count, scaler, stats) =
    @waiting(207, Int32, (Ptr{mp_context}, Ptr{mp_queue}, Ptr{mp_step_args}, Ptr{mp_step_slot}, Int64, Ptr{mp_scaler}, Ptr{mp_optimizer_stats},), context, queue, args, slots, slot_count, scaler, stats)

"""
Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and a count of
steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
"""
mp_step_plan_create(context, args, slots, slot_count, out) =
    @waiting(208, Int32, (Ptr{mp_context}, Ptr{mp_step_args}, Ptr{mp_step_slot}, Int64, Ptr{Ptr{mp_step_plan}},), context, args, slots, slot_count, out)

"""
A step, with the bits of mp_optimizer_step_pointers. t grows with every step that is taken. Enqueues; allocates nothing.
"""
mp_step_plan_run(plan, queue, scaler) =
    @waiting(209, Int32, (Ptr{mp_step_plan}, Ptr{mp_queue}, Ptr{mp_scaler},), plan, queue, scaler)

"""
Other hyperparameters, from the next run on. What changes every step is better given by hyper_pointer or lr_pointer. Blocks.
"""
mp_step_plan_set_args(plan, queue, args) =
    @waiting(210, Int32, (Ptr{mp_step_plan}, Ptr{mp_queue}, Ptr{mp_step_args},), plan, queue, args)

"""
What the plan was told last.
"""
mp_step_plan_get_args(plan, args) =
    @waiting(211, Int32, (Ptr{mp_step_plan}, Ptr{mp_step_args},), plan, args)

"""
What the last run did, and the steps taken so far. Blocks.
"""
mp_step_plan_get_stats(plan, queue, stats) =
    @waiting(212, Int32, (Ptr{mp_step_plan}, Ptr{mp_queue}, Ptr{mp_optimizer_stats},), plan, queue, stats)

"""
Gives the caller's reference back.
"""
mp_step_plan_destroy(plan) =
    @waiting(213, Cvoid, (Ptr{mp_step_plan},), plan)

"""
Makes a tensor in the library's memory, 64-byte aligned, all zero bytes.
"""
mp_tensor_create(context, desc, out) =
    @waiting(214, Int32, (Ptr{mp_context}, Ptr{mp_tensor_desc}, Ptr{Ptr{mp_tensor}},), context, desc, out)

"""
Copies from host memory into a tensor. Blocks.
"""
mp_tensor_write(tensor, queue, data, bytes) =
    @waiting(215, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{Cvoid}, Csize_t,), tensor, queue, data, bytes)

"""
Copies a tensor into host memory. Blocks.
"""
mp_tensor_read(tensor, queue, data, bytes) =
    @waiting(216, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{Cvoid}, Csize_t,), tensor, queue, data, bytes)

"""
Copies elements between tensors of the same type and number of elements, on the same or on different
devices; of quantized ones, which must be alike, also scales and amax. Enqueues. Overlapping memory is refused.
"""
mp_tensor_copy(source, queue, destination) =
    @waiting(217, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{mp_tensor},), source, queue, destination)

"""
Sets every byte to zero. Enqueues.
"""
mp_tensor_zero(tensor, queue) =
    @waiting(218, Int32, (Ptr{mp_tensor}, Ptr{mp_queue},), tensor, queue)

"""
Converts between fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2. Enqueues.
Numerics: through fp32, exact on the way in; one rounding on the way out; NaN kept; subnormals exact.
Stochastic rounding draws from Philox4x32-10 by (seed, uid, element, step, micro-batch), so the bits do not depend on
threads or device.
"""
mp_tensor_cast(source, queue, destination, desc) =
    @waiting(219, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{mp_tensor}, Ptr{mp_cast_desc},), source, queue, destination, desc)

"""
Gives the caller's reference back.
"""
mp_tensor_destroy(tensor) =
    @waiting(220, Cvoid, (Ptr{mp_tensor},), tensor)

"""
Makes a tensor over the caller's memory, which must hold the whole shape, be aligned to the element
size, and stay valid until the deleter runs (or, without one, until the tensor and all that uses it are
destroyed).
"""
mp_tensor_wrap(context, desc, data, deleter, payload, out) =
    @waiting(221, Int32, (Ptr{mp_context}, Ptr{mp_tensor_desc}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{mp_tensor}},), context, desc, data, deleter, payload, out)

"""
Some elements of a tensor as a tensor of their own, without a copy: rows of an embedding, the Q of a QKV weight, one expert
of a stack. What is written through one is seen through the other, and caches of either notice it. The view keeps the
tensor alive, and its memory in its place (of a sharded parameter it cannot be given back meanwhile).
"""
mp_tensor_create_view(tensor, offset, ndim, shape, out) =
    @waiting(222, Int32, (Ptr{mp_tensor}, Int64, Int32, Ptr{Int64}, Ptr{Ptr{mp_tensor}},), tensor, offset, ndim, shape, out)

"""
Type, shape and device of a tensor.
"""
mp_tensor_get_desc(tensor, desc) =
    @waiting(223, Int32, (Ptr{mp_tensor}, Ptr{mp_tensor_desc},), tensor, desc)

"""
The tensor's memory: a borrowed pointer, on its device, valid as long as the tensor.
"""
mp_tensor_get_data(tensor, data) =
    @waiting(224, Int32, (Ptr{mp_tensor}, Ptr{Ptr{Cvoid}},), tensor, data)

"""
Largest absolute value. NaN wins over everything and infinity over every number; 0 for no elements.
Enqueues.
"""
mp_tensor_amax(tensor, queue, amax) =
    @waiting(225, Int32, (Ptr{mp_tensor}, Ptr{mp_queue}, Ptr{mp_tensor},), tensor, queue, amax)

"""
Name of an element type as recipes and messages spell it (\"bf16\", \"fp8_e4m3\", ...).
"""
mp_dtype_name(dtype) =
    ccall(ADDRESSES[226], Ptr{UInt8}, (Int32,), dtype)

"""
The inverse of mp_dtype_name.
"""
mp_dtype_from_name(name) =
    ccall(ADDRESSES[227], Int32, (Ptr{UInt8},), name)

"""
Bytes of one element.
"""
mp_dtype_size(dtype) =
    ccall(ADDRESSES[228], Csize_t, (Int32,), dtype)

"""
Version of the loaded library, in the form of MP_VERSION. From 0.2 on all 0.x versions are additive: a program
compiled against header version H works with every library whose version is at least H.
"""
mp_library_version() =
    ccall(ADDRESSES[229], UInt32, ())

"""
Version, compiler, and what was built in, as one line of text for bug reports.
"""
mp_library_build_info() =
    ccall(ADDRESSES[230], Ptr{UInt8}, ())

"""
Ends the library's own run-time systems (its private Kokkos). Final: later calls that need a device
fail with MP_STATUS_BAD_STATE. Never needed before a normal exit. Refused while contexts are alive.
Blocks.
"""
mp_library_shutdown() =
    @waiting(231, Int32, ())

"""
Skips steps that stand out from now on. Gradients are then read once before each step, as for clipping. What the last
guard has seen, here or in the checkpoint that was loaded, stays in the window. Where ranks share the optimizer all give the same; one that does not is named in the
next step. Blocks.
"""
mp_optimizer_set_guard(optimizer, queue, desc) =
    @waiting(232, Int32, (Ptr{mp_optimizer}, Ptr{mp_queue}, Ptr{mp_guard_desc},), optimizer, queue, desc)

"""
The guard as it is.
"""
mp_optimizer_get_guard(optimizer, desc) =
    @waiting(233, Int32, (Ptr{mp_optimizer}, Ptr{mp_guard_desc},), optimizer, desc)

"""
Gives the loss of the step to come, for the guard and the history; each step forgets it. Where ranks share the
optimizer and the guard watches the loss, it is the same number on all, such as the mean over the ranks.
"""
mp_optimizer_set_loss(optimizer, loss) =
    @waiting(234, Int32, (Ptr{mp_optimizer}, Float64,), optimizer, loss)

"""
Keeps the last steps. Each mp_optimizer_step then waits for its own decision on an accelerator. Of the first step that is
skipped because something is not finite it finds the first bad tensor: in the order of mp_optimizer_set_linears the weight
or input of a layer that counts its operands (MP_LINEAR_STATS or a monitor), else the first gradient in the order of
parameters. With a path it writes the records and what the layers counted as one JSON object; a failure to write goes to the
log and fails no step. Begins anew: records, call and bad tensor are forgotten.
"""
mp_optimizer_set_history(optimizer, steps, path) =
    @waiting(235, Int32, (Ptr{mp_optimizer}, Int32, Ptr{UInt8},), optimizer, steps, path)

"""
Number of records there are: of the steps since the history began, or as many as it keeps.
"""
mp_optimizer_get_record_count(optimizer, count) =
    @waiting(236, Int32, (Ptr{mp_optimizer}, Ptr{Int32},), optimizer, count)

"""
One record of the history.
"""
mp_optimizer_get_record(optimizer, index, record) =
    @waiting(237, Int32, (Ptr{mp_optimizer}, Int32, Ptr{mp_step_record},), optimizer, index, record)

"""
The first tensor that was not finite, in the first step that was skipped for it, in words such as
\"the gradient of 'h0.qkv.weight'\". Empty: there was no such step since the history began.
"""
mp_optimizer_get_bad_tensor(optimizer, buffer, capacity, needed) =
    @waiting(238, Int32, (Ptr{mp_optimizer}, Ptr{UInt8}, Csize_t, Ptr{Csize_t},), optimizer, buffer, capacity, needed)

# Throws where a struct here is not laid out as the C compiler lays it out.
function check_layout()
    for (struct_type, size, offsets) in LAYOUT
        found = Tuple(Int(fieldoffset(struct_type, i)) for i in 1:fieldcount(struct_type))
        if sizeof(struct_type) != size || found != offsets
            error("$struct_type is laid out as $(sizeof(struct_type)) $found, not as $size $offsets")
        end
    end
end

end # module CAPI
