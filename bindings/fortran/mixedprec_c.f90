! SPDX-License-Identifier: Apache-2.0
! Made by bindings/generate/generate.py from the public headers. Do not edit.
!
!> Constants and structs of the C ABI. Structs begin with the defaults of their initializers. A constant with the name
!! of a function ends with _C. Unsigned numbers are signed here, of the same bits.
module mixedprec_types
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer(c_int32_t), parameter :: MP_CODING_PLAIN = 0
    integer(c_int32_t), parameter :: MP_CODING_FP8_BLOCK = 2
    integer(c_int32_t), parameter :: MP_CODING_DYNAMIC8 = 3
    integer(c_int32_t), parameter :: MP_CODING_DYNAMIC4 = 4
    integer(c_int32_t), parameter :: MP_CODING_REMAINDER = 5
    integer(c_int32_t), parameter :: MP_CODING_FP8_BLOCK128 = 6
    integer(c_int32_t), parameter :: MP_CODING_COMPANDED8 = 7
    integer(c_int32_t), parameter :: MP_SAVE_BACKGROUND = 1
    integer(c_int32_t), parameter :: MP_LOAD_VERIFY_ALL = 1
    integer(c_int32_t), parameter :: MP_LOAD_OTHER_RECIPE = 2
    integer(c_int32_t), parameter :: MP_LOAD_CONVERT = 4
    integer(c_int32_t), parameter :: MP_COMM_ALL_TO_ALL_C = 0
    integer(c_int32_t), parameter :: MP_COMM_ALL_GATHER_C = 1
    integer(c_int32_t), parameter :: MP_COMM_BROADCAST_C = 2
    integer(c_int32_t), parameter :: MP_COMM_BARRIER_C = 3
    integer(c_int32_t), parameter :: MP_COMM_MAX_U32_C = 4
    integer(c_int32_t), parameter :: MP_COMM_SUM_F32 = 5
    integer(c_int32_t), parameter :: MP_COMM_HAS_SUM_F32 = 1
    integer(c_int32_t), parameter :: MP_COMM_HAS_DEVICE_MEMORY = 2
    integer(c_int32_t), parameter :: MP_COMM_TAKES_ANY_THREAD = 4
    integer(c_int32_t), parameter :: MP_COMM_UNIQUE_ID_BYTES = 128
    integer(c_int32_t), parameter :: MP_LOG_ERROR = 1
    integer(c_int32_t), parameter :: MP_LOG_WARNING = 2
    integer(c_int32_t), parameter :: MP_LOG_INFO = 3
    integer(c_int32_t), parameter :: MP_LOG_DEBUG = 4
    integer(c_int32_t), parameter :: MP_CONTEXT_BIND_THREADS = 1
    integer(c_int32_t), parameter :: MP_CAST_SATURATE = 1
    integer(c_int32_t), parameter :: MP_CAST_NO_SATURATE = 2
    integer(c_int32_t), parameter :: MP_SCALING_TENSOR = 1
    integer(c_int32_t), parameter :: MP_SCALING_ROW = 2
    integer(c_int32_t), parameter :: MP_SCALING_COLUMN = 3
    integer(c_int32_t), parameter :: MP_SCALING_BLOCK_1X128 = 4
    integer(c_int32_t), parameter :: MP_SCALING_BLOCK_128X1 = 5
    integer(c_int32_t), parameter :: MP_SCALING_BLOCK_128X128 = 6
    integer(c_int32_t), parameter :: MP_SCALING_MX_1X32 = 7
    integer(c_int32_t), parameter :: MP_SCALING_MX_32X1 = 8
    integer(c_int32_t), parameter :: MP_SCALING_NVFP4 = 9
    integer(c_int32_t), parameter :: MP_SCALE_RULE_CURRENT = 1
    integer(c_int32_t), parameter :: MP_SCALE_RULE_FLOAT64 = 2
    integer(c_int32_t), parameter :: MP_SCALE_RULE_MSAMP = 3
    integer(c_int32_t), parameter :: MP_SCALE_RULE_DEEPSEEK = 4
    integer(c_int32_t), parameter :: MP_SCALE_RULE_MX_RCEIL = 5
    integer(c_int32_t), parameter :: MP_SCALE_RULE_MX_FLOOR = 6
    integer(c_int32_t), parameter :: MP_SCALE_RULE_MX_CEIL = 7
    integer(c_int32_t), parameter :: MP_SCALE_RULE_MX_EVEN = 8
    integer(c_int32_t), parameter :: MP_SCALE_RULE_NVFP4 = 9
    integer(c_int32_t), parameter :: MP_QUANT_POWER_OF_TWO = 1
    integer(c_int32_t), parameter :: MP_QUANTIZE_CHECK_AMAX = 1
    integer(c_int32_t), parameter :: MP_GEMM_TRANS_A = 1
    integer(c_int32_t), parameter :: MP_GEMM_TRANS_B = 2
    integer(c_int32_t), parameter :: MP_GEMM_BIAS = 4
    integer(c_int32_t), parameter :: MP_GEMM_GELU = 8
    integer(c_int32_t), parameter :: MP_GEMM_HAS_ALPHA = 16
    integer(c_int32_t), parameter :: MP_GEMM_POWER_OF_TWO_SCALES = 32
    integer(c_int32_t), parameter :: MP_GEMM_FAST_ACCUMULATION = 64
    integer(c_int32_t), parameter :: MP_LINEAR_INFERENCE = 1
    integer(c_int32_t), parameter :: MP_LINEAR_CACHE_WEIGHT = 2
    integer(c_int32_t), parameter :: MP_LINEAR_FIRST_OR_LAST = 4
    integer(c_int32_t), parameter :: MP_LINEAR_STATS_C = 8
    integer(c_int32_t), parameter :: MP_LINEAR_FROZEN = 16
    integer(c_int32_t), parameter :: MP_LINEAR_COPY_INPUT = 32
    integer(c_int32_t), parameter :: MP_OPERAND_INPUT = 0
    integer(c_int32_t), parameter :: MP_OPERAND_WEIGHT = 1
    integer(c_int32_t), parameter :: MP_OPERAND_GRAD_OUTPUT = 2
    integer(c_int32_t), parameter :: MP_OPERAND_COUNT = 3
    integer(c_int32_t), parameter :: MP_BACKWARD_ACCUMULATE = 1
    integer(c_int32_t), parameter :: MP_OPTIMIZER_OFFLOAD = 4
    integer(c_int32_t), parameter :: MP_PARAM_NORM_ELSEWHERE = 1
    integer(c_int32_t), parameter :: MP_RECIPE_TYPE_STRING = 1
    integer(c_int32_t), parameter :: MP_RECIPE_TYPE_FLOAT = 2
    integer(c_int32_t), parameter :: MP_RECIPE_TYPE_INT = 3
    character(len=*), parameter :: MP_RECIPE_GEMM_FPROP_DTYPE = "gemm.fprop.dtype"
    character(len=*), parameter :: MP_RECIPE_GEMM_DGRAD_DTYPE = "gemm.dgrad.dtype"
    character(len=*), parameter :: MP_RECIPE_GEMM_WGRAD_DTYPE = "gemm.wgrad.dtype"
    character(len=*), parameter :: MP_RECIPE_WEIGHT_DTYPE = "weight.dtype"
    character(len=*), parameter :: MP_RECIPE_MASTER_DTYPE = "master.dtype"
    character(len=*), parameter :: MP_RECIPE_GRAD_DTYPE = "grad.dtype"
    character(len=*), parameter :: MP_RECIPE_GRAD_REDUCE_DTYPE = "grad.reduce.dtype"
    character(len=*), parameter :: MP_RECIPE_GRAD_REDUCE_SCALE = "grad.reduce.scale"
    character(len=*), parameter :: MP_RECIPE_WEIGHT_GATHER_DTYPE = "weight.gather.dtype"
    character(len=*), parameter :: MP_RECIPE_EXP_AVG_DTYPE = "optimizer.exp_avg.dtype"
    character(len=*), parameter :: MP_RECIPE_EXP_AVG_SQ_DTYPE = "optimizer.exp_avg_sq.dtype"
    character(len=*), parameter :: MP_RECIPE_COMPENSATION_DTYPE = "optimizer.compensation.dtype"
    character(len=*), parameter :: MP_RECIPE_BLOCK_MIN_ELEMENTS = "optimizer.block_min_elements"
    character(len=*), parameter :: MP_RECIPE_WEIGHT_ROUNDING = "optimizer.weight.rounding"
    character(len=*), parameter :: MP_RECIPE_EXP_AVG_ROUNDING = "optimizer.exp_avg.rounding"
    character(len=*), parameter :: MP_RECIPE_EXP_AVG_SQ_ROUNDING = "optimizer.exp_avg_sq.rounding"
    character(len=*), parameter :: MP_RECIPE_GEMM_SCALING = "gemm.scaling"
    character(len=*), parameter :: MP_RECIPE_FP8_FORMAT = "fp8.format"
    character(len=*), parameter :: MP_RECIPE_GEMM_FPROP_QUANTIZED = "gemm.fprop.quantized"
    character(len=*), parameter :: MP_RECIPE_GEMM_DGRAD_QUANTIZED = "gemm.dgrad.quantized"
    character(len=*), parameter :: MP_RECIPE_GEMM_WGRAD_QUANTIZED = "gemm.wgrad.quantized"
    character(len=*), parameter :: MP_RECIPE_GEMM_SCALE_RULE = "gemm.scale_rule"
    character(len=*), parameter :: MP_RECIPE_GEMM_POWER_OF_TWO_SCALE = "gemm.power_of_two_scale"
    character(len=*), parameter :: MP_RECIPE_GEMM_AMAX_EPSILON = "gemm.amax_epsilon"
    character(len=*), parameter :: MP_RECIPE_GEMM_MARGIN = "gemm.margin"
    character(len=*), parameter :: MP_RECIPE_GEMM_INTERVAL = "gemm.interval"
    character(len=*), parameter :: MP_RECIPE_GEMM_AMAX_HISTORY_LEN = "gemm.amax_history_len"
    character(len=*), parameter :: MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO = "gemm.amax_compute_algo"
    character(len=*), parameter :: MP_RECIPE_GEMM_WARM_UP = "gemm.warm_up"
    character(len=*), parameter :: MP_RECIPE_GEMM_REDUCE_AMAX = "gemm.reduce_amax"
    character(len=*), parameter :: MP_RECIPE_GEMM_FAST_ACCUMULATION = "gemm.fast_accumulation"
    character(len=*), parameter :: MP_RECIPE_WEIGHT_GATHER_CODES = "weight.gather.codes"
    character(len=*), parameter :: MP_RECIPE_GEMM_WEIGHT_COPY = "gemm.weight_copy"
    character(len=*), parameter :: MP_RECIPE_GEMM_FILTER_MULTIPLE_OF = "gemm.filter.multiple_of"
    character(len=*), parameter :: MP_RECIPE_GEMM_FILTER_FIRST_LAST = "gemm.filter.first_last"
    character(len=*), parameter :: MP_RECIPE_GEMM_FILTER_SIZE = "gemm.filter.size"
    character(len=*), parameter :: MP_RECIPE_GEMM_FILTER_NAMES = "gemm.filter.names"
    character(len=*), parameter :: MP_RECIPE_SCALER_KIND = "scaler.kind"
    character(len=*), parameter :: MP_RECIPE_SCALER_INIT_SCALE = "scaler.init_scale"
    character(len=*), parameter :: MP_RECIPE_SCALER_GROWTH_FACTOR = "scaler.growth_factor"
    character(len=*), parameter :: MP_RECIPE_SCALER_BACKOFF_FACTOR = "scaler.backoff_factor"
    character(len=*), parameter :: MP_RECIPE_SCALER_GROWTH_INTERVAL = "scaler.growth_interval"
    character(len=*), parameter :: MP_RECIPE_SCALER_HYSTERESIS = "scaler.hysteresis"
    character(len=*), parameter :: MP_RECIPE_SCALER_REFILL = "scaler.hysteresis_refill"
    character(len=*), parameter :: MP_RECIPE_SCALER_MIN_SCALE = "scaler.min_scale"
    character(len=*), parameter :: MP_RECIPE_SCALER_MAX_SCALE = "scaler.max_scale"
    character(len=*), parameter :: MP_RECIPE_SCALER_AT_MIN = "scaler.at_min"
    character(len=*), parameter :: MP_RECIPE_SCALER_COUNT_OFFSET = "scaler.count_offset"
    integer(c_int32_t), parameter :: MP_COMM_OP_SUM = 0
    integer(c_int32_t), parameter :: MP_COMM_OP_MAX_ABS_BITS = 1
    integer(c_int32_t), parameter :: MP_COMM_ORDER_RANK = 0
    integer(c_int32_t), parameter :: MP_COMM_ORDER_TREE = 1
    integer(c_int32_t), parameter :: MP_COMM_ORDER_EXACT = 2
    integer(c_int32_t), parameter :: MP_COMM_ORDER_FAST = 3
    integer(c_int32_t), parameter :: MP_COMM_ACCUMULATE_DEFAULT = 0
    integer(c_int32_t), parameter :: MP_COMM_ACCUMULATE_FP32 = 1
    integer(c_int32_t), parameter :: MP_COMM_ACCUMULATE_FP64 = 2
    integer(c_int32_t), parameter :: MP_COMM_ACCUMULATE_FIXED = 3
    integer(c_int32_t), parameter :: MP_COMM_SCALE_DEFAULT = 0
    integer(c_int32_t), parameter :: MP_COMM_SCALE_TENSOR = 1
    integer(c_int32_t), parameter :: MP_COMM_SCALE_BLOCK = 2
    integer(c_int32_t), parameter :: MP_COMM_SCALE_MX = 3
    integer(c_int32_t), parameter :: MP_COMM_SCALE_SHARED = 4
    integer(c_int32_t), parameter :: MP_REDUCE_STOCHASTIC = 1
    integer(c_int32_t), parameter :: MP_RULE_ADAMW = 0
    integer(c_int32_t), parameter :: MP_RULE_ADAM = 1
    integer(c_int32_t), parameter :: MP_RULE_LION = 2
    integer(c_int32_t), parameter :: MP_STATE_EXP_AVG = 0
    integer(c_int32_t), parameter :: MP_STATE_EXP_AVG_SQ = 1
    integer(c_int32_t), parameter :: MP_MAX_RULE_STATES = 4
    integer(c_int32_t), parameter :: MP_MAX_STATES = 16
    integer(c_int32_t), parameter :: MP_RULE_MAXIMIZE = 1024
    integer(c_int32_t), parameter :: MP_RULE_NO_BIAS_CORRECTION = 2048
    integer(c_int32_t), parameter :: MP_FORWARD_DROP = 1
    integer(c_int32_t), parameter :: MP_FORWARD_RECOMPUTE = 2
    integer(c_int32_t), parameter :: MP_PRODUCT_FPROP = 0
    integer(c_int32_t), parameter :: MP_PRODUCT_DGRAD = 1
    integer(c_int32_t), parameter :: MP_PRODUCT_WGRAD = 2
    integer(c_int32_t), parameter :: MP_SCALER_DYNAMIC = 0
    integer(c_int32_t), parameter :: MP_SCALER_STATIC = 1
    integer(c_int32_t), parameter :: MP_SCALER_NONE = 2
    integer(c_int32_t), parameter :: MP_SCALER_REFILL_ON_GOOD_STEP = 1
    integer(c_int32_t), parameter :: MP_SCALER_ERROR_AT_MIN = 2
    integer(c_int32_t), parameter :: MP_SHARD_FLAT = 0
    integer(c_int32_t), parameter :: MP_SHARD_PER_PARAMETER = 1
    integer(c_int32_t), parameter :: MP_SHARD_GREEDY = 2
    integer(c_int32_t), parameter :: MP_SHARDING_SUM_GRADIENTS = 1
    integer(c_int32_t), parameter :: MP_SHARDING_NO_PROGRESS_THREAD = 2
    integer(c_int32_t), parameter :: MP_SHARDING_STAGE_0 = -1
    integer(c_int32_t), parameter :: MP_STATUS_OK = 0
    integer(c_int32_t), parameter :: MP_STATUS_WARNING = 1
    integer(c_int32_t), parameter :: MP_STATUS_NOT_READY = 2
    integer(c_int32_t), parameter :: MP_STATUS_NULL_ARGUMENT = -1
    integer(c_int32_t), parameter :: MP_STATUS_INVALID_ARGUMENT = -2
    integer(c_int32_t), parameter :: MP_STATUS_INVALID_SHAPE = -3
    integer(c_int32_t), parameter :: MP_STATUS_INVALID_DTYPE = -4
    integer(c_int32_t), parameter :: MP_STATUS_UNKNOWN_NAME = -5
    integer(c_int32_t), parameter :: MP_STATUS_STRUCT_TOO_NEW = -6
    integer(c_int32_t), parameter :: MP_STATUS_BAD_STATE = -7
    integer(c_int32_t), parameter :: MP_STATUS_INVALID_HANDLE = -8
    integer(c_int32_t), parameter :: MP_STATUS_PARSE_ERROR = -9
    integer(c_int32_t), parameter :: MP_STATUS_UNSUPPORTED = -20
    integer(c_int32_t), parameter :: MP_STATUS_DEVICE_UNAVAILABLE = -21
    integer(c_int32_t), parameter :: MP_STATUS_MODULE_NOT_FOUND = -22
    integer(c_int32_t), parameter :: MP_STATUS_VERSION_MISMATCH = -23
    integer(c_int32_t), parameter :: MP_STATUS_OUT_OF_MEMORY = -40
    integer(c_int32_t), parameter :: MP_STATUS_IO_ERROR = -41
    integer(c_int32_t), parameter :: MP_STATUS_CALLBACK_FAILED = -42
    integer(c_int32_t), parameter :: MP_STATUS_TIMEOUT = -43
    integer(c_int32_t), parameter :: MP_STATUS_PEER_LOST = -44
    integer(c_int32_t), parameter :: MP_STATUS_PEER_ERROR = -45
    integer(c_int32_t), parameter :: MP_STATUS_RANK_MISMATCH = -46
    integer(c_int32_t), parameter :: MP_STATUS_ABORTED = -47
    integer(c_int32_t), parameter :: MP_STATUS_CORRUPT_DATA = -48
    integer(c_int32_t), parameter :: MP_STATUS_ONEDNN_ERROR = -60
    integer(c_int32_t), parameter :: MP_STATUS_CUDA_ERROR = -61
    integer(c_int32_t), parameter :: MP_STATUS_CUBLAS_ERROR = -62
    integer(c_int32_t), parameter :: MP_STATUS_NCCL_ERROR = -63
    integer(c_int32_t), parameter :: MP_STATUS_MPI_ERROR = -64
    integer(c_int32_t), parameter :: MP_STATUS_KOKKOS_ERROR = -65
    integer(c_int32_t), parameter :: MP_STATUS_DEVICE_ERROR = -66
    integer(c_int32_t), parameter :: MP_STATUS_INTERNAL = -80
    integer(c_int32_t), parameter :: MP_OPTIMIZER_CHECK_FINITE = 1
    integer(c_int32_t), parameter :: MP_OPTIMIZER_ZERO_GRAD_C = 2
    integer(c_int32_t), parameter :: MP_STEP_SR_PARAM = 16
    integer(c_int32_t), parameter :: MP_STEP_SR_STATE = 32
    integer(c_int32_t), parameter :: MP_DTYPE_NONE = 0
    integer(c_int32_t), parameter :: MP_DTYPE_FP32 = 1
    integer(c_int32_t), parameter :: MP_DTYPE_FP16 = 2
    integer(c_int32_t), parameter :: MP_DTYPE_BF16 = 3
    integer(c_int32_t), parameter :: MP_DTYPE_FP8_E4M3 = 4
    integer(c_int32_t), parameter :: MP_DTYPE_FP8_E5M2 = 5
    integer(c_int32_t), parameter :: MP_DTYPE_E8M0 = 6
    integer(c_int32_t), parameter :: MP_DTYPE_INT8 = 7
    integer(c_int32_t), parameter :: MP_DTYPE_INT16 = 8
    integer(c_int32_t), parameter :: MP_DTYPE_INT32 = 9
    integer(c_int32_t), parameter :: MP_DTYPE_INT64 = 10
    integer(c_int32_t), parameter :: MP_DTYPE_UINT8 = 11
    integer(c_int32_t), parameter :: MP_DTYPE_FP4_E2M1 = 12
    integer(c_int32_t), parameter :: MP_DEVICE_DEFAULT = 0
    integer(c_int32_t), parameter :: MP_DEVICE_HOST = 1
    integer(c_int32_t), parameter :: MP_DEVICE_CUDA = 2
    integer(c_int32_t), parameter :: MP_DEVICE_HIP = 3
    integer(c_int32_t), parameter :: MP_ROUND_NEAREST = 0
    integer(c_int32_t), parameter :: MP_ROUND_STOCHASTIC = 1
    integer(c_int32_t), parameter :: MP_MAX_DIMS = 8
    integer(c_int32_t), parameter :: MP_VERSION_MAJOR = 0
    integer(c_int32_t), parameter :: MP_VERSION_MINOR = 2
    integer(c_int32_t), parameter :: MP_VERSION_PATCH = 0
    integer(c_int32_t), parameter :: MP_VERSION = 200
    integer(c_int32_t), parameter :: MP_STEP_TAKEN = 0
    integer(c_int32_t), parameter :: MP_STEP_NON_FINITE = 1
    integer(c_int32_t), parameter :: MP_STEP_OUTLIER = 2

    !> See mixedprec/array.h.
    type, bind(c) :: mp_array
        type(c_ptr) :: data = c_null_ptr
        type(c_ptr) :: scale_inv = c_null_ptr
        type(c_ptr) :: amax = c_null_ptr
        integer(c_int32_t) :: dtype = 0
        integer(c_int32_t) :: coding = 0
    end type mp_array

    !> See mixedprec/checkpoint.h.
    type, bind(c) :: mp_checkpoint_desc
        integer(c_int32_t) :: struct_size = 32
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: keep = 0
        integer(c_int32_t) :: reserved = 0
        type(c_funptr) :: progress = c_null_funptr
        type(c_ptr) :: payload = c_null_ptr
    end type mp_checkpoint_desc

    !> See mixedprec/checkpoint.h.
    type, bind(c) :: mp_checkpoint_info
        integer(c_int32_t) :: struct_size = 344
        integer(c_int32_t) :: format = 0
        integer(c_int64_t) :: step = 0
        integer(c_int64_t) :: sequence = 0
        integer(c_int64_t) :: world = 0
        integer(c_int64_t) :: tensor_count = 0
        integer(c_int64_t) :: bytes = 0
        integer(c_int64_t) :: applied_step = 0
        integer(c_int64_t) :: seed = 0
        integer(c_int32_t) :: converted = 0
        integer(c_int32_t) :: reserved = 0
        real(c_double) :: weight_largest_error = 0.0_c_double
        real(c_double) :: weight_rms_error = 0.0_c_double
        real(c_double) :: state_largest_error(16) = 0
        real(c_double) :: state_rms_error(16) = 0
    end type mp_checkpoint_info

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_desc
        integer(c_int32_t) :: struct_size = 24
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: deadline_ms = 0
        integer(c_int32_t) :: ranks_per_node = 0
        integer(c_int32_t) :: reserved = 0
    end type mp_comm_desc

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_exchange
        integer(c_int32_t) :: struct_size = 72
        integer(c_int32_t) :: flags = 0
        type(c_ptr) :: send = c_null_ptr
        type(c_ptr) :: send_bytes = c_null_ptr
        type(c_ptr) :: send_offsets = c_null_ptr
        type(c_ptr) :: receive = c_null_ptr
        type(c_ptr) :: receive_bytes = c_null_ptr
        type(c_ptr) :: receive_offsets = c_null_ptr
        integer(c_int64_t) :: deadline_ms = 0
        type(c_ptr) :: site = c_null_ptr
    end type mp_comm_exchange

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_traffic
        integer(c_int32_t) :: struct_size = 64
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: calls = 0
        integer(c_int64_t) :: total_bytes = 0
        integer(c_int64_t) :: all_to_all_bytes = 0
        integer(c_int64_t) :: all_gather_bytes = 0
        integer(c_int64_t) :: broadcast_bytes = 0
        integer(c_int64_t) :: max_u32_bytes = 0
        integer(c_int64_t) :: sum_f32_bytes = 0
    end type mp_comm_traffic

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_operation
        integer(c_int32_t) :: struct_size = 88
        integer(c_int32_t) :: kind = 0
        integer(c_int64_t) :: sequence = 0
        type(c_ptr) :: send = c_null_ptr
        type(c_ptr) :: send_bytes = c_null_ptr
        type(c_ptr) :: send_offsets = c_null_ptr
        type(c_ptr) :: receive = c_null_ptr
        type(c_ptr) :: receive_bytes = c_null_ptr
        type(c_ptr) :: receive_offsets = c_null_ptr
        integer(c_int64_t) :: count = 0
        integer(c_int32_t) :: root = 0
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: native = c_null_ptr
    end type mp_comm_operation

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_group
        integer(c_int32_t) :: struct_size = 32
        integer(c_int32_t) :: color = 0
        integer(c_int32_t) :: key = 0
        integer(c_int32_t) :: count = 0
        integer(c_int32_t) :: rank = 0
        integer(c_int32_t) :: context = 0
        type(c_ptr) :: members = c_null_ptr
    end type mp_comm_group

    !> See mixedprec/comm.h.
    type, bind(c) :: mp_comm_callbacks
        integer(c_int32_t) :: struct_size = 96
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: rank = 0
        integer(c_int32_t) :: size = 0
        type(c_ptr) :: nodes = c_null_ptr
        type(c_ptr) :: name = c_null_ptr
        type(c_funptr) :: begin = c_null_funptr
        type(c_funptr) :: poll = c_null_funptr
        type(c_funptr) :: release = c_null_funptr
        type(c_funptr) :: abort = c_null_funptr
        type(c_funptr) :: pause = c_null_funptr
        type(c_funptr) :: split = c_null_funptr
        type(c_funptr) :: destroy = c_null_funptr
        type(c_ptr) :: payload = c_null_ptr
    end type mp_comm_callbacks

    !> See mixedprec/context.h.
    type, bind(c) :: mp_context_desc
        integer(c_int32_t) :: struct_size = 96
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: api_version = 200
        integer(c_int32_t) :: device_kind = 0
        integer(c_int32_t) :: device_index = 0
        integer(c_int32_t) :: num_threads = 0
        integer(c_int32_t) :: log_level = 0
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: backend = c_null_ptr
        type(c_funptr) :: allocate = c_null_funptr
        type(c_funptr) :: release = c_null_funptr
        type(c_ptr) :: allocator_payload = c_null_ptr
        type(c_funptr) :: log = c_null_funptr
        type(c_ptr) :: log_payload = c_null_ptr
        type(c_funptr) :: parallel = c_null_funptr
        type(c_ptr) :: parallel_payload = c_null_ptr
    end type mp_context_desc

    !> See mixedprec/convert.h.
    type, bind(c) :: mp_cast_desc
        integer(c_int32_t) :: struct_size = 40
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: rounding = 0
        integer(c_int32_t) :: microbatch = 0
        integer(c_int64_t) :: seed = 0
        integer(c_int64_t) :: uid = 0
        integer(c_int64_t) :: step = 0
    end type mp_cast_desc

    !> See mixedprec/convert.h.
    type, bind(c) :: mp_quant_desc
        integer(c_int32_t) :: struct_size = 32
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: scaling = 0
        integer(c_int32_t) :: rule = 0
        real(c_double) :: amax_epsilon = 0.0_c_double
        integer(c_int32_t) :: margin = 0
        integer(c_int32_t) :: reserved = 0
    end type mp_quant_desc

    !> See mixedprec/convert.h.
    type, bind(c) :: mp_quantize_args
        integer(c_int32_t) :: struct_size = 56
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: rounding = 0
        integer(c_int32_t) :: microbatch = 0
        integer(c_int64_t) :: seed = 0
        integer(c_int64_t) :: uid = 0
        integer(c_int64_t) :: step = 0
        integer(c_int64_t) :: first_element = 0
        type(c_ptr) :: amax_pointer = c_null_ptr
    end type mp_quantize_args

    !> See mixedprec/convert.h.
    type, bind(c) :: mp_quantized_memory
        integer(c_int32_t) :: struct_size = 56
        integer(c_int32_t) :: dtype = 0
        integer(c_int64_t) :: rows = 0
        integer(c_int64_t) :: columns = 0
        type(c_ptr) :: codes = c_null_ptr
        type(c_ptr) :: transposed = c_null_ptr
        type(c_ptr) :: scale_inv = c_null_ptr
        type(c_ptr) :: amax = c_null_ptr
    end type mp_quantized_memory

    !> See mixedprec/gemm.h.
    type, bind(c) :: mp_gemm_desc
        integer(c_int32_t) :: struct_size = 184
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: m = 0
        integer(c_int64_t) :: n = 0
        integer(c_int64_t) :: k = 0
        integer(c_int64_t) :: lda = 0
        integer(c_int64_t) :: ldb = 0
        integer(c_int64_t) :: ldc = 0
        integer(c_int64_t) :: ldd = 0
        integer(c_int64_t) :: batch_count = 0
        integer(c_int64_t) :: batch_stride_a = 0
        integer(c_int64_t) :: batch_stride_b = 0
        integer(c_int64_t) :: batch_stride_c = 0
        integer(c_int64_t) :: batch_stride_d = 0
        real(c_double) :: alpha = 0.0_c_double
        real(c_double) :: beta = 0.0_c_double
        integer(c_int32_t) :: dtype_a = 0
        integer(c_int32_t) :: dtype_b = 0
        integer(c_int32_t) :: dtype_c = 0
        integer(c_int32_t) :: dtype_d = 0
        integer(c_int32_t) :: dtype_bias = 0
        integer(c_int32_t) :: reserved = 0
        integer(c_int32_t) :: scale_a_dtype = 0
        integer(c_int32_t) :: scale_a_rows = 0
        integer(c_int32_t) :: scale_a_columns = 0
        integer(c_int32_t) :: scale_b_dtype = 0
        integer(c_int32_t) :: scale_b_rows = 0
        integer(c_int32_t) :: scale_b_columns = 0
        type(c_ptr) :: implementation = c_null_ptr
        type(c_ptr) :: quant_d = c_null_ptr
    end type mp_gemm_desc

    !> See mixedprec/gemm.h.
    type, bind(c) :: mp_gemm_args
        integer(c_int32_t) :: struct_size = 80
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: a = c_null_ptr
        type(c_ptr) :: b = c_null_ptr
        type(c_ptr) :: bias = c_null_ptr
        type(c_ptr) :: c = c_null_ptr
        type(c_ptr) :: d = c_null_ptr
        type(c_ptr) :: scale_a = c_null_ptr
        type(c_ptr) :: scale_b = c_null_ptr
        type(c_ptr) :: multiply_d = c_null_ptr
        type(c_ptr) :: amax_d = c_null_ptr
    end type mp_gemm_args

    !> See mixedprec/linear.h.
    type, bind(c) :: mp_linear_desc
        integer(c_int32_t) :: struct_size = 32
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: in_features = 0
        integer(c_int64_t) :: out_features = 0
        type(c_ptr) :: name = c_null_ptr
    end type mp_linear_desc

    !> See mixedprec/linear.h.
    type, bind(c) :: mp_linear_stats
        integer(c_int32_t) :: struct_size = 80
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: operand = 0
        integer(c_int32_t) :: dtype = 0
        integer(c_int64_t) :: elements = 0
        integer(c_int64_t) :: saturated = 0
        integer(c_int64_t) :: underflowed = 0
        integer(c_int64_t) :: non_finite = 0
        real(c_double) :: amax = 0.0_c_double
        real(c_double) :: scale_inv = 0.0_c_double
        real(c_double) :: history_amax = 0.0_c_double
        integer(c_int32_t) :: history_len = 0
        integer(c_int32_t) :: updates = 0
    end type mp_linear_stats

    !> See mixedprec/optimizer.h.
    type, bind(c) :: mp_optimizer_desc
        integer(c_int32_t) :: struct_size = 24
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: seed = 0
        real(c_double) :: max_grad_norm = 0.0_c_double
    end type mp_optimizer_desc

    !> See mixedprec/optimizer.h.
    type, bind(c) :: mp_param_group_desc
        integer(c_int32_t) :: struct_size = 96
        integer(c_int32_t) :: flags = 0
        real(c_double) :: lr = 0.0_c_double
        real(c_double) :: beta1 = 0.0_c_double
        real(c_double) :: beta2 = 0.0_c_double
        real(c_double) :: eps = 0.0_c_double
        real(c_double) :: weight_decay = 0.0_c_double
        integer(c_int32_t) :: rule = 0
        integer(c_int32_t) :: hyper_count = 0
        type(c_ptr) :: hypers = c_null_ptr
        type(c_ptr) :: state_formats(4) = c_null_ptr
    end type mp_param_group_desc

    !> See mixedprec/optimizer.h.
    type, bind(c) :: mp_param_desc
        integer(c_int32_t) :: struct_size = 40
        integer(c_int32_t) :: flags = 0
        type(c_ptr) :: name = c_null_ptr
        type(c_ptr) :: param = c_null_ptr
        type(c_ptr) :: grad = c_null_ptr
        type(c_ptr) :: init_fp32 = c_null_ptr
    end type mp_param_desc

    !> See mixedprec/quant.h.
    type, bind(c) :: mp_quant_stats
        integer(c_int32_t) :: struct_size = 48
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: elements = 0
        integer(c_int64_t) :: saturated = 0
        integer(c_int64_t) :: underflowed = 0
        integer(c_int64_t) :: non_finite = 0
        real(c_double) :: amax = 0.0_c_double
    end type mp_quant_stats

    !> See mixedprec/recipe.h.
    type, bind(c) :: mp_recipe_key_desc
        integer(c_int32_t) :: struct_size = 40
        integer(c_int32_t) :: type = 0
        type(c_ptr) :: name = c_null_ptr
        type(c_ptr) :: allowed = c_null_ptr
        type(c_ptr) :: text = c_null_ptr
        type(c_ptr) :: fp32_value = c_null_ptr
    end type mp_recipe_key_desc

    !> See mixedprec/recipe.h.
    type, bind(c) :: mp_memory_report
        integer(c_int32_t) :: struct_size = 192
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: parameter_count = 0
        integer(c_int64_t) :: weight_bytes = 0
        integer(c_int64_t) :: master_bytes = 0
        integer(c_int64_t) :: grad_bytes = 0
        integer(c_int64_t) :: compensation_bytes = 0
        integer(c_int64_t) :: total_bytes = 0
        integer(c_int64_t) :: reduced_grad_bytes = 0
        integer(c_int64_t) :: state_bytes(16) = 0
    end type mp_memory_report

    !> See mixedprec/reduce.h.
    type, bind(c) :: mp_comm_reduce_desc
        integer(c_int32_t) :: struct_size = 96
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: op = 0
        integer(c_int32_t) :: order = 0
        integer(c_int32_t) :: accumulate = 0
        integer(c_int32_t) :: slots = 0
        integer(c_int32_t) :: wire_dtype = 0
        integer(c_int32_t) :: wire_scale = 0
        integer(c_int32_t) :: gather_dtype = 0
        integer(c_int32_t) :: gather_scale = 0
        integer(c_int64_t) :: first_element = 0
        integer(c_int64_t) :: seed = 0
        integer(c_int64_t) :: uid = 0
        integer(c_int64_t) :: step = 0
        integer(c_int64_t) :: deadline_ms = 0
        type(c_ptr) :: site = c_null_ptr
        integer(c_int32_t) :: microbatch = 0
        integer(c_int32_t) :: reserved = 0
    end type mp_comm_reduce_desc

    !> See mixedprec/rule.h.
    type, bind(c) :: mp_hyper
        type(c_ptr) :: name = c_null_ptr
        real(c_double) :: value = 0.0_c_double
    end type mp_hyper

    !> See mixedprec/rule.h.
    type, bind(c) :: mp_rule_info
        integer(c_int32_t) :: struct_size = 24
        integer(c_int32_t) :: corrects_bias = 0
        type(c_ptr) :: name = c_null_ptr
        integer(c_int32_t) :: state_count = 0
        integer(c_int32_t) :: hyper_count = 0
    end type mp_rule_info

    !> See mixedprec/rule.h.
    type, bind(c) :: mp_rule_state
        integer(c_int32_t) :: struct_size = 24
        integer(c_int32_t) :: is_signed = 0
        type(c_ptr) :: name = c_null_ptr
        integer(c_int32_t) :: number = 0
        integer(c_int32_t) :: reserved = 0
    end type mp_rule_state

    !> See mixedprec/rule.h.
    type, bind(c) :: mp_rule_hyper
        integer(c_int32_t) :: struct_size = 32
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: name = c_null_ptr
        real(c_double) :: usual = 0.0_c_double
        real(c_double) :: limit = 0.0_c_double
    end type mp_rule_hyper

    !> See mixedprec/scaler.h.
    type, bind(c) :: mp_scaler_desc
        integer(c_int32_t) :: struct_size = 64
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: kind = 0
        integer(c_int32_t) :: growth_interval = 0
        integer(c_int32_t) :: hysteresis = 0
        integer(c_int32_t) :: count_offset = 0
        real(c_double) :: init_scale = 0.0_c_double
        real(c_double) :: growth_factor = 0.0_c_double
        real(c_double) :: backoff_factor = 0.0_c_double
        real(c_double) :: min_scale = 0.0_c_double
        real(c_double) :: max_scale = 0.0_c_double
    end type mp_scaler_desc

    !> See mixedprec/scaler.h.
    type, bind(c) :: mp_scaler_state
        integer(c_int32_t) :: struct_size = 40
        integer(c_int32_t) :: found_inf = 0
        real(c_double) :: scale = 0.0_c_double
        integer(c_int32_t) :: growth_tracker = 0
        integer(c_int32_t) :: hysteresis_tracker = 0
        integer(c_int64_t) :: good_steps = 0
        integer(c_int64_t) :: overflow_steps = 0
    end type mp_scaler_state

    !> See mixedprec/sharding.h.
    type, bind(c) :: mp_sharding_desc
        integer(c_int32_t) :: struct_size = 56
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: stage = 0
        integer(c_int32_t) :: kind = 0
        integer(c_int64_t) :: bucket_elements = 0
        integer(c_int32_t) :: wire_dtype = 0
        integer(c_int32_t) :: wire_scale = 0
        integer(c_int32_t) :: order = 0
        integer(c_int32_t) :: slots = 0
        integer(c_int32_t) :: shard_ranks = 0
        integer(c_int32_t) :: check_every = 0
        integer(c_int32_t) :: node_ranks = 0
        integer(c_int32_t) :: reserved = 0
    end type mp_sharding_desc

    !> See mixedprec/sharding.h.
    type, bind(c) :: mp_sharding_progress
        integer(c_int32_t) :: struct_size = 40
        integer(c_int32_t) :: has_thread = 0
        integer(c_int64_t) :: begun = 0
        integer(c_int64_t) :: finished = 0
        integer(c_int64_t) :: finished_by_thread = 0
        type(c_ptr) :: reason = c_null_ptr
    end type mp_sharding_progress

    !> See mixedprec/sharding.h.
    type, bind(c) :: mp_planned_tensor
        integer(c_int32_t) :: struct_size = 56
        integer(c_int32_t) :: weight_dtype = 0
        integer(c_int64_t) :: count = 0
        integer(c_int32_t) :: rule = 0
        integer(c_int32_t) :: ndim = 0
        type(c_ptr) :: state_formats(4) = c_null_ptr
    end type mp_planned_tensor

    !> See mixedprec/step.h.
    type, bind(c) :: mp_optimizer_stats
        integer(c_int32_t) :: struct_size = 64
        integer(c_int32_t) :: found_inf = 0
        integer(c_int64_t) :: step = 0
        integer(c_int64_t) :: skipped_steps = 0
        real(c_double) :: grad_norm = 0.0_c_double
        real(c_double) :: grad_mul = 0.0_c_double
        integer(c_int64_t) :: outlier_steps = 0
        real(c_double) :: grad_norm_z = 0.0_c_double
        real(c_double) :: loss_z = 0.0_c_double
    end type mp_optimizer_stats

    !> See mixedprec/step.h.
    type, bind(c) :: mp_step_slot
        integer(c_int32_t) :: struct_size = 288
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: count = 0
        integer(c_int64_t) :: uid = 0
        integer(c_int64_t) :: first_element = 0
        type(mp_array) :: param
        type(mp_array) :: grad
        type(mp_array) :: master
        type(mp_array) :: compensation
        type(mp_array) :: states(4)
    end type mp_step_slot

    !> See mixedprec/step.h.
    type, bind(c) :: mp_step_args
        integer(c_int32_t) :: struct_size = 136
        integer(c_int32_t) :: flags = 0
        integer(c_int64_t) :: step = 1
        integer(c_int64_t) :: seed = 0
        real(c_double) :: lr = 0.0_c_double
        real(c_double) :: beta1 = 0.0_c_double
        real(c_double) :: beta2 = 0.0_c_double
        real(c_double) :: eps = 0.0_c_double
        real(c_double) :: weight_decay = 0.0_c_double
        real(c_double) :: max_grad_norm = 0.0_c_double
        real(c_double) :: grad_scale = 0.0_c_double
        type(c_ptr) :: lr_pointer = c_null_ptr
        type(c_ptr) :: grad_scale_pointer = c_null_ptr
        integer(c_int32_t) :: rule = 0
        integer(c_int32_t) :: hyper_count = 0
        type(c_ptr) :: hypers = c_null_ptr
        type(c_ptr) :: step_pointer = c_null_ptr
        type(c_ptr) :: hyper_pointer = c_null_ptr
        type(c_ptr) :: grad_mul_pointer = c_null_ptr
    end type mp_step_args

    !> See mixedprec/tensor.h.
    type, bind(c) :: mp_tensor_desc
        integer(c_int32_t) :: struct_size = 88
        integer(c_int32_t) :: flags = 0
        integer(c_int32_t) :: dtype = 0
        integer(c_int32_t) :: ndim = 0
        integer(c_int64_t) :: shape(8) = 0
        integer(c_int32_t) :: device_kind = 0
        integer(c_int32_t) :: device_index = 0
    end type mp_tensor_desc

    !> See mixedprec/watch.h.
    type, bind(c) :: mp_guard_desc
        integer(c_int32_t) :: struct_size = 24
        integer(c_int32_t) :: window = 0
        real(c_double) :: max_grad_norm_z = 0.0_c_double
        real(c_double) :: max_loss_z = 0.0_c_double
    end type mp_guard_desc

    !> See mixedprec/watch.h.
    type, bind(c) :: mp_step_record
        integer(c_int32_t) :: struct_size = 80
        integer(c_int32_t) :: outcome = 0
        integer(c_int64_t) :: call = 0
        integer(c_int64_t) :: step = 0
        real(c_double) :: loss = 0.0_c_double
        real(c_double) :: loss_scale = 0.0_c_double
        real(c_double) :: lr = 0.0_c_double
        real(c_double) :: grad_norm = 0.0_c_double
        real(c_double) :: grad_mul = 0.0_c_double
        real(c_double) :: grad_norm_z = 0.0_c_double
        real(c_double) :: loss_z = 0.0_c_double
    end type mp_step_record
end module mixedprec_types

!> The functions of the C ABI as they are. Handles, memory and text are type(c_ptr); text ends with c_null_char. An
!! argument that C lets be NULL is optional where it is not a c_ptr; an absent one is NULL.
module mixedprec_c
    use mixedprec_types
    use, intrinsic :: iso_c_binding
    implicit none
    public

    interface
        !> Makes an empty checkpoint object. Collective with a communicator, which is not used after this call.
        function mp_checkpoint_create(context, comm, desc, out) bind(c, name="mp_checkpoint_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: comm
            type(mp_checkpoint_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_checkpoint_create

        !> Adds an optimizer, one at most: its parameters, states, groups and seed. It is kept alive. Parameters and groups that
        !> are added to it later are saved, too. Of one that ranks share
        !> (mp_optimizer_create_sharded) each writes its slices, else rank 0 all.
        function mp_checkpoint_add_optimizer(checkpoint, optimizer) bind(c, &
            name="mp_checkpoint_add_optimizer") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: optimizer
            integer(c_int32_t) :: answer
        end function mp_checkpoint_add_optimizer

        !> Adds a loss scaler, one at most: scale and counters. It is kept alive.
        function mp_checkpoint_add_scaler(checkpoint, scaler) bind(c, name="mp_checkpoint_add_scaler") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: scaler
            integer(c_int32_t) :: answer
        end function mp_checkpoint_add_scaler

        !> Adds a layer's delayed scales and amax histories; its weight belongs to the optimizer. It is kept alive. Amaxes of a step that
        !> has begun (a backward has run, its end has not) are saved as the largest over the ranks; what was evaluated leaves none.
        function mp_checkpoint_add_linear(checkpoint, name, linear) bind(c, &
            name="mp_checkpoint_add_linear") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: name
            type(c_ptr), value :: linear
            integer(c_int32_t) :: answer
        end function mp_checkpoint_add_linear

        !> Adds bytes of the caller: the position in the data, a schedule, a random state. A save copies them as they are then; a
        !> load of the same size writes them. With a communicator those of rank 0 are saved, and every rank gets them.
        function mp_checkpoint_add_data(checkpoint, name, data, bytes) bind(c, &
            name="mp_checkpoint_add_data") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: name
            type(c_ptr), value :: data
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_checkpoint_add_data

        !> Saves a new checkpoint. Blocks until it is on the disk, or with MP_SAVE_BACKGROUND until the state is copied.
        !> After a failure the checkpoints are those of before, unless only the last sync of the directory failed.
        function mp_checkpoint_save(checkpoint, directory, step, flags) bind(c, &
            name="mp_checkpoint_save") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: directory
            integer(c_int64_t), value :: step
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_checkpoint_save

        !> Loads into what was added, from a checkpoint of the same things saved by any number of ranks. A group is known by its
        !> parameters, in whatever order groups were added; one without parameters by its place among such groups. Where ranks share an
        !> optimizer that has not stepped yet it is shared out first (mp_optimizer_shard), also where the checkpoint is then refused. A
        !> scaler whose scale does not move keeps its own. Blocks.
        function mp_checkpoint_load(checkpoint, path, flags, info) bind(c, name="mp_checkpoint_load") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: path
            integer(c_int32_t), value :: flags
            type(mp_checkpoint_info), intent(inout), optional :: info
            integer(c_int32_t) :: answer
        end function mp_checkpoint_load

        !> Gives the caller's reference back. Blocks while a save is running.
        subroutine mp_checkpoint_destroy(checkpoint) bind(c, name="mp_checkpoint_destroy")
            import
            type(c_ptr), value :: checkpoint
        end subroutine mp_checkpoint_destroy

        !> Whether a save in the background has ended. Does not block.
        function mp_checkpoint_test(checkpoint) bind(c, name="mp_checkpoint_test") result(answer)
            import
            type(c_ptr), value :: checkpoint
            integer(c_int32_t) :: answer
        end function mp_checkpoint_test

        !> Blocks until a save in the background has ended, and gives its status, once.
        function mp_checkpoint_wait(checkpoint) bind(c, name="mp_checkpoint_wait") result(answer)
            import
            type(c_ptr), value :: checkpoint
            integer(c_int32_t) :: answer
        end function mp_checkpoint_wait

        !> What a checkpoint is, without loading it. Blocks.
        function mp_checkpoint_inspect(path, info) bind(c, name="mp_checkpoint_inspect") result(answer)
            import
            type(c_ptr), value :: path
            type(mp_checkpoint_info), intent(inout), optional :: info
            integer(c_int32_t) :: answer
        end function mp_checkpoint_inspect

        !> The manifest that a load would take, for programs: {"name": ..., "manifest": ...}. The name is of the checkpoint in the
        !> directory, or "" where the path is a checkpoint itself; what a manifest has is in docs/checkpoints.md. Its file is read once,
        !> and everything in it is checked. Blocks.
        function mp_checkpoint_read_manifest(path, buffer, capacity, needed) bind(c, &
            name="mp_checkpoint_read_manifest") result(answer)
            import
            type(c_ptr), value :: path
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_checkpoint_read_manifest

        !> The same in words: the checkpoints of a directory, newest first, each as a load would see it; or a checkpoint's recipe, files
        !> and tensors. Blocks.
        function mp_checkpoint_describe(path, buffer, capacity, needed) bind(c, &
            name="mp_checkpoint_describe") result(answer)
            import
            type(c_ptr), value :: path
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_checkpoint_describe

        !> Writes the optimizer's parameters alone as one ordinary safetensors file, each under its name, and for one of codes with
        !> a scale that scale under its name and "_param_scale_inv". Blocks.
        function mp_checkpoint_export_weights(checkpoint, file) bind(c, &
            name="mp_checkpoint_export_weights") result(answer)
            import
            type(c_ptr), value :: checkpoint
            type(c_ptr), value :: file
            integer(c_int32_t) :: answer
        end function mp_checkpoint_export_weights

        !> The communicator of one rank: what it sends, it receives.
        function mp_comm_create_self(desc, out) bind(c, name="mp_comm_create_self") result(answer)
            import
            type(mp_comm_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_create_self

        !> Communicators for ranks that are threads of this process: one handle for each, which any one thread may use.
        !> Destroying one tells the others that its rank is lost.
        function mp_comm_create_threads(desc, count, out) bind(c, name="mp_comm_create_threads") result(answer)
            import
            type(mp_comm_desc), intent(in), optional :: desc
            integer(c_int32_t), value :: count
            type(c_ptr), intent(inout) :: out(*)
            integer(c_int32_t) :: answer
        end function mp_comm_create_threads

        !> A communicator over MPI, by the module libmixedprec-mpi.so. Collective over the MPI communicator. The caller's one
        !> is duplicated and may be freed. Without one it is MPI_COMM_WORLD, and if MPI is not initialized it is, with
        !> MPI_THREAD_MULTIPLE, and ended at exit or by mp_library_shutdown. Memory of the caller is never in a pending MPI
        !> call. After MPI_Finalize calls that talk to other ranks, this one too, are MP_STATUS_BAD_STATE, and all can be destroyed.
        !> Blocks.
        function mp_comm_create_mpi(desc, native, out) bind(c, name="mp_comm_create_mpi") result(answer)
            import
            type(mp_comm_desc), intent(in), optional :: desc
            type(c_ptr), value :: native
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_create_mpi

        !> What the ranks of a new NCCL communicator find each other by: one rank calls it and hands the bytes to the others.
        function mp_comm_get_nccl_unique_id(id, size) bind(c, name="mp_comm_get_nccl_unique_id") result(answer)
            import
            type(c_ptr), value :: id
            integer(c_size_t), value :: size
            integer(c_int32_t) :: answer
        end function mp_comm_get_nccl_unique_id

        !> A communicator over NCCL on the context's GPU, without blocking calls of NCCL's. Collective over its ranks. Blocks.
        !> Exchanges take device memory, or host memory, which is staged.
        function mp_comm_create_nccl(context, desc, unique_id, rank, size, out) bind(c, &
            name="mp_comm_create_nccl") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_comm_desc), intent(in), optional :: desc
            type(c_ptr), value :: unique_id
            integer(c_int32_t), value :: rank
            integer(c_int32_t), value :: size
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_create_nccl

        !> This rank's number.
        function mp_comm_get_rank(comm, rank) bind(c, name="mp_comm_get_rank") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(out), optional :: rank
            integer(c_int32_t) :: answer
        end function mp_comm_get_rank

        !> The number of ranks.
        function mp_comm_get_size(comm, size) bind(c, name="mp_comm_get_size") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(out), optional :: size
            integer(c_int32_t) :: answer
        end function mp_comm_get_size

        !> Every rank gives every rank its own bytes. Blocks, unless it has a request. With a queue, what is enqueued there
        !> comes first.
        function mp_comm_all_to_all(comm, queue, exchange, request) bind(c, name="mp_comm_all_to_all") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(mp_comm_exchange), intent(in), optional :: exchange
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_all_to_all

        !> Every rank gets every rank's bytes. `send` may be where this rank receives its own. Blocks, unless it has a request.
        function mp_comm_all_gather(comm, queue, exchange, request) bind(c, name="mp_comm_all_gather") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(mp_comm_exchange), intent(in), optional :: exchange
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_all_gather

        !> All ranks get the root's bytes. Blocks, unless it has a request.
        function mp_comm_broadcast(comm, queue, data, bytes, root, request) bind(c, &
            name="mp_comm_broadcast") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(c_ptr), value :: data
            integer(c_int64_t), value :: bytes
            integer(c_int32_t), value :: root
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_broadcast

        !> Replaces values in host memory by their maxima over the ranks: for flags, and for the bits of magnitudes, which as
        !> unsigned numbers keep NaN above infinity above all else. Blocks, unless it has a request.
        function mp_comm_max_u32(comm, values, count, request) bind(c, name="mp_comm_max_u32") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(inout), optional :: values(*)
            integer(c_int64_t), value :: count
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_max_u32

        !> Returns when every rank has called it. Blocks, unless it has a request.
        function mp_comm_barrier(comm, request) bind(c, name="mp_comm_barrier") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_barrier

        !> Gives the caller's reference back. Requests and calls under way keep it; optimizers and checkpoints have communicators of
        !> their own. With the last reference it ends, in the thread that gives it back, and other ranks that wait for this one are told
        !> where the transport can. Over MPI below MPI_THREAD_MULTIPLE the thread that used it last calls MPI: if it is another one, in
        !> its next call over MPI. Waits for nobody, except over NCCL, where ncclCommFinalize has the deadline, 5 seconds at most, to
        !> reach all ranks: for the communicator and its groups together.
        subroutine mp_comm_destroy(comm) bind(c, name="mp_comm_destroy")
            import
            type(c_ptr), value :: comm
        end subroutine mp_comm_destroy

        !> Waits until the operation is done, has failed, or its deadline, counted from its begin, has passed. Blocks.
        function mp_comm_request_wait(request) bind(c, name="mp_comm_request_wait") result(answer)
            import
            type(c_ptr), value :: request
            integer(c_int32_t) :: answer
        end function mp_comm_request_wait

        !> Moves all operations of the communicator on, without waiting.
        function mp_comm_request_test(request) bind(c, name="mp_comm_request_test") result(answer)
            import
            type(c_ptr), value :: request
            integer(c_int32_t) :: answer
        end function mp_comm_request_test

        !> Gives a request back, and the memory of its operation: when the call returns nobody touches that any more. So one that is
        !> neither done nor failed ends its communicator, as mp_comm_abort does. While a wait for it is under way in another
        !> thread it stays until that is over. Waits for no rank; beside a call of another thread on the communicator, for one look of
        !> that at what is in flight, and for an mp_comm_split that is under way.
        subroutine mp_comm_request_destroy(request) bind(c, name="mp_comm_request_destroy")
            import
            type(c_ptr), value :: request
        end subroutine mp_comm_request_destroy

        !> Sets the deadline of calls from now on.
        function mp_comm_set_deadline(comm, deadline_ms) bind(c, name="mp_comm_set_deadline") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int64_t), value :: deadline_ms
            integer(c_int32_t) :: answer
        end function mp_comm_set_deadline

        !> The deadline of calls.
        function mp_comm_get_deadline(comm, deadline_ms) bind(c, name="mp_comm_get_deadline") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int64_t), intent(out), optional :: deadline_ms
            integer(c_int32_t) :: answer
        end function mp_comm_get_deadline

        !> Makes communicators of the ranks of one color each, ordered by key and then by rank, with this one's deadline.
        !> They live on their own. Blocks.
        function mp_comm_split(comm, color, key, out) bind(c, name="mp_comm_split") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), value :: color
            integer(c_int32_t), value :: key
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_split

        !> Which machine a rank is on: ranks with equal numbers share one.
        function mp_comm_get_node(comm, rank, node) bind(c, name="mp_comm_get_node") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), value :: rank
            integer(c_int32_t), intent(out), optional :: node
            integer(c_int32_t) :: answer
        end function mp_comm_get_node

        !> A communicator over the caller's NCCL communicator, which stays the caller's, outlives this one, must be on the
        !> context's GPU, have been made with blocking = 0, and is aborted when this one fails. Blocks.
        function mp_comm_wrap_nccl(context, desc, native, out) bind(c, name="mp_comm_wrap_nccl") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_comm_desc), intent(in), optional :: desc
            type(c_ptr), value :: native
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_wrap_nccl

        !> A communicator over the caller's own functions. After a failure the table's destroy has not been called.
        function mp_comm_create_callbacks(desc, callbacks, out) bind(c, name="mp_comm_create_callbacks") result(answer)
            import
            type(mp_comm_desc), intent(in), optional :: desc
            type(mp_comm_callbacks), intent(in), optional :: callbacks
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_comm_create_callbacks

        !> Ends the communicator here, and tells the other ranks where the transport can. A call that waits on another thread
        !> returns MP_STATUS_ABORTED.
        function mp_comm_abort(comm, reason) bind(c, name="mp_comm_abort") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: reason
            integer(c_int32_t) :: answer
        end function mp_comm_abort

        !> Whether the communicator still works: the failure that ended it, with its message.
        function mp_comm_get_status(comm) bind(c, name="mp_comm_get_status") result(answer)
            import
            type(c_ptr), value :: comm
            integer(c_int32_t) :: answer
        end function mp_comm_get_status

        !> What this rank has sent so far.
        function mp_comm_get_traffic(comm, traffic) bind(c, name="mp_comm_get_traffic") result(answer)
            import
            type(c_ptr), value :: comm
            type(mp_comm_traffic), intent(inout), optional :: traffic
            integer(c_int32_t) :: answer
        end function mp_comm_get_traffic

        !> One line: rank, transport and what it found, deadline, operations and bytes so far, what ended it.
        function mp_comm_describe(comm, buffer, capacity, needed) bind(c, name="mp_comm_describe") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_comm_describe

        !> Opens the host and, if asked for, one accelerator. The module of an accelerator is looked for beside
        !> the library and in MIXEDPREC_MODULE_PATH and loaded here, on first use; a missing module, driver or
        !> device is a status that says which and what to do, never a silent hop to another device.
        !> MIXEDPREC_NUM_THREADS is read here and counts where num_threads is 0.
        function mp_context_create(desc, out) bind(c, name="mp_context_create") result(answer)
            import
            type(mp_context_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_context_create

        !> Gives the caller's reference back. The devices close when the last object made from them is gone.
        subroutine mp_context_destroy(context) bind(c, name="mp_context_destroy")
            import
            type(c_ptr), value :: context
        end subroutine mp_context_destroy

        !> Number of devices of a kind. Opens nothing.
        function mp_device_get_count(device_kind, count) bind(c, name="mp_device_get_count") result(answer)
            import
            integer(c_int32_t), value :: device_kind
            integer(c_int32_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_device_get_count

        !> Whether a device can be opened, and if not, why: a query that opens nothing.
        function mp_device_available(device_kind, device_index) bind(c, name="mp_device_available") result(answer)
            import
            integer(c_int32_t), value :: device_kind
            integer(c_int32_t), value :: device_index
            integer(c_int32_t) :: answer
        end function mp_device_available

        !> What its driver calls a device; "host" for the host. Opens nothing.
        function mp_device_get_name(device_kind, device_index, buffer, capacity, needed) bind(c, &
            name="mp_device_get_name") result(answer)
            import
            integer(c_int32_t), value :: device_kind
            integer(c_int32_t), value :: device_index
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_device_get_name

        !> A device's memory in all. Opens nothing.
        function mp_device_get_memory(device_kind, device_index, bytes) bind(c, &
            name="mp_device_get_memory") result(answer)
            import
            integer(c_int32_t), value :: device_kind
            integer(c_int32_t), value :: device_index
            integer(c_int64_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_device_get_memory

        !> Number of host threads the context works with.
        function mp_context_get_num_threads(context, num_threads) bind(c, &
            name="mp_context_get_num_threads") result(answer)
            import
            type(c_ptr), value :: context
            integer(c_int32_t), intent(out), optional :: num_threads
            integer(c_int32_t) :: answer
        end function mp_context_get_num_threads

        !> Everything the context found and decided, as a JSON object: "host" and, where there is one, "accelerator". Each has its
        !> "kind" and "index", "threads", "backend", "instruction_set", what else its backend says (versions, topology, reasons), and as
        !> "candidates" for each operation the names of its implementations, the one asked first at the beginning.
        function mp_context_describe(context, buffer, capacity, needed) bind(c, &
            name="mp_context_describe") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_context_describe

        !> mp_tensor_cast straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it returns.
        function mp_tensor_cast_pointers(context, queue, source, source_dtype, destination, destination_dtype, &
            count, desc) bind(c, name="mp_tensor_cast_pointers") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: queue
            type(c_ptr), value :: source
            integer(c_int32_t), value :: source_dtype
            type(c_ptr), value :: destination
            integer(c_int32_t), value :: destination_dtype
            integer(c_int64_t), value :: count
            type(mp_cast_desc), intent(in), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_tensor_cast_pointers

        !> How many scales a matrix has.
        function mp_tensor_get_scale_grid(quant, rows, columns, grid_rows, grid_columns, dtype) bind(c, &
            name="mp_tensor_get_scale_grid") result(answer)
            import
            type(mp_quant_desc), intent(in), optional :: quant
            integer(c_int64_t), value :: rows
            integer(c_int64_t), value :: columns
            integer(c_int64_t), intent(out), optional :: grid_rows
            integer(c_int64_t), intent(out), optional :: grid_columns
            integer(c_int32_t), intent(out), optional :: dtype
            integer(c_int32_t) :: answer
        end function mp_tensor_get_scale_grid

        !> mp_tensor_quantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
        !> returns.
        function mp_tensor_quantize_pointers(context, queue, source, source_dtype, quant, destination, &
            args) bind(c, name="mp_tensor_quantize_pointers") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: queue
            type(c_ptr), value :: source
            integer(c_int32_t), value :: source_dtype
            type(mp_quant_desc), intent(in), optional :: quant
            type(mp_quantized_memory), intent(in), optional :: destination
            type(mp_quantize_args), intent(in), optional :: args
            integer(c_int32_t) :: answer
        end function mp_tensor_quantize_pointers

        !> mp_tensor_dequantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
        !> returns.
        function mp_tensor_dequantize_pointers(context, queue, source, quant, destination, &
            destination_dtype) bind(c, name="mp_tensor_dequantize_pointers") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: queue
            type(mp_quantized_memory), intent(in), optional :: source
            type(mp_quant_desc), intent(in), optional :: quant
            type(c_ptr), value :: destination
            integer(c_int32_t), value :: destination_dtype
            integer(c_int32_t) :: answer
        end function mp_tensor_dequantize_pointers

        !> Takes over a DLPack tensor without copying. Takes ownership on success and on failure: the producer's
        !> deleter runs when the tensor and the work on it end (as an mp_deleter_fn), or at once on failure (also for a major version
        !> other than 1, after which nothing else of the struct is read). Accepts NULL strides, byte_offset, and any strides that are
        !> row-major for the shape. A read-only tensor is refused: tensors here are writable. No synchronization: see above.
        function mp_dlpack_import(context, managed, out) bind(c, name="mp_dlpack_import") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: managed
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_dlpack_import

        !> Lends a tensor as DLPack 1.1 without copying. The tensor's memory stays alive until the consumer calls
        !> the deleter. No synchronization: see above.
        function mp_dlpack_export(tensor, out) bind(c, name="mp_dlpack_export") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_dlpack_export

        !> Makes an event of the context's device.
        function mp_event_create(context, out) bind(c, name="mp_event_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_event_create

        !> The event is now after the queue's work so far. Recorded again it is another point; who waits already waits for the old one.
        !> Enqueues.
        function mp_event_record(event, queue) bind(c, name="mp_event_record") result(answer)
            import
            type(c_ptr), value :: event
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_event_record

        !> What is put on the queue from now on begins after the event. Does not wait itself; an event that was never recorded holds
        !> nothing up. Enqueues.
        function mp_queue_wait_event(queue, event) bind(c, name="mp_queue_wait_event") result(answer)
            import
            type(c_ptr), value :: queue
            type(c_ptr), value :: event
            integer(c_int32_t) :: answer
        end function mp_queue_wait_event

        !> Whether the event has been reached. Does not block.
        function mp_event_test(event) bind(c, name="mp_event_test") result(answer)
            import
            type(c_ptr), value :: event
            integer(c_int32_t) :: answer
        end function mp_event_test

        !> Waits until the event has been reached, and reports what went wrong in the work before it. Blocks.
        function mp_event_sync(event) bind(c, name="mp_event_sync") result(answer)
            import
            type(c_ptr), value :: event
            integer(c_int32_t) :: answer
        end function mp_event_sync

        !> Gives the caller's reference back. Who waits for the event goes on waiting.
        subroutine mp_event_destroy(event) bind(c, name="mp_event_destroy")
            import
            type(c_ptr), value :: event
        end subroutine mp_event_destroy

        !> Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
        function mp_gemm_create(context, desc, out) bind(c, name="mp_gemm_create") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_gemm_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_gemm_create

        !> Computes the product. Enqueues.
        function mp_gemm_run(gemm, queue, a, b, bias, c, d) bind(c, name="mp_gemm_run") result(answer)
            import
            type(c_ptr), value :: gemm
            type(c_ptr), value :: queue
            type(c_ptr), value :: a
            type(c_ptr), value :: b
            type(c_ptr), value :: bias
            type(c_ptr), value :: c
            type(c_ptr), value :: d
            integer(c_int32_t) :: answer
        end function mp_gemm_run

        !> Gives the caller's reference back.
        subroutine mp_gemm_destroy(gemm) bind(c, name="mp_gemm_destroy")
            import
            type(c_ptr), value :: gemm
        end subroutine mp_gemm_destroy

        !> Computes the product, of scaled operands too. Enqueues.
        function mp_gemm_run_scaled(gemm, queue, args) bind(c, name="mp_gemm_run_scaled") result(answer)
            import
            type(c_ptr), value :: gemm
            type(c_ptr), value :: queue
            type(mp_gemm_args), intent(in), optional :: args
            integer(c_int32_t) :: answer
        end function mp_gemm_run_scaled

        !> What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
        function mp_gemm_describe(gemm, buffer, capacity, needed) bind(c, name="mp_gemm_describe") result(answer)
            import
            type(c_ptr), value :: gemm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_gemm_describe

        !> Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
        !> changes to them (by an optimizer, say) count at once. Freezes the recipe.
        function mp_linear_create(context, recipe, desc, weight, bias, out) bind(c, &
            name="mp_linear_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            type(mp_linear_desc), intent(in), optional :: desc
            type(c_ptr), value :: weight
            type(c_ptr), value :: bias
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_linear_create

        !> y = x * w^T + bias. Enqueues.
        function mp_linear_forward(linear, queue, x, y) bind(c, name="mp_linear_forward") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: x
            type(c_ptr), value :: y
            integer(c_int32_t) :: answer
        end function mp_linear_forward

        !> Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
        !> both GEMMs want the same type. The same bits as the two calls. Enqueues.
        function mp_linear_backward(linear, queue, dy, dx, dw, dbias, flags) bind(c, &
            name="mp_linear_backward") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: dy
            type(c_ptr), value :: dx
            type(c_ptr), value :: dw
            type(c_ptr), value :: dbias
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_linear_backward

        !> The end of an optimizer step, for many layers at once: delayed scales follow from the amaxes since the last
        !> call, of forwards whose backward has run (where none has run in any of the layers: of all), cached weights are let go, and monitors are called where their step has come. Call it once a step after
        !> the optimizer, whichever the recipe. Enqueues; blocks where a monitor is called, and with `comm`.
        !>
        !> Where ranks train the same layers, `comm` makes them scale alike: every amax becomes the largest of all ranks before delayed
        !> scales move on, unless gemm.reduce_amax is "off". One small message for all layers, which every rank names in the same order;
        !> none at all with mp_optimizer_set_linears, where the optimizer is shared.
        function mp_linear_end_step(linears, count, queue, comm) bind(c, name="mp_linear_end_step") result(answer)
            import
            type(c_ptr), intent(in), optional :: linears(*)
            integer(c_int32_t), value :: count
            type(c_ptr), value :: queue
            type(c_ptr), value :: comm
            integer(c_int32_t) :: answer
        end function mp_linear_end_step

        !> Gives the caller's reference back.
        subroutine mp_linear_destroy(linear) bind(c, name="mp_linear_destroy")
            import
            type(c_ptr), value :: linear
        end subroutine mp_linear_destroy

        !> mp_linear_create over plain memory, for programs that have no tensors.
        function mp_linear_create_pointers(context, recipe, desc, weight, weight_dtype, bias, bias_dtype, &
            out) bind(c, name="mp_linear_create_pointers") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            type(mp_linear_desc), intent(in), optional :: desc
            type(c_ptr), value :: weight
            integer(c_int32_t), value :: weight_dtype
            type(c_ptr), value :: bias
            integer(c_int32_t), value :: bias_dtype
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_linear_create_pointers

        !> mp_linear_forward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
        function mp_linear_forward_pointers(linear, queue, rows, x, y, dtype) bind(c, &
            name="mp_linear_forward_pointers") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            integer(c_int64_t), value :: rows
            type(c_ptr), value :: x
            type(c_ptr), value :: y
            integer(c_int32_t), value :: dtype
            integer(c_int32_t) :: answer
        end function mp_linear_forward_pointers

        !> mp_linear_backward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
        function mp_linear_backward_pointers(linear, queue, rows, dy, dx, dtype, dw, dbias, grad_dtype, &
            flags) bind(c, name="mp_linear_backward_pointers") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            integer(c_int64_t), value :: rows
            type(c_ptr), value :: dy
            type(c_ptr), value :: dx
            integer(c_int32_t), value :: dtype
            type(c_ptr), value :: dw
            type(c_ptr), value :: dbias
            integer(c_int32_t), value :: grad_dtype
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_linear_backward_pointers

        !> dx = dy * w. Enqueues. Needs no forward before it.
        function mp_linear_backward_data(linear, queue, dy, dx) bind(c, name="mp_linear_backward_data") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: dy
            type(c_ptr), value :: dx
            integer(c_int32_t) :: answer
        end function mp_linear_backward_data

        !> dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
        !> rows are fp32 and are rounded once into dw and dbias. Enqueues.
        function mp_linear_backward_weight(linear, queue, dy, dw, dbias, flags) bind(c, &
            name="mp_linear_backward_weight") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: dy
            type(c_ptr), value :: dw
            type(c_ptr), value :: dbias
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_linear_backward_weight

        !> What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
        function mp_linear_describe(linear, buffer, capacity, needed) bind(c, name="mp_linear_describe") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_linear_describe

        !> What the layer was made with.
        function mp_linear_get_desc(linear, desc) bind(c, name="mp_linear_get_desc") result(answer)
            import
            type(c_ptr), value :: linear
            type(mp_linear_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_linear_get_desc

        !> What happened to an operand since the counts were last cleared: at creation, by a monitor's turn, or by
        !> mp_linear_clear_stats. Each forward counts x and the weight (a copy of it that is kept: when it is made), each backward dy.
        !> Where a call rounds an operand to codes, that rounding counts, each one if there are several. Where it rounds none, as in high
        !> precision or of codes that are given, a pass of its own counts elements, non_finite and amax; nothing saturates or underflows
        !> there. mp_linear_quantize counts, too, so that its codes count again where they are used. An evaluation counts nothing: a
        !> forward with `saved` NULL (saved.h). Blocks.
        function mp_linear_get_stats(linear, operand, stats) bind(c, name="mp_linear_get_stats") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int32_t), value :: operand
            type(mp_linear_stats), intent(inout), optional :: stats
            integer(c_int32_t) :: answer
        end function mp_linear_get_stats

        !> Sets the counts of all operands to zero. Enqueues.
        function mp_linear_clear_stats(linear, queue) bind(c, name="mp_linear_clear_stats") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_linear_clear_stats

        !> One sentence that names the recipe key to change where an operand saturates, underflows or is not finite;
        !> empty where all is well.
        function mp_linear_get_advice(linear, operand, buffer, capacity, needed) bind(c, &
            name="mp_linear_get_advice") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int32_t), value :: operand
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_linear_get_advice

        !> Has every so many steps' statistics handed to a function by mp_linear_end_step, and cleared after it.
        function mp_linear_set_monitor(linear, name, every, monitor, payload) bind(c, &
            name="mp_linear_set_monitor") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: name
            integer(c_int32_t), value :: every
            type(c_funptr), value :: monitor
            type(c_ptr), value :: payload
            integer(c_int32_t) :: answer
        end function mp_linear_set_monitor

        !> Copies out what the layer must remember for training to go on bit for bit: delayed scales and amax histories.
        !> A few bytes for recipes without them. Blocks.
        function mp_linear_get_scaling(linear, buffer, capacity, needed) bind(c, &
            name="mp_linear_get_scaling") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_linear_get_scaling

        !> Puts back what mp_linear_get_scaling copied out of a layer of the same recipe. Blocks.
        function mp_linear_set_scaling(linear, data, bytes) bind(c, name="mp_linear_set_scaling") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: data
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_linear_set_scaling

        !> Makes an optimizer without groups. Freezes the recipe.
        function mp_optimizer_create(context, recipe, desc, out) bind(c, name="mp_optimizer_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            type(mp_optimizer_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_optimizer_create

        !> Adds a group of parameters with its own hyperparameters.
        function mp_optimizer_add_group(optimizer, desc, index) bind(c, name="mp_optimizer_add_group") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_param_group_desc), intent(in), optional :: desc
            integer(c_int32_t), intent(out), optional :: index
            integer(c_int32_t) :: answer
        end function mp_optimizer_add_group

        !> Adds a parameter and allocates its states, all zero. Allowed also between steps: its bias correction then begins with its own
        !> first step, whatever t its group has; t that was set before the group's first parameter is that parameter's.
        function mp_optimizer_add_param(optimizer, group, desc, index) bind(c, &
            name="mp_optimizer_add_param") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            type(mp_param_desc), intent(in), optional :: desc
            integer(c_int32_t), intent(out), optional :: index
            integer(c_int32_t) :: answer
        end function mp_optimizer_add_param

        !> One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
        !> for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
        !> the layers of mp_optimizer_set_linears, and calls their monitors.
        function mp_optimizer_step(optimizer, queue, scaler) bind(c, name="mp_optimizer_step") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            type(c_ptr), value :: scaler
            integer(c_int32_t) :: answer
        end function mp_optimizer_step

        !> Sets all gradients to zero. Enqueues. Not needed under MP_OPTIMIZER_ZERO_GRAD.
        function mp_optimizer_zero_grad(optimizer, queue) bind(c, name="mp_optimizer_zero_grad") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_optimizer_zero_grad

        !> Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
        !> mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own agreement,
        !> without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
        !> not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
        !> changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
        !> Replaces the layers named before. The optimizer keeps them alive. Blocks where ranks share it: every rank then names as
        !> many layers, of the same sizes and recipes, in the same order, before or after mp_optimizer_shard.
        function mp_optimizer_set_linears(optimizer, linears, count) bind(c, &
            name="mp_optimizer_set_linears") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), intent(in), optional :: linears(*)
            integer(c_int32_t), value :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_linears

        !> What the last step did. Blocks.
        function mp_optimizer_get_stats(optimizer, queue, stats) bind(c, name="mp_optimizer_get_stats") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            type(mp_optimizer_stats), intent(inout), optional :: stats
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_stats

        !> Sets the learning rate of a group from the next step on. Replaces a tensor of mp_optimizer_set_lr_tensor.
        function mp_optimizer_set_lr(optimizer, group, lr) bind(c, name="mp_optimizer_set_lr") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            real(c_double), value :: lr
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_lr

        !> Turns a group on or off. Parameters of a group that is off are not touched by a step, and their gradients count
        !> neither in the norm nor in the finite check; its t stays. Groups are on at first.
        function mp_optimizer_set_enabled(optimizer, group, enabled) bind(c, &
            name="mp_optimizer_set_enabled") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            integer(c_int32_t), value :: enabled
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_enabled

        !> The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share the
        !> optimizer, the same on each.
        function mp_optimizer_set_max_grad_norm(optimizer, max_grad_norm) bind(c, &
            name="mp_optimizer_set_max_grad_norm") result(answer)
            import
            type(c_ptr), value :: optimizer
            real(c_double), value :: max_grad_norm
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_max_grad_norm

        !> Gives the caller's reference back.
        subroutine mp_optimizer_destroy(optimizer) bind(c, name="mp_optimizer_destroy")
            import
            type(c_ptr), value :: optimizer
        end subroutine mp_optimizer_destroy

        !> Lets every step read a group's learning rate from a tensor, on the device and in the order of the step's queue: a
        !> schedule that runs on the device, or a captured graph, needs neither the host nor a new upload. Its value is taken as
        !> it is, without a check.
        function mp_optimizer_set_lr_tensor(optimizer, group, lr) bind(c, &
            name="mp_optimizer_set_lr_tensor") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            type(c_ptr), value :: lr
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_lr_tensor

        !> Lets every step divide the gradients by a number in device memory, beside the scaler's scale: a count of
        !> micro-batches or tokens. Read like mp_optimizer_set_lr_tensor's; the norm is that of the divided gradients.
        function mp_optimizer_set_grad_scale_tensor(optimizer, grad_scale) bind(c, &
            name="mp_optimizer_set_grad_scale_tensor") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: grad_scale
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_grad_scale_tensor

        !> grad_norm of the last step in device memory: one fp32 element that shares the optimizer's memory, for loops that log it
        !> without waiting.
        function mp_optimizer_get_grad_norm_tensor(optimizer, out) bind(c, &
            name="mp_optimizer_get_grad_norm_tensor") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_grad_norm_tensor

        !> 1 where the last step was skipped, else 0, likewise.
        function mp_optimizer_get_found_inf_tensor(optimizer, out) bind(c, &
            name="mp_optimizer_get_found_inf_tensor") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_found_inf_tensor

        !> Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same model:
        !> tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks one
        !> after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside mp_optimizer_create_sharded this
        !> is another communicator, of ranks that do not share parameters. Implies MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of
        !> before the step is not asked for: mp_scaler_combine.
        function mp_optimizer_set_norm_comm(optimizer, comm) bind(c, name="mp_optimizer_set_norm_comm") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: comm
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_norm_comm

        !> A tensor of one parameter, by name: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"; and
        !> for one of codes with a scale that scale, by its name and "_scale_inv". Contents may be read and written between
        !> steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
        function mp_optimizer_get_state(optimizer, index, state, out) bind(c, &
            name="mp_optimizer_get_state") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            type(c_ptr), value :: state
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_state

        !> The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
        !>   "exp_avg"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
        !>   "exp_avg_sq"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
        !>   "compensation"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
        !>   "fp32_param"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
        !>                   joined, parameter plus compensation, or the parameter alone
        !>                                              Megatron-Core: fp32_param, param; apex: master
        !> t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
        !> stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
        !> optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
        function mp_optimizer_read_state(optimizer, queue, index, state, values) bind(c, &
            name="mp_optimizer_read_state") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: index
            type(c_ptr), value :: state
            type(c_ptr), value :: values
            integer(c_int32_t) :: answer
        end function mp_optimizer_read_state

        !> Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
        !> scales. "fp32_param" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
        !> compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
        !> compensation, write the parameter, call mp_optimizer_sync_master, then write "compensation". Numbers
        !> must be finite, second moments not negative. Blocks.
        function mp_optimizer_write_state(optimizer, queue, index, state, values) bind(c, &
            name="mp_optimizer_write_state") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: index
            type(c_ptr), value :: state
            type(c_ptr), value :: values
            integer(c_int32_t) :: answer
        end function mp_optimizer_write_state

        !> After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
        !> compensations zero. Enqueues; blocks for parameters with a scale.
        function mp_optimizer_sync_master(optimizer, queue, index) bind(c, &
            name="mp_optimizer_sync_master") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: index
            integer(c_int32_t) :: answer
        end function mp_optimizer_sync_master

        !> Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
        function mp_optimizer_set_step(optimizer, queue, step) bind(c, name="mp_optimizer_set_step") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int64_t), value :: step
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_step

        !> t of one group: the steps it took part in, torch's `step` of its parameters. Of those that were added after a step it
        !> is ahead: they count their own, which checkpoints keep. Blocks.
        function mp_optimizer_get_group_step(optimizer, queue, group, step) bind(c, &
            name="mp_optimizer_get_group_step") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: group
            integer(c_int64_t), intent(out), optional :: step
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_group_step

        !> Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
        function mp_optimizer_set_group_step(optimizer, queue, group, step) bind(c, &
            name="mp_optimizer_set_group_step") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: group
            integer(c_int64_t), value :: step
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_group_step

        !> What the optimizer was made with; the seed is a checkpoint's where one was loaded.
        function mp_optimizer_get_desc(optimizer, desc) bind(c, name="mp_optimizer_get_desc") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_optimizer_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_desc

        !> Number of groups added.
        function mp_optimizer_get_group_count(optimizer, count) bind(c, &
            name="mp_optimizer_get_group_count") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_group_count

        !> A group as it is now: with what mp_optimizer_set_lr and mp_checkpoint_load have changed. A new group made with it is alike.
        function mp_optimizer_get_group(optimizer, group, desc) bind(c, name="mp_optimizer_get_group") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            type(mp_param_group_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_group

        !> Whether a group is on.
        function mp_optimizer_get_enabled(optimizer, group, enabled) bind(c, &
            name="mp_optimizer_get_enabled") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            integer(c_int32_t), intent(out), optional :: enabled
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_enabled

        !> Number of parameters added.
        function mp_optimizer_get_param_count(optimizer, count) bind(c, &
            name="mp_optimizer_get_param_count") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_param_count

        !> A parameter's name.
        function mp_optimizer_get_param_name(optimizer, index, buffer, capacity, needed) bind(c, &
            name="mp_optimizer_get_param_name") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_param_name

        !> A parameter's group.
        function mp_optimizer_get_param_group(optimizer, index, group) bind(c, &
            name="mp_optimizer_get_param_group") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            integer(c_int32_t), intent(out), optional :: group
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_param_group

        !> Bytes really held for the parameters added so far, by class.
        function mp_optimizer_get_memory(optimizer, report) bind(c, name="mp_optimizer_get_memory") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_memory_report), intent(inout), optional :: report
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_memory

        !> Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
        function mp_tensor_create_quantized(context, desc, quant, out) bind(c, &
            name="mp_tensor_create_quantized") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_tensor_desc), intent(in), optional :: desc
            type(mp_quant_desc), intent(in), optional :: quant
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_create_quantized

        !> Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
        !> Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
        !> exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
        !> The scale of a block never is infinite or negative, whatever its elements are.
        function mp_tensor_quantize(source, queue, destination, transposed, args, stats) bind(c, &
            name="mp_tensor_quantize") result(answer)
            import
            type(c_ptr), value :: source
            type(c_ptr), value :: queue
            type(c_ptr), value :: destination
            type(c_ptr), value :: transposed
            type(mp_quantize_args), intent(in), optional :: args
            type(mp_quant_stats), intent(inout), optional :: stats
            integer(c_int32_t) :: answer
        end function mp_tensor_quantize

        !> destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
        function mp_tensor_dequantize(source, queue, destination) bind(c, name="mp_tensor_dequantize") result(answer)
            import
            type(c_ptr), value :: source
            type(c_ptr), value :: queue
            type(c_ptr), value :: destination
            integer(c_int32_t) :: answer
        end function mp_tensor_dequantize

        !> The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
        !> fp8_e4m3. The handle shares their memory, which changes with every quantization.
        function mp_tensor_get_scales(tensor, out) bind(c, name="mp_tensor_get_scales") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_get_scales

        !> Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of memory
        !> holds for all three pieces.
        function mp_tensor_wrap_quantized(context, desc, quant, codes, scale_inv, amax, deleter, payload, &
            out) bind(c, name="mp_tensor_wrap_quantized") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_tensor_desc), intent(in), optional :: desc
            type(mp_quant_desc), intent(in), optional :: quant
            type(c_ptr), value :: codes
            type(c_ptr), value :: scale_inv
            real(c_float), intent(out), optional :: amax
            type(c_funptr), value :: deleter
            type(c_ptr), value :: payload
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_wrap_quantized

        !> How a tensor is quantized.
        function mp_tensor_get_quant_desc(tensor, desc) bind(c, name="mp_tensor_get_quant_desc") result(answer)
            import
            type(c_ptr), value :: tensor
            type(mp_quant_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_tensor_get_quant_desc

        !> The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
        !> the tensor's memory.
        function mp_tensor_get_quantized_amax(tensor, out) bind(c, name="mp_tensor_get_quantized_amax") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_get_quantized_amax

        !> Waits for the context's default queue. Blocks.
        function mp_context_sync(context) bind(c, name="mp_context_sync") result(answer)
            import
            type(c_ptr), value :: context
            integer(c_int32_t) :: answer
        end function mp_context_sync

        !> Makes a queue on the context's device.
        function mp_queue_create(context, out) bind(c, name="mp_queue_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_queue_create

        !> Waits until all work enqueued so far is done, and reports what went wrong in it. Blocks.
        function mp_queue_sync(queue) bind(c, name="mp_queue_sync") result(answer)
            import
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_queue_sync

        !> Gives the caller's reference back; the queue ends when its work is done.
        subroutine mp_queue_destroy(queue) bind(c, name="mp_queue_destroy")
            import
            type(c_ptr), value :: queue
        end subroutine mp_queue_destroy

        !> Makes a queue over the caller's own stream, which stays the caller's and must outlive the queue.
        function mp_queue_wrap_native(context, native, out) bind(c, name="mp_queue_wrap_native") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: native
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_queue_wrap_native

        !> The stream under a queue, for work of one's own between the library's. It stays whose it was. Enqueues nothing.
        function mp_queue_get_native(queue, native, size) bind(c, name="mp_queue_get_native") result(answer)
            import
            type(c_ptr), value :: queue
            type(c_ptr), value :: native
            integer(c_size_t), value :: size
            integer(c_int32_t) :: answer
        end function mp_queue_get_native

        !> The most memory that work on this queue has held at once for a while (rounded operands, sums), as mp_queue_set_workspace
        !> needs it: run one step, ask, and hand so much over. Enqueues nothing.
        function mp_queue_get_workspace_peak(queue, bytes) bind(c, name="mp_queue_get_workspace_peak") result(answer)
            import
            type(c_ptr), value :: queue
            integer(c_size_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_queue_get_workspace_peak

        !> Has work on this queue use the caller's memory instead of memory of the library's. What does not fit makes a call fail
        !> with MP_STATUS_OUT_OF_MEMORY and a message that says how many bytes are needed. What layers and optimizers keep is not
        !> there, nor what oneDNN takes for itself; cuBLASLt's workspace is. Blocks.
        function mp_queue_set_workspace(queue, memory, bytes) bind(c, name="mp_queue_set_workspace") result(answer)
            import
            type(c_ptr), value :: queue
            type(c_ptr), value :: memory
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_queue_set_workspace

        !> What mp_queue_set_workspace was given. Enqueues nothing.
        function mp_queue_get_workspace(queue, memory, bytes) bind(c, name="mp_queue_get_workspace") result(answer)
            import
            type(c_ptr), value :: queue
            type(c_ptr), intent(inout), optional :: memory
            integer(c_size_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_queue_get_workspace

        !> Makes a recipe from a preset.
        function mp_recipe_create(context, name, out) bind(c, name="mp_recipe_create") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: name
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_create

        !> The weight that a recipe wants, from its values in fp32: a tensor of its weight.dtype, quantized where that has a scale, on the
        !> context's device. Give the same values as mp_param_desc.init_fp32 too, so that a master weight or a compensation has what
        !> rounding them loses. Blocks.
        function mp_recipe_create_weight(context, recipe, ndim, shape, values, out) bind(c, &
            name="mp_recipe_create_weight") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            integer(c_int32_t), value :: ndim
            integer(c_int64_t), intent(in), optional :: shape(*)
            real(c_float), intent(in), optional :: values(*)
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_create_weight

        !> The weight of an fp8 layer as the codes that its products take, with one scale: what a sharded optimizer gathers under
        !> weight.gather.codes, a byte an element. Its owner keeps the exact numbers of its slice, in weight.dtype: give the same values as
        !> mp_param_desc.init_fp32. A layer over such a weight keeps no copy of it between forward and backward. Blocks.
        function mp_recipe_create_weight_codes(context, recipe, ndim, shape, values, out) bind(c, &
            name="mp_recipe_create_weight_codes") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            integer(c_int32_t), value :: ndim
            integer(c_int64_t), intent(in), optional :: shape(*)
            real(c_float), intent(in), optional :: values(*)
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_create_weight_codes

        !> Gives the caller's reference back.
        subroutine mp_recipe_destroy(recipe) bind(c, name="mp_recipe_destroy")
            import
            type(c_ptr), value :: recipe
        end subroutine mp_recipe_destroy

        !> Sets a key that holds a string.
        function mp_recipe_set_string(recipe, key, value) bind(c, name="mp_recipe_set_string") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            type(c_ptr), value :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_set_string

        !> Sets a key that holds a floating-point number.
        function mp_recipe_set_float(recipe, key, value) bind(c, name="mp_recipe_set_float") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            real(c_double), value :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_set_float

        !> Sets a key that holds an integer.
        function mp_recipe_set_int(recipe, key, value) bind(c, name="mp_recipe_set_int") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            integer(c_int64_t), value :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_set_int

        !> Reads a key that holds a string.
        function mp_recipe_get_string(recipe, key, value) bind(c, name="mp_recipe_get_string") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            type(c_ptr), intent(inout), optional :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_get_string

        !> Reads a key that holds a floating-point number.
        function mp_recipe_get_float(recipe, key, value) bind(c, name="mp_recipe_get_float") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            real(c_double), intent(out), optional :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_get_float

        !> Reads a key that holds an integer.
        function mp_recipe_get_int(recipe, key, value) bind(c, name="mp_recipe_get_int") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: key
            integer(c_int64_t), intent(out), optional :: value
            integer(c_int32_t) :: answer
        end function mp_recipe_get_int

        !> Makes a recipe from JSON: {"recipe": "preset", "key": value, ...}. "recipe" defaults to "fp32"; keys are
        !> the dotted names of recipe_keys.h. Unknown or repeated keys, wrong types and impossible combinations are
        !> refused with all reasons. At most 1 MiB.
        function mp_recipe_create_from_json(context, json, length, out) bind(c, &
            name="mp_recipe_create_from_json") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: json
            integer(c_size_t), value :: length
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_create_from_json

        !> Makes a recipe from a JSON file. Blocks.
        function mp_recipe_create_from_file(context, path, out) bind(c, &
            name="mp_recipe_create_from_file") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: path
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_create_from_file

        !> The recipe as JSON in canonical form: every key, in the order of mp_recipe_get_key_info. Read back by
        !> mp_recipe_create_from_json it gives the same recipe.
        function mp_recipe_to_json(recipe, buffer, capacity, needed) bind(c, name="mp_recipe_to_json") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_recipe_to_json

        !> Checks the combination and reports every problem at once in mp_last_error_message().
        function mp_recipe_validate(recipe) bind(c, name="mp_recipe_validate") result(answer)
            import
            type(c_ptr), value :: recipe
            integer(c_int32_t) :: answer
        end function mp_recipe_validate

        !> A copy that can be changed, also of a recipe that is in use.
        function mp_recipe_clone(recipe, out) bind(c, name="mp_recipe_clone") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_recipe_clone

        !> Whether something uses the recipe, so that it can no longer change.
        function mp_recipe_get_frozen(recipe, frozen) bind(c, name="mp_recipe_get_frozen") result(answer)
            import
            type(c_ptr), value :: recipe
            integer(c_int32_t), intent(out), optional :: frozen
            integer(c_int32_t) :: answer
        end function mp_recipe_get_frozen

        !> Why the device's choice fell on this preset, in words; empty for a recipe that was not made by "auto".
        function mp_recipe_get_reason(recipe, buffer, capacity, needed) bind(c, &
            name="mp_recipe_get_reason") result(answer)
            import
            type(c_ptr), value :: recipe
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_recipe_get_reason

        !> Number of presets.
        function mp_recipe_preset_count() bind(c, name="mp_recipe_preset_count") result(answer)
            import
            integer(c_int32_t) :: answer
        end function mp_recipe_preset_count

        !> Name and one-line description of a preset.
        function mp_recipe_get_preset_info(index, name, text) bind(c, name="mp_recipe_get_preset_info") result(answer)
            import
            integer(c_int32_t), value :: index
            type(c_ptr), intent(inout), optional :: name
            type(c_ptr), intent(inout), optional :: text
            integer(c_int32_t) :: answer
        end function mp_recipe_get_preset_info

        !> Number of keys.
        function mp_recipe_key_count() bind(c, name="mp_recipe_key_count") result(answer)
            import
            integer(c_int32_t) :: answer
        end function mp_recipe_key_count

        !> Everything about one key.
        function mp_recipe_get_key_info(index, desc) bind(c, name="mp_recipe_get_key_info") result(answer)
            import
            integer(c_int32_t), value :: index
            type(mp_recipe_key_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_recipe_get_key_info

        !> Exact bytes that a recipe needs for so many parameters, before anything is allocated: elements, and the
        !> scales of one tensor where the recipe has scaled codes. Scratch and activations are not in it.
        function mp_recipe_plan_memory(recipe, rule, parameter_count, report) bind(c, &
            name="mp_recipe_plan_memory") result(answer)
            import
            type(c_ptr), value :: recipe
            integer(c_int32_t), value :: rule
            integer(c_int64_t), value :: parameter_count
            type(mp_memory_report), intent(inout), optional :: report
            integer(c_int32_t) :: answer
        end function mp_recipe_plan_memory

        !> The same for a model's tensors of the recipe's weight.dtype, each with scales of its own.
        function mp_recipe_plan_memory_of_tensors(recipe, rule, counts, tensor_count, report) bind(c, &
            name="mp_recipe_plan_memory_of_tensors") result(answer)
            import
            type(c_ptr), value :: recipe
            integer(c_int32_t), value :: rule
            integer(c_int64_t), intent(in), optional :: counts(*)
            integer(c_int64_t), value :: tensor_count
            type(mp_memory_report), intent(inout), optional :: report
            integer(c_int32_t) :: answer
        end function mp_recipe_plan_memory_of_tensors

        !> The same sums of all elements on every rank: a reduce-scatter, then a gather in gather_dtype. With op MAX_ABS_BITS, the
        !> largest |x| of each element over the ranks as fp32. Blocks, unless it has a request; a maximum takes none.
        function mp_comm_all_reduce(comm, queue, desc, sources, source_count, destination, request) bind(c, &
            name="mp_comm_all_reduce") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(mp_comm_reduce_desc), intent(in), optional :: desc
            type(c_ptr), intent(in), optional :: sources(*)
            integer(c_int32_t), value :: source_count
            type(c_ptr), value :: destination
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_all_reduce

        !> Rank r gets the sum of its share of all ranks' elements: those from counts[0] + ... + counts[r - 1] on. Shares may be
        !> empty. The destination may be fp32, or fp16 or bf16, to which the sum is rounded once. What is not finite on any rank
        !> is not finite in the sum. Blocks, unless it has a request; what is enqueued on the queue comes first.
        function mp_comm_reduce_scatter(comm, queue, desc, sources, source_count, counts, destination, &
            request) bind(c, name="mp_comm_reduce_scatter") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(mp_comm_reduce_desc), intent(in), optional :: desc
            type(c_ptr), intent(in), optional :: sources(*)
            integer(c_int32_t), value :: source_count
            integer(c_int64_t), intent(in), optional :: counts(*)
            type(c_ptr), value :: destination
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_reduce_scatter

        !> Every rank gets all ranks' values in wire_dtype: of fp8 all get the decoded ones, the owner too. Of the descriptor,
        !> order, slots, accumulate and the gather's fields are not read. Blocks, unless it has a request.
        function mp_comm_all_gather_values(comm, queue, desc, shard, counts, destination, request) bind(c, &
            name="mp_comm_all_gather_values") result(answer)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: queue
            type(mp_comm_reduce_desc), intent(in), optional :: desc
            type(c_ptr), value :: shard
            integer(c_int64_t), intent(in), optional :: counts(*)
            type(c_ptr), value :: destination
            type(c_ptr), intent(inout), optional :: request
            integer(c_int32_t) :: answer
        end function mp_comm_all_gather_values

        !> Bytes that so many elements take on the wire, scales included.
        function mp_comm_get_wire_bytes(count, dtype, scale, bytes) bind(c, &
            name="mp_comm_get_wire_bytes") result(answer)
            import
            integer(c_int64_t), value :: count
            integer(c_int32_t), value :: dtype
            integer(c_int32_t), value :: scale
            integer(c_int64_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_comm_get_wire_bytes

        !> How many rules there are.
        function mp_rule_get_count(count) bind(c, name="mp_rule_get_count") result(answer)
            import
            integer(c_int32_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_rule_get_count

        !> The number of a rule.
        function mp_rule_get_number(name, rule) bind(c, name="mp_rule_get_number") result(answer)
            import
            type(c_ptr), value :: name
            integer(c_int32_t), intent(out), optional :: rule
            integer(c_int32_t) :: answer
        end function mp_rule_get_number

        !> What a rule is.
        function mp_rule_get_info(rule, info) bind(c, name="mp_rule_get_info") result(answer)
            import
            integer(c_int32_t), value :: rule
            type(mp_rule_info), intent(inout), optional :: info
            integer(c_int32_t) :: answer
        end function mp_rule_get_info

        !> One of a rule's states.
        function mp_rule_get_state(rule, index, state) bind(c, name="mp_rule_get_state") result(answer)
            import
            integer(c_int32_t), value :: rule
            integer(c_int32_t), value :: index
            type(mp_rule_state), intent(inout), optional :: state
            integer(c_int32_t) :: answer
        end function mp_rule_get_state

        !> One of the hyperparameters that a rule reads.
        function mp_rule_get_hyper(rule, index, hyper) bind(c, name="mp_rule_get_hyper") result(answer)
            import
            integer(c_int32_t), value :: rule
            integer(c_int32_t), value :: index
            type(mp_rule_hyper), intent(inout), optional :: hyper
            integer(c_int32_t) :: answer
        end function mp_rule_get_hyper

        !> The name of a state.
        function mp_rule_state_name(state) bind(c, name="mp_rule_state_name") result(answer)
            import
            integer(c_int32_t), value :: state
            type(c_ptr) :: answer
        end function mp_rule_state_name

        !> Makes a place for what one forward of this layer keeps. It holds memory from its first forward on.
        function mp_saved_create(linear, out) bind(c, name="mp_saved_create") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_saved_create

        !> mp_linear_forward that keeps what backward needs in `saved` instead of in the layer. What was in it is replaced. Enqueues.
        !> x may be codes (a quantized tensor). In the format of the product they serve as they are, and their amax
        !> (mp_tensor_get_quantized_amax) enters the delayed scale; other codes are read to fp32 and rounded again.
        function mp_linear_forward_saved(linear, queue, x, y, saved, flags) bind(c, &
            name="mp_linear_forward_saved") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: x
            type(c_ptr), value :: y
            type(c_ptr), value :: saved
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_linear_forward_saved

        !> mp_linear_backward with what that forward kept. It stays there: a second backward may follow. Enqueues. dy may be codes,
        !> as x may; dbias is then the sum of their values.
        function mp_linear_backward_saved(linear, queue, saved, dy, dx, dw, dbias, flags) bind(c, &
            name="mp_linear_backward_saved") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            type(c_ptr), value :: saved
            type(c_ptr), value :: dy
            type(c_ptr), value :: dx
            type(c_ptr), value :: dw
            type(c_ptr), value :: dbias
            integer(c_int32_t), value :: flags
            integer(c_int32_t) :: answer
        end function mp_linear_backward_saved

        !> Bytes that mp_saved_set_memory needs for a forward of so many rows: x in the format of the weight gradient, and its scales.
        function mp_linear_get_saved_bytes(linear, rows, bytes) bind(c, name="mp_linear_get_saved_bytes") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int64_t), value :: rows
            integer(c_size_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_linear_get_saved_bytes

        !> Has what is kept lie in the caller's memory. Where a forward has been, the bytes that were at the old place of the caller's
        !> are taken to be at the new one: copy them first. A saved whose x lies in the library's memory cannot be moved.
        function mp_saved_set_memory(saved, memory, bytes) bind(c, name="mp_saved_set_memory") result(answer)
            import
            type(c_ptr), value :: saved
            type(c_ptr), value :: memory
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_saved_set_memory

        !> The caller's memory that mp_saved_set_memory named.
        function mp_saved_get_memory(saved, memory, bytes) bind(c, name="mp_saved_get_memory") result(answer)
            import
            type(c_ptr), value :: saved
            type(c_ptr), intent(inout), optional :: memory
            integer(c_size_t), intent(out), optional :: bytes
            integer(c_int32_t) :: answer
        end function mp_saved_get_memory

        !> Gives the caller's reference back.
        subroutine mp_saved_destroy(saved) bind(c, name="mp_saved_destroy")
            import
            type(c_ptr), value :: saved
        end subroutine mp_saved_destroy

        !> How dw in fp16 or bf16 is rounded from now on, by mp_linear_backward too. Under MP_ROUND_STOCHASTIC the product is added
        !> to dw in fp32 and rounded once, by the bits of (seed, uid, element, step, microbatch): set them before each micro-batch.
        !> A dw in fp32 is not rounded.
        function mp_linear_set_gradient_rounding(linear, desc) bind(c, &
            name="mp_linear_set_gradient_rounding") result(answer)
            import
            type(c_ptr), value :: linear
            type(mp_cast_desc), intent(in), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_linear_set_gradient_rounding

        !> What mp_linear_set_gradient_rounding was told.
        function mp_linear_get_gradient_rounding(linear, desc) bind(c, &
            name="mp_linear_get_gradient_rounding") result(answer)
            import
            type(c_ptr), value :: linear
            type(mp_cast_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_linear_get_gradient_rounding

        !> The format in which a product takes an operand: for codes that the caller makes, and for memory that holds them.
        function mp_linear_get_operand_format(linear, product, operand, dtype, quant) bind(c, &
            name="mp_linear_get_operand_format") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int32_t), value :: product
            integer(c_int32_t), value :: operand
            integer(c_int32_t), intent(out), optional :: dtype
            type(mp_quant_desc), intent(inout), optional :: quant
            integer(c_int32_t) :: answer
        end function mp_linear_get_operand_format

        !> Rounds an operand as the product would, into codes of the caller's: by the layer's delayed scale where it has one, and
        !> counted by the layer at once, so not for an evaluation. Enqueues. Give them to the calls above as x or dy, or to mp_linear_set_weight_codes.
        function mp_linear_quantize(linear, queue, product, operand, source, codes) bind(c, &
            name="mp_linear_quantize") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: product
            integer(c_int32_t), value :: operand
            type(c_ptr), value :: source
            type(c_ptr), value :: codes
            integer(c_int32_t) :: answer
        end function mp_linear_quantize

        !> Has products take these codes of the caller's instead of rounding the weight: who changes the weight makes them anew.
        !> Their amax enters the delayed scale. Kept alive.
        function mp_linear_set_weight_codes(linear, fprop, dgrad) bind(c, &
            name="mp_linear_set_weight_codes") result(answer)
            import
            type(c_ptr), value :: linear
            type(c_ptr), value :: fprop
            type(c_ptr), value :: dgrad
            integer(c_int32_t) :: answer
        end function mp_linear_set_weight_codes

        !> What mp_linear_set_weight_codes was given.
        function mp_linear_get_weight_codes(linear, product, out) bind(c, &
            name="mp_linear_get_weight_codes") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int32_t), value :: product
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_linear_get_weight_codes

        !> The delayed scale of an operand, for kernels of the caller's that make codes: what x is multiplied by before it is
        !> rounded; scale_inv = RN(1 / multiply). One fp32 element in device memory that moves with mp_linear_end_step. In the
        !> first steps of a recipe with a warm-up it is not used.
        function mp_linear_get_multiply_tensor(linear, operand, out) bind(c, &
            name="mp_linear_get_multiply_tensor") result(answer)
            import
            type(c_ptr), value :: linear
            integer(c_int32_t), value :: operand
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_linear_get_multiply_tensor

        !> Makes the scaler a recipe asks for; for a recipe without loss scaling one of kind MP_SCALER_NONE, so that
        !> the caller's loop is the same for every recipe. Freezes the recipe.
        function mp_scaler_create_from_recipe(context, recipe, out) bind(c, &
            name="mp_scaler_create_from_recipe") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_scaler_create_from_recipe

        !> Makes a scaler on the context's device.
        function mp_scaler_create(context, desc, out) bind(c, name="mp_scaler_create") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_scaler_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_scaler_create

        !> The loss scale as it is after all enqueued work. Blocks.
        function mp_scaler_get_scale(scaler, queue, scale) bind(c, name="mp_scaler_get_scale") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            real(c_double), intent(out), optional :: scale
            integer(c_int32_t) :: answer
        end function mp_scaler_get_scale

        !> Moves the scale by the rule, once a step, and clears found_inf. Enqueues.
        function mp_scaler_update(scaler, queue) bind(c, name="mp_scaler_update") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_scaler_update

        !> Gives the caller's reference back.
        subroutine mp_scaler_destroy(scaler) bind(c, name="mp_scaler_destroy")
            import
            type(c_ptr), value :: scaler
        end subroutine mp_scaler_destroy

        !> Looks whether gradients in the caller's own memory are finite; for loops without mp_optimizer. Adds to
        !> found_inf until the next update: every step until then is skipped. Enqueues; on the host the memory is read before the call returns.
        function mp_scaler_check_pointers(scaler, queue, count, grads, dtypes, elements) bind(c, &
            name="mp_scaler_check_pointers") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            integer(c_int64_t), value :: count
            type(c_ptr), intent(in), optional :: grads(*)
            integer(c_int32_t), intent(in), optional :: dtypes(*)
            integer(c_int64_t), intent(in), optional :: elements(*)
            integer(c_int32_t) :: answer
        end function mp_scaler_check_pointers

        !> The loss scale in device memory: one fp32 element that shares the scaler's memory, for losses that are multiplied on the device
        !> without waiting. 1 of a scaler of kind MP_SCALER_NONE.
        function mp_scaler_get_scale_tensor(scaler, out) bind(c, name="mp_scaler_get_scale_tensor") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_scaler_get_scale_tensor

        !> found_inf, 0 or 1, likewise. Kernels of the caller's may write it before mp_scaler_update: the maximum over ranks, say.
        function mp_scaler_get_found_inf_tensor(scaler, out) bind(c, &
            name="mp_scaler_get_found_inf_tensor") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_scaler_get_found_inf_tensor

        !> found_inf becomes 1 where it is on any rank, before mp_scaler_update; for loops without mp_optimizer, and for ranks that hold other
        !> parameters. One small message. Blocks.
        function mp_scaler_combine(scaler, queue, comm) bind(c, name="mp_scaler_combine") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            type(c_ptr), value :: comm
            integer(c_int32_t) :: answer
        end function mp_scaler_combine

        !> Reads the whole state. Blocks.
        function mp_scaler_get_state(scaler, queue, state) bind(c, name="mp_scaler_get_state") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            type(mp_scaler_state), intent(inout), optional :: state
            integer(c_int32_t) :: answer
        end function mp_scaler_get_state

        !> Replaces the whole state, to go on exactly where a saved run stopped. Blocks.
        function mp_scaler_set_state(scaler, queue, state) bind(c, name="mp_scaler_set_state") result(answer)
            import
            type(c_ptr), value :: scaler
            type(c_ptr), value :: queue
            type(mp_scaler_state), intent(in), optional :: state
            integer(c_int32_t) :: answer
        end function mp_scaler_set_state

        !> Fills a descriptor with the rule of a known system.
        function mp_scaler_desc_preset(desc, size, name) bind(c, name="mp_scaler_desc_preset") result(answer)
            import
            type(mp_scaler_desc), intent(inout), optional :: desc
            integer(c_size_t), value :: size
            type(c_ptr), value :: name
            integer(c_int32_t) :: answer
        end function mp_scaler_desc_preset

        !> As mp_optimizer_create, for an optimizer whose states the ranks of a communicator share. It makes a communicator of its
        !> own from `comm`, which may be destroyed after. Every rank then adds the same groups and parameters, whole, with
        !> the same names, shapes and values. Blocks.
        function mp_optimizer_create_sharded(context, recipe, desc, comm, sharding, out) bind(c, &
            name="mp_optimizer_create_sharded") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: recipe
            type(mp_optimizer_desc), intent(in), optional :: desc
            type(c_ptr), value :: comm
            type(mp_sharding_desc), intent(in), optional :: sharding
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_optimizer_create_sharded

        !> Cuts the parameters, makes this rank's states, and from stage 2 on takes the gradients' memory, in stage 3 the
        !> weights'. The first step does it where nobody has. No parameter can be added after it. Blocks.
        function mp_optimizer_shard(optimizer, queue) bind(c, name="mp_optimizer_shard") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_optimizer_shard

        !> A gradient has its last addition. When all of its bucket are ready the bucket leaves. A thread of the optimizer's moves
        !> what has left on, sums included, while backward goes on, and so it does what mp_optimizer_gather_begin began; it calls
        !> the communicator only between calls of this optimizer, begins nothing on it (what a bucket begins later, in the order
        !> EXACT or between groups and nodes, goes over groups that nothing else uses), sums with one thread, and sleeps when nothing
        !> comes. Where there is none (mp_optimizer_get_progress says why) buckets move in these calls. The bits are the same. A
        !> failure that the thread meets comes out of the next call that moves anything, and of all later ones. Every rank says it in
        !> the same order. In stages 0 and 1 gradients stay in their tensors, so it is said once a step; under MP_OPTIMIZER_ZERO_GRAD,
        !> and from stage 2 on, once a microbatch if wanted: what left is added to what left before. Does nothing without sharding.
        !> Enqueues; blocks for a bucket that leaves.
        function mp_optimizer_grad_ready(optimizer, queue, index) bind(c, name="mp_optimizer_grad_ready") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: index
            integer(c_int32_t) :: answer
        end function mp_optimizer_grad_ready

        !> All gradients of one slot are there, those that were said to be ready and the rest: they are kept in the wire's type, and
        !> zeroed. Needed after each of this rank's slots where it has several; nothing else may add to them before. Does nothing without sharding. Enqueues; blocks for
        !> buckets that leave.
        function mp_optimizer_end_microbatch(optimizer, queue) bind(c, &
            name="mp_optimizer_end_microbatch") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_optimizer_end_microbatch

        !> Gives a gradient its memory, of zeros, where it has none. Does nothing in stages 0 and 1, or without sharding.
        !> Enqueues.
        function mp_optimizer_acquire_grad(optimizer, queue, index) bind(c, &
            name="mp_optimizer_acquire_grad") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), value :: index
            integer(c_int32_t) :: answer
        end function mp_optimizer_acquire_grad

        !> Stage 3: gives parameters memory and begins to fetch their slices; those that have memory are left alone. Several may be
        !> under way, for layers to come. Every rank names the same parameters in the same order. Does nothing in other stages.
        !> Blocks until this rank's own slices are ready to be sent.
        function mp_optimizer_gather_begin(optimizer, queue, indices, count) bind(c, &
            name="mp_optimizer_gather_begin") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), intent(in), optional :: indices(*)
            integer(c_int32_t), value :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_gather_begin

        !> Returns when these parameters are whole. Blocks. Does nothing in other stages.
        function mp_optimizer_gather_wait(optimizer, queue, indices, count) bind(c, &
            name="mp_optimizer_gather_wait") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), intent(in), optional :: indices(*)
            integer(c_int32_t), value :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_gather_wait

        !> Gives the parameters' memory back; what was written there is lost, unless mp_optimizer_sync_master took it. A step
        !> does it for all. Blocks. Does nothing in other stages.
        function mp_optimizer_gather_free(optimizer, queue, indices, count) bind(c, &
            name="mp_optimizer_gather_free") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            integer(c_int32_t), intent(in), optional :: indices(*)
            integer(c_int32_t), value :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_gather_free

        !> Which elements of a parameter a rank owns.
        function mp_optimizer_get_slice(optimizer, index, rank, start, count) bind(c, &
            name="mp_optimizer_get_slice") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            integer(c_int32_t), value :: rank
            integer(c_int64_t), intent(out), optional :: start
            integer(c_int64_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_slice

        !> Whether messages move while the caller computes, and how many have. What the thread finished was over before the
        !> step, or whoever waits, asked for it.
        function mp_optimizer_get_progress(optimizer, progress) bind(c, name="mp_optimizer_get_progress") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_sharding_progress), intent(inout), optional :: progress
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_progress

        !> FP8-LM's factor mu of a gradient that ranks reduce under a shared scale (grad.reduce.scale "shared"): it begins at 1 /
        !> sqrt(ranks), is halved by a step whose sum had to clip more than 1e-5 of its elements (one is forgiven), and doubles in
        !> 1000 steps that had not. Codes are made under it rounded down to a power of two. A checkpoint keeps it.
        function mp_optimizer_get_grad_mu(optimizer, index, mu) bind(c, name="mp_optimizer_get_grad_mu") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            real(c_double), intent(out), optional :: mu
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_grad_mu

        !> What this rank has sent for this optimizer.
        function mp_optimizer_get_traffic(optimizer, traffic) bind(c, name="mp_optimizer_get_traffic") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_comm_traffic), intent(inout), optional :: traffic
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_traffic

        !> mp_recipe_plan_memory for one rank of many that share an optimizer, after mp_optimizer_shard: exactly the bytes of its
        !> own elements, and of what every rank has. The one scale of a weight or gradient is on every rank. Gradients from stage
        !> 2 on, and weights in stage 3, are not counted: they have memory while they are in use only. Every tensor is taken for a
        !> matrix; mp_recipe_plan_tensors knows others.
        function mp_recipe_plan_memory_sharded(recipe, rule, counts, tensor_count, sharding, rank, ranks, &
            report) bind(c, name="mp_recipe_plan_memory_sharded") result(answer)
            import
            type(c_ptr), value :: recipe
            integer(c_int32_t), value :: rule
            integer(c_int64_t), intent(in), optional :: counts(*)
            integer(c_int64_t), value :: tensor_count
            type(mp_sharding_desc), intent(in), optional :: sharding
            integer(c_int32_t), value :: rank
            integer(c_int32_t), value :: ranks
            type(mp_memory_report), intent(inout), optional :: report
            integer(c_int32_t) :: answer
        end function mp_recipe_plan_memory_sharded

        !> Plans tensors of several kinds: kept in fp32 beside the recipe's weights, of groups with formats of their own, or gathered
        !> as codes; what one rank holds, and what it sends. A model that is made so holds exactly these bytes.
        function mp_recipe_plan_tensors(recipe, tensors, tensor_count, sharding, rank, ranks, memory, &
            traffic) bind(c, name="mp_recipe_plan_tensors") result(answer)
            import
            type(c_ptr), value :: recipe
            type(mp_planned_tensor), intent(in), optional :: tensors(*)
            integer(c_int64_t), value :: tensor_count
            type(mp_sharding_desc), intent(in), optional :: sharding
            integer(c_int32_t), value :: rank
            integer(c_int32_t), value :: ranks
            type(mp_memory_report), intent(inout), optional :: memory
            type(mp_comm_traffic), intent(inout), optional :: traffic
            integer(c_int32_t) :: answer
        end function mp_recipe_plan_tensors

        !> Symbolic name of a code, for logs ("MP_STATUS_INVALID_SHAPE").
        function mp_status_string(status) bind(c, name="mp_status_string") result(answer)
            import
            integer(c_int32_t), value :: status
            type(c_ptr) :: answer
        end function mp_status_string

        !> What went wrong in this thread's last call, in one line: the argument, what was found, what was
        !> expected, what to do. Every call except the query functions of this header and mp_*_destroy clears it on entry.
        function mp_last_error_message() bind(c, name="mp_last_error_message") result(answer)
            import
            type(c_ptr) :: answer
        end function mp_last_error_message

        !> Copy of mp_last_error_message() into the caller's memory, for languages that cannot borrow.
        function mp_last_error_copy(buffer, capacity, needed) bind(c, name="mp_last_error_copy") result(answer)
            import
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_last_error_copy

        !> One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
        !> kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
        function mp_optimizer_step_pointers(context, queue, args, slots, slot_count, scaler, stats) bind(c, &
            name="mp_optimizer_step_pointers") result(answer)
            import
            type(c_ptr), value :: context
            type(c_ptr), value :: queue
            type(mp_step_args), intent(in), optional :: args
            type(mp_step_slot), intent(in), optional :: slots(*)
            integer(c_int64_t), value :: slot_count
            type(c_ptr), value :: scaler
            type(mp_optimizer_stats), intent(inout), optional :: stats
            integer(c_int32_t) :: answer
        end function mp_optimizer_step_pointers

        !> Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and a count of
        !> steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
        function mp_step_plan_create(context, args, slots, slot_count, out) bind(c, &
            name="mp_step_plan_create") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_step_args), intent(in), optional :: args
            type(mp_step_slot), intent(in), optional :: slots(*)
            integer(c_int64_t), value :: slot_count
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_step_plan_create

        !> A step, with the bits of mp_optimizer_step_pointers. t grows with every step that is taken. Enqueues; allocates nothing.
        function mp_step_plan_run(plan, queue, scaler) bind(c, name="mp_step_plan_run") result(answer)
            import
            type(c_ptr), value :: plan
            type(c_ptr), value :: queue
            type(c_ptr), value :: scaler
            integer(c_int32_t) :: answer
        end function mp_step_plan_run

        !> Other hyperparameters, from the next run on. What changes every step is better given by hyper_pointer or lr_pointer. Blocks.
        function mp_step_plan_set_args(plan, queue, args) bind(c, name="mp_step_plan_set_args") result(answer)
            import
            type(c_ptr), value :: plan
            type(c_ptr), value :: queue
            type(mp_step_args), intent(in), optional :: args
            integer(c_int32_t) :: answer
        end function mp_step_plan_set_args

        !> What the plan was told last.
        function mp_step_plan_get_args(plan, args) bind(c, name="mp_step_plan_get_args") result(answer)
            import
            type(c_ptr), value :: plan
            type(mp_step_args), intent(inout), optional :: args
            integer(c_int32_t) :: answer
        end function mp_step_plan_get_args

        !> What the last run did, and the steps taken so far. Blocks.
        function mp_step_plan_get_stats(plan, queue, stats) bind(c, name="mp_step_plan_get_stats") result(answer)
            import
            type(c_ptr), value :: plan
            type(c_ptr), value :: queue
            type(mp_optimizer_stats), intent(inout), optional :: stats
            integer(c_int32_t) :: answer
        end function mp_step_plan_get_stats

        !> Gives the caller's reference back.
        subroutine mp_step_plan_destroy(plan) bind(c, name="mp_step_plan_destroy")
            import
            type(c_ptr), value :: plan
        end subroutine mp_step_plan_destroy

        !> Makes a tensor in the library's memory, 64-byte aligned, all zero bytes.
        function mp_tensor_create(context, desc, out) bind(c, name="mp_tensor_create") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_tensor_desc), intent(in), optional :: desc
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_create

        !> Copies from host memory into a tensor. Blocks.
        function mp_tensor_write(tensor, queue, data, bytes) bind(c, name="mp_tensor_write") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), value :: queue
            type(c_ptr), value :: data
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_tensor_write

        !> Copies a tensor into host memory. Blocks.
        function mp_tensor_read(tensor, queue, data, bytes) bind(c, name="mp_tensor_read") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), value :: queue
            type(c_ptr), value :: data
            integer(c_size_t), value :: bytes
            integer(c_int32_t) :: answer
        end function mp_tensor_read

        !> Copies elements between tensors of the same type and number of elements, on the same or on different
        !> devices; of quantized ones, which must be alike, also scales and amax. Enqueues. Overlapping memory is refused.
        function mp_tensor_copy(source, queue, destination) bind(c, name="mp_tensor_copy") result(answer)
            import
            type(c_ptr), value :: source
            type(c_ptr), value :: queue
            type(c_ptr), value :: destination
            integer(c_int32_t) :: answer
        end function mp_tensor_copy

        !> Sets every byte to zero. Enqueues.
        function mp_tensor_zero(tensor, queue) bind(c, name="mp_tensor_zero") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), value :: queue
            integer(c_int32_t) :: answer
        end function mp_tensor_zero

        !> Converts between fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2. Enqueues.
        !> Numerics: through fp32, exact on the way in; one rounding on the way out; NaN kept; subnormals exact.
        !> Stochastic rounding draws from Philox4x32-10 by (seed, uid, element, step, micro-batch), so the bits do not depend on
        !> threads or device.
        function mp_tensor_cast(source, queue, destination, desc) bind(c, name="mp_tensor_cast") result(answer)
            import
            type(c_ptr), value :: source
            type(c_ptr), value :: queue
            type(c_ptr), value :: destination
            type(mp_cast_desc), intent(in), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_tensor_cast

        !> Gives the caller's reference back.
        subroutine mp_tensor_destroy(tensor) bind(c, name="mp_tensor_destroy")
            import
            type(c_ptr), value :: tensor
        end subroutine mp_tensor_destroy

        !> Makes a tensor over the caller's memory, which must hold the whole shape, be aligned to the element
        !> size, and stay valid until the deleter runs (or, without one, until the tensor and all that uses it are
        !> destroyed).
        function mp_tensor_wrap(context, desc, data, deleter, payload, out) bind(c, &
            name="mp_tensor_wrap") result(answer)
            import
            type(c_ptr), value :: context
            type(mp_tensor_desc), intent(in), optional :: desc
            type(c_ptr), value :: data
            type(c_funptr), value :: deleter
            type(c_ptr), value :: payload
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_wrap

        !> Some elements of a tensor as a tensor of their own, without a copy: rows of an embedding, the Q of a QKV weight, one expert
        !> of a stack. What is written through one is seen through the other, and caches of either notice it. The view keeps the
        !> tensor alive, and its memory in its place (of a sharded parameter it cannot be given back meanwhile).
        function mp_tensor_create_view(tensor, offset, ndim, shape, out) bind(c, &
            name="mp_tensor_create_view") result(answer)
            import
            type(c_ptr), value :: tensor
            integer(c_int64_t), value :: offset
            integer(c_int32_t), value :: ndim
            integer(c_int64_t), intent(in), optional :: shape(*)
            type(c_ptr), intent(inout), optional :: out
            integer(c_int32_t) :: answer
        end function mp_tensor_create_view

        !> Type, shape and device of a tensor.
        function mp_tensor_get_desc(tensor, desc) bind(c, name="mp_tensor_get_desc") result(answer)
            import
            type(c_ptr), value :: tensor
            type(mp_tensor_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_tensor_get_desc

        !> The tensor's memory: a borrowed pointer, on its device, valid as long as the tensor.
        function mp_tensor_get_data(tensor, data) bind(c, name="mp_tensor_get_data") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), intent(inout), optional :: data
            integer(c_int32_t) :: answer
        end function mp_tensor_get_data

        !> Largest absolute value. NaN wins over everything and infinity over every number; 0 for no elements.
        !> Enqueues.
        function mp_tensor_amax(tensor, queue, amax) bind(c, name="mp_tensor_amax") result(answer)
            import
            type(c_ptr), value :: tensor
            type(c_ptr), value :: queue
            type(c_ptr), value :: amax
            integer(c_int32_t) :: answer
        end function mp_tensor_amax

        !> Name of an element type as recipes and messages spell it ("bf16", "fp8_e4m3", ...).
        function mp_dtype_name(dtype) bind(c, name="mp_dtype_name") result(answer)
            import
            integer(c_int32_t), value :: dtype
            type(c_ptr) :: answer
        end function mp_dtype_name

        !> The inverse of mp_dtype_name.
        function mp_dtype_from_name(name) bind(c, name="mp_dtype_from_name") result(answer)
            import
            type(c_ptr), value :: name
            integer(c_int32_t) :: answer
        end function mp_dtype_from_name

        !> Bytes of one element.
        function mp_dtype_size(dtype) bind(c, name="mp_dtype_size") result(answer)
            import
            integer(c_int32_t), value :: dtype
            integer(c_size_t) :: answer
        end function mp_dtype_size

        !> Version of the loaded library, in the form of MP_VERSION. From 0.2 on all 0.x versions are additive: a program
        !> compiled against header version H works with every library whose version is at least H.
        function mp_library_version() bind(c, name="mp_library_version") result(answer)
            import
            integer(c_int32_t) :: answer
        end function mp_library_version

        !> Version, compiler, and what was built in, as one line of text for bug reports.
        function mp_library_build_info() bind(c, name="mp_library_build_info") result(answer)
            import
            type(c_ptr) :: answer
        end function mp_library_build_info

        !> Ends the library's own run-time systems (its private Kokkos). Final: later calls that need a device
        !> fail with MP_STATUS_BAD_STATE. Never needed before a normal exit. Refused while contexts are alive.
        !> Blocks.
        function mp_library_shutdown() bind(c, name="mp_library_shutdown") result(answer)
            import
            integer(c_int32_t) :: answer
        end function mp_library_shutdown

        !> Skips steps that stand out from now on. Gradients are then read once before each step, as for clipping. What the last
        !> guard has seen, here or in the checkpoint that was loaded, stays in the window. Where ranks share the optimizer all give the same; one that does not is named in the
        !> next step. Blocks.
        function mp_optimizer_set_guard(optimizer, queue, desc) bind(c, name="mp_optimizer_set_guard") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: queue
            type(mp_guard_desc), intent(in), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_guard

        !> The guard as it is.
        function mp_optimizer_get_guard(optimizer, desc) bind(c, name="mp_optimizer_get_guard") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(mp_guard_desc), intent(inout), optional :: desc
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_guard

        !> Gives the loss of the step to come, for the guard and the history; each step forgets it. Where ranks share the
        !> optimizer and the guard watches the loss, it is the same number on all, such as the mean over the ranks.
        function mp_optimizer_set_loss(optimizer, loss) bind(c, name="mp_optimizer_set_loss") result(answer)
            import
            type(c_ptr), value :: optimizer
            real(c_double), value :: loss
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_loss

        !> Keeps the last steps. Each mp_optimizer_step then waits for its own decision on an accelerator. Of the first step that is
        !> skipped because something is not finite it finds the first bad tensor: in the order of mp_optimizer_set_linears the weight
        !> or input of a layer that counts its operands (MP_LINEAR_STATS or a monitor), else the first gradient in the order of
        !> parameters. With a path it writes the records and what the layers counted as one JSON object; a failure to write goes to the
        !> log and fails no step. Begins anew: records, call and bad tensor are forgotten.
        function mp_optimizer_set_history(optimizer, steps, path) bind(c, &
            name="mp_optimizer_set_history") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: steps
            type(c_ptr), value :: path
            integer(c_int32_t) :: answer
        end function mp_optimizer_set_history

        !> Number of records there are: of the steps since the history began, or as many as it keeps.
        function mp_optimizer_get_record_count(optimizer, count) bind(c, &
            name="mp_optimizer_get_record_count") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), intent(out), optional :: count
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_record_count

        !> One record of the history.
        function mp_optimizer_get_record(optimizer, index, record) bind(c, &
            name="mp_optimizer_get_record") result(answer)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            type(mp_step_record), intent(inout), optional :: record
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_record

        !> The first tensor that was not finite, in the first step that was skipped for it, in words such as
        !> "the gradient of 'h0.qkv.weight'". Empty: there was no such step since the history began.
        function mp_optimizer_get_bad_tensor(optimizer, buffer, capacity, needed) bind(c, &
            name="mp_optimizer_get_bad_tensor") result(answer)
            import
            type(c_ptr), value :: optimizer
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function mp_optimizer_get_bad_tensor

    end interface

contains

    !> How many sizes and offsets here are not those of the C compiler.
    integer function mp_layout_mismatches() result(wrong)
        type(mp_array), target :: at_mp_array
        type(mp_checkpoint_desc), target :: at_mp_checkpoint_desc
        type(mp_checkpoint_info), target :: at_mp_checkpoint_info
        type(mp_comm_desc), target :: at_mp_comm_desc
        type(mp_comm_exchange), target :: at_mp_comm_exchange
        type(mp_comm_traffic), target :: at_mp_comm_traffic
        type(mp_comm_operation), target :: at_mp_comm_operation
        type(mp_comm_group), target :: at_mp_comm_group
        type(mp_comm_callbacks), target :: at_mp_comm_callbacks
        type(mp_context_desc), target :: at_mp_context_desc
        type(mp_cast_desc), target :: at_mp_cast_desc
        type(mp_quant_desc), target :: at_mp_quant_desc
        type(mp_quantize_args), target :: at_mp_quantize_args
        type(mp_quantized_memory), target :: at_mp_quantized_memory
        type(mp_gemm_desc), target :: at_mp_gemm_desc
        type(mp_gemm_args), target :: at_mp_gemm_args
        type(mp_linear_desc), target :: at_mp_linear_desc
        type(mp_linear_stats), target :: at_mp_linear_stats
        type(mp_optimizer_desc), target :: at_mp_optimizer_desc
        type(mp_param_group_desc), target :: at_mp_param_group_desc
        type(mp_param_desc), target :: at_mp_param_desc
        type(mp_quant_stats), target :: at_mp_quant_stats
        type(mp_recipe_key_desc), target :: at_mp_recipe_key_desc
        type(mp_memory_report), target :: at_mp_memory_report
        type(mp_comm_reduce_desc), target :: at_mp_comm_reduce_desc
        type(mp_hyper), target :: at_mp_hyper
        type(mp_rule_info), target :: at_mp_rule_info
        type(mp_rule_state), target :: at_mp_rule_state
        type(mp_rule_hyper), target :: at_mp_rule_hyper
        type(mp_scaler_desc), target :: at_mp_scaler_desc
        type(mp_scaler_state), target :: at_mp_scaler_state
        type(mp_sharding_desc), target :: at_mp_sharding_desc
        type(mp_sharding_progress), target :: at_mp_sharding_progress
        type(mp_planned_tensor), target :: at_mp_planned_tensor
        type(mp_optimizer_stats), target :: at_mp_optimizer_stats
        type(mp_step_slot), target :: at_mp_step_slot
        type(mp_step_args), target :: at_mp_step_args
        type(mp_tensor_desc), target :: at_mp_tensor_desc
        type(mp_guard_desc), target :: at_mp_guard_desc
        type(mp_step_record), target :: at_mp_step_record
        wrong = 0
        call compare(int(c_sizeof(at_mp_array)), 32)
        call compare(offset(c_loc(at_mp_array), c_loc(at_mp_array%data)), 0)
        call compare(offset(c_loc(at_mp_array), c_loc(at_mp_array%scale_inv)), 8)
        call compare(offset(c_loc(at_mp_array), c_loc(at_mp_array%amax)), 16)
        call compare(offset(c_loc(at_mp_array), c_loc(at_mp_array%dtype)), 24)
        call compare(offset(c_loc(at_mp_array), c_loc(at_mp_array%coding)), 28)
        call compare(int(c_sizeof(at_mp_checkpoint_desc)), 32)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%keep)), 8)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%reserved)), 12)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%progress)), 16)
        call compare(offset(c_loc(at_mp_checkpoint_desc), c_loc(at_mp_checkpoint_desc%payload)), 24)
        call compare(int(c_sizeof(at_mp_checkpoint_info)), 344)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%struct_size)), 0)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%format)), 4)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%step)), 8)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%sequence)), 16)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%world)), 24)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%tensor_count)), 32)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%bytes)), 40)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%applied_step)), 48)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%seed)), 56)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%converted)), 64)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%reserved)), 68)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%weight_largest_error)), 72)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%weight_rms_error)), 80)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%state_largest_error)), 88)
        call compare(offset(c_loc(at_mp_checkpoint_info), c_loc(at_mp_checkpoint_info%state_rms_error)), 216)
        call compare(int(c_sizeof(at_mp_comm_desc)), 24)
        call compare(offset(c_loc(at_mp_comm_desc), c_loc(at_mp_comm_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_desc), c_loc(at_mp_comm_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_comm_desc), c_loc(at_mp_comm_desc%deadline_ms)), 8)
        call compare(offset(c_loc(at_mp_comm_desc), c_loc(at_mp_comm_desc%ranks_per_node)), 16)
        call compare(offset(c_loc(at_mp_comm_desc), c_loc(at_mp_comm_desc%reserved)), 20)
        call compare(int(c_sizeof(at_mp_comm_exchange)), 72)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%flags)), 4)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%send)), 8)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%send_bytes)), 16)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%send_offsets)), 24)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%receive)), 32)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%receive_bytes)), 40)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%receive_offsets)), 48)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%deadline_ms)), 56)
        call compare(offset(c_loc(at_mp_comm_exchange), c_loc(at_mp_comm_exchange%site)), 64)
        call compare(int(c_sizeof(at_mp_comm_traffic)), 64)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%flags)), 4)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%calls)), 8)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%total_bytes)), 16)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%all_to_all_bytes)), 24)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%all_gather_bytes)), 32)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%broadcast_bytes)), 40)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%max_u32_bytes)), 48)
        call compare(offset(c_loc(at_mp_comm_traffic), c_loc(at_mp_comm_traffic%sum_f32_bytes)), 56)
        call compare(int(c_sizeof(at_mp_comm_operation)), 88)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%kind)), 4)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%sequence)), 8)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%send)), 16)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%send_bytes)), 24)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%send_offsets)), 32)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%receive)), 40)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%receive_bytes)), 48)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%receive_offsets)), 56)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%count)), 64)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%root)), 72)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%reserved)), 76)
        call compare(offset(c_loc(at_mp_comm_operation), c_loc(at_mp_comm_operation%native)), 80)
        call compare(int(c_sizeof(at_mp_comm_group)), 32)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%color)), 4)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%key)), 8)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%count)), 12)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%rank)), 16)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%context)), 20)
        call compare(offset(c_loc(at_mp_comm_group), c_loc(at_mp_comm_group%members)), 24)
        call compare(int(c_sizeof(at_mp_comm_callbacks)), 96)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%flags)), 4)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%rank)), 8)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%size)), 12)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%nodes)), 16)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%name)), 24)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%begin)), 32)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%poll)), 40)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%release)), 48)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%abort)), 56)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%pause)), 64)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%split)), 72)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%destroy)), 80)
        call compare(offset(c_loc(at_mp_comm_callbacks), c_loc(at_mp_comm_callbacks%payload)), 88)
        call compare(int(c_sizeof(at_mp_context_desc)), 96)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%api_version)), 8)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%device_kind)), 12)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%device_index)), 16)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%num_threads)), 20)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%log_level)), 24)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%reserved)), 28)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%backend)), 32)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%allocate)), 40)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%release)), 48)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%allocator_payload)), 56)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%log)), 64)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%log_payload)), 72)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%parallel)), 80)
        call compare(offset(c_loc(at_mp_context_desc), c_loc(at_mp_context_desc%parallel_payload)), 88)
        call compare(int(c_sizeof(at_mp_cast_desc)), 40)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%rounding)), 8)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%microbatch)), 12)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%seed)), 16)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%uid)), 24)
        call compare(offset(c_loc(at_mp_cast_desc), c_loc(at_mp_cast_desc%step)), 32)
        call compare(int(c_sizeof(at_mp_quant_desc)), 32)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%scaling)), 8)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%rule)), 12)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%amax_epsilon)), 16)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%margin)), 24)
        call compare(offset(c_loc(at_mp_quant_desc), c_loc(at_mp_quant_desc%reserved)), 28)
        call compare(int(c_sizeof(at_mp_quantize_args)), 56)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%struct_size)), 0)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%flags)), 4)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%rounding)), 8)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%microbatch)), 12)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%seed)), 16)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%uid)), 24)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%step)), 32)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%first_element)), 40)
        call compare(offset(c_loc(at_mp_quantize_args), c_loc(at_mp_quantize_args%amax_pointer)), 48)
        call compare(int(c_sizeof(at_mp_quantized_memory)), 56)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%struct_size)), 0)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%dtype)), 4)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%rows)), 8)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%columns)), 16)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%codes)), 24)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%transposed)), 32)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%scale_inv)), 40)
        call compare(offset(c_loc(at_mp_quantized_memory), c_loc(at_mp_quantized_memory%amax)), 48)
        call compare(int(c_sizeof(at_mp_gemm_desc)), 184)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%m)), 8)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%n)), 16)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%k)), 24)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%lda)), 32)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%ldb)), 40)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%ldc)), 48)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%ldd)), 56)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%batch_count)), 64)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%batch_stride_a)), 72)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%batch_stride_b)), 80)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%batch_stride_c)), 88)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%batch_stride_d)), 96)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%alpha)), 104)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%beta)), 112)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%dtype_a)), 120)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%dtype_b)), 124)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%dtype_c)), 128)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%dtype_d)), 132)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%dtype_bias)), 136)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%reserved)), 140)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_a_dtype)), 144)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_a_rows)), 148)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_a_columns)), 152)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_b_dtype)), 156)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_b_rows)), 160)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%scale_b_columns)), 164)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%implementation)), 168)
        call compare(offset(c_loc(at_mp_gemm_desc), c_loc(at_mp_gemm_desc%quant_d)), 176)
        call compare(int(c_sizeof(at_mp_gemm_args)), 80)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%struct_size)), 0)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%reserved)), 4)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%a)), 8)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%b)), 16)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%bias)), 24)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%c)), 32)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%d)), 40)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%scale_a)), 48)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%scale_b)), 56)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%multiply_d)), 64)
        call compare(offset(c_loc(at_mp_gemm_args), c_loc(at_mp_gemm_args%amax_d)), 72)
        call compare(int(c_sizeof(at_mp_linear_desc)), 32)
        call compare(offset(c_loc(at_mp_linear_desc), c_loc(at_mp_linear_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_linear_desc), c_loc(at_mp_linear_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_linear_desc), c_loc(at_mp_linear_desc%in_features)), 8)
        call compare(offset(c_loc(at_mp_linear_desc), c_loc(at_mp_linear_desc%out_features)), 16)
        call compare(offset(c_loc(at_mp_linear_desc), c_loc(at_mp_linear_desc%name)), 24)
        call compare(int(c_sizeof(at_mp_linear_stats)), 80)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%struct_size)), 0)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%flags)), 4)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%operand)), 8)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%dtype)), 12)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%elements)), 16)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%saturated)), 24)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%underflowed)), 32)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%non_finite)), 40)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%amax)), 48)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%scale_inv)), 56)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%history_amax)), 64)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%history_len)), 72)
        call compare(offset(c_loc(at_mp_linear_stats), c_loc(at_mp_linear_stats%updates)), 76)
        call compare(int(c_sizeof(at_mp_optimizer_desc)), 24)
        call compare(offset(c_loc(at_mp_optimizer_desc), c_loc(at_mp_optimizer_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_optimizer_desc), c_loc(at_mp_optimizer_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_optimizer_desc), c_loc(at_mp_optimizer_desc%seed)), 8)
        call compare(offset(c_loc(at_mp_optimizer_desc), c_loc(at_mp_optimizer_desc%max_grad_norm)), 16)
        call compare(int(c_sizeof(at_mp_param_group_desc)), 96)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%lr)), 8)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%beta1)), 16)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%beta2)), 24)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%eps)), 32)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%weight_decay)), 40)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%rule)), 48)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%hyper_count)), 52)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%hypers)), 56)
        call compare(offset(c_loc(at_mp_param_group_desc), c_loc(at_mp_param_group_desc%state_formats)), 64)
        call compare(int(c_sizeof(at_mp_param_desc)), 40)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%name)), 8)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%param)), 16)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%grad)), 24)
        call compare(offset(c_loc(at_mp_param_desc), c_loc(at_mp_param_desc%init_fp32)), 32)
        call compare(int(c_sizeof(at_mp_quant_stats)), 48)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%struct_size)), 0)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%flags)), 4)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%elements)), 8)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%saturated)), 16)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%underflowed)), 24)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%non_finite)), 32)
        call compare(offset(c_loc(at_mp_quant_stats), c_loc(at_mp_quant_stats%amax)), 40)
        call compare(int(c_sizeof(at_mp_recipe_key_desc)), 40)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%type)), 4)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%name)), 8)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%allowed)), 16)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%text)), 24)
        call compare(offset(c_loc(at_mp_recipe_key_desc), c_loc(at_mp_recipe_key_desc%fp32_value)), 32)
        call compare(int(c_sizeof(at_mp_memory_report)), 192)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%struct_size)), 0)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%flags)), 4)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%parameter_count)), 8)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%weight_bytes)), 16)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%master_bytes)), 24)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%grad_bytes)), 32)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%compensation_bytes)), 40)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%total_bytes)), 48)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%reduced_grad_bytes)), 56)
        call compare(offset(c_loc(at_mp_memory_report), c_loc(at_mp_memory_report%state_bytes)), 64)
        call compare(int(c_sizeof(at_mp_comm_reduce_desc)), 96)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%op)), 8)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%order)), 12)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%accumulate)), 16)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%slots)), 20)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%wire_dtype)), 24)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%wire_scale)), 28)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%gather_dtype)), 32)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%gather_scale)), 36)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%first_element)), 40)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%seed)), 48)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%uid)), 56)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%step)), 64)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%deadline_ms)), 72)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%site)), 80)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%microbatch)), 88)
        call compare(offset(c_loc(at_mp_comm_reduce_desc), c_loc(at_mp_comm_reduce_desc%reserved)), 92)
        call compare(int(c_sizeof(at_mp_hyper)), 16)
        call compare(offset(c_loc(at_mp_hyper), c_loc(at_mp_hyper%name)), 0)
        call compare(offset(c_loc(at_mp_hyper), c_loc(at_mp_hyper%value)), 8)
        call compare(int(c_sizeof(at_mp_rule_info)), 24)
        call compare(offset(c_loc(at_mp_rule_info), c_loc(at_mp_rule_info%struct_size)), 0)
        call compare(offset(c_loc(at_mp_rule_info), c_loc(at_mp_rule_info%corrects_bias)), 4)
        call compare(offset(c_loc(at_mp_rule_info), c_loc(at_mp_rule_info%name)), 8)
        call compare(offset(c_loc(at_mp_rule_info), c_loc(at_mp_rule_info%state_count)), 16)
        call compare(offset(c_loc(at_mp_rule_info), c_loc(at_mp_rule_info%hyper_count)), 20)
        call compare(int(c_sizeof(at_mp_rule_state)), 24)
        call compare(offset(c_loc(at_mp_rule_state), c_loc(at_mp_rule_state%struct_size)), 0)
        call compare(offset(c_loc(at_mp_rule_state), c_loc(at_mp_rule_state%is_signed)), 4)
        call compare(offset(c_loc(at_mp_rule_state), c_loc(at_mp_rule_state%name)), 8)
        call compare(offset(c_loc(at_mp_rule_state), c_loc(at_mp_rule_state%number)), 16)
        call compare(offset(c_loc(at_mp_rule_state), c_loc(at_mp_rule_state%reserved)), 20)
        call compare(int(c_sizeof(at_mp_rule_hyper)), 32)
        call compare(offset(c_loc(at_mp_rule_hyper), c_loc(at_mp_rule_hyper%struct_size)), 0)
        call compare(offset(c_loc(at_mp_rule_hyper), c_loc(at_mp_rule_hyper%reserved)), 4)
        call compare(offset(c_loc(at_mp_rule_hyper), c_loc(at_mp_rule_hyper%name)), 8)
        call compare(offset(c_loc(at_mp_rule_hyper), c_loc(at_mp_rule_hyper%usual)), 16)
        call compare(offset(c_loc(at_mp_rule_hyper), c_loc(at_mp_rule_hyper%limit)), 24)
        call compare(int(c_sizeof(at_mp_scaler_desc)), 64)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%kind)), 8)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%growth_interval)), 12)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%hysteresis)), 16)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%count_offset)), 20)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%init_scale)), 24)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%growth_factor)), 32)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%backoff_factor)), 40)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%min_scale)), 48)
        call compare(offset(c_loc(at_mp_scaler_desc), c_loc(at_mp_scaler_desc%max_scale)), 56)
        call compare(int(c_sizeof(at_mp_scaler_state)), 40)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%struct_size)), 0)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%found_inf)), 4)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%scale)), 8)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%growth_tracker)), 16)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%hysteresis_tracker)), 20)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%good_steps)), 24)
        call compare(offset(c_loc(at_mp_scaler_state), c_loc(at_mp_scaler_state%overflow_steps)), 32)
        call compare(int(c_sizeof(at_mp_sharding_desc)), 56)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%stage)), 8)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%kind)), 12)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%bucket_elements)), 16)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%wire_dtype)), 24)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%wire_scale)), 28)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%order)), 32)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%slots)), 36)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%shard_ranks)), 40)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%check_every)), 44)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%node_ranks)), 48)
        call compare(offset(c_loc(at_mp_sharding_desc), c_loc(at_mp_sharding_desc%reserved)), 52)
        call compare(int(c_sizeof(at_mp_sharding_progress)), 40)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%struct_size)), 0)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%has_thread)), 4)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%begun)), 8)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%finished)), 16)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%finished_by_thread)), 24)
        call compare(offset(c_loc(at_mp_sharding_progress), c_loc(at_mp_sharding_progress%reason)), 32)
        call compare(int(c_sizeof(at_mp_planned_tensor)), 56)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%struct_size)), 0)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%weight_dtype)), 4)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%count)), 8)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%rule)), 16)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%ndim)), 20)
        call compare(offset(c_loc(at_mp_planned_tensor), c_loc(at_mp_planned_tensor%state_formats)), 24)
        call compare(int(c_sizeof(at_mp_optimizer_stats)), 64)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%struct_size)), 0)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%found_inf)), 4)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%step)), 8)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%skipped_steps)), 16)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%grad_norm)), 24)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%grad_mul)), 32)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%outlier_steps)), 40)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%grad_norm_z)), 48)
        call compare(offset(c_loc(at_mp_optimizer_stats), c_loc(at_mp_optimizer_stats%loss_z)), 56)
        call compare(int(c_sizeof(at_mp_step_slot)), 288)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%struct_size)), 0)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%flags)), 4)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%count)), 8)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%uid)), 16)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%first_element)), 24)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%param)), 32)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%grad)), 64)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%master)), 96)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%compensation)), 128)
        call compare(offset(c_loc(at_mp_step_slot), c_loc(at_mp_step_slot%states)), 160)
        call compare(int(c_sizeof(at_mp_step_args)), 136)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%struct_size)), 0)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%flags)), 4)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%step)), 8)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%seed)), 16)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%lr)), 24)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%beta1)), 32)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%beta2)), 40)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%eps)), 48)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%weight_decay)), 56)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%max_grad_norm)), 64)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%grad_scale)), 72)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%lr_pointer)), 80)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%grad_scale_pointer)), 88)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%rule)), 96)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%hyper_count)), 100)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%hypers)), 104)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%step_pointer)), 112)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%hyper_pointer)), 120)
        call compare(offset(c_loc(at_mp_step_args), c_loc(at_mp_step_args%grad_mul_pointer)), 128)
        call compare(int(c_sizeof(at_mp_tensor_desc)), 88)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%flags)), 4)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%dtype)), 8)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%ndim)), 12)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%shape)), 16)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%device_kind)), 80)
        call compare(offset(c_loc(at_mp_tensor_desc), c_loc(at_mp_tensor_desc%device_index)), 84)
        call compare(int(c_sizeof(at_mp_guard_desc)), 24)
        call compare(offset(c_loc(at_mp_guard_desc), c_loc(at_mp_guard_desc%struct_size)), 0)
        call compare(offset(c_loc(at_mp_guard_desc), c_loc(at_mp_guard_desc%window)), 4)
        call compare(offset(c_loc(at_mp_guard_desc), c_loc(at_mp_guard_desc%max_grad_norm_z)), 8)
        call compare(offset(c_loc(at_mp_guard_desc), c_loc(at_mp_guard_desc%max_loss_z)), 16)
        call compare(int(c_sizeof(at_mp_step_record)), 80)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%struct_size)), 0)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%outcome)), 4)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%call)), 8)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%step)), 16)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%loss)), 24)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%loss_scale)), 32)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%lr)), 40)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%grad_norm)), 48)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%grad_mul)), 56)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%grad_norm_z)), 64)
        call compare(offset(c_loc(at_mp_step_record), c_loc(at_mp_step_record%loss_z)), 72)
    contains
        subroutine compare(found, expected)
            integer, intent(in) :: found, expected
            if (found /= expected) wrong = wrong + 1
        end subroutine compare

        integer function offset(first, second)
            type(c_ptr), intent(in) :: first, second
            offset = int(transfer(second, 0_c_intptr_t) - transfer(first, 0_c_intptr_t))
        end function offset
    end function mp_layout_mismatches
end module mixedprec_c
