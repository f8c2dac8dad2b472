# SPDX-License-Identifier: Apache-2.0
# Made by bindings/generate/generate.py from the public headers. Do not edit.
"""The C ABI as it is: constants, structs with the defaults of their initializers, and FUNCTIONS: the result, the argument
types and the arguments' names of every call. load() opens the library and gives each function those types. A call lets
go of the interpreter's lock.

ctypes cuts a whole number that does not fit and knows nothing of numpy's; convert() refuses the first and takes the second.
The structs use it for their fields."""
import ctypes
import operator
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)


def _integer(kind):
    bits, unsigned = 8 * ctypes.sizeof(kind), kind(-1).value > 0
    low, high = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)

    def converted(value):
        number = operator.index(value)
        if not low <= number <= high:
            raise OverflowError(f"{number} does not fit: it must be in {low} to {high}")
        return number
    return converted


def _real(value):
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a number is needed, not {value!r}")
    return float(value)


def _text(value):
    if isinstance(value, str):
        value = value.encode()
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"text is needed, not {value!r}")
    if value is not None and b"\0" in value:
        raise ValueError(f"text with a NUL inside: {value!r}")
    return value


_CONVERTERS = {kind: _integer(kind) for kind in (c_int32, c_int64, c_uint32, c_uint64, c_size_t)}
_CONVERTERS.update({c_float: _real, c_double: _real, c_char_p: _text})


def converter(kind):
    """What makes a Python value one of this C type, or raises TypeError, ValueError or OverflowError."""
    if kind in _CONVERTERS:
        return _CONVERTERS[kind]
    if isinstance(kind, type) and issubclass(kind, ctypes._CFuncPtr):
        return lambda value: kind() if value is None else value
    return lambda value: value


class Struct(Structure):
    """A struct of the ABI: begins as its initializer says, and takes fields by name, whose values must fit."""
    _initial_ = {}
    _converters_ = {}

    def __init__(self, **fields):
        super().__init__(**self._initial_)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if name not in self._converters_:
            raise TypeError(f"{type(self).__name__} has no field {name}")
        try:
            value = self._converters_[name](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"{type(self).__name__}.{name}: {error}") from None
        super().__setattr__(name, value)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{f[0]}={getattr(self, f[0])!r}' for f in self._fields_)})"


class mp_context(Structure):
    pass


class mp_queue(Structure):
    pass


class mp_event(Structure):
    pass


class mp_tensor(Structure):
    pass


class mp_recipe(Structure):
    pass


class mp_gemm(Structure):
    pass


class mp_linear(Structure):
    pass


class mp_saved(Structure):
    pass


class mp_scaler(Structure):
    pass


class mp_step_plan(Structure):
    pass


class mp_optimizer(Structure):
    pass


class mp_checkpoint(Structure):
    pass


class mp_comm(Structure):
    pass


class mp_comm_request(Structure):
    pass


class DLManagedTensorVersioned(Structure):
    pass


MP_CODING_PLAIN = 0
MP_CODING_FP8_BLOCK = 2
MP_CODING_DYNAMIC8 = 3
MP_CODING_DYNAMIC4 = 4
MP_CODING_REMAINDER = 5
MP_CODING_FP8_BLOCK128 = 6
MP_CODING_COMPANDED8 = 7
MP_SAVE_BACKGROUND = 1
MP_LOAD_VERIFY_ALL = 1
MP_LOAD_OTHER_RECIPE = 2
MP_LOAD_CONVERT = 4
MP_COMM_ALL_TO_ALL = 0
MP_COMM_ALL_GATHER = 1
MP_COMM_BROADCAST = 2
MP_COMM_BARRIER = 3
MP_COMM_MAX_U32 = 4
MP_COMM_SUM_F32 = 5
MP_COMM_HAS_SUM_F32 = 1
MP_COMM_HAS_DEVICE_MEMORY = 2
MP_COMM_TAKES_ANY_THREAD = 4
MP_COMM_UNIQUE_ID_BYTES = 128
MP_LOG_ERROR = 1
MP_LOG_WARNING = 2
MP_LOG_INFO = 3
MP_LOG_DEBUG = 4
MP_CONTEXT_BIND_THREADS = 1
MP_CAST_SATURATE = 1
MP_CAST_NO_SATURATE = 2
MP_SCALING_TENSOR = 1
MP_SCALING_ROW = 2
MP_SCALING_COLUMN = 3
MP_SCALING_BLOCK_1X128 = 4
MP_SCALING_BLOCK_128X1 = 5
MP_SCALING_BLOCK_128X128 = 6
MP_SCALING_MX_1X32 = 7
MP_SCALING_MX_32X1 = 8
MP_SCALING_NVFP4 = 9
MP_SCALE_RULE_CURRENT = 1
MP_SCALE_RULE_FLOAT64 = 2
MP_SCALE_RULE_MSAMP = 3
MP_SCALE_RULE_DEEPSEEK = 4
MP_SCALE_RULE_MX_RCEIL = 5
MP_SCALE_RULE_MX_FLOOR = 6
MP_SCALE_RULE_MX_CEIL = 7
MP_SCALE_RULE_MX_EVEN = 8
MP_SCALE_RULE_NVFP4 = 9
MP_QUANT_POWER_OF_TWO = 1
MP_QUANTIZE_CHECK_AMAX = 1
MP_GEMM_TRANS_A = 1
MP_GEMM_TRANS_B = 2
MP_GEMM_BIAS = 4
MP_GEMM_GELU = 8
MP_GEMM_HAS_ALPHA = 16
MP_GEMM_POWER_OF_TWO_SCALES = 32
MP_GEMM_FAST_ACCUMULATION = 64
MP_LINEAR_INFERENCE = 1
MP_LINEAR_CACHE_WEIGHT = 2
MP_LINEAR_FIRST_OR_LAST = 4
MP_LINEAR_STATS = 8
MP_LINEAR_FROZEN = 16
MP_LINEAR_COPY_INPUT = 32
MP_OPERAND_INPUT = 0
MP_OPERAND_WEIGHT = 1
MP_OPERAND_GRAD_OUTPUT = 2
MP_OPERAND_COUNT = 3
MP_BACKWARD_ACCUMULATE = 1
MP_OPTIMIZER_OFFLOAD = 4
MP_PARAM_NORM_ELSEWHERE = 1
MP_RECIPE_TYPE_STRING = 1
MP_RECIPE_TYPE_FLOAT = 2
MP_RECIPE_TYPE_INT = 3
MP_RECIPE_GEMM_FPROP_DTYPE = "gemm.fprop.dtype"
MP_RECIPE_GEMM_DGRAD_DTYPE = "gemm.dgrad.dtype"
MP_RECIPE_GEMM_WGRAD_DTYPE = "gemm.wgrad.dtype"
MP_RECIPE_WEIGHT_DTYPE = "weight.dtype"
MP_RECIPE_MASTER_DTYPE = "master.dtype"
MP_RECIPE_GRAD_DTYPE = "grad.dtype"
MP_RECIPE_GRAD_REDUCE_DTYPE = "grad.reduce.dtype"
MP_RECIPE_GRAD_REDUCE_SCALE = "grad.reduce.scale"
MP_RECIPE_WEIGHT_GATHER_DTYPE = "weight.gather.dtype"
MP_RECIPE_EXP_AVG_DTYPE = "optimizer.exp_avg.dtype"
MP_RECIPE_EXP_AVG_SQ_DTYPE = "optimizer.exp_avg_sq.dtype"
MP_RECIPE_COMPENSATION_DTYPE = "optimizer.compensation.dtype"
MP_RECIPE_BLOCK_MIN_ELEMENTS = "optimizer.block_min_elements"
MP_RECIPE_WEIGHT_ROUNDING = "optimizer.weight.rounding"
MP_RECIPE_EXP_AVG_ROUNDING = "optimizer.exp_avg.rounding"
MP_RECIPE_EXP_AVG_SQ_ROUNDING = "optimizer.exp_avg_sq.rounding"
MP_RECIPE_GEMM_SCALING = "gemm.scaling"
MP_RECIPE_FP8_FORMAT = "fp8.format"
MP_RECIPE_GEMM_FPROP_QUANTIZED = "gemm.fprop.quantized"
MP_RECIPE_GEMM_DGRAD_QUANTIZED = "gemm.dgrad.quantized"
MP_RECIPE_GEMM_WGRAD_QUANTIZED = "gemm.wgrad.quantized"
MP_RECIPE_GEMM_SCALE_RULE = "gemm.scale_rule"
MP_RECIPE_GEMM_POWER_OF_TWO_SCALE = "gemm.power_of_two_scale"
MP_RECIPE_GEMM_AMAX_EPSILON = "gemm.amax_epsilon"
MP_RECIPE_GEMM_MARGIN = "gemm.margin"
MP_RECIPE_GEMM_INTERVAL = "gemm.interval"
MP_RECIPE_GEMM_AMAX_HISTORY_LEN = "gemm.amax_history_len"
MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO = "gemm.amax_compute_algo"
MP_RECIPE_GEMM_WARM_UP = "gemm.warm_up"
MP_RECIPE_GEMM_REDUCE_AMAX = "gemm.reduce_amax"
MP_RECIPE_GEMM_FAST_ACCUMULATION = "gemm.fast_accumulation"
MP_RECIPE_WEIGHT_GATHER_CODES = "weight.gather.codes"
MP_RECIPE_GEMM_WEIGHT_COPY = "gemm.weight_copy"
MP_RECIPE_GEMM_FILTER_MULTIPLE_OF = "gemm.filter.multiple_of"
MP_RECIPE_GEMM_FILTER_FIRST_LAST = "gemm.filter.first_last"
MP_RECIPE_GEMM_FILTER_SIZE = "gemm.filter.size"
MP_RECIPE_GEMM_FILTER_NAMES = "gemm.filter.names"
MP_RECIPE_SCALER_KIND = "scaler.kind"
MP_RECIPE_SCALER_INIT_SCALE = "scaler.init_scale"
MP_RECIPE_SCALER_GROWTH_FACTOR = "scaler.growth_factor"
MP_RECIPE_SCALER_BACKOFF_FACTOR = "scaler.backoff_factor"
MP_RECIPE_SCALER_GROWTH_INTERVAL = "scaler.growth_interval"
MP_RECIPE_SCALER_HYSTERESIS = "scaler.hysteresis"
MP_RECIPE_SCALER_REFILL = "scaler.hysteresis_refill"
MP_RECIPE_SCALER_MIN_SCALE = "scaler.min_scale"
MP_RECIPE_SCALER_MAX_SCALE = "scaler.max_scale"
MP_RECIPE_SCALER_AT_MIN = "scaler.at_min"
MP_RECIPE_SCALER_COUNT_OFFSET = "scaler.count_offset"
MP_COMM_OP_SUM = 0
MP_COMM_OP_MAX_ABS_BITS = 1
MP_COMM_ORDER_RANK = 0
MP_COMM_ORDER_TREE = 1
MP_COMM_ORDER_EXACT = 2
MP_COMM_ORDER_FAST = 3
MP_COMM_ACCUMULATE_DEFAULT = 0
MP_COMM_ACCUMULATE_FP32 = 1
MP_COMM_ACCUMULATE_FP64 = 2
MP_COMM_ACCUMULATE_FIXED = 3
MP_COMM_SCALE_DEFAULT = 0
MP_COMM_SCALE_TENSOR = 1
MP_COMM_SCALE_BLOCK = 2
MP_COMM_SCALE_MX = 3
MP_COMM_SCALE_SHARED = 4
MP_REDUCE_STOCHASTIC = 1
MP_RULE_ADAMW = 0
MP_RULE_ADAM = 1
MP_RULE_LION = 2
MP_STATE_EXP_AVG = 0
MP_STATE_EXP_AVG_SQ = 1
MP_MAX_RULE_STATES = 4
MP_MAX_STATES = 16
MP_RULE_MAXIMIZE = 1024
MP_RULE_NO_BIAS_CORRECTION = 2048
MP_FORWARD_DROP = 1
MP_FORWARD_RECOMPUTE = 2
MP_PRODUCT_FPROP = 0
MP_PRODUCT_DGRAD = 1
MP_PRODUCT_WGRAD = 2
MP_SCALER_DYNAMIC = 0
MP_SCALER_STATIC = 1
MP_SCALER_NONE = 2
MP_SCALER_REFILL_ON_GOOD_STEP = 1
MP_SCALER_ERROR_AT_MIN = 2
MP_SHARD_FLAT = 0
MP_SHARD_PER_PARAMETER = 1
MP_SHARD_GREEDY = 2
MP_SHARDING_SUM_GRADIENTS = 1
MP_SHARDING_NO_PROGRESS_THREAD = 2
MP_SHARDING_STAGE_0 = -1
MP_STATUS_OK = 0
MP_STATUS_WARNING = 1
MP_STATUS_NOT_READY = 2
MP_STATUS_NULL_ARGUMENT = -1
MP_STATUS_INVALID_ARGUMENT = -2
MP_STATUS_INVALID_SHAPE = -3
MP_STATUS_INVALID_DTYPE = -4
MP_STATUS_UNKNOWN_NAME = -5
MP_STATUS_STRUCT_TOO_NEW = -6
MP_STATUS_BAD_STATE = -7
MP_STATUS_INVALID_HANDLE = -8
MP_STATUS_PARSE_ERROR = -9
MP_STATUS_UNSUPPORTED = -20
MP_STATUS_DEVICE_UNAVAILABLE = -21
MP_STATUS_MODULE_NOT_FOUND = -22
MP_STATUS_VERSION_MISMATCH = -23
MP_STATUS_OUT_OF_MEMORY = -40
MP_STATUS_IO_ERROR = -41
MP_STATUS_CALLBACK_FAILED = -42
MP_STATUS_TIMEOUT = -43
MP_STATUS_PEER_LOST = -44
MP_STATUS_PEER_ERROR = -45
MP_STATUS_RANK_MISMATCH = -46
MP_STATUS_ABORTED = -47
MP_STATUS_CORRUPT_DATA = -48
MP_STATUS_ONEDNN_ERROR = -60
MP_STATUS_CUDA_ERROR = -61
MP_STATUS_CUBLAS_ERROR = -62
MP_STATUS_NCCL_ERROR = -63
MP_STATUS_MPI_ERROR = -64
MP_STATUS_KOKKOS_ERROR = -65
MP_STATUS_DEVICE_ERROR = -66
MP_STATUS_INTERNAL = -80
MP_OPTIMIZER_CHECK_FINITE = 1
MP_OPTIMIZER_ZERO_GRAD = 2
MP_STEP_SR_PARAM = 16
MP_STEP_SR_STATE = 32
MP_DTYPE_NONE = 0
MP_DTYPE_FP32 = 1
MP_DTYPE_FP16 = 2
MP_DTYPE_BF16 = 3
MP_DTYPE_FP8_E4M3 = 4
MP_DTYPE_FP8_E5M2 = 5
MP_DTYPE_E8M0 = 6
MP_DTYPE_INT8 = 7
MP_DTYPE_INT16 = 8
MP_DTYPE_INT32 = 9
MP_DTYPE_INT64 = 10
MP_DTYPE_UINT8 = 11
MP_DTYPE_FP4_E2M1 = 12
MP_DEVICE_DEFAULT = 0
MP_DEVICE_HOST = 1
MP_DEVICE_CUDA = 2
MP_DEVICE_HIP = 3
MP_ROUND_NEAREST = 0
MP_ROUND_STOCHASTIC = 1
MP_MAX_DIMS = 8
MP_VERSION_MAJOR = 0
MP_VERSION_MINOR = 2
MP_VERSION_PATCH = 0
MP_VERSION = 200
MP_STEP_TAKEN = 0
MP_STEP_NON_FINITE = 1
MP_STEP_OUTLIER = 2


class mp_array(Struct):
    """See mixedprec/array.h."""


class mp_checkpoint_desc(Struct):
    """See mixedprec/checkpoint.h."""


class mp_checkpoint_info(Struct):
    """See mixedprec/checkpoint.h."""


class mp_comm_desc(Struct):
    """See mixedprec/comm.h."""


class mp_comm_exchange(Struct):
    """See mixedprec/comm.h."""


class mp_comm_traffic(Struct):
    """See mixedprec/comm.h."""


class mp_comm_operation(Struct):
    """See mixedprec/comm.h."""


class mp_comm_group(Struct):
    """See mixedprec/comm.h."""


class mp_comm_callbacks(Struct):
    """See mixedprec/comm.h."""


class mp_context_desc(Struct):
    """See mixedprec/context.h."""


class mp_cast_desc(Struct):
    """See mixedprec/convert.h."""


class mp_quant_desc(Struct):
    """See mixedprec/convert.h."""


class mp_quantize_args(Struct):
    """See mixedprec/convert.h."""


class mp_quantized_memory(Struct):
    """See mixedprec/convert.h."""


class mp_gemm_desc(Struct):
    """See mixedprec/gemm.h."""


class mp_gemm_args(Struct):
    """See mixedprec/gemm.h."""


class mp_linear_desc(Struct):
    """See mixedprec/linear.h."""


class mp_linear_stats(Struct):
    """See mixedprec/linear.h."""


class mp_optimizer_desc(Struct):
    """See mixedprec/optimizer.h."""


class mp_param_group_desc(Struct):
    """See mixedprec/optimizer.h."""


class mp_param_desc(Struct):
    """See mixedprec/optimizer.h."""


class mp_quant_stats(Struct):
    """See mixedprec/quant.h."""


class mp_recipe_key_desc(Struct):
    """See mixedprec/recipe.h."""


class mp_memory_report(Struct):
    """See mixedprec/recipe.h."""


class mp_comm_reduce_desc(Struct):
    """See mixedprec/reduce.h."""


class mp_hyper(Struct):
    """See mixedprec/rule.h."""


class mp_rule_info(Struct):
    """See mixedprec/rule.h."""


class mp_rule_state(Struct):
    """See mixedprec/rule.h."""


class mp_rule_hyper(Struct):
    """See mixedprec/rule.h."""


class mp_scaler_desc(Struct):
    """See mixedprec/scaler.h."""


class mp_scaler_state(Struct):
    """See mixedprec/scaler.h."""


class mp_sharding_desc(Struct):
    """See mixedprec/sharding.h."""


class mp_sharding_progress(Struct):
    """See mixedprec/sharding.h."""


class mp_planned_tensor(Struct):
    """See mixedprec/sharding.h."""


class mp_optimizer_stats(Struct):
    """See mixedprec/step.h."""


class mp_step_slot(Struct):
    """See mixedprec/step.h."""


class mp_step_args(Struct):
    """See mixedprec/step.h."""


class mp_tensor_desc(Struct):
    """See mixedprec/tensor.h."""


class mp_guard_desc(Struct):
    """See mixedprec/watch.h."""


class mp_step_record(Struct):
    """See mixedprec/watch.h."""


mp_checkpoint_progress_fn = CFUNCTYPE(None, c_int64, c_int64, c_void_p)
mp_comm_begin_fn = CFUNCTYPE(c_int32, POINTER(mp_comm_operation), POINTER(c_void_p), c_void_p)
mp_comm_poll_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(c_int32), c_void_p)
mp_comm_release_fn = CFUNCTYPE(None, c_void_p, c_void_p)
mp_comm_abort_fn = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
mp_comm_pause_fn = CFUNCTYPE(None, c_int64, c_void_p)
mp_comm_end_fn = CFUNCTYPE(None, c_void_p)
mp_comm_split_fn = CFUNCTYPE(c_int32, POINTER(mp_comm_group), POINTER(mp_comm_callbacks), c_void_p)
mp_allocate_fn = CFUNCTYPE(c_void_p, c_size_t, c_size_t, c_void_p)
mp_release_fn = CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, c_void_p)
mp_log_fn = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
mp_parallel_fn = CFUNCTYPE(None, c_int32, CFUNCTYPE(None, c_void_p, c_int32), c_void_p, c_void_p)
mp_linear_monitor_fn = CFUNCTYPE(None, c_void_p, c_char_p, POINTER(mp_linear_stats), c_char_p)
mp_deleter_fn = CFUNCTYPE(None, c_void_p)

mp_array._fields_ = [
    ("data", c_void_p),
    ("scale_inv", c_void_p),
    ("amax", POINTER(c_float)),
    ("dtype", c_int32),
    ("coding", c_int32),
]
mp_array._initial_ = {}
mp_array._converters_ = {name: converter(kind) for name, kind in mp_array._fields_}

mp_checkpoint_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("keep", c_int32),
    ("reserved", c_int32),
    ("progress", mp_checkpoint_progress_fn),
    ("payload", c_void_p),
]
mp_checkpoint_desc._initial_ = {"struct_size": 32}
mp_checkpoint_desc._converters_ = {name: converter(kind) for name, kind in mp_checkpoint_desc._fields_}

mp_checkpoint_info._fields_ = [
    ("struct_size", c_uint32),
    ("format", c_int32),
    ("step", c_int64),
    ("sequence", c_int64),
    ("world", c_int64),
    ("tensor_count", c_int64),
    ("bytes", c_int64),
    ("applied_step", c_int64),
    ("seed", c_uint64),
    ("converted", c_int32),
    ("reserved", c_int32),
    ("weight_largest_error", c_double),
    ("weight_rms_error", c_double),
    ("state_largest_error", c_double * 16),
    ("state_rms_error", c_double * 16),
]
mp_checkpoint_info._initial_ = {"struct_size": 344}
mp_checkpoint_info._converters_ = {name: converter(kind) for name, kind in mp_checkpoint_info._fields_}

mp_comm_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("deadline_ms", c_int64),
    ("ranks_per_node", c_int32),
    ("reserved", c_int32),
]
mp_comm_desc._initial_ = {"struct_size": 24}
mp_comm_desc._converters_ = {name: converter(kind) for name, kind in mp_comm_desc._fields_}

mp_comm_exchange._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("send", c_void_p),
    ("send_bytes", POINTER(c_int64)),
    ("send_offsets", POINTER(c_int64)),
    ("receive", c_void_p),
    ("receive_bytes", POINTER(c_int64)),
    ("receive_offsets", POINTER(c_int64)),
    ("deadline_ms", c_int64),
    ("site", c_char_p),
]
mp_comm_exchange._initial_ = {"struct_size": 72}
mp_comm_exchange._converters_ = {name: converter(kind) for name, kind in mp_comm_exchange._fields_}

mp_comm_traffic._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("calls", c_int64),
    ("total_bytes", c_int64),
    ("all_to_all_bytes", c_int64),
    ("all_gather_bytes", c_int64),
    ("broadcast_bytes", c_int64),
    ("max_u32_bytes", c_int64),
    ("sum_f32_bytes", c_int64),
]
mp_comm_traffic._initial_ = {"struct_size": 64}
mp_comm_traffic._converters_ = {name: converter(kind) for name, kind in mp_comm_traffic._fields_}

mp_comm_operation._fields_ = [
    ("struct_size", c_uint32),
    ("kind", c_int32),
    ("sequence", c_uint64),
    ("send", c_void_p),
    ("send_bytes", POINTER(c_int64)),
    ("send_offsets", POINTER(c_int64)),
    ("receive", c_void_p),
    ("receive_bytes", POINTER(c_int64)),
    ("receive_offsets", POINTER(c_int64)),
    ("count", c_int64),
    ("root", c_int32),
    ("reserved", c_int32),
    ("native", c_void_p),
]
mp_comm_operation._initial_ = {"struct_size": 88}
mp_comm_operation._converters_ = {name: converter(kind) for name, kind in mp_comm_operation._fields_}

mp_comm_group._fields_ = [
    ("struct_size", c_uint32),
    ("color", c_int32),
    ("key", c_int32),
    ("count", c_int32),
    ("rank", c_int32),
    ("context", c_int32),
    ("members", POINTER(c_int32)),
]
mp_comm_group._initial_ = {"struct_size": 32}
mp_comm_group._converters_ = {name: converter(kind) for name, kind in mp_comm_group._fields_}

mp_comm_callbacks._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("rank", c_int32),
    ("size", c_int32),
    ("nodes", POINTER(c_int32)),
    ("name", c_char_p),
    ("begin", mp_comm_begin_fn),
    ("poll", mp_comm_poll_fn),
    ("release", mp_comm_release_fn),
    ("abort", mp_comm_abort_fn),
    ("pause", mp_comm_pause_fn),
    ("split", mp_comm_split_fn),
    ("destroy", mp_comm_end_fn),
    ("payload", c_void_p),
]
mp_comm_callbacks._initial_ = {"struct_size": 96}
mp_comm_callbacks._converters_ = {name: converter(kind) for name, kind in mp_comm_callbacks._fields_}

mp_context_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("api_version", c_uint32),
    ("device_kind", c_int32),
    ("device_index", c_int32),
    ("num_threads", c_int32),
    ("log_level", c_int32),
    ("reserved", c_int32),
    ("backend", c_char_p),
    ("allocate", mp_allocate_fn),
    ("release", mp_release_fn),
    ("allocator_payload", c_void_p),
    ("log", mp_log_fn),
    ("log_payload", c_void_p),
    ("parallel", mp_parallel_fn),
    ("parallel_payload", c_void_p),
]
mp_context_desc._initial_ = {"struct_size": 96, "api_version": 200}
mp_context_desc._converters_ = {name: converter(kind) for name, kind in mp_context_desc._fields_}

mp_cast_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("rounding", c_int32),
    ("microbatch", c_int32),
    ("seed", c_uint64),
    ("uid", c_uint64),
    ("step", c_uint64),
]
mp_cast_desc._initial_ = {"struct_size": 40}
mp_cast_desc._converters_ = {name: converter(kind) for name, kind in mp_cast_desc._fields_}

mp_quant_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("scaling", c_int32),
    ("rule", c_int32),
    ("amax_epsilon", c_double),
    ("margin", c_int32),
    ("reserved", c_int32),
]
mp_quant_desc._initial_ = {"struct_size": 32}
mp_quant_desc._converters_ = {name: converter(kind) for name, kind in mp_quant_desc._fields_}

mp_quantize_args._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("rounding", c_int32),
    ("microbatch", c_int32),
    ("seed", c_uint64),
    ("uid", c_uint64),
    ("step", c_uint64),
    ("first_element", c_int64),
    ("amax_pointer", POINTER(c_float)),
]
mp_quantize_args._initial_ = {"struct_size": 56}
mp_quantize_args._converters_ = {name: converter(kind) for name, kind in mp_quantize_args._fields_}

mp_quantized_memory._fields_ = [
    ("struct_size", c_uint32),
    ("dtype", c_int32),
    ("rows", c_int64),
    ("columns", c_int64),
    ("codes", c_void_p),
    ("transposed", c_void_p),
    ("scale_inv", c_void_p),
    ("amax", POINTER(c_float)),
]
mp_quantized_memory._initial_ = {"struct_size": 56}
mp_quantized_memory._converters_ = {name: converter(kind) for name, kind in mp_quantized_memory._fields_}

mp_gemm_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("m", c_int64),
    ("n", c_int64),
    ("k", c_int64),
    ("lda", c_int64),
    ("ldb", c_int64),
    ("ldc", c_int64),
    ("ldd", c_int64),
    ("batch_count", c_int64),
    ("batch_stride_a", c_int64),
    ("batch_stride_b", c_int64),
    ("batch_stride_c", c_int64),
    ("batch_stride_d", c_int64),
    ("alpha", c_double),
    ("beta", c_double),
    ("dtype_a", c_int32),
    ("dtype_b", c_int32),
    ("dtype_c", c_int32),
    ("dtype_d", c_int32),
    ("dtype_bias", c_int32),
    ("reserved", c_int32),
    ("scale_a_dtype", c_int32),
    ("scale_a_rows", c_int32),
    ("scale_a_columns", c_int32),
    ("scale_b_dtype", c_int32),
    ("scale_b_rows", c_int32),
    ("scale_b_columns", c_int32),
    ("implementation", c_char_p),
    ("quant_d", POINTER(mp_quant_desc)),
]
mp_gemm_desc._initial_ = {"struct_size": 184}
mp_gemm_desc._converters_ = {name: converter(kind) for name, kind in mp_gemm_desc._fields_}

mp_gemm_args._fields_ = [
    ("struct_size", c_uint32),
    ("reserved", c_uint32),
    ("a", POINTER(mp_tensor)),
    ("b", POINTER(mp_tensor)),
    ("bias", POINTER(mp_tensor)),
    ("c", POINTER(mp_tensor)),
    ("d", POINTER(mp_tensor)),
    ("scale_a", POINTER(mp_tensor)),
    ("scale_b", POINTER(mp_tensor)),
    ("multiply_d", POINTER(mp_tensor)),
    ("amax_d", POINTER(mp_tensor)),
]
mp_gemm_args._initial_ = {"struct_size": 80}
mp_gemm_args._converters_ = {name: converter(kind) for name, kind in mp_gemm_args._fields_}

mp_linear_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("in_features", c_int64),
    ("out_features", c_int64),
    ("name", c_char_p),
]
mp_linear_desc._initial_ = {"struct_size": 32}
mp_linear_desc._converters_ = {name: converter(kind) for name, kind in mp_linear_desc._fields_}

mp_linear_stats._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("operand", c_int32),
    ("dtype", c_int32),
    ("elements", c_int64),
    ("saturated", c_int64),
    ("underflowed", c_int64),
    ("non_finite", c_int64),
    ("amax", c_double),
    ("scale_inv", c_double),
    ("history_amax", c_double),
    ("history_len", c_int32),
    ("updates", c_int32),
]
mp_linear_stats._initial_ = {"struct_size": 80}
mp_linear_stats._converters_ = {name: converter(kind) for name, kind in mp_linear_stats._fields_}

mp_optimizer_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("seed", c_uint64),
    ("max_grad_norm", c_double),
]
mp_optimizer_desc._initial_ = {"struct_size": 24}
mp_optimizer_desc._converters_ = {name: converter(kind) for name, kind in mp_optimizer_desc._fields_}

mp_param_group_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("lr", c_double),
    ("beta1", c_double),
    ("beta2", c_double),
    ("eps", c_double),
    ("weight_decay", c_double),
    ("rule", c_int32),
    ("hyper_count", c_int32),
    ("hypers", POINTER(mp_hyper)),
    ("state_formats", c_char_p * 4),
]
mp_param_group_desc._initial_ = {"struct_size": 96}
mp_param_group_desc._converters_ = {name: converter(kind) for name, kind in mp_param_group_desc._fields_}

mp_param_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("name", c_char_p),
    ("param", POINTER(mp_tensor)),
    ("grad", POINTER(mp_tensor)),
    ("init_fp32", POINTER(mp_tensor)),
]
mp_param_desc._initial_ = {"struct_size": 40}
mp_param_desc._converters_ = {name: converter(kind) for name, kind in mp_param_desc._fields_}

mp_quant_stats._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("elements", c_int64),
    ("saturated", c_int64),
    ("underflowed", c_int64),
    ("non_finite", c_int64),
    ("amax", c_double),
]
mp_quant_stats._initial_ = {"struct_size": 48}
mp_quant_stats._converters_ = {name: converter(kind) for name, kind in mp_quant_stats._fields_}

mp_recipe_key_desc._fields_ = [
    ("struct_size", c_uint32),
    ("type", c_int32),
    ("name", c_char_p),
    ("allowed", c_char_p),
    ("text", c_char_p),
    ("fp32_value", c_char_p),
]
mp_recipe_key_desc._initial_ = {"struct_size": 40}
mp_recipe_key_desc._converters_ = {name: converter(kind) for name, kind in mp_recipe_key_desc._fields_}

mp_memory_report._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("parameter_count", c_int64),
    ("weight_bytes", c_int64),
    ("master_bytes", c_int64),
    ("grad_bytes", c_int64),
    ("compensation_bytes", c_int64),
    ("total_bytes", c_int64),
    ("reduced_grad_bytes", c_int64),
    ("state_bytes", c_int64 * 16),
]
mp_memory_report._initial_ = {"struct_size": 192}
mp_memory_report._converters_ = {name: converter(kind) for name, kind in mp_memory_report._fields_}

mp_comm_reduce_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("op", c_int32),
    ("order", c_int32),
    ("accumulate", c_int32),
    ("slots", c_int32),
    ("wire_dtype", c_int32),
    ("wire_scale", c_int32),
    ("gather_dtype", c_int32),
    ("gather_scale", c_int32),
    ("first_element", c_int64),
    ("seed", c_uint64),
    ("uid", c_uint64),
    ("step", c_uint64),
    ("deadline_ms", c_int64),
    ("site", c_char_p),
    ("microbatch", c_int32),
    ("reserved", c_int32),
]
mp_comm_reduce_desc._initial_ = {"struct_size": 96}
mp_comm_reduce_desc._converters_ = {name: converter(kind) for name, kind in mp_comm_reduce_desc._fields_}

mp_hyper._fields_ = [
    ("name", c_char_p),
    ("value", c_double),
]
mp_hyper._initial_ = {}
mp_hyper._converters_ = {name: converter(kind) for name, kind in mp_hyper._fields_}

mp_rule_info._fields_ = [
    ("struct_size", c_uint32),
    ("corrects_bias", c_int32),
    ("name", c_char_p),
    ("state_count", c_int32),
    ("hyper_count", c_int32),
]
mp_rule_info._initial_ = {"struct_size": 24}
mp_rule_info._converters_ = {name: converter(kind) for name, kind in mp_rule_info._fields_}

mp_rule_state._fields_ = [
    ("struct_size", c_uint32),
    ("is_signed", c_int32),
    ("name", c_char_p),
    ("number", c_int32),
    ("reserved", c_int32),
]
mp_rule_state._initial_ = {"struct_size": 24}
mp_rule_state._converters_ = {name: converter(kind) for name, kind in mp_rule_state._fields_}

mp_rule_hyper._fields_ = [
    ("struct_size", c_uint32),
    ("reserved", c_int32),
    ("name", c_char_p),
    ("usual", c_double),
    ("limit", c_double),
]
mp_rule_hyper._initial_ = {"struct_size": 32}
mp_rule_hyper._converters_ = {name: converter(kind) for name, kind in mp_rule_hyper._fields_}

mp_scaler_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("kind", c_int32),
    ("growth_interval", c_int32),
    ("hysteresis", c_int32),
    ("count_offset", c_int32),
    ("init_scale", c_double),
    ("growth_factor", c_double),
    ("backoff_factor", c_double),
    ("min_scale", c_double),
    ("max_scale", c_double),
]
mp_scaler_desc._initial_ = {"struct_size": 64}
mp_scaler_desc._converters_ = {name: converter(kind) for name, kind in mp_scaler_desc._fields_}

mp_scaler_state._fields_ = [
    ("struct_size", c_uint32),
    ("found_inf", c_uint32),
    ("scale", c_double),
    ("growth_tracker", c_int32),
    ("hysteresis_tracker", c_int32),
    ("good_steps", c_int64),
    ("overflow_steps", c_int64),
]
mp_scaler_state._initial_ = {"struct_size": 40}
mp_scaler_state._converters_ = {name: converter(kind) for name, kind in mp_scaler_state._fields_}

mp_sharding_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("stage", c_int32),
    ("kind", c_int32),
    ("bucket_elements", c_int64),
    ("wire_dtype", c_int32),
    ("wire_scale", c_int32),
    ("order", c_int32),
    ("slots", c_int32),
    ("shard_ranks", c_int32),
    ("check_every", c_int32),
    ("node_ranks", c_int32),
    ("reserved", c_int32),
]
mp_sharding_desc._initial_ = {"struct_size": 56}
mp_sharding_desc._converters_ = {name: converter(kind) for name, kind in mp_sharding_desc._fields_}

mp_sharding_progress._fields_ = [
    ("struct_size", c_uint32),
    ("has_thread", c_int32),
    ("begun", c_int64),
    ("finished", c_int64),
    ("finished_by_thread", c_int64),
    ("reason", c_char_p),
]
mp_sharding_progress._initial_ = {"struct_size": 40}
mp_sharding_progress._converters_ = {name: converter(kind) for name, kind in mp_sharding_progress._fields_}

mp_planned_tensor._fields_ = [
    ("struct_size", c_uint32),
    ("weight_dtype", c_int32),
    ("count", c_int64),
    ("rule", c_int32),
    ("ndim", c_int32),
    ("state_formats", c_char_p * 4),
]
mp_planned_tensor._initial_ = {"struct_size": 56}
mp_planned_tensor._converters_ = {name: converter(kind) for name, kind in mp_planned_tensor._fields_}

mp_optimizer_stats._fields_ = [
    ("struct_size", c_uint32),
    ("found_inf", c_uint32),
    ("step", c_int64),
    ("skipped_steps", c_int64),
    ("grad_norm", c_double),
    ("grad_mul", c_double),
    ("outlier_steps", c_int64),
    ("grad_norm_z", c_double),
    ("loss_z", c_double),
]
mp_optimizer_stats._initial_ = {"struct_size": 64}
mp_optimizer_stats._converters_ = {name: converter(kind) for name, kind in mp_optimizer_stats._fields_}

mp_step_slot._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("count", c_int64),
    ("uid", c_uint64),
    ("first_element", c_int64),
    ("param", mp_array),
    ("grad", mp_array),
    ("master", mp_array),
    ("compensation", mp_array),
    ("states", mp_array * 4),
]
mp_step_slot._initial_ = {"struct_size": 288}
mp_step_slot._converters_ = {name: converter(kind) for name, kind in mp_step_slot._fields_}

mp_step_args._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("step", c_int64),
    ("seed", c_uint64),
    ("lr", c_double),
    ("beta1", c_double),
    ("beta2", c_double),
    ("eps", c_double),
    ("weight_decay", c_double),
    ("max_grad_norm", c_double),
    ("grad_scale", c_double),
    ("lr_pointer", POINTER(c_float)),
    ("grad_scale_pointer", POINTER(c_float)),
    ("rule", c_int32),
    ("hyper_count", c_int32),
    ("hypers", POINTER(mp_hyper)),
    ("step_pointer", POINTER(c_int64)),
    ("hyper_pointer", POINTER(c_double)),
    ("grad_mul_pointer", POINTER(c_float)),
]
mp_step_args._initial_ = {"struct_size": 136, "step": 1}
mp_step_args._converters_ = {name: converter(kind) for name, kind in mp_step_args._fields_}

mp_tensor_desc._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("dtype", c_int32),
    ("ndim", c_int32),
    ("shape", c_int64 * 8),
    ("device_kind", c_int32),
    ("device_index", c_int32),
]
mp_tensor_desc._initial_ = {"struct_size": 88}
mp_tensor_desc._converters_ = {name: converter(kind) for name, kind in mp_tensor_desc._fields_}

mp_guard_desc._fields_ = [
    ("struct_size", c_uint32),
    ("window", c_int32),
    ("max_grad_norm_z", c_double),
    ("max_loss_z", c_double),
]
mp_guard_desc._initial_ = {"struct_size": 24}
mp_guard_desc._converters_ = {name: converter(kind) for name, kind in mp_guard_desc._fields_}

mp_step_record._fields_ = [
    ("struct_size", c_uint32),
    ("outcome", c_uint32),
    ("call", c_int64),
    ("step", c_int64),
    ("loss", c_double),
    ("loss_scale", c_double),
    ("lr", c_double),
    ("grad_norm", c_double),
    ("grad_mul", c_double),
    ("grad_norm_z", c_double),
    ("loss_z", c_double),
]
mp_step_record._initial_ = {"struct_size": 80}
mp_step_record._converters_ = {name: converter(kind) for name, kind in mp_step_record._fields_}

LAYOUT = {
    "mp_array": (32, (0, 8, 16, 24, 28,)),
    "mp_checkpoint_desc": (32, (0, 4, 8, 12, 16, 24,)),
    "mp_checkpoint_info": (344, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 80, 88, 216,)),
    "mp_comm_desc": (24, (0, 4, 8, 16, 20,)),
    "mp_comm_exchange": (72, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64,)),
    "mp_comm_traffic": (64, (0, 4, 8, 16, 24, 32, 40, 48, 56,)),
    "mp_comm_operation": (88, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 76, 80,)),
    "mp_comm_group": (32, (0, 4, 8, 12, 16, 20, 24,)),
    "mp_comm_callbacks": (96, (0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88,)),
    "mp_context_desc": (96, (0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88,)),
    "mp_cast_desc": (40, (0, 4, 8, 12, 16, 24, 32,)),
    "mp_quant_desc": (32, (0, 4, 8, 12, 16, 24, 28,)),
    "mp_quantize_args": (56, (0, 4, 8, 12, 16, 24, 32, 40, 48,)),
    "mp_quantized_memory": (56, (0, 4, 8, 16, 24, 32, 40, 48,)),
    "mp_gemm_desc": (184, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 124, 128, 132, 136, 140, 144, 148, 152, 156, 160, 164, 168, 176,)),
    "mp_gemm_args": (80, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72,)),
    "mp_linear_desc": (32, (0, 4, 8, 16, 24,)),
    "mp_linear_stats": (80, (0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 76,)),
    "mp_optimizer_desc": (24, (0, 4, 8, 16,)),
    "mp_param_group_desc": (96, (0, 4, 8, 16, 24, 32, 40, 48, 52, 56, 64,)),
    "mp_param_desc": (40, (0, 4, 8, 16, 24, 32,)),
    "mp_quant_stats": (48, (0, 4, 8, 16, 24, 32, 40,)),
    "mp_recipe_key_desc": (40, (0, 4, 8, 16, 24, 32,)),
    "mp_memory_report": (192, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64,)),
    "mp_comm_reduce_desc": (96, (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 88, 92,)),
    "mp_hyper": (16, (0, 8,)),
    "mp_rule_info": (24, (0, 4, 8, 16, 20,)),
    "mp_rule_state": (24, (0, 4, 8, 16, 20,)),
    "mp_rule_hyper": (32, (0, 4, 8, 16, 24,)),
    "mp_scaler_desc": (64, (0, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56,)),
    "mp_scaler_state": (40, (0, 4, 8, 16, 20, 24, 32,)),
    "mp_sharding_desc": (56, (0, 4, 8, 12, 16, 24, 28, 32, 36, 40, 44, 48, 52,)),
    "mp_sharding_progress": (40, (0, 4, 8, 16, 24, 32,)),
    "mp_planned_tensor": (56, (0, 4, 8, 16, 20, 24,)),
    "mp_optimizer_stats": (64, (0, 4, 8, 16, 24, 32, 40, 48, 56,)),
    "mp_step_slot": (288, (0, 4, 8, 16, 24, 32, 64, 96, 128, 160,)),
    "mp_step_args": (136, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 100, 104, 112, 120, 128,)),
    "mp_tensor_desc": (88, (0, 4, 8, 12, 16, 80, 84,)),
    "mp_guard_desc": (24, (0, 4, 8, 16,)),
    "mp_step_record": (80, (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72,)),
}

# name: (result, types of the arguments, their names)
FUNCTIONS = {
    # Makes an empty checkpoint object. Collective with a communicator, which is not used after this call.
    "mp_checkpoint_create": (c_int32, [POINTER(mp_context), POINTER(mp_comm), POINTER(mp_checkpoint_desc), POINTER(POINTER(mp_checkpoint))], "context, comm, desc, out"),
    # Adds an optimizer, one at most: its parameters, states, groups and seed. It is kept alive. Parameters and groups that
    # are added to it later are saved, too. Of one that ranks share
    # (mp_optimizer_create_sharded) each writes its slices, else rank 0 all.
    "mp_checkpoint_add_optimizer": (c_int32, [POINTER(mp_checkpoint), POINTER(mp_optimizer)], "checkpoint, optimizer"),
    # Adds a loss scaler, one at most: scale and counters. It is kept alive.
    "mp_checkpoint_add_scaler": (c_int32, [POINTER(mp_checkpoint), POINTER(mp_scaler)], "checkpoint, scaler"),
    # Adds a layer's delayed scales and amax histories; its weight belongs to the optimizer. It is kept alive. Amaxes of a step that
    # has begun (a backward has run, its end has not) are saved as the largest over the ranks; what was evaluated leaves none.
    "mp_checkpoint_add_linear": (c_int32, [POINTER(mp_checkpoint), c_char_p, POINTER(mp_linear)], "checkpoint, name, linear"),
    # Adds bytes of the caller: the position in the data, a schedule, a random state. A save copies them as they are then; a
    # load of the same size writes them. With a communicator those of rank 0 are saved, and every rank gets them.
    "mp_checkpoint_add_data": (c_int32, [POINTER(mp_checkpoint), c_char_p, c_void_p, c_size_t], "checkpoint, name, data, bytes"),
    # Saves a new checkpoint. Blocks until it is on the disk, or with MP_SAVE_BACKGROUND until the state is copied.
    # After a failure the checkpoints are those of before, unless only the last sync of the directory failed.
    "mp_checkpoint_save": (c_int32, [POINTER(mp_checkpoint), c_char_p, c_int64, c_uint32], "checkpoint, directory, step, flags"),
    # Loads into what was added, from a checkpoint of the same things saved by any number of ranks. A group is known by its
    # parameters, in whatever order groups were added; one without parameters by its place among such groups. Where ranks share an
    # optimizer that has not stepped yet it is shared out first (mp_optimizer_shard), also where the checkpoint is then refused. A
    # scaler whose scale does not move keeps its own. Blocks.
    "mp_checkpoint_load": (c_int32, [POINTER(mp_checkpoint), c_char_p, c_uint32, POINTER(mp_checkpoint_info)], "checkpoint, path, flags, info"),
    # Gives the caller's reference back. Blocks while a save is running.
    "mp_checkpoint_destroy": (None, [POINTER(mp_checkpoint)], "checkpoint"),
    # Whether a save in the background has ended. Does not block.
    "mp_checkpoint_test": (c_int32, [POINTER(mp_checkpoint)], "checkpoint"),
    # Blocks until a save in the background has ended, and gives its status, once.
    "mp_checkpoint_wait": (c_int32, [POINTER(mp_checkpoint)], "checkpoint"),
    # What a checkpoint is, without loading it. Blocks.
    "mp_checkpoint_inspect": (c_int32, [c_char_p, POINTER(mp_checkpoint_info)], "path, info"),
    # The manifest that a load would take, for programs: {"name": ..., "manifest": ...}. The name is of the checkpoint in the
    # directory, or "" where the path is a checkpoint itself; what a manifest has is in docs/checkpoints.md. Its file is read once,
    # and everything in it is checked. Blocks.
    "mp_checkpoint_read_manifest": (c_int32, [c_char_p, POINTER(c_char), c_size_t, POINTER(c_size_t)], "path, buffer, capacity, needed"),
    # The same in words: the checkpoints of a directory, newest first, each as a load would see it; or a checkpoint's recipe, files
    # and tensors. Blocks.
    "mp_checkpoint_describe": (c_int32, [c_char_p, POINTER(c_char), c_size_t, POINTER(c_size_t)], "path, buffer, capacity, needed"),
    # Writes the optimizer's parameters alone as one ordinary safetensors file, each under its name, and for one of codes with
    # a scale that scale under its name and "_param_scale_inv". Blocks.
    "mp_checkpoint_export_weights": (c_int32, [POINTER(mp_checkpoint), c_char_p], "checkpoint, file"),
    # The communicator of one rank: what it sends, it receives.
    "mp_comm_create_self": (c_int32, [POINTER(mp_comm_desc), POINTER(POINTER(mp_comm))], "desc, out"),
    # Communicators for ranks that are threads of this process: one handle for each, which any one thread may use.
    # Destroying one tells the others that its rank is lost.
    "mp_comm_create_threads": (c_int32, [POINTER(mp_comm_desc), c_int32, POINTER(POINTER(mp_comm))], "desc, count, out"),
    # A communicator over MPI, by the module libmixedprec-mpi.so. Collective over the MPI communicator. The caller's one
    # is duplicated and may be freed. Without one it is MPI_COMM_WORLD, and if MPI is not initialized it is, with
    # MPI_THREAD_MULTIPLE, and ended at exit or by mp_library_shutdown. Memory of the caller is never in a pending MPI
    # call. After MPI_Finalize calls that talk to other ranks, this one too, are MP_STATUS_BAD_STATE, and all can be destroyed.
    # Blocks.
    "mp_comm_create_mpi": (c_int32, [POINTER(mp_comm_desc), c_void_p, POINTER(POINTER(mp_comm))], "desc, native, out"),
    # What the ranks of a new NCCL communicator find each other by: one rank calls it and hands the bytes to the others.
    "mp_comm_get_nccl_unique_id": (c_int32, [c_void_p, c_size_t], "id, size"),
    # A communicator over NCCL on the context's GPU, without blocking calls of NCCL's. Collective over its ranks. Blocks.
    # Exchanges take device memory, or host memory, which is staged.
    "mp_comm_create_nccl": (c_int32, [POINTER(mp_context), POINTER(mp_comm_desc), c_void_p, c_int32, c_int32, POINTER(POINTER(mp_comm))], "context, desc, unique_id, rank, size, out"),
    # This rank's number.
    "mp_comm_get_rank": (c_int32, [POINTER(mp_comm), POINTER(c_int32)], "comm, rank"),
    # The number of ranks.
    "mp_comm_get_size": (c_int32, [POINTER(mp_comm), POINTER(c_int32)], "comm, size"),
    # Every rank gives every rank its own bytes. Blocks, unless it has a request. With a queue, what is enqueued there
    # comes first.
    "mp_comm_all_to_all": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), POINTER(mp_comm_exchange), POINTER(POINTER(mp_comm_request))], "comm, queue, exchange, request"),
    # Every rank gets every rank's bytes. `send` may be where this rank receives its own. Blocks, unless it has a request.
    "mp_comm_all_gather": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), POINTER(mp_comm_exchange), POINTER(POINTER(mp_comm_request))], "comm, queue, exchange, request"),
    # All ranks get the root's bytes. Blocks, unless it has a request.
    "mp_comm_broadcast": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), c_void_p, c_int64, c_int32, POINTER(POINTER(mp_comm_request))], "comm, queue, data, bytes, root, request"),
    # Replaces values in host memory by their maxima over the ranks: for flags, and for the bits of magnitudes, which as
    # unsigned numbers keep NaN above infinity above all else. Blocks, unless it has a request.
    "mp_comm_max_u32": (c_int32, [POINTER(mp_comm), POINTER(c_uint32), c_int64, POINTER(POINTER(mp_comm_request))], "comm, values, count, request"),
    # Returns when every rank has called it. Blocks, unless it has a request.
    "mp_comm_barrier": (c_int32, [POINTER(mp_comm), POINTER(POINTER(mp_comm_request))], "comm, request"),
    # Gives the caller's reference back. Requests and calls under way keep it; optimizers and checkpoints have communicators of
    # their own. With the last reference it ends, in the thread that gives it back, and other ranks that wait for this one are told
    # where the transport can. Over MPI below MPI_THREAD_MULTIPLE the thread that used it last calls MPI: if it is another one, in
    # its next call over MPI. Waits for nobody, except over NCCL, where ncclCommFinalize has the deadline, 5 seconds at most, to
    # reach all ranks: for the communicator and its groups together.
    "mp_comm_destroy": (None, [POINTER(mp_comm)], "comm"),
    # Waits until the operation is done, has failed, or its deadline, counted from its begin, has passed. Blocks.
    "mp_comm_request_wait": (c_int32, [POINTER(mp_comm_request)], "request"),
    # Moves all operations of the communicator on, without waiting.
    "mp_comm_request_test": (c_int32, [POINTER(mp_comm_request)], "request"),
    # Gives a request back, and the memory of its operation: when the call returns nobody touches that any more. So one that is
    # neither done nor failed ends its communicator, as mp_comm_abort does. While a wait for it is under way in another
    # thread it stays until that is over. Waits for no rank; beside a call of another thread on the communicator, for one look of
    # that at what is in flight, and for an mp_comm_split that is under way.
    "mp_comm_request_destroy": (None, [POINTER(mp_comm_request)], "request"),
    # Sets the deadline of calls from now on.
    "mp_comm_set_deadline": (c_int32, [POINTER(mp_comm), c_int64], "comm, deadline_ms"),
    # The deadline of calls.
    "mp_comm_get_deadline": (c_int32, [POINTER(mp_comm), POINTER(c_int64)], "comm, deadline_ms"),
    # Makes communicators of the ranks of one color each, ordered by key and then by rank, with this one's deadline.
    # They live on their own. Blocks.
    "mp_comm_split": (c_int32, [POINTER(mp_comm), c_int32, c_int32, POINTER(POINTER(mp_comm))], "comm, color, key, out"),
    # Which machine a rank is on: ranks with equal numbers share one.
    "mp_comm_get_node": (c_int32, [POINTER(mp_comm), c_int32, POINTER(c_int32)], "comm, rank, node"),
    # A communicator over the caller's NCCL communicator, which stays the caller's, outlives this one, must be on the
    # context's GPU, have been made with blocking = 0, and is aborted when this one fails. Blocks.
    "mp_comm_wrap_nccl": (c_int32, [POINTER(mp_context), POINTER(mp_comm_desc), c_void_p, POINTER(POINTER(mp_comm))], "context, desc, native, out"),
    # A communicator over the caller's own functions. After a failure the table's destroy has not been called.
    "mp_comm_create_callbacks": (c_int32, [POINTER(mp_comm_desc), POINTER(mp_comm_callbacks), POINTER(POINTER(mp_comm))], "desc, callbacks, out"),
    # Ends the communicator here, and tells the other ranks where the transport can. A call that waits on another thread
    # returns MP_STATUS_ABORTED.
    "mp_comm_abort": (c_int32, [POINTER(mp_comm), c_char_p], "comm, reason"),
    # Whether the communicator still works: the failure that ended it, with its message.
    "mp_comm_get_status": (c_int32, [POINTER(mp_comm)], "comm"),
    # What this rank has sent so far.
    "mp_comm_get_traffic": (c_int32, [POINTER(mp_comm), POINTER(mp_comm_traffic)], "comm, traffic"),
    # One line: rank, transport and what it found, deadline, operations and bytes so far, what ended it.
    "mp_comm_describe": (c_int32, [POINTER(mp_comm), POINTER(c_char), c_size_t, POINTER(c_size_t)], "comm, buffer, capacity, needed"),
    # Opens the host and, if asked for, one accelerator. The module of an accelerator is looked for beside
    # the library and in MIXEDPREC_MODULE_PATH and loaded here, on first use; a missing module, driver or
    # device is a status that says which and what to do, never a silent hop to another device.
    # MIXEDPREC_NUM_THREADS is read here and counts where num_threads is 0.
    "mp_context_create": (c_int32, [POINTER(mp_context_desc), POINTER(POINTER(mp_context))], "desc, out"),
    # Gives the caller's reference back. The devices close when the last object made from them is gone.
    "mp_context_destroy": (None, [POINTER(mp_context)], "context"),
    # Number of devices of a kind. Opens nothing.
    "mp_device_get_count": (c_int32, [c_int32, POINTER(c_int32)], "device_kind, count"),
    # Whether a device can be opened, and if not, why: a query that opens nothing.
    "mp_device_available": (c_int32, [c_int32, c_int32], "device_kind, device_index"),
    # What its driver calls a device; "host" for the host. Opens nothing.
    "mp_device_get_name": (c_int32, [c_int32, c_int32, POINTER(c_char), c_size_t, POINTER(c_size_t)], "device_kind, device_index, buffer, capacity, needed"),
    # A device's memory in all. Opens nothing.
    "mp_device_get_memory": (c_int32, [c_int32, c_int32, POINTER(c_int64)], "device_kind, device_index, bytes"),
    # Number of host threads the context works with.
    "mp_context_get_num_threads": (c_int32, [POINTER(mp_context), POINTER(c_int32)], "context, num_threads"),
    # Everything the context found and decided, as a JSON object: "host" and, where there is one, "accelerator". Each has its
    # "kind" and "index", "threads", "backend", "instruction_set", what else its backend says (versions, topology, reasons), and as
    # "candidates" for each operation the names of its implementations, the one asked first at the beginning.
    "mp_context_describe": (c_int32, [POINTER(mp_context), POINTER(c_char), c_size_t, POINTER(c_size_t)], "context, buffer, capacity, needed"),
    # mp_tensor_cast straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it returns.
    "mp_tensor_cast_pointers": (c_int32, [POINTER(mp_context), POINTER(mp_queue), c_void_p, c_int32, c_void_p, c_int32, c_int64, POINTER(mp_cast_desc)], "context, queue, source, source_dtype, destination, destination_dtype, count, desc"),
    # How many scales a matrix has.
    "mp_tensor_get_scale_grid": (c_int32, [POINTER(mp_quant_desc), c_int64, c_int64, POINTER(c_int64), POINTER(c_int64), POINTER(c_int32)], "quant, rows, columns, grid_rows, grid_columns, dtype"),
    # mp_tensor_quantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
    # returns.
    "mp_tensor_quantize_pointers": (c_int32, [POINTER(mp_context), POINTER(mp_queue), c_void_p, c_int32, POINTER(mp_quant_desc), POINTER(mp_quantized_memory), POINTER(mp_quantize_args)], "context, queue, source, source_dtype, quant, destination, args"),
    # mp_tensor_dequantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
    # returns.
    "mp_tensor_dequantize_pointers": (c_int32, [POINTER(mp_context), POINTER(mp_queue), POINTER(mp_quantized_memory), POINTER(mp_quant_desc), c_void_p, c_int32], "context, queue, source, quant, destination, destination_dtype"),
    # Takes over a DLPack tensor without copying. Takes ownership on success and on failure: the producer's
    # deleter runs when the tensor and the work on it end (as an mp_deleter_fn), or at once on failure (also for a major version
    # other than 1, after which nothing else of the struct is read). Accepts NULL strides, byte_offset, and any strides that are
    # row-major for the shape. A read-only tensor is refused: tensors here are writable. No synchronization: see above.
    "mp_dlpack_import": (c_int32, [POINTER(mp_context), POINTER(DLManagedTensorVersioned), POINTER(POINTER(mp_tensor))], "context, managed, out"),
    # Lends a tensor as DLPack 1.1 without copying. The tensor's memory stays alive until the consumer calls
    # the deleter. No synchronization: see above.
    "mp_dlpack_export": (c_int32, [POINTER(mp_tensor), POINTER(POINTER(DLManagedTensorVersioned))], "tensor, out"),
    # Makes an event of the context's device.
    "mp_event_create": (c_int32, [POINTER(mp_context), POINTER(POINTER(mp_event))], "context, out"),
    # The event is now after the queue's work so far. Recorded again it is another point; who waits already waits for the old one.
    # Enqueues.
    "mp_event_record": (c_int32, [POINTER(mp_event), POINTER(mp_queue)], "event, queue"),
    # What is put on the queue from now on begins after the event. Does not wait itself; an event that was never recorded holds
    # nothing up. Enqueues.
    "mp_queue_wait_event": (c_int32, [POINTER(mp_queue), POINTER(mp_event)], "queue, event"),
    # Whether the event has been reached. Does not block.
    "mp_event_test": (c_int32, [POINTER(mp_event)], "event"),
    # Waits until the event has been reached, and reports what went wrong in the work before it. Blocks.
    "mp_event_sync": (c_int32, [POINTER(mp_event)], "event"),
    # Gives the caller's reference back. Who waits for the event goes on waiting.
    "mp_event_destroy": (None, [POINTER(mp_event)], "event"),
    # Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
    "mp_gemm_create": (c_int32, [POINTER(mp_context), POINTER(mp_gemm_desc), POINTER(POINTER(mp_gemm))], "context, desc, out"),
    # Computes the product. Enqueues.
    "mp_gemm_run": (c_int32, [POINTER(mp_gemm), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor)], "gemm, queue, a, b, bias, c, d"),
    # Gives the caller's reference back.
    "mp_gemm_destroy": (None, [POINTER(mp_gemm)], "gemm"),
    # Computes the product, of scaled operands too. Enqueues.
    "mp_gemm_run_scaled": (c_int32, [POINTER(mp_gemm), POINTER(mp_queue), POINTER(mp_gemm_args)], "gemm, queue, args"),
    # What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
    "mp_gemm_describe": (c_int32, [POINTER(mp_gemm), POINTER(c_char), c_size_t, POINTER(c_size_t)], "gemm, buffer, capacity, needed"),
    # Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
    # changes to them (by an optimizer, say) count at once. Freezes the recipe.
    "mp_linear_create": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), POINTER(mp_linear_desc), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(POINTER(mp_linear))], "context, recipe, desc, weight, bias, out"),
    # y = x * w^T + bias. Enqueues.
    "mp_linear_forward": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor)], "linear, queue, x, y"),
    # Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
    # both GEMMs want the same type. The same bits as the two calls. Enqueues.
    "mp_linear_backward": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), c_uint32], "linear, queue, dy, dx, dw, dbias, flags"),
    # The end of an optimizer step, for many layers at once: delayed scales follow from the amaxes since the last
    # call, of forwards whose backward has run (where none has run in any of the layers: of all), cached weights are let go, and monitors are called where their step has come. Call it once a step after
    # the optimizer, whichever the recipe. Enqueues; blocks where a monitor is called, and with `comm`.
    #
    # Where ranks train the same layers, `comm` makes them scale alike: every amax becomes the largest of all ranks before delayed
    # scales move on, unless gemm.reduce_amax is "off". One small message for all layers, which every rank names in the same order;
    # none at all with mp_optimizer_set_linears, where the optimizer is shared.
    "mp_linear_end_step": (c_int32, [POINTER(POINTER(mp_linear)), c_int32, POINTER(mp_queue), POINTER(mp_comm)], "linears, count, queue, comm"),
    # Gives the caller's reference back.
    "mp_linear_destroy": (None, [POINTER(mp_linear)], "linear"),
    # mp_linear_create over plain memory, for programs that have no tensors.
    "mp_linear_create_pointers": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), POINTER(mp_linear_desc), c_void_p, c_int32, c_void_p, c_int32, POINTER(POINTER(mp_linear))], "context, recipe, desc, weight, weight_dtype, bias, bias_dtype, out"),
    # mp_linear_forward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
    "mp_linear_forward_pointers": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), c_int64, c_void_p, c_void_p, c_int32], "linear, queue, rows, x, y, dtype"),
    # mp_linear_backward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
    "mp_linear_backward_pointers": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), c_int64, c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_int32, c_uint32], "linear, queue, rows, dy, dx, dtype, dw, dbias, grad_dtype, flags"),
    # dx = dy * w. Enqueues. Needs no forward before it.
    "mp_linear_backward_data": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor)], "linear, queue, dy, dx"),
    # dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
    # rows are fp32 and are rounded once into dw and dbias. Enqueues.
    "mp_linear_backward_weight": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), c_uint32], "linear, queue, dy, dw, dbias, flags"),
    # What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
    "mp_linear_describe": (c_int32, [POINTER(mp_linear), POINTER(c_char), c_size_t, POINTER(c_size_t)], "linear, buffer, capacity, needed"),
    # What the layer was made with.
    "mp_linear_get_desc": (c_int32, [POINTER(mp_linear), POINTER(mp_linear_desc)], "linear, desc"),
    # What happened to an operand since the counts were last cleared: at creation, by a monitor's turn, or by
    # mp_linear_clear_stats. Each forward counts x and the weight (a copy of it that is kept: when it is made), each backward dy.
    # Where a call rounds an operand to codes, that rounding counts, each one if there are several. Where it rounds none, as in high
    # precision or of codes that are given, a pass of its own counts elements, non_finite and amax; nothing saturates or underflows
    # there. mp_linear_quantize counts, too, so that its codes count again where they are used. An evaluation counts nothing: a
    # forward with `saved` NULL (saved.h). Blocks.
    "mp_linear_get_stats": (c_int32, [POINTER(mp_linear), c_int32, POINTER(mp_linear_stats)], "linear, operand, stats"),
    # Sets the counts of all operands to zero. Enqueues.
    "mp_linear_clear_stats": (c_int32, [POINTER(mp_linear), POINTER(mp_queue)], "linear, queue"),
    # One sentence that names the recipe key to change where an operand saturates, underflows or is not finite;
    # empty where all is well.
    "mp_linear_get_advice": (c_int32, [POINTER(mp_linear), c_int32, POINTER(c_char), c_size_t, POINTER(c_size_t)], "linear, operand, buffer, capacity, needed"),
    # Has every so many steps' statistics handed to a function by mp_linear_end_step, and cleared after it.
    "mp_linear_set_monitor": (c_int32, [POINTER(mp_linear), c_char_p, c_int32, mp_linear_monitor_fn, c_void_p], "linear, name, every, monitor, payload"),
    # Copies out what the layer must remember for training to go on bit for bit: delayed scales and amax histories.
    # A few bytes for recipes without them. Blocks.
    "mp_linear_get_scaling": (c_int32, [POINTER(mp_linear), c_void_p, c_size_t, POINTER(c_size_t)], "linear, buffer, capacity, needed"),
    # Puts back what mp_linear_get_scaling copied out of a layer of the same recipe. Blocks.
    "mp_linear_set_scaling": (c_int32, [POINTER(mp_linear), c_void_p, c_size_t], "linear, data, bytes"),
    # Makes an optimizer without groups. Freezes the recipe.
    "mp_optimizer_create": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), POINTER(mp_optimizer_desc), POINTER(POINTER(mp_optimizer))], "context, recipe, desc, out"),
    # Adds a group of parameters with its own hyperparameters.
    "mp_optimizer_add_group": (c_int32, [POINTER(mp_optimizer), POINTER(mp_param_group_desc), POINTER(c_int32)], "optimizer, desc, index"),
    # Adds a parameter and allocates its states, all zero. Allowed also between steps: its bias correction then begins with its own
    # first step, whatever t its group has; t that was set before the group's first parameter is that parameter's.
    "mp_optimizer_add_param": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(mp_param_desc), POINTER(c_int32)], "optimizer, group, desc, index"),
    # One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
    # for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
    # the layers of mp_optimizer_set_linears, and calls their monitors.
    "mp_optimizer_step": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(mp_scaler)], "optimizer, queue, scaler"),
    # Sets all gradients to zero. Enqueues. Not needed under MP_OPTIMIZER_ZERO_GRAD.
    "mp_optimizer_zero_grad": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue)], "optimizer, queue"),
    # Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
    # mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own agreement,
    # without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
    # not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
    # changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
    # Replaces the layers named before. The optimizer keeps them alive. Blocks where ranks share it: every rank then names as
    # many layers, of the same sizes and recipes, in the same order, before or after mp_optimizer_shard.
    "mp_optimizer_set_linears": (c_int32, [POINTER(mp_optimizer), POINTER(POINTER(mp_linear)), c_int32], "optimizer, linears, count"),
    # What the last step did. Blocks.
    "mp_optimizer_get_stats": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(mp_optimizer_stats)], "optimizer, queue, stats"),
    # Sets the learning rate of a group from the next step on. Replaces a tensor of mp_optimizer_set_lr_tensor.
    "mp_optimizer_set_lr": (c_int32, [POINTER(mp_optimizer), c_int32, c_double], "optimizer, group, lr"),
    # Turns a group on or off. Parameters of a group that is off are not touched by a step, and their gradients count
    # neither in the norm nor in the finite check; its t stays. Groups are on at first.
    "mp_optimizer_set_enabled": (c_int32, [POINTER(mp_optimizer), c_int32, c_int32], "optimizer, group, enabled"),
    # The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share the
    # optimizer, the same on each.
    "mp_optimizer_set_max_grad_norm": (c_int32, [POINTER(mp_optimizer), c_double], "optimizer, max_grad_norm"),
    # Gives the caller's reference back.
    "mp_optimizer_destroy": (None, [POINTER(mp_optimizer)], "optimizer"),
    # Lets every step read a group's learning rate from a tensor, on the device and in the order of the step's queue: a
    # schedule that runs on the device, or a captured graph, needs neither the host nor a new upload. Its value is taken as
    # it is, without a check.
    "mp_optimizer_set_lr_tensor": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(mp_tensor)], "optimizer, group, lr"),
    # Lets every step divide the gradients by a number in device memory, beside the scaler's scale: a count of
    # micro-batches or tokens. Read like mp_optimizer_set_lr_tensor's; the norm is that of the divided gradients.
    "mp_optimizer_set_grad_scale_tensor": (c_int32, [POINTER(mp_optimizer), POINTER(mp_tensor)], "optimizer, grad_scale"),
    # grad_norm of the last step in device memory: one fp32 element that shares the optimizer's memory, for loops that log it
    # without waiting.
    "mp_optimizer_get_grad_norm_tensor": (c_int32, [POINTER(mp_optimizer), POINTER(POINTER(mp_tensor))], "optimizer, out"),
    # 1 where the last step was skipped, else 0, likewise.
    "mp_optimizer_get_found_inf_tensor": (c_int32, [POINTER(mp_optimizer), POINTER(POINTER(mp_tensor))], "optimizer, out"),
    # Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same model:
    # tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks one
    # after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside mp_optimizer_create_sharded this
    # is another communicator, of ranks that do not share parameters. Implies MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of
    # before the step is not asked for: mp_scaler_combine.
    "mp_optimizer_set_norm_comm": (c_int32, [POINTER(mp_optimizer), POINTER(mp_comm)], "optimizer, comm"),
    # A tensor of one parameter, by name: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"; and
    # for one of codes with a scale that scale, by its name and "_scale_inv". Contents may be read and written between
    # steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
    "mp_optimizer_get_state": (c_int32, [POINTER(mp_optimizer), c_int32, c_char_p, POINTER(POINTER(mp_tensor))], "optimizer, index, state, out"),
    # The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
    #   "exp_avg"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
    #   "exp_avg_sq"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
    #   "compensation"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
    #   "fp32_param"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
    #                   joined, parameter plus compensation, or the parameter alone
    #                                              Megatron-Core: fp32_param, param; apex: master
    # t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
    # stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
    # optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
    "mp_optimizer_read_state": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32, c_char_p, POINTER(mp_tensor)], "optimizer, queue, index, state, values"),
    # Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
    # scales. "fp32_param" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
    # compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
    # compensation, write the parameter, call mp_optimizer_sync_master, then write "compensation". Numbers
    # must be finite, second moments not negative. Blocks.
    "mp_optimizer_write_state": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32, c_char_p, POINTER(mp_tensor)], "optimizer, queue, index, state, values"),
    # After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
    # compensations zero. Enqueues; blocks for parameters with a scale.
    "mp_optimizer_sync_master": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32], "optimizer, queue, index"),
    # Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
    "mp_optimizer_set_step": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int64], "optimizer, queue, step"),
    # t of one group: the steps it took part in, torch's `step` of its parameters. Of those that were added after a step it
    # is ahead: they count their own, which checkpoints keep. Blocks.
    "mp_optimizer_get_group_step": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32, POINTER(c_int64)], "optimizer, queue, group, step"),
    # Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
    "mp_optimizer_set_group_step": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32, c_int64], "optimizer, queue, group, step"),
    # What the optimizer was made with; the seed is a checkpoint's where one was loaded.
    "mp_optimizer_get_desc": (c_int32, [POINTER(mp_optimizer), POINTER(mp_optimizer_desc)], "optimizer, desc"),
    # Number of groups added.
    "mp_optimizer_get_group_count": (c_int32, [POINTER(mp_optimizer), POINTER(c_int32)], "optimizer, count"),
    # A group as it is now: with what mp_optimizer_set_lr and mp_checkpoint_load have changed. A new group made with it is alike.
    "mp_optimizer_get_group": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(mp_param_group_desc)], "optimizer, group, desc"),
    # Whether a group is on.
    "mp_optimizer_get_enabled": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(c_int32)], "optimizer, group, enabled"),
    # Number of parameters added.
    "mp_optimizer_get_param_count": (c_int32, [POINTER(mp_optimizer), POINTER(c_int32)], "optimizer, count"),
    # A parameter's name.
    "mp_optimizer_get_param_name": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(c_char), c_size_t, POINTER(c_size_t)], "optimizer, index, buffer, capacity, needed"),
    # A parameter's group.
    "mp_optimizer_get_param_group": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(c_int32)], "optimizer, index, group"),
    # Bytes really held for the parameters added so far, by class.
    "mp_optimizer_get_memory": (c_int32, [POINTER(mp_optimizer), POINTER(mp_memory_report)], "optimizer, report"),
    # Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
    "mp_tensor_create_quantized": (c_int32, [POINTER(mp_context), POINTER(mp_tensor_desc), POINTER(mp_quant_desc), POINTER(POINTER(mp_tensor))], "context, desc, quant, out"),
    # Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
    # Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
    # exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
    # The scale of a block never is infinite or negative, whatever its elements are.
    "mp_tensor_quantize": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_quantize_args), POINTER(mp_quant_stats)], "source, queue, destination, transposed, args, stats"),
    # destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
    "mp_tensor_dequantize": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), POINTER(mp_tensor)], "source, queue, destination"),
    # The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
    # fp8_e4m3. The handle shares their memory, which changes with every quantization.
    "mp_tensor_get_scales": (c_int32, [POINTER(mp_tensor), POINTER(POINTER(mp_tensor))], "tensor, out"),
    # Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of memory
    # holds for all three pieces.
    "mp_tensor_wrap_quantized": (c_int32, [POINTER(mp_context), POINTER(mp_tensor_desc), POINTER(mp_quant_desc), c_void_p, c_void_p, POINTER(c_float), mp_deleter_fn, c_void_p, POINTER(POINTER(mp_tensor))], "context, desc, quant, codes, scale_inv, amax, deleter, payload, out"),
    # How a tensor is quantized.
    "mp_tensor_get_quant_desc": (c_int32, [POINTER(mp_tensor), POINTER(mp_quant_desc)], "tensor, desc"),
    # The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
    # the tensor's memory.
    "mp_tensor_get_quantized_amax": (c_int32, [POINTER(mp_tensor), POINTER(POINTER(mp_tensor))], "tensor, out"),
    # Waits for the context's default queue. Blocks.
    "mp_context_sync": (c_int32, [POINTER(mp_context)], "context"),
    # Makes a queue on the context's device.
    "mp_queue_create": (c_int32, [POINTER(mp_context), POINTER(POINTER(mp_queue))], "context, out"),
    # Waits until all work enqueued so far is done, and reports what went wrong in it. Blocks.
    "mp_queue_sync": (c_int32, [POINTER(mp_queue)], "queue"),
    # Gives the caller's reference back; the queue ends when its work is done.
    "mp_queue_destroy": (None, [POINTER(mp_queue)], "queue"),
    # Makes a queue over the caller's own stream, which stays the caller's and must outlive the queue.
    "mp_queue_wrap_native": (c_int32, [POINTER(mp_context), c_void_p, POINTER(POINTER(mp_queue))], "context, native, out"),
    # The stream under a queue, for work of one's own between the library's. It stays whose it was. Enqueues nothing.
    "mp_queue_get_native": (c_int32, [POINTER(mp_queue), c_void_p, c_size_t], "queue, native, size"),
    # The most memory that work on this queue has held at once for a while (rounded operands, sums), as mp_queue_set_workspace
    # needs it: run one step, ask, and hand so much over. Enqueues nothing.
    "mp_queue_get_workspace_peak": (c_int32, [POINTER(mp_queue), POINTER(c_size_t)], "queue, bytes"),
    # Has work on this queue use the caller's memory instead of memory of the library's. What does not fit makes a call fail
    # with MP_STATUS_OUT_OF_MEMORY and a message that says how many bytes are needed. What layers and optimizers keep is not
    # there, nor what oneDNN takes for itself; cuBLASLt's workspace is. Blocks.
    "mp_queue_set_workspace": (c_int32, [POINTER(mp_queue), c_void_p, c_size_t], "queue, memory, bytes"),
    # What mp_queue_set_workspace was given. Enqueues nothing.
    "mp_queue_get_workspace": (c_int32, [POINTER(mp_queue), POINTER(c_void_p), POINTER(c_size_t)], "queue, memory, bytes"),
    # Makes a recipe from a preset.
    "mp_recipe_create": (c_int32, [POINTER(mp_context), c_char_p, POINTER(POINTER(mp_recipe))], "context, name, out"),
    # The weight that a recipe wants, from its values in fp32: a tensor of its weight.dtype, quantized where that has a scale, on the
    # context's device. Give the same values as mp_param_desc.init_fp32 too, so that a master weight or a compensation has what
    # rounding them loses. Blocks.
    "mp_recipe_create_weight": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), c_int32, POINTER(c_int64), POINTER(c_float), POINTER(POINTER(mp_tensor))], "context, recipe, ndim, shape, values, out"),
    # The weight of an fp8 layer as the codes that its products take, with one scale: what a sharded optimizer gathers under
    # weight.gather.codes, a byte an element. Its owner keeps the exact numbers of its slice, in weight.dtype: give the same values as
    # mp_param_desc.init_fp32. A layer over such a weight keeps no copy of it between forward and backward. Blocks.
    "mp_recipe_create_weight_codes": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), c_int32, POINTER(c_int64), POINTER(c_float), POINTER(POINTER(mp_tensor))], "context, recipe, ndim, shape, values, out"),
    # Gives the caller's reference back.
    "mp_recipe_destroy": (None, [POINTER(mp_recipe)], "recipe"),
    # Sets a key that holds a string.
    "mp_recipe_set_string": (c_int32, [POINTER(mp_recipe), c_char_p, c_char_p], "recipe, key, value"),
    # Sets a key that holds a floating-point number.
    "mp_recipe_set_float": (c_int32, [POINTER(mp_recipe), c_char_p, c_double], "recipe, key, value"),
    # Sets a key that holds an integer.
    "mp_recipe_set_int": (c_int32, [POINTER(mp_recipe), c_char_p, c_int64], "recipe, key, value"),
    # Reads a key that holds a string.
    "mp_recipe_get_string": (c_int32, [POINTER(mp_recipe), c_char_p, POINTER(c_char_p)], "recipe, key, value"),
    # Reads a key that holds a floating-point number.
    "mp_recipe_get_float": (c_int32, [POINTER(mp_recipe), c_char_p, POINTER(c_double)], "recipe, key, value"),
    # Reads a key that holds an integer.
    "mp_recipe_get_int": (c_int32, [POINTER(mp_recipe), c_char_p, POINTER(c_int64)], "recipe, key, value"),
    # Makes a recipe from JSON: {"recipe": "preset", "key": value, ...}. "recipe" defaults to "fp32"; keys are
    # the dotted names of recipe_keys.h. Unknown or repeated keys, wrong types and impossible combinations are
    # refused with all reasons. At most 1 MiB.
    "mp_recipe_create_from_json": (c_int32, [POINTER(mp_context), c_char_p, c_size_t, POINTER(POINTER(mp_recipe))], "context, json, length, out"),
    # Makes a recipe from a JSON file. Blocks.
    "mp_recipe_create_from_file": (c_int32, [POINTER(mp_context), c_char_p, POINTER(POINTER(mp_recipe))], "context, path, out"),
    # The recipe as JSON in canonical form: every key, in the order of mp_recipe_get_key_info. Read back by
    # mp_recipe_create_from_json it gives the same recipe.
    "mp_recipe_to_json": (c_int32, [POINTER(mp_recipe), POINTER(c_char), c_size_t, POINTER(c_size_t)], "recipe, buffer, capacity, needed"),
    # Checks the combination and reports every problem at once in mp_last_error_message().
    "mp_recipe_validate": (c_int32, [POINTER(mp_recipe)], "recipe"),
    # A copy that can be changed, also of a recipe that is in use.
    "mp_recipe_clone": (c_int32, [POINTER(mp_recipe), POINTER(POINTER(mp_recipe))], "recipe, out"),
    # Whether something uses the recipe, so that it can no longer change.
    "mp_recipe_get_frozen": (c_int32, [POINTER(mp_recipe), POINTER(c_int32)], "recipe, frozen"),
    # Why the device's choice fell on this preset, in words; empty for a recipe that was not made by "auto".
    "mp_recipe_get_reason": (c_int32, [POINTER(mp_recipe), POINTER(c_char), c_size_t, POINTER(c_size_t)], "recipe, buffer, capacity, needed"),
    # Number of presets.
    "mp_recipe_preset_count": (c_int32, [], ""),
    # Name and one-line description of a preset.
    "mp_recipe_get_preset_info": (c_int32, [c_int32, POINTER(c_char_p), POINTER(c_char_p)], "index, name, text"),
    # Number of keys.
    "mp_recipe_key_count": (c_int32, [], ""),
    # Everything about one key.
    "mp_recipe_get_key_info": (c_int32, [c_int32, POINTER(mp_recipe_key_desc)], "index, desc"),
    # Exact bytes that a recipe needs for so many parameters, before anything is allocated: elements, and the
    # scales of one tensor where the recipe has scaled codes. Scratch and activations are not in it.
    "mp_recipe_plan_memory": (c_int32, [POINTER(mp_recipe), c_int32, c_int64, POINTER(mp_memory_report)], "recipe, rule, parameter_count, report"),
    # The same for a model's tensors of the recipe's weight.dtype, each with scales of its own.
    "mp_recipe_plan_memory_of_tensors": (c_int32, [POINTER(mp_recipe), c_int32, POINTER(c_int64), c_int64, POINTER(mp_memory_report)], "recipe, rule, counts, tensor_count, report"),
    # The same sums of all elements on every rank: a reduce-scatter, then a gather in gather_dtype. With op MAX_ABS_BITS, the
    # largest |x| of each element over the ranks as fp32. Blocks, unless it has a request; a maximum takes none.
    "mp_comm_all_reduce": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), POINTER(mp_comm_reduce_desc), POINTER(POINTER(mp_tensor)), c_int32, POINTER(mp_tensor), POINTER(POINTER(mp_comm_request))], "comm, queue, desc, sources, source_count, destination, request"),
    # Rank r gets the sum of its share of all ranks' elements: those from counts[0] + ... + counts[r - 1] on. Shares may be
    # empty. The destination may be fp32, or fp16 or bf16, to which the sum is rounded once. What is not finite on any rank
    # is not finite in the sum. Blocks, unless it has a request; what is enqueued on the queue comes first.
    "mp_comm_reduce_scatter": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), POINTER(mp_comm_reduce_desc), POINTER(POINTER(mp_tensor)), c_int32, POINTER(c_int64), POINTER(mp_tensor), POINTER(POINTER(mp_comm_request))], "comm, queue, desc, sources, source_count, counts, destination, request"),
    # Every rank gets all ranks' values in wire_dtype: of fp8 all get the decoded ones, the owner too. Of the descriptor,
    # order, slots, accumulate and the gather's fields are not read. Blocks, unless it has a request.
    "mp_comm_all_gather_values": (c_int32, [POINTER(mp_comm), POINTER(mp_queue), POINTER(mp_comm_reduce_desc), POINTER(mp_tensor), POINTER(c_int64), POINTER(mp_tensor), POINTER(POINTER(mp_comm_request))], "comm, queue, desc, shard, counts, destination, request"),
    # Bytes that so many elements take on the wire, scales included.
    "mp_comm_get_wire_bytes": (c_int32, [c_int64, c_int32, c_int32, POINTER(c_int64)], "count, dtype, scale, bytes"),
    # How many rules there are.
    "mp_rule_get_count": (c_int32, [POINTER(c_int32)], "count"),
    # The number of a rule.
    "mp_rule_get_number": (c_int32, [c_char_p, POINTER(c_int32)], "name, rule"),
    # What a rule is.
    "mp_rule_get_info": (c_int32, [c_int32, POINTER(mp_rule_info)], "rule, info"),
    # One of a rule's states.
    "mp_rule_get_state": (c_int32, [c_int32, c_int32, POINTER(mp_rule_state)], "rule, index, state"),
    # One of the hyperparameters that a rule reads.
    "mp_rule_get_hyper": (c_int32, [c_int32, c_int32, POINTER(mp_rule_hyper)], "rule, index, hyper"),
    # The name of a state.
    "mp_rule_state_name": (c_char_p, [c_int32], "state"),
    # Makes a place for what one forward of this layer keeps. It holds memory from its first forward on.
    "mp_saved_create": (c_int32, [POINTER(mp_linear), POINTER(POINTER(mp_saved))], "linear, out"),
    # mp_linear_forward that keeps what backward needs in `saved` instead of in the layer. What was in it is replaced. Enqueues.
    # x may be codes (a quantized tensor). In the format of the product they serve as they are, and their amax
    # (mp_tensor_get_quantized_amax) enters the delayed scale; other codes are read to fp32 and rounded again.
    "mp_linear_forward_saved": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_saved), c_uint32], "linear, queue, x, y, saved, flags"),
    # mp_linear_backward with what that forward kept. It stays there: a second backward may follow. Enqueues. dy may be codes,
    # as x may; dbias is then the sum of their values.
    "mp_linear_backward_saved": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), POINTER(mp_saved), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), POINTER(mp_tensor), c_uint32], "linear, queue, saved, dy, dx, dw, dbias, flags"),
    # Bytes that mp_saved_set_memory needs for a forward of so many rows: x in the format of the weight gradient, and its scales.
    "mp_linear_get_saved_bytes": (c_int32, [POINTER(mp_linear), c_int64, POINTER(c_size_t)], "linear, rows, bytes"),
    # Has what is kept lie in the caller's memory. Where a forward has been, the bytes that were at the old place of the caller's
    # are taken to be at the new one: copy them first. A saved whose x lies in the library's memory cannot be moved.
    "mp_saved_set_memory": (c_int32, [POINTER(mp_saved), c_void_p, c_size_t], "saved, memory, bytes"),
    # The caller's memory that mp_saved_set_memory named.
    "mp_saved_get_memory": (c_int32, [POINTER(mp_saved), POINTER(c_void_p), POINTER(c_size_t)], "saved, memory, bytes"),
    # Gives the caller's reference back.
    "mp_saved_destroy": (None, [POINTER(mp_saved)], "saved"),
    # How dw in fp16 or bf16 is rounded from now on, by mp_linear_backward too. Under MP_ROUND_STOCHASTIC the product is added
    # to dw in fp32 and rounded once, by the bits of (seed, uid, element, step, microbatch): set them before each micro-batch.
    # A dw in fp32 is not rounded.
    "mp_linear_set_gradient_rounding": (c_int32, [POINTER(mp_linear), POINTER(mp_cast_desc)], "linear, desc"),
    # What mp_linear_set_gradient_rounding was told.
    "mp_linear_get_gradient_rounding": (c_int32, [POINTER(mp_linear), POINTER(mp_cast_desc)], "linear, desc"),
    # The format in which a product takes an operand: for codes that the caller makes, and for memory that holds them.
    "mp_linear_get_operand_format": (c_int32, [POINTER(mp_linear), c_int32, c_int32, POINTER(c_int32), POINTER(mp_quant_desc)], "linear, product, operand, dtype, quant"),
    # Rounds an operand as the product would, into codes of the caller's: by the layer's delayed scale where it has one, and
    # counted by the layer at once, so not for an evaluation. Enqueues. Give them to the calls above as x or dy, or to mp_linear_set_weight_codes.
    "mp_linear_quantize": (c_int32, [POINTER(mp_linear), POINTER(mp_queue), c_int32, c_int32, POINTER(mp_tensor), POINTER(mp_tensor)], "linear, queue, product, operand, source, codes"),
    # Has products take these codes of the caller's instead of rounding the weight: who changes the weight makes them anew.
    # Their amax enters the delayed scale. Kept alive.
    "mp_linear_set_weight_codes": (c_int32, [POINTER(mp_linear), POINTER(mp_tensor), POINTER(mp_tensor)], "linear, fprop, dgrad"),
    # What mp_linear_set_weight_codes was given.
    "mp_linear_get_weight_codes": (c_int32, [POINTER(mp_linear), c_int32, POINTER(POINTER(mp_tensor))], "linear, product, out"),
    # The delayed scale of an operand, for kernels of the caller's that make codes: what x is multiplied by before it is
    # rounded; scale_inv = RN(1 / multiply). One fp32 element in device memory that moves with mp_linear_end_step. In the
    # first steps of a recipe with a warm-up it is not used.
    "mp_linear_get_multiply_tensor": (c_int32, [POINTER(mp_linear), c_int32, POINTER(POINTER(mp_tensor))], "linear, operand, out"),
    # Makes the scaler a recipe asks for; for a recipe without loss scaling one of kind MP_SCALER_NONE, so that
    # the caller's loop is the same for every recipe. Freezes the recipe.
    "mp_scaler_create_from_recipe": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), POINTER(POINTER(mp_scaler))], "context, recipe, out"),
    # Makes a scaler on the context's device.
    "mp_scaler_create": (c_int32, [POINTER(mp_context), POINTER(mp_scaler_desc), POINTER(POINTER(mp_scaler))], "context, desc, out"),
    # The loss scale as it is after all enqueued work. Blocks.
    "mp_scaler_get_scale": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue), POINTER(c_double)], "scaler, queue, scale"),
    # Moves the scale by the rule, once a step, and clears found_inf. Enqueues.
    "mp_scaler_update": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue)], "scaler, queue"),
    # Gives the caller's reference back.
    "mp_scaler_destroy": (None, [POINTER(mp_scaler)], "scaler"),
    # Looks whether gradients in the caller's own memory are finite; for loops without mp_optimizer. Adds to
    # found_inf until the next update: every step until then is skipped. Enqueues; on the host the memory is read before the call returns.
    "mp_scaler_check_pointers": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue), c_int64, POINTER(c_void_p), POINTER(c_int32), POINTER(c_int64)], "scaler, queue, count, grads, dtypes, elements"),
    # The loss scale in device memory: one fp32 element that shares the scaler's memory, for losses that are multiplied on the device
    # without waiting. 1 of a scaler of kind MP_SCALER_NONE.
    "mp_scaler_get_scale_tensor": (c_int32, [POINTER(mp_scaler), POINTER(POINTER(mp_tensor))], "scaler, out"),
    # found_inf, 0 or 1, likewise. Kernels of the caller's may write it before mp_scaler_update: the maximum over ranks, say.
    "mp_scaler_get_found_inf_tensor": (c_int32, [POINTER(mp_scaler), POINTER(POINTER(mp_tensor))], "scaler, out"),
    # found_inf becomes 1 where it is on any rank, before mp_scaler_update; for loops without mp_optimizer, and for ranks that hold other
    # parameters. One small message. Blocks.
    "mp_scaler_combine": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue), POINTER(mp_comm)], "scaler, queue, comm"),
    # Reads the whole state. Blocks.
    "mp_scaler_get_state": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue), POINTER(mp_scaler_state)], "scaler, queue, state"),
    # Replaces the whole state, to go on exactly where a saved run stopped. Blocks.
    "mp_scaler_set_state": (c_int32, [POINTER(mp_scaler), POINTER(mp_queue), POINTER(mp_scaler_state)], "scaler, queue, state"),
    # Fills a descriptor with the rule of a known system.
    "mp_scaler_desc_preset": (c_int32, [POINTER(mp_scaler_desc), c_size_t, c_char_p], "desc, size, name"),
    # As mp_optimizer_create, for an optimizer whose states the ranks of a communicator share. It makes a communicator of its
    # own from `comm`, which may be destroyed after. Every rank then adds the same groups and parameters, whole, with
    # the same names, shapes and values. Blocks.
    "mp_optimizer_create_sharded": (c_int32, [POINTER(mp_context), POINTER(mp_recipe), POINTER(mp_optimizer_desc), POINTER(mp_comm), POINTER(mp_sharding_desc), POINTER(POINTER(mp_optimizer))], "context, recipe, desc, comm, sharding, out"),
    # Cuts the parameters, makes this rank's states, and from stage 2 on takes the gradients' memory, in stage 3 the
    # weights'. The first step does it where nobody has. No parameter can be added after it. Blocks.
    "mp_optimizer_shard": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue)], "optimizer, queue"),
    # A gradient has its last addition. When all of its bucket are ready the bucket leaves. A thread of the optimizer's moves
    # what has left on, sums included, while backward goes on, and so it does what mp_optimizer_gather_begin began; it calls
    # the communicator only between calls of this optimizer, begins nothing on it (what a bucket begins later, in the order
    # EXACT or between groups and nodes, goes over groups that nothing else uses), sums with one thread, and sleeps when nothing
    # comes. Where there is none (mp_optimizer_get_progress says why) buckets move in these calls. The bits are the same. A
    # failure that the thread meets comes out of the next call that moves anything, and of all later ones. Every rank says it in
    # the same order. In stages 0 and 1 gradients stay in their tensors, so it is said once a step; under MP_OPTIMIZER_ZERO_GRAD,
    # and from stage 2 on, once a microbatch if wanted: what left is added to what left before. Does nothing without sharding.
    # Enqueues; blocks for a bucket that leaves.
    "mp_optimizer_grad_ready": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32], "optimizer, queue, index"),
    # All gradients of one slot are there, those that were said to be ready and the rest: they are kept in the wire's type, and
    # zeroed. Needed after each of this rank's slots where it has several; nothing else may add to them before. Does nothing without sharding. Enqueues; blocks for
    # buckets that leave.
    "mp_optimizer_end_microbatch": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue)], "optimizer, queue"),
    # Gives a gradient its memory, of zeros, where it has none. Does nothing in stages 0 and 1, or without sharding.
    # Enqueues.
    "mp_optimizer_acquire_grad": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), c_int32], "optimizer, queue, index"),
    # Stage 3: gives parameters memory and begins to fetch their slices; those that have memory are left alone. Several may be
    # under way, for layers to come. Every rank names the same parameters in the same order. Does nothing in other stages.
    # Blocks until this rank's own slices are ready to be sent.
    "mp_optimizer_gather_begin": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(c_int32), c_int32], "optimizer, queue, indices, count"),
    # Returns when these parameters are whole. Blocks. Does nothing in other stages.
    "mp_optimizer_gather_wait": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(c_int32), c_int32], "optimizer, queue, indices, count"),
    # Gives the parameters' memory back; what was written there is lost, unless mp_optimizer_sync_master took it. A step
    # does it for all. Blocks. Does nothing in other stages.
    "mp_optimizer_gather_free": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(c_int32), c_int32], "optimizer, queue, indices, count"),
    # Which elements of a parameter a rank owns.
    "mp_optimizer_get_slice": (c_int32, [POINTER(mp_optimizer), c_int32, c_int32, POINTER(c_int64), POINTER(c_int64)], "optimizer, index, rank, start, count"),
    # Whether messages move while the caller computes, and how many have. What the thread finished was over before the
    # step, or whoever waits, asked for it.
    "mp_optimizer_get_progress": (c_int32, [POINTER(mp_optimizer), POINTER(mp_sharding_progress)], "optimizer, progress"),
    # FP8-LM's factor mu of a gradient that ranks reduce under a shared scale (grad.reduce.scale "shared"): it begins at 1 /
    # sqrt(ranks), is halved by a step whose sum had to clip more than 1e-5 of its elements (one is forgiven), and doubles in
    # 1000 steps that had not. Codes are made under it rounded down to a power of two. A checkpoint keeps it.
    "mp_optimizer_get_grad_mu": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(c_double)], "optimizer, index, mu"),
    # What this rank has sent for this optimizer.
    "mp_optimizer_get_traffic": (c_int32, [POINTER(mp_optimizer), POINTER(mp_comm_traffic)], "optimizer, traffic"),
    # mp_recipe_plan_memory for one rank of many that share an optimizer, after mp_optimizer_shard: exactly the bytes of its
    # own elements, and of what every rank has. The one scale of a weight or gradient is on every rank. Gradients from stage
    # 2 on, and weights in stage 3, are not counted: they have memory while they are in use only. Every tensor is taken for a
    # matrix; mp_recipe_plan_tensors knows others.
    "mp_recipe_plan_memory_sharded": (c_int32, [POINTER(mp_recipe), c_int32, POINTER(c_int64), c_int64, POINTER(mp_sharding_desc), c_int32, c_int32, POINTER(mp_memory_report)], "recipe, rule, counts, tensor_count, sharding, rank, ranks, report"),
    # Plans tensors of several kinds: kept in fp32 beside the recipe's weights, of groups with formats of their own, or gathered
    # as codes; what one rank holds, and what it sends. A model that is made so holds exactly these bytes.
    "mp_recipe_plan_tensors": (c_int32, [POINTER(mp_recipe), POINTER(mp_planned_tensor), c_int64, POINTER(mp_sharding_desc), c_int32, c_int32, POINTER(mp_memory_report), POINTER(mp_comm_traffic)], "recipe, tensors, tensor_count, sharding, rank, ranks, memory, traffic"),
    # Symbolic name of a code, for logs ("MP_STATUS_INVALID_SHAPE").
    "mp_status_string": (c_char_p, [c_int32], "status"),
    # What went wrong in this thread's last call, in one line: the argument, what was found, what was
    # expected, what to do. Every call except the query functions of this header and mp_*_destroy clears it on entry.
    "mp_last_error_message": (c_char_p, [], ""),
    # Copy of mp_last_error_message() into the caller's memory, for languages that cannot borrow.
    "mp_last_error_copy": (c_int32, [POINTER(c_char), c_size_t, POINTER(c_size_t)], "buffer, capacity, needed"),
    # One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
    # kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
    "mp_optimizer_step_pointers": (c_int32, [POINTER(mp_context), POINTER(mp_queue), POINTER(mp_step_args), POINTER(mp_step_slot), c_int64, POINTER(mp_scaler), POINTER(mp_optimizer_stats)], "context, queue, args, slots, slot_count, scaler, stats"),
    # Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and a count of
    # steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
    "mp_step_plan_create": (c_int32, [POINTER(mp_context), POINTER(mp_step_args), POINTER(mp_step_slot), c_int64, POINTER(POINTER(mp_step_plan))], "context, args, slots, slot_count, out"),
    # A step, with the bits of mp_optimizer_step_pointers. t grows with every step that is taken. Enqueues; allocates nothing.
    "mp_step_plan_run": (c_int32, [POINTER(mp_step_plan), POINTER(mp_queue), POINTER(mp_scaler)], "plan, queue, scaler"),
    # Other hyperparameters, from the next run on. What changes every step is better given by hyper_pointer or lr_pointer. Blocks.
    "mp_step_plan_set_args": (c_int32, [POINTER(mp_step_plan), POINTER(mp_queue), POINTER(mp_step_args)], "plan, queue, args"),
    # What the plan was told last.
    "mp_step_plan_get_args": (c_int32, [POINTER(mp_step_plan), POINTER(mp_step_args)], "plan, args"),
    # What the last run did, and the steps taken so far. Blocks.
    "mp_step_plan_get_stats": (c_int32, [POINTER(mp_step_plan), POINTER(mp_queue), POINTER(mp_optimizer_stats)], "plan, queue, stats"),
    # Gives the caller's reference back.
    "mp_step_plan_destroy": (None, [POINTER(mp_step_plan)], "plan"),
    # Makes a tensor in the library's memory, 64-byte aligned, all zero bytes.
    "mp_tensor_create": (c_int32, [POINTER(mp_context), POINTER(mp_tensor_desc), POINTER(POINTER(mp_tensor))], "context, desc, out"),
    # Copies from host memory into a tensor. Blocks.
    "mp_tensor_write": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), c_void_p, c_size_t], "tensor, queue, data, bytes"),
    # Copies a tensor into host memory. Blocks.
    "mp_tensor_read": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), c_void_p, c_size_t], "tensor, queue, data, bytes"),
    # Copies elements between tensors of the same type and number of elements, on the same or on different
    # devices; of quantized ones, which must be alike, also scales and amax. Enqueues. Overlapping memory is refused.
    "mp_tensor_copy": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), POINTER(mp_tensor)], "source, queue, destination"),
    # Sets every byte to zero. Enqueues.
    "mp_tensor_zero": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue)], "tensor, queue"),
    # Converts between fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2. Enqueues.
    # Numerics: through fp32, exact on the way in; one rounding on the way out; NaN kept; subnormals exact.
    # Stochastic rounding draws from Philox4x32-10 by (seed, uid, element, step, micro-batch), so the bits do not depend on
    # threads or device.
    "mp_tensor_cast": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), POINTER(mp_tensor), POINTER(mp_cast_desc)], "source, queue, destination, desc"),
    # Gives the caller's reference back.
    "mp_tensor_destroy": (None, [POINTER(mp_tensor)], "tensor"),
    # Makes a tensor over the caller's memory, which must hold the whole shape, be aligned to the element
    # size, and stay valid until the deleter runs (or, without one, until the tensor and all that uses it are
    # destroyed).
    "mp_tensor_wrap": (c_int32, [POINTER(mp_context), POINTER(mp_tensor_desc), c_void_p, mp_deleter_fn, c_void_p, POINTER(POINTER(mp_tensor))], "context, desc, data, deleter, payload, out"),
    # Some elements of a tensor as a tensor of their own, without a copy: rows of an embedding, the Q of a QKV weight, one expert
    # of a stack. What is written through one is seen through the other, and caches of either notice it. The view keeps the
    # tensor alive, and its memory in its place (of a sharded parameter it cannot be given back meanwhile).
    "mp_tensor_create_view": (c_int32, [POINTER(mp_tensor), c_int64, c_int32, POINTER(c_int64), POINTER(POINTER(mp_tensor))], "tensor, offset, ndim, shape, out"),
    # Type, shape and device of a tensor.
    "mp_tensor_get_desc": (c_int32, [POINTER(mp_tensor), POINTER(mp_tensor_desc)], "tensor, desc"),
    # The tensor's memory: a borrowed pointer, on its device, valid as long as the tensor.
    "mp_tensor_get_data": (c_int32, [POINTER(mp_tensor), POINTER(c_void_p)], "tensor, data"),
    # Largest absolute value. NaN wins over everything and infinity over every number; 0 for no elements.
    # Enqueues.
    "mp_tensor_amax": (c_int32, [POINTER(mp_tensor), POINTER(mp_queue), POINTER(mp_tensor)], "tensor, queue, amax"),
    # Name of an element type as recipes and messages spell it ("bf16", "fp8_e4m3", ...).
    "mp_dtype_name": (c_char_p, [c_int32], "dtype"),
    # The inverse of mp_dtype_name.
    "mp_dtype_from_name": (c_int32, [c_char_p], "name"),
    # Bytes of one element.
    "mp_dtype_size": (c_size_t, [c_int32], "dtype"),
    # Version of the loaded library, in the form of MP_VERSION. From 0.2 on all 0.x versions are additive: a program
    # compiled against header version H works with every library whose version is at least H.
    "mp_library_version": (c_uint32, [], ""),
    # Version, compiler, and what was built in, as one line of text for bug reports.
    "mp_library_build_info": (c_char_p, [], ""),
    # Ends the library's own run-time systems (its private Kokkos). Final: later calls that need a device
    # fail with MP_STATUS_BAD_STATE. Never needed before a normal exit. Refused while contexts are alive.
    # Blocks.
    "mp_library_shutdown": (c_int32, [], ""),
    # Skips steps that stand out from now on. Gradients are then read once before each step, as for clipping. What the last
    # guard has seen, here or in the checkpoint that was loaded, stays in the window. Where ranks share the optimizer all give the same; one that does not is named in the
    # next step. Blocks.
    "mp_optimizer_set_guard": (c_int32, [POINTER(mp_optimizer), POINTER(mp_queue), POINTER(mp_guard_desc)], "optimizer, queue, desc"),
    # The guard as it is.
    "mp_optimizer_get_guard": (c_int32, [POINTER(mp_optimizer), POINTER(mp_guard_desc)], "optimizer, desc"),
    # Gives the loss of the step to come, for the guard and the history; each step forgets it. Where ranks share the
    # optimizer and the guard watches the loss, it is the same number on all, such as the mean over the ranks.
    "mp_optimizer_set_loss": (c_int32, [POINTER(mp_optimizer), c_double], "optimizer, loss"),
    # Keeps the last steps. Each mp_optimizer_step then waits for its own decision on an accelerator. Of the first step that is
    # skipped because something is not finite it finds the first bad tensor: in the order of mp_optimizer_set_linears the weight
    # or input of a layer that counts its operands (MP_LINEAR_STATS or a monitor), else the first gradient in the order of
    # parameters. With a path it writes the records and what the layers counted as one JSON object; a failure to write goes to the
    # log and fails no step. Begins anew: records, call and bad tensor are forgotten.
    "mp_optimizer_set_history": (c_int32, [POINTER(mp_optimizer), c_int32, c_char_p], "optimizer, steps, path"),
    # Number of records there are: of the steps since the history began, or as many as it keeps.
    "mp_optimizer_get_record_count": (c_int32, [POINTER(mp_optimizer), POINTER(c_int32)], "optimizer, count"),
    # One record of the history.
    "mp_optimizer_get_record": (c_int32, [POINTER(mp_optimizer), c_int32, POINTER(mp_step_record)], "optimizer, index, record"),
    # The first tensor that was not finite, in the first step that was skipped for it, in words such as
    # "the gradient of 'h0.qkv.weight'". Empty: there was no such step since the history began.
    "mp_optimizer_get_bad_tensor": (c_int32, [POINTER(mp_optimizer), POINTER(c_char), c_size_t, POINTER(c_size_t)], "optimizer, buffer, capacity, needed"),
}


def check_layout():
    """Raises ImportError where a struct here is not laid out as the C compiler lays it out."""
    for name, (size, offsets) in LAYOUT.items():
        struct = globals()[name]
        found = tuple(getattr(struct, field[0]).offset for field in struct._fields_)
        if ctypes.sizeof(struct) != size or found != offsets:
            raise ImportError(f"{name} is laid out as {ctypes.sizeof(struct)} {found}, not as {size} {offsets}")


def load(path):
    """Opens the library at a path, or by a name that the system's loader knows, and gives its functions their types. One that
    is older than the headers that this file was made from is refused with ImportError."""
    library = ctypes.CDLL(path)
    library.mp_library_version.restype = c_uint32
    found = library.mp_library_version()
    if found // 10000 != MP_VERSION_MAJOR or found < MP_VERSION:
        def text(number):
            return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        raise ImportError(f"{path} is libmixedprec {text(found)}; this package needs {text(MP_VERSION)} or a later one of "
                          f"the same major version")
    for name, (result, arguments, _) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


check_layout()
