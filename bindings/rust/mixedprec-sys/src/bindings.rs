// SPDX-License-Identifier: Apache-2.0
// Made by bindings/generate/generate.py from the public headers. Do not edit.
use core::ffi::c_void;
use std::{ffi::CStr, os::raw::c_char};

/// 0 is success, negative a failure, positive success with a note.
pub type mp_status = i32;

const fn text(bytes: &'static [u8]) -> &'static CStr {
    // SAFETY: only called below, with texts that end with their only zero byte.
    unsafe { CStr::from_bytes_with_nul_unchecked(bytes) }
}

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// A handle: only ever pointed at, and of no thread as far as the compiler knows.
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
            _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }
    )*};
}
opaque! {
    mp_context
    mp_queue
    mp_event
    mp_tensor
    mp_recipe
    mp_gemm
    mp_linear
    mp_saved
    mp_scaler
    mp_step_plan
    mp_optimizer
    mp_checkpoint
    mp_comm
    mp_comm_request
    DLManagedTensorVersioned
}

pub const MP_CODING_PLAIN: i32 = 0;
pub const MP_CODING_FP8_BLOCK: i32 = 2;
pub const MP_CODING_DYNAMIC8: i32 = 3;
pub const MP_CODING_DYNAMIC4: i32 = 4;
pub const MP_CODING_REMAINDER: i32 = 5;
pub const MP_CODING_FP8_BLOCK128: i32 = 6;
pub const MP_CODING_COMPANDED8: i32 = 7;
pub const MP_SAVE_BACKGROUND: u32 = 1;
pub const MP_LOAD_VERIFY_ALL: u32 = 1;
pub const MP_LOAD_OTHER_RECIPE: u32 = 2;
pub const MP_LOAD_CONVERT: u32 = 4;
pub const MP_COMM_ALL_TO_ALL: i32 = 0;
pub const MP_COMM_ALL_GATHER: i32 = 1;
pub const MP_COMM_BROADCAST: i32 = 2;
pub const MP_COMM_BARRIER: i32 = 3;
pub const MP_COMM_MAX_U32: i32 = 4;
pub const MP_COMM_SUM_F32: i32 = 5;
pub const MP_COMM_HAS_SUM_F32: u32 = 1;
pub const MP_COMM_HAS_DEVICE_MEMORY: u32 = 2;
pub const MP_COMM_TAKES_ANY_THREAD: u32 = 4;
pub const MP_COMM_UNIQUE_ID_BYTES: i32 = 128;
pub const MP_LOG_ERROR: i32 = 1;
pub const MP_LOG_WARNING: i32 = 2;
pub const MP_LOG_INFO: i32 = 3;
pub const MP_LOG_DEBUG: i32 = 4;
pub const MP_CONTEXT_BIND_THREADS: u32 = 1;
pub const MP_CAST_SATURATE: u32 = 1;
pub const MP_CAST_NO_SATURATE: u32 = 2;
pub const MP_SCALING_TENSOR: i32 = 1;
pub const MP_SCALING_ROW: i32 = 2;
pub const MP_SCALING_COLUMN: i32 = 3;
pub const MP_SCALING_BLOCK_1X128: i32 = 4;
pub const MP_SCALING_BLOCK_128X1: i32 = 5;
pub const MP_SCALING_BLOCK_128X128: i32 = 6;
pub const MP_SCALING_MX_1X32: i32 = 7;
pub const MP_SCALING_MX_32X1: i32 = 8;
pub const MP_SCALING_NVFP4: i32 = 9;
pub const MP_SCALE_RULE_CURRENT: i32 = 1;
pub const MP_SCALE_RULE_FLOAT64: i32 = 2;
pub const MP_SCALE_RULE_MSAMP: i32 = 3;
pub const MP_SCALE_RULE_DEEPSEEK: i32 = 4;
pub const MP_SCALE_RULE_MX_RCEIL: i32 = 5;
pub const MP_SCALE_RULE_MX_FLOOR: i32 = 6;
pub const MP_SCALE_RULE_MX_CEIL: i32 = 7;
pub const MP_SCALE_RULE_MX_EVEN: i32 = 8;
pub const MP_SCALE_RULE_NVFP4: i32 = 9;
pub const MP_QUANT_POWER_OF_TWO: u32 = 1;
pub const MP_QUANTIZE_CHECK_AMAX: u32 = 1;
pub const MP_GEMM_TRANS_A: u32 = 1;
pub const MP_GEMM_TRANS_B: u32 = 2;
pub const MP_GEMM_BIAS: u32 = 4;
pub const MP_GEMM_GELU: u32 = 8;
pub const MP_GEMM_HAS_ALPHA: u32 = 16;
pub const MP_GEMM_POWER_OF_TWO_SCALES: u32 = 32;
pub const MP_GEMM_FAST_ACCUMULATION: u32 = 64;
pub const MP_LINEAR_INFERENCE: u32 = 1;
pub const MP_LINEAR_CACHE_WEIGHT: u32 = 2;
pub const MP_LINEAR_FIRST_OR_LAST: u32 = 4;
pub const MP_LINEAR_STATS: u32 = 8;
pub const MP_LINEAR_FROZEN: u32 = 16;
pub const MP_LINEAR_COPY_INPUT: u32 = 32;
pub const MP_OPERAND_INPUT: i32 = 0;
pub const MP_OPERAND_WEIGHT: i32 = 1;
pub const MP_OPERAND_GRAD_OUTPUT: i32 = 2;
pub const MP_OPERAND_COUNT: i32 = 3;
pub const MP_BACKWARD_ACCUMULATE: u32 = 1;
pub const MP_OPTIMIZER_OFFLOAD: u32 = 4;
pub const MP_PARAM_NORM_ELSEWHERE: u32 = 1;
pub const MP_RECIPE_TYPE_STRING: i32 = 1;
pub const MP_RECIPE_TYPE_FLOAT: i32 = 2;
pub const MP_RECIPE_TYPE_INT: i32 = 3;
pub const MP_RECIPE_GEMM_FPROP_DTYPE: &CStr = text(b"gemm.fprop.dtype\0");
pub const MP_RECIPE_GEMM_DGRAD_DTYPE: &CStr = text(b"gemm.dgrad.dtype\0");
pub const MP_RECIPE_GEMM_WGRAD_DTYPE: &CStr = text(b"gemm.wgrad.dtype\0");
pub const MP_RECIPE_WEIGHT_DTYPE: &CStr = text(b"weight.dtype\0");
pub const MP_RECIPE_MASTER_DTYPE: &CStr = text(b"master.dtype\0");
pub const MP_RECIPE_GRAD_DTYPE: &CStr = text(b"grad.dtype\0");
pub const MP_RECIPE_GRAD_REDUCE_DTYPE: &CStr = text(b"grad.reduce.dtype\0");
pub const MP_RECIPE_GRAD_REDUCE_SCALE: &CStr = text(b"grad.reduce.scale\0");
pub const MP_RECIPE_WEIGHT_GATHER_DTYPE: &CStr = text(b"weight.gather.dtype\0");
pub const MP_RECIPE_EXP_AVG_DTYPE: &CStr = text(b"optimizer.exp_avg.dtype\0");
pub const MP_RECIPE_EXP_AVG_SQ_DTYPE: &CStr = text(b"optimizer.exp_avg_sq.dtype\0");
pub const MP_RECIPE_COMPENSATION_DTYPE: &CStr = text(b"optimizer.compensation.dtype\0");
pub const MP_RECIPE_BLOCK_MIN_ELEMENTS: &CStr = text(b"optimizer.block_min_elements\0");
pub const MP_RECIPE_WEIGHT_ROUNDING: &CStr = text(b"optimizer.weight.rounding\0");
pub const MP_RECIPE_EXP_AVG_ROUNDING: &CStr = text(b"optimizer.exp_avg.rounding\0");
pub const MP_RECIPE_EXP_AVG_SQ_ROUNDING: &CStr = text(b"optimizer.exp_avg_sq.rounding\0");
pub const MP_RECIPE_GEMM_SCALING: &CStr = text(b"gemm.scaling\0");
pub const MP_RECIPE_FP8_FORMAT: &CStr = text(b"fp8.format\0");
pub const MP_RECIPE_GEMM_FPROP_QUANTIZED: &CStr = text(b"gemm.fprop.quantized\0");
pub const MP_RECIPE_GEMM_DGRAD_QUANTIZED: &CStr = text(b"gemm.dgrad.quantized\0");
pub const MP_RECIPE_GEMM_WGRAD_QUANTIZED: &CStr = text(b"gemm.wgrad.quantized\0");
pub const MP_RECIPE_GEMM_SCALE_RULE: &CStr = text(b"gemm.scale_rule\0");
pub const MP_RECIPE_GEMM_POWER_OF_TWO_SCALE: &CStr = text(b"gemm.power_of_two_scale\0");
pub const MP_RECIPE_GEMM_AMAX_EPSILON: &CStr = text(b"gemm.amax_epsilon\0");
pub const MP_RECIPE_GEMM_MARGIN: &CStr = text(b"gemm.margin\0");
pub const MP_RECIPE_GEMM_INTERVAL: &CStr = text(b"gemm.interval\0");
pub const MP_RECIPE_GEMM_AMAX_HISTORY_LEN: &CStr = text(b"gemm.amax_history_len\0");
pub const MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO: &CStr = text(b"gemm.amax_compute_algo\0");
pub const MP_RECIPE_GEMM_WARM_UP: &CStr = text(b"gemm.warm_up\0");
pub const MP_RECIPE_GEMM_REDUCE_AMAX: &CStr = text(b"gemm.reduce_amax\0");
pub const MP_RECIPE_GEMM_FAST_ACCUMULATION: &CStr = text(b"gemm.fast_accumulation\0");
pub const MP_RECIPE_WEIGHT_GATHER_CODES: &CStr = text(b"weight.gather.codes\0");
pub const MP_RECIPE_GEMM_WEIGHT_COPY: &CStr = text(b"gemm.weight_copy\0");
pub const MP_RECIPE_GEMM_FILTER_MULTIPLE_OF: &CStr = text(b"gemm.filter.multiple_of\0");
pub const MP_RECIPE_GEMM_FILTER_FIRST_LAST: &CStr = text(b"gemm.filter.first_last\0");
pub const MP_RECIPE_GEMM_FILTER_SIZE: &CStr = text(b"gemm.filter.size\0");
pub const MP_RECIPE_GEMM_FILTER_NAMES: &CStr = text(b"gemm.filter.names\0");
pub const MP_RECIPE_SCALER_KIND: &CStr = text(b"scaler.kind\0");
pub const MP_RECIPE_SCALER_INIT_SCALE: &CStr = text(b"scaler.init_scale\0");
pub const MP_RECIPE_SCALER_GROWTH_FACTOR: &CStr = text(b"scaler.growth_factor\0");
pub const MP_RECIPE_SCALER_BACKOFF_FACTOR: &CStr = text(b"scaler.backoff_factor\0");
pub const MP_RECIPE_SCALER_GROWTH_INTERVAL: &CStr = text(b"scaler.growth_interval\0");
pub const MP_RECIPE_SCALER_HYSTERESIS: &CStr = text(b"scaler.hysteresis\0");
pub const MP_RECIPE_SCALER_REFILL: &CStr = text(b"scaler.hysteresis_refill\0");
pub const MP_RECIPE_SCALER_MIN_SCALE: &CStr = text(b"scaler.min_scale\0");
pub const MP_RECIPE_SCALER_MAX_SCALE: &CStr = text(b"scaler.max_scale\0");
pub const MP_RECIPE_SCALER_AT_MIN: &CStr = text(b"scaler.at_min\0");
pub const MP_RECIPE_SCALER_COUNT_OFFSET: &CStr = text(b"scaler.count_offset\0");
pub const MP_COMM_OP_SUM: i32 = 0;
pub const MP_COMM_OP_MAX_ABS_BITS: i32 = 1;
pub const MP_COMM_ORDER_RANK: i32 = 0;
pub const MP_COMM_ORDER_TREE: i32 = 1;
pub const MP_COMM_ORDER_EXACT: i32 = 2;
pub const MP_COMM_ORDER_FAST: i32 = 3;
pub const MP_COMM_ACCUMULATE_DEFAULT: i32 = 0;
pub const MP_COMM_ACCUMULATE_FP32: i32 = 1;
pub const MP_COMM_ACCUMULATE_FP64: i32 = 2;
pub const MP_COMM_ACCUMULATE_FIXED: i32 = 3;
pub const MP_COMM_SCALE_DEFAULT: i32 = 0;
pub const MP_COMM_SCALE_TENSOR: i32 = 1;
pub const MP_COMM_SCALE_BLOCK: i32 = 2;
pub const MP_COMM_SCALE_MX: i32 = 3;
pub const MP_COMM_SCALE_SHARED: i32 = 4;
pub const MP_REDUCE_STOCHASTIC: u32 = 1;
pub const MP_RULE_ADAMW: i32 = 0;
pub const MP_RULE_ADAM: i32 = 1;
pub const MP_RULE_LION: i32 = 2;
pub const MP_STATE_EXP_AVG: i32 = 0;
pub const MP_STATE_EXP_AVG_SQ: i32 = 1;
pub const MP_MAX_RULE_STATES: i32 = 4;
pub const MP_MAX_STATES: i32 = 16;
pub const MP_RULE_MAXIMIZE: u32 = 1024;
pub const MP_RULE_NO_BIAS_CORRECTION: u32 = 2048;
pub const MP_FORWARD_DROP: u32 = 1;
pub const MP_FORWARD_RECOMPUTE: u32 = 2;
pub const MP_PRODUCT_FPROP: i32 = 0;
pub const MP_PRODUCT_DGRAD: i32 = 1;
pub const MP_PRODUCT_WGRAD: i32 = 2;
pub const MP_SCALER_DYNAMIC: i32 = 0;
pub const MP_SCALER_STATIC: i32 = 1;
pub const MP_SCALER_NONE: i32 = 2;
pub const MP_SCALER_REFILL_ON_GOOD_STEP: u32 = 1;
pub const MP_SCALER_ERROR_AT_MIN: u32 = 2;
pub const MP_SHARD_FLAT: i32 = 0;
pub const MP_SHARD_PER_PARAMETER: i32 = 1;
pub const MP_SHARD_GREEDY: i32 = 2;
pub const MP_SHARDING_SUM_GRADIENTS: u32 = 1;
pub const MP_SHARDING_NO_PROGRESS_THREAD: u32 = 2;
pub const MP_SHARDING_STAGE_0: i32 = -1;
pub const MP_STATUS_OK: i32 = 0;
pub const MP_STATUS_WARNING: i32 = 1;
pub const MP_STATUS_NOT_READY: i32 = 2;
pub const MP_STATUS_NULL_ARGUMENT: i32 = -1;
pub const MP_STATUS_INVALID_ARGUMENT: i32 = -2;
pub const MP_STATUS_INVALID_SHAPE: i32 = -3;
pub const MP_STATUS_INVALID_DTYPE: i32 = -4;
pub const MP_STATUS_UNKNOWN_NAME: i32 = -5;
pub const MP_STATUS_STRUCT_TOO_NEW: i32 = -6;
pub const MP_STATUS_BAD_STATE: i32 = -7;
pub const MP_STATUS_INVALID_HANDLE: i32 = -8;
pub const MP_STATUS_PARSE_ERROR: i32 = -9;
pub const MP_STATUS_UNSUPPORTED: i32 = -20;
pub const MP_STATUS_DEVICE_UNAVAILABLE: i32 = -21;
pub const MP_STATUS_MODULE_NOT_FOUND: i32 = -22;
pub const MP_STATUS_VERSION_MISMATCH: i32 = -23;
pub const MP_STATUS_OUT_OF_MEMORY: i32 = -40;
pub const MP_STATUS_IO_ERROR: i32 = -41;
pub const MP_STATUS_CALLBACK_FAILED: i32 = -42;
pub const MP_STATUS_TIMEOUT: i32 = -43;
pub const MP_STATUS_PEER_LOST: i32 = -44;
pub const MP_STATUS_PEER_ERROR: i32 = -45;
pub const MP_STATUS_RANK_MISMATCH: i32 = -46;
pub const MP_STATUS_ABORTED: i32 = -47;
pub const MP_STATUS_CORRUPT_DATA: i32 = -48;
pub const MP_STATUS_ONEDNN_ERROR: i32 = -60;
pub const MP_STATUS_CUDA_ERROR: i32 = -61;
pub const MP_STATUS_CUBLAS_ERROR: i32 = -62;
pub const MP_STATUS_NCCL_ERROR: i32 = -63;
pub const MP_STATUS_MPI_ERROR: i32 = -64;
pub const MP_STATUS_KOKKOS_ERROR: i32 = -65;
pub const MP_STATUS_DEVICE_ERROR: i32 = -66;
pub const MP_STATUS_INTERNAL: i32 = -80;
pub const MP_OPTIMIZER_CHECK_FINITE: u32 = 1;
pub const MP_OPTIMIZER_ZERO_GRAD: u32 = 2;
pub const MP_STEP_SR_PARAM: u32 = 16;
pub const MP_STEP_SR_STATE: u32 = 32;
pub const MP_DTYPE_NONE: i32 = 0;
pub const MP_DTYPE_FP32: i32 = 1;
pub const MP_DTYPE_FP16: i32 = 2;
pub const MP_DTYPE_BF16: i32 = 3;
pub const MP_DTYPE_FP8_E4M3: i32 = 4;
pub const MP_DTYPE_FP8_E5M2: i32 = 5;
pub const MP_DTYPE_E8M0: i32 = 6;
pub const MP_DTYPE_INT8: i32 = 7;
pub const MP_DTYPE_INT16: i32 = 8;
pub const MP_DTYPE_INT32: i32 = 9;
pub const MP_DTYPE_INT64: i32 = 10;
pub const MP_DTYPE_UINT8: i32 = 11;
pub const MP_DTYPE_FP4_E2M1: i32 = 12;
pub const MP_DEVICE_DEFAULT: i32 = 0;
pub const MP_DEVICE_HOST: i32 = 1;
pub const MP_DEVICE_CUDA: i32 = 2;
pub const MP_DEVICE_HIP: i32 = 3;
pub const MP_ROUND_NEAREST: i32 = 0;
pub const MP_ROUND_STOCHASTIC: i32 = 1;
pub const MP_MAX_DIMS: i32 = 8;
pub const MP_VERSION_MAJOR: i32 = 0;
pub const MP_VERSION_MINOR: i32 = 2;
pub const MP_VERSION_PATCH: i32 = 0;
pub const MP_VERSION: u32 = 200;
pub const MP_STEP_TAKEN: u32 = 0;
pub const MP_STEP_NON_FINITE: u32 = 1;
pub const MP_STEP_OUTLIER: u32 = 2;

pub type mp_checkpoint_progress_fn = Option<unsafe extern "C" fn(done: i64, total: i64, payload: *mut c_void)>;
pub type mp_comm_begin_fn = Option<unsafe extern "C" fn(operation: *const mp_comm_operation, request: *mut *mut c_void, payload: *mut c_void) -> mp_status>;
pub type mp_comm_poll_fn = Option<unsafe extern "C" fn(request: *mut c_void, done: *mut i32, payload: *mut c_void) -> mp_status>;
pub type mp_comm_release_fn = Option<unsafe extern "C" fn(request: *mut c_void, payload: *mut c_void)>;
pub type mp_comm_abort_fn = Option<unsafe extern "C" fn(status: mp_status, reason: *const c_char, payload: *mut c_void)>;
pub type mp_comm_pause_fn = Option<unsafe extern "C" fn(nanoseconds: i64, payload: *mut c_void)>;
pub type mp_comm_end_fn = Option<unsafe extern "C" fn(payload: *mut c_void)>;
pub type mp_comm_split_fn = Option<unsafe extern "C" fn(group: *const mp_comm_group, out: *mut mp_comm_callbacks, payload: *mut c_void) -> mp_status>;
pub type mp_allocate_fn = Option<unsafe extern "C" fn(size: usize, alignment: usize, payload: *mut c_void) -> *mut c_void>;
pub type mp_release_fn = Option<unsafe extern "C" fn(pointer: *mut c_void, size: usize, alignment: usize, payload: *mut c_void)>;
pub type mp_log_fn = Option<unsafe extern "C" fn(level: i32, message: *const c_char, payload: *mut c_void)>;
pub type mp_parallel_fn = Option<unsafe extern "C" fn(count: i32, task: Option<unsafe extern "C" fn(data: *mut c_void, index: i32)>, data: *mut c_void, payload: *mut c_void)>;
pub type mp_linear_monitor_fn = Option<unsafe extern "C" fn(payload: *mut c_void, name: *const c_char, stats: *const mp_linear_stats, advice: *const c_char)>;
pub type mp_deleter_fn = Option<unsafe extern "C" fn(payload: *mut c_void)>;

/// See mixedprec/array.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_array {
    pub data: *mut c_void,
    pub scale_inv: *mut c_void,
    pub amax: *mut f32,
    pub dtype: i32,
    pub coding: i32,
}

impl mp_array {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        data: core::ptr::null_mut(),
        scale_inv: core::ptr::null_mut(),
        amax: core::ptr::null_mut(),
        dtype: 0,
        coding: 0,
    };
}

impl Default for mp_array {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_array>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_array, data) == 0);
    assert!(core::mem::offset_of!(mp_array, scale_inv) == 8);
    assert!(core::mem::offset_of!(mp_array, amax) == 16);
    assert!(core::mem::offset_of!(mp_array, dtype) == 24);
    assert!(core::mem::offset_of!(mp_array, coding) == 28);
};

/// See mixedprec/checkpoint.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_checkpoint_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub keep: i32,
    pub reserved: i32,
    pub progress: mp_checkpoint_progress_fn,
    pub payload: *mut c_void,
}

impl mp_checkpoint_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_checkpoint_desc>() as u32,
        flags: 0,
        keep: 0,
        reserved: 0,
        progress: None,
        payload: core::ptr::null_mut(),
    };
}

impl Default for mp_checkpoint_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_checkpoint_desc>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_checkpoint_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_checkpoint_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_checkpoint_desc, keep) == 8);
    assert!(core::mem::offset_of!(mp_checkpoint_desc, reserved) == 12);
    assert!(core::mem::offset_of!(mp_checkpoint_desc, progress) == 16);
    assert!(core::mem::offset_of!(mp_checkpoint_desc, payload) == 24);
};

/// See mixedprec/checkpoint.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_checkpoint_info {
    pub struct_size: u32,
    pub format: i32,
    pub step: i64,
    pub sequence: i64,
    pub world: i64,
    pub tensor_count: i64,
    pub bytes: i64,
    pub applied_step: i64,
    pub seed: u64,
    pub converted: i32,
    pub reserved: i32,
    pub weight_largest_error: f64,
    pub weight_rms_error: f64,
    pub state_largest_error: [f64; 16],
    pub state_rms_error: [f64; 16],
}

impl mp_checkpoint_info {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_checkpoint_info>() as u32,
        format: 0,
        step: 0,
        sequence: 0,
        world: 0,
        tensor_count: 0,
        bytes: 0,
        applied_step: 0,
        seed: 0,
        converted: 0,
        reserved: 0,
        weight_largest_error: 0.0,
        weight_rms_error: 0.0,
        state_largest_error: [0.0; 16],
        state_rms_error: [0.0; 16],
    };
}

impl Default for mp_checkpoint_info {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_checkpoint_info>() == 344);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_checkpoint_info, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_checkpoint_info, format) == 4);
    assert!(core::mem::offset_of!(mp_checkpoint_info, step) == 8);
    assert!(core::mem::offset_of!(mp_checkpoint_info, sequence) == 16);
    assert!(core::mem::offset_of!(mp_checkpoint_info, world) == 24);
    assert!(core::mem::offset_of!(mp_checkpoint_info, tensor_count) == 32);
    assert!(core::mem::offset_of!(mp_checkpoint_info, bytes) == 40);
    assert!(core::mem::offset_of!(mp_checkpoint_info, applied_step) == 48);
    assert!(core::mem::offset_of!(mp_checkpoint_info, seed) == 56);
    assert!(core::mem::offset_of!(mp_checkpoint_info, converted) == 64);
    assert!(core::mem::offset_of!(mp_checkpoint_info, reserved) == 68);
    assert!(core::mem::offset_of!(mp_checkpoint_info, weight_largest_error) == 72);
    assert!(core::mem::offset_of!(mp_checkpoint_info, weight_rms_error) == 80);
    assert!(core::mem::offset_of!(mp_checkpoint_info, state_largest_error) == 88);
    assert!(core::mem::offset_of!(mp_checkpoint_info, state_rms_error) == 216);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub deadline_ms: i64,
    pub ranks_per_node: i32,
    pub reserved: i32,
}

impl mp_comm_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_desc>() as u32,
        flags: 0,
        deadline_ms: 0,
        ranks_per_node: 0,
        reserved: 0,
    };
}

impl Default for mp_comm_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_desc>() == 24);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_comm_desc, deadline_ms) == 8);
    assert!(core::mem::offset_of!(mp_comm_desc, ranks_per_node) == 16);
    assert!(core::mem::offset_of!(mp_comm_desc, reserved) == 20);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_exchange {
    pub struct_size: u32,
    pub flags: u32,
    pub send: *const c_void,
    pub send_bytes: *const i64,
    pub send_offsets: *const i64,
    pub receive: *mut c_void,
    pub receive_bytes: *const i64,
    pub receive_offsets: *const i64,
    pub deadline_ms: i64,
    pub site: *const c_char,
}

impl mp_comm_exchange {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_exchange>() as u32,
        flags: 0,
        send: core::ptr::null(),
        send_bytes: core::ptr::null(),
        send_offsets: core::ptr::null(),
        receive: core::ptr::null_mut(),
        receive_bytes: core::ptr::null(),
        receive_offsets: core::ptr::null(),
        deadline_ms: 0,
        site: core::ptr::null(),
    };
}

impl Default for mp_comm_exchange {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_exchange>() == 72);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_exchange, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_exchange, flags) == 4);
    assert!(core::mem::offset_of!(mp_comm_exchange, send) == 8);
    assert!(core::mem::offset_of!(mp_comm_exchange, send_bytes) == 16);
    assert!(core::mem::offset_of!(mp_comm_exchange, send_offsets) == 24);
    assert!(core::mem::offset_of!(mp_comm_exchange, receive) == 32);
    assert!(core::mem::offset_of!(mp_comm_exchange, receive_bytes) == 40);
    assert!(core::mem::offset_of!(mp_comm_exchange, receive_offsets) == 48);
    assert!(core::mem::offset_of!(mp_comm_exchange, deadline_ms) == 56);
    assert!(core::mem::offset_of!(mp_comm_exchange, site) == 64);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_traffic {
    pub struct_size: u32,
    pub flags: u32,
    pub calls: i64,
    pub total_bytes: i64,
    pub all_to_all_bytes: i64,
    pub all_gather_bytes: i64,
    pub broadcast_bytes: i64,
    pub max_u32_bytes: i64,
    pub sum_f32_bytes: i64,
}

impl mp_comm_traffic {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_traffic>() as u32,
        flags: 0,
        calls: 0,
        total_bytes: 0,
        all_to_all_bytes: 0,
        all_gather_bytes: 0,
        broadcast_bytes: 0,
        max_u32_bytes: 0,
        sum_f32_bytes: 0,
    };
}

impl Default for mp_comm_traffic {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_traffic>() == 64);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_traffic, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_traffic, flags) == 4);
    assert!(core::mem::offset_of!(mp_comm_traffic, calls) == 8);
    assert!(core::mem::offset_of!(mp_comm_traffic, total_bytes) == 16);
    assert!(core::mem::offset_of!(mp_comm_traffic, all_to_all_bytes) == 24);
    assert!(core::mem::offset_of!(mp_comm_traffic, all_gather_bytes) == 32);
    assert!(core::mem::offset_of!(mp_comm_traffic, broadcast_bytes) == 40);
    assert!(core::mem::offset_of!(mp_comm_traffic, max_u32_bytes) == 48);
    assert!(core::mem::offset_of!(mp_comm_traffic, sum_f32_bytes) == 56);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_operation {
    pub struct_size: u32,
    pub kind: i32,
    pub sequence: u64,
    pub send: *const c_void,
    pub send_bytes: *const i64,
    pub send_offsets: *const i64,
    pub receive: *mut c_void,
    pub receive_bytes: *const i64,
    pub receive_offsets: *const i64,
    pub count: i64,
    pub root: i32,
    pub reserved: i32,
    pub native: *const c_void,
}

impl mp_comm_operation {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_operation>() as u32,
        kind: 0,
        sequence: 0,
        send: core::ptr::null(),
        send_bytes: core::ptr::null(),
        send_offsets: core::ptr::null(),
        receive: core::ptr::null_mut(),
        receive_bytes: core::ptr::null(),
        receive_offsets: core::ptr::null(),
        count: 0,
        root: 0,
        reserved: 0,
        native: core::ptr::null(),
    };
}

impl Default for mp_comm_operation {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_operation>() == 88);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_operation, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_operation, kind) == 4);
    assert!(core::mem::offset_of!(mp_comm_operation, sequence) == 8);
    assert!(core::mem::offset_of!(mp_comm_operation, send) == 16);
    assert!(core::mem::offset_of!(mp_comm_operation, send_bytes) == 24);
    assert!(core::mem::offset_of!(mp_comm_operation, send_offsets) == 32);
    assert!(core::mem::offset_of!(mp_comm_operation, receive) == 40);
    assert!(core::mem::offset_of!(mp_comm_operation, receive_bytes) == 48);
    assert!(core::mem::offset_of!(mp_comm_operation, receive_offsets) == 56);
    assert!(core::mem::offset_of!(mp_comm_operation, count) == 64);
    assert!(core::mem::offset_of!(mp_comm_operation, root) == 72);
    assert!(core::mem::offset_of!(mp_comm_operation, reserved) == 76);
    assert!(core::mem::offset_of!(mp_comm_operation, native) == 80);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_group {
    pub struct_size: u32,
    pub color: i32,
    pub key: i32,
    pub count: i32,
    pub rank: i32,
    pub context: i32,
    pub members: *const i32,
}

impl mp_comm_group {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_group>() as u32,
        color: 0,
        key: 0,
        count: 0,
        rank: 0,
        context: 0,
        members: core::ptr::null(),
    };
}

impl Default for mp_comm_group {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_group>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_group, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_group, color) == 4);
    assert!(core::mem::offset_of!(mp_comm_group, key) == 8);
    assert!(core::mem::offset_of!(mp_comm_group, count) == 12);
    assert!(core::mem::offset_of!(mp_comm_group, rank) == 16);
    assert!(core::mem::offset_of!(mp_comm_group, context) == 20);
    assert!(core::mem::offset_of!(mp_comm_group, members) == 24);
};

/// See mixedprec/comm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_callbacks {
    pub struct_size: u32,
    pub flags: u32,
    pub rank: i32,
    pub size: i32,
    pub nodes: *const i32,
    pub name: *const c_char,
    pub begin: mp_comm_begin_fn,
    pub poll: mp_comm_poll_fn,
    pub release: mp_comm_release_fn,
    pub abort: mp_comm_abort_fn,
    pub pause: mp_comm_pause_fn,
    pub split: mp_comm_split_fn,
    pub destroy: mp_comm_end_fn,
    pub payload: *mut c_void,
}

impl mp_comm_callbacks {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_callbacks>() as u32,
        flags: 0,
        rank: 0,
        size: 0,
        nodes: core::ptr::null(),
        name: core::ptr::null(),
        begin: None,
        poll: None,
        release: None,
        abort: None,
        pause: None,
        split: None,
        destroy: None,
        payload: core::ptr::null_mut(),
    };
}

impl Default for mp_comm_callbacks {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_callbacks>() == 96);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_callbacks, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_callbacks, flags) == 4);
    assert!(core::mem::offset_of!(mp_comm_callbacks, rank) == 8);
    assert!(core::mem::offset_of!(mp_comm_callbacks, size) == 12);
    assert!(core::mem::offset_of!(mp_comm_callbacks, nodes) == 16);
    assert!(core::mem::offset_of!(mp_comm_callbacks, name) == 24);
    assert!(core::mem::offset_of!(mp_comm_callbacks, begin) == 32);
    assert!(core::mem::offset_of!(mp_comm_callbacks, poll) == 40);
    assert!(core::mem::offset_of!(mp_comm_callbacks, release) == 48);
    assert!(core::mem::offset_of!(mp_comm_callbacks, abort) == 56);
    assert!(core::mem::offset_of!(mp_comm_callbacks, pause) == 64);
    assert!(core::mem::offset_of!(mp_comm_callbacks, split) == 72);
    assert!(core::mem::offset_of!(mp_comm_callbacks, destroy) == 80);
    assert!(core::mem::offset_of!(mp_comm_callbacks, payload) == 88);
};

/// See mixedprec/context.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_context_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub api_version: u32,
    pub device_kind: i32,
    pub device_index: i32,
    pub num_threads: i32,
    pub log_level: i32,
    pub reserved: i32,
    pub backend: *const c_char,
    pub allocate: mp_allocate_fn,
    pub release: mp_release_fn,
    pub allocator_payload: *mut c_void,
    pub log: mp_log_fn,
    pub log_payload: *mut c_void,
    pub parallel: mp_parallel_fn,
    pub parallel_payload: *mut c_void,
}

impl mp_context_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_context_desc>() as u32,
        flags: 0,
        api_version: 200,
        device_kind: 0,
        device_index: 0,
        num_threads: 0,
        log_level: 0,
        reserved: 0,
        backend: core::ptr::null(),
        allocate: None,
        release: None,
        allocator_payload: core::ptr::null_mut(),
        log: None,
        log_payload: core::ptr::null_mut(),
        parallel: None,
        parallel_payload: core::ptr::null_mut(),
    };
}

impl Default for mp_context_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_context_desc>() == 96);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_context_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_context_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_context_desc, api_version) == 8);
    assert!(core::mem::offset_of!(mp_context_desc, device_kind) == 12);
    assert!(core::mem::offset_of!(mp_context_desc, device_index) == 16);
    assert!(core::mem::offset_of!(mp_context_desc, num_threads) == 20);
    assert!(core::mem::offset_of!(mp_context_desc, log_level) == 24);
    assert!(core::mem::offset_of!(mp_context_desc, reserved) == 28);
    assert!(core::mem::offset_of!(mp_context_desc, backend) == 32);
    assert!(core::mem::offset_of!(mp_context_desc, allocate) == 40);
    assert!(core::mem::offset_of!(mp_context_desc, release) == 48);
    assert!(core::mem::offset_of!(mp_context_desc, allocator_payload) == 56);
    assert!(core::mem::offset_of!(mp_context_desc, log) == 64);
    assert!(core::mem::offset_of!(mp_context_desc, log_payload) == 72);
    assert!(core::mem::offset_of!(mp_context_desc, parallel) == 80);
    assert!(core::mem::offset_of!(mp_context_desc, parallel_payload) == 88);
};

/// See mixedprec/convert.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_cast_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub rounding: i32,
    pub microbatch: i32,
    pub seed: u64,
    pub uid: u64,
    pub step: u64,
}

impl mp_cast_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_cast_desc>() as u32,
        flags: 0,
        rounding: 0,
        microbatch: 0,
        seed: 0,
        uid: 0,
        step: 0,
    };
}

impl Default for mp_cast_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_cast_desc>() == 40);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_cast_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_cast_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_cast_desc, rounding) == 8);
    assert!(core::mem::offset_of!(mp_cast_desc, microbatch) == 12);
    assert!(core::mem::offset_of!(mp_cast_desc, seed) == 16);
    assert!(core::mem::offset_of!(mp_cast_desc, uid) == 24);
    assert!(core::mem::offset_of!(mp_cast_desc, step) == 32);
};

/// See mixedprec/convert.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_quant_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub scaling: i32,
    pub rule: i32,
    pub amax_epsilon: f64,
    pub margin: i32,
    pub reserved: i32,
}

impl mp_quant_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_quant_desc>() as u32,
        flags: 0,
        scaling: 0,
        rule: 0,
        amax_epsilon: 0.0,
        margin: 0,
        reserved: 0,
    };
}

impl Default for mp_quant_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_quant_desc>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_quant_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_quant_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_quant_desc, scaling) == 8);
    assert!(core::mem::offset_of!(mp_quant_desc, rule) == 12);
    assert!(core::mem::offset_of!(mp_quant_desc, amax_epsilon) == 16);
    assert!(core::mem::offset_of!(mp_quant_desc, margin) == 24);
    assert!(core::mem::offset_of!(mp_quant_desc, reserved) == 28);
};

/// See mixedprec/convert.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_quantize_args {
    pub struct_size: u32,
    pub flags: u32,
    pub rounding: i32,
    pub microbatch: i32,
    pub seed: u64,
    pub uid: u64,
    pub step: u64,
    pub first_element: i64,
    pub amax_pointer: *mut f32,
}

impl mp_quantize_args {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_quantize_args>() as u32,
        flags: 0,
        rounding: 0,
        microbatch: 0,
        seed: 0,
        uid: 0,
        step: 0,
        first_element: 0,
        amax_pointer: core::ptr::null_mut(),
    };
}

impl Default for mp_quantize_args {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_quantize_args>() == 56);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_quantize_args, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_quantize_args, flags) == 4);
    assert!(core::mem::offset_of!(mp_quantize_args, rounding) == 8);
    assert!(core::mem::offset_of!(mp_quantize_args, microbatch) == 12);
    assert!(core::mem::offset_of!(mp_quantize_args, seed) == 16);
    assert!(core::mem::offset_of!(mp_quantize_args, uid) == 24);
    assert!(core::mem::offset_of!(mp_quantize_args, step) == 32);
    assert!(core::mem::offset_of!(mp_quantize_args, first_element) == 40);
    assert!(core::mem::offset_of!(mp_quantize_args, amax_pointer) == 48);
};

/// See mixedprec/convert.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_quantized_memory {
    pub struct_size: u32,
    pub dtype: i32,
    pub rows: i64,
    pub columns: i64,
    pub codes: *mut c_void,
    pub transposed: *mut c_void,
    pub scale_inv: *mut c_void,
    pub amax: *mut f32,
}

impl mp_quantized_memory {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_quantized_memory>() as u32,
        dtype: 0,
        rows: 0,
        columns: 0,
        codes: core::ptr::null_mut(),
        transposed: core::ptr::null_mut(),
        scale_inv: core::ptr::null_mut(),
        amax: core::ptr::null_mut(),
    };
}

impl Default for mp_quantized_memory {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_quantized_memory>() == 56);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_quantized_memory, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_quantized_memory, dtype) == 4);
    assert!(core::mem::offset_of!(mp_quantized_memory, rows) == 8);
    assert!(core::mem::offset_of!(mp_quantized_memory, columns) == 16);
    assert!(core::mem::offset_of!(mp_quantized_memory, codes) == 24);
    assert!(core::mem::offset_of!(mp_quantized_memory, transposed) == 32);
    assert!(core::mem::offset_of!(mp_quantized_memory, scale_inv) == 40);
    assert!(core::mem::offset_of!(mp_quantized_memory, amax) == 48);
};

/// See mixedprec/gemm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_gemm_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub lda: i64,
    pub ldb: i64,
    pub ldc: i64,
    pub ldd: i64,
    pub batch_count: i64,
    pub batch_stride_a: i64,
    pub batch_stride_b: i64,
    pub batch_stride_c: i64,
    pub batch_stride_d: i64,
    pub alpha: f64,
    pub beta: f64,
    pub dtype_a: i32,
    pub dtype_b: i32,
    pub dtype_c: i32,
    pub dtype_d: i32,
    pub dtype_bias: i32,
    pub reserved: i32,
    pub scale_a_dtype: i32,
    pub scale_a_rows: i32,
    pub scale_a_columns: i32,
    pub scale_b_dtype: i32,
    pub scale_b_rows: i32,
    pub scale_b_columns: i32,
    pub implementation: *const c_char,
    pub quant_d: *const mp_quant_desc,
}

impl mp_gemm_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_gemm_desc>() as u32,
        flags: 0,
        m: 0,
        n: 0,
        k: 0,
        lda: 0,
        ldb: 0,
        ldc: 0,
        ldd: 0,
        batch_count: 0,
        batch_stride_a: 0,
        batch_stride_b: 0,
        batch_stride_c: 0,
        batch_stride_d: 0,
        alpha: 0.0,
        beta: 0.0,
        dtype_a: 0,
        dtype_b: 0,
        dtype_c: 0,
        dtype_d: 0,
        dtype_bias: 0,
        reserved: 0,
        scale_a_dtype: 0,
        scale_a_rows: 0,
        scale_a_columns: 0,
        scale_b_dtype: 0,
        scale_b_rows: 0,
        scale_b_columns: 0,
        implementation: core::ptr::null(),
        quant_d: core::ptr::null(),
    };
}

impl Default for mp_gemm_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_gemm_desc>() == 184);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_gemm_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_gemm_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_gemm_desc, m) == 8);
    assert!(core::mem::offset_of!(mp_gemm_desc, n) == 16);
    assert!(core::mem::offset_of!(mp_gemm_desc, k) == 24);
    assert!(core::mem::offset_of!(mp_gemm_desc, lda) == 32);
    assert!(core::mem::offset_of!(mp_gemm_desc, ldb) == 40);
    assert!(core::mem::offset_of!(mp_gemm_desc, ldc) == 48);
    assert!(core::mem::offset_of!(mp_gemm_desc, ldd) == 56);
    assert!(core::mem::offset_of!(mp_gemm_desc, batch_count) == 64);
    assert!(core::mem::offset_of!(mp_gemm_desc, batch_stride_a) == 72);
    assert!(core::mem::offset_of!(mp_gemm_desc, batch_stride_b) == 80);
    assert!(core::mem::offset_of!(mp_gemm_desc, batch_stride_c) == 88);
    assert!(core::mem::offset_of!(mp_gemm_desc, batch_stride_d) == 96);
    assert!(core::mem::offset_of!(mp_gemm_desc, alpha) == 104);
    assert!(core::mem::offset_of!(mp_gemm_desc, beta) == 112);
    assert!(core::mem::offset_of!(mp_gemm_desc, dtype_a) == 120);
    assert!(core::mem::offset_of!(mp_gemm_desc, dtype_b) == 124);
    assert!(core::mem::offset_of!(mp_gemm_desc, dtype_c) == 128);
    assert!(core::mem::offset_of!(mp_gemm_desc, dtype_d) == 132);
    assert!(core::mem::offset_of!(mp_gemm_desc, dtype_bias) == 136);
    assert!(core::mem::offset_of!(mp_gemm_desc, reserved) == 140);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_a_dtype) == 144);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_a_rows) == 148);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_a_columns) == 152);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_b_dtype) == 156);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_b_rows) == 160);
    assert!(core::mem::offset_of!(mp_gemm_desc, scale_b_columns) == 164);
    assert!(core::mem::offset_of!(mp_gemm_desc, implementation) == 168);
    assert!(core::mem::offset_of!(mp_gemm_desc, quant_d) == 176);
};

/// See mixedprec/gemm.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_gemm_args {
    pub struct_size: u32,
    pub reserved: u32,
    pub a: *const mp_tensor,
    pub b: *const mp_tensor,
    pub bias: *const mp_tensor,
    pub c: *const mp_tensor,
    pub d: *mut mp_tensor,
    pub scale_a: *const mp_tensor,
    pub scale_b: *const mp_tensor,
    pub multiply_d: *const mp_tensor,
    pub amax_d: *mut mp_tensor,
}

impl mp_gemm_args {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_gemm_args>() as u32,
        reserved: 0,
        a: core::ptr::null(),
        b: core::ptr::null(),
        bias: core::ptr::null(),
        c: core::ptr::null(),
        d: core::ptr::null_mut(),
        scale_a: core::ptr::null(),
        scale_b: core::ptr::null(),
        multiply_d: core::ptr::null(),
        amax_d: core::ptr::null_mut(),
    };
}

impl Default for mp_gemm_args {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_gemm_args>() == 80);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_gemm_args, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_gemm_args, reserved) == 4);
    assert!(core::mem::offset_of!(mp_gemm_args, a) == 8);
    assert!(core::mem::offset_of!(mp_gemm_args, b) == 16);
    assert!(core::mem::offset_of!(mp_gemm_args, bias) == 24);
    assert!(core::mem::offset_of!(mp_gemm_args, c) == 32);
    assert!(core::mem::offset_of!(mp_gemm_args, d) == 40);
    assert!(core::mem::offset_of!(mp_gemm_args, scale_a) == 48);
    assert!(core::mem::offset_of!(mp_gemm_args, scale_b) == 56);
    assert!(core::mem::offset_of!(mp_gemm_args, multiply_d) == 64);
    assert!(core::mem::offset_of!(mp_gemm_args, amax_d) == 72);
};

/// See mixedprec/linear.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_linear_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub in_features: i64,
    pub out_features: i64,
    pub name: *const c_char,
}

impl mp_linear_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_linear_desc>() as u32,
        flags: 0,
        in_features: 0,
        out_features: 0,
        name: core::ptr::null(),
    };
}

impl Default for mp_linear_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_linear_desc>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_linear_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_linear_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_linear_desc, in_features) == 8);
    assert!(core::mem::offset_of!(mp_linear_desc, out_features) == 16);
    assert!(core::mem::offset_of!(mp_linear_desc, name) == 24);
};

/// See mixedprec/linear.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_linear_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub operand: i32,
    pub dtype: i32,
    pub elements: i64,
    pub saturated: i64,
    pub underflowed: i64,
    pub non_finite: i64,
    pub amax: f64,
    pub scale_inv: f64,
    pub history_amax: f64,
    pub history_len: i32,
    pub updates: i32,
}

impl mp_linear_stats {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_linear_stats>() as u32,
        flags: 0,
        operand: 0,
        dtype: 0,
        elements: 0,
        saturated: 0,
        underflowed: 0,
        non_finite: 0,
        amax: 0.0,
        scale_inv: 0.0,
        history_amax: 0.0,
        history_len: 0,
        updates: 0,
    };
}

impl Default for mp_linear_stats {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_linear_stats>() == 80);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_linear_stats, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_linear_stats, flags) == 4);
    assert!(core::mem::offset_of!(mp_linear_stats, operand) == 8);
    assert!(core::mem::offset_of!(mp_linear_stats, dtype) == 12);
    assert!(core::mem::offset_of!(mp_linear_stats, elements) == 16);
    assert!(core::mem::offset_of!(mp_linear_stats, saturated) == 24);
    assert!(core::mem::offset_of!(mp_linear_stats, underflowed) == 32);
    assert!(core::mem::offset_of!(mp_linear_stats, non_finite) == 40);
    assert!(core::mem::offset_of!(mp_linear_stats, amax) == 48);
    assert!(core::mem::offset_of!(mp_linear_stats, scale_inv) == 56);
    assert!(core::mem::offset_of!(mp_linear_stats, history_amax) == 64);
    assert!(core::mem::offset_of!(mp_linear_stats, history_len) == 72);
    assert!(core::mem::offset_of!(mp_linear_stats, updates) == 76);
};

/// See mixedprec/optimizer.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_optimizer_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub seed: u64,
    pub max_grad_norm: f64,
}

impl mp_optimizer_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_optimizer_desc>() as u32,
        flags: 0,
        seed: 0,
        max_grad_norm: 0.0,
    };
}

impl Default for mp_optimizer_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_optimizer_desc>() == 24);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_optimizer_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_optimizer_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_optimizer_desc, seed) == 8);
    assert!(core::mem::offset_of!(mp_optimizer_desc, max_grad_norm) == 16);
};

/// See mixedprec/optimizer.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_param_group_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub rule: i32,
    pub hyper_count: i32,
    pub hypers: *const mp_hyper,
    pub state_formats: [*const c_char; 4],
}

impl mp_param_group_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_param_group_desc>() as u32,
        flags: 0,
        lr: 0.0,
        beta1: 0.0,
        beta2: 0.0,
        eps: 0.0,
        weight_decay: 0.0,
        rule: 0,
        hyper_count: 0,
        hypers: core::ptr::null(),
        state_formats: [core::ptr::null(); 4],
    };
}

impl Default for mp_param_group_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_param_group_desc>() == 96);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_param_group_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_param_group_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_param_group_desc, lr) == 8);
    assert!(core::mem::offset_of!(mp_param_group_desc, beta1) == 16);
    assert!(core::mem::offset_of!(mp_param_group_desc, beta2) == 24);
    assert!(core::mem::offset_of!(mp_param_group_desc, eps) == 32);
    assert!(core::mem::offset_of!(mp_param_group_desc, weight_decay) == 40);
    assert!(core::mem::offset_of!(mp_param_group_desc, rule) == 48);
    assert!(core::mem::offset_of!(mp_param_group_desc, hyper_count) == 52);
    assert!(core::mem::offset_of!(mp_param_group_desc, hypers) == 56);
    assert!(core::mem::offset_of!(mp_param_group_desc, state_formats) == 64);
};

/// See mixedprec/optimizer.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_param_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub param: *mut mp_tensor,
    pub grad: *mut mp_tensor,
    pub init_fp32: *mut mp_tensor,
}

impl mp_param_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_param_desc>() as u32,
        flags: 0,
        name: core::ptr::null(),
        param: core::ptr::null_mut(),
        grad: core::ptr::null_mut(),
        init_fp32: core::ptr::null_mut(),
    };
}

impl Default for mp_param_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_param_desc>() == 40);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_param_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_param_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_param_desc, name) == 8);
    assert!(core::mem::offset_of!(mp_param_desc, param) == 16);
    assert!(core::mem::offset_of!(mp_param_desc, grad) == 24);
    assert!(core::mem::offset_of!(mp_param_desc, init_fp32) == 32);
};

/// See mixedprec/quant.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_quant_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub elements: i64,
    pub saturated: i64,
    pub underflowed: i64,
    pub non_finite: i64,
    pub amax: f64,
}

impl mp_quant_stats {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_quant_stats>() as u32,
        flags: 0,
        elements: 0,
        saturated: 0,
        underflowed: 0,
        non_finite: 0,
        amax: 0.0,
    };
}

impl Default for mp_quant_stats {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_quant_stats>() == 48);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_quant_stats, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_quant_stats, flags) == 4);
    assert!(core::mem::offset_of!(mp_quant_stats, elements) == 8);
    assert!(core::mem::offset_of!(mp_quant_stats, saturated) == 16);
    assert!(core::mem::offset_of!(mp_quant_stats, underflowed) == 24);
    assert!(core::mem::offset_of!(mp_quant_stats, non_finite) == 32);
    assert!(core::mem::offset_of!(mp_quant_stats, amax) == 40);
};

/// See mixedprec/recipe.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_recipe_key_desc {
    pub struct_size: u32,
    pub r#type: i32,
    pub name: *const c_char,
    pub allowed: *const c_char,
    pub text: *const c_char,
    pub fp32_value: *const c_char,
}

impl mp_recipe_key_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_recipe_key_desc>() as u32,
        r#type: 0,
        name: core::ptr::null(),
        allowed: core::ptr::null(),
        text: core::ptr::null(),
        fp32_value: core::ptr::null(),
    };
}

impl Default for mp_recipe_key_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_recipe_key_desc>() == 40);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_recipe_key_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_recipe_key_desc, r#type) == 4);
    assert!(core::mem::offset_of!(mp_recipe_key_desc, name) == 8);
    assert!(core::mem::offset_of!(mp_recipe_key_desc, allowed) == 16);
    assert!(core::mem::offset_of!(mp_recipe_key_desc, text) == 24);
    assert!(core::mem::offset_of!(mp_recipe_key_desc, fp32_value) == 32);
};

/// See mixedprec/recipe.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_memory_report {
    pub struct_size: u32,
    pub flags: u32,
    pub parameter_count: i64,
    pub weight_bytes: i64,
    pub master_bytes: i64,
    pub grad_bytes: i64,
    pub compensation_bytes: i64,
    pub total_bytes: i64,
    pub reduced_grad_bytes: i64,
    pub state_bytes: [i64; 16],
}

impl mp_memory_report {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_memory_report>() as u32,
        flags: 0,
        parameter_count: 0,
        weight_bytes: 0,
        master_bytes: 0,
        grad_bytes: 0,
        compensation_bytes: 0,
        total_bytes: 0,
        reduced_grad_bytes: 0,
        state_bytes: [0; 16],
    };
}

impl Default for mp_memory_report {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_memory_report>() == 192);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_memory_report, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_memory_report, flags) == 4);
    assert!(core::mem::offset_of!(mp_memory_report, parameter_count) == 8);
    assert!(core::mem::offset_of!(mp_memory_report, weight_bytes) == 16);
    assert!(core::mem::offset_of!(mp_memory_report, master_bytes) == 24);
    assert!(core::mem::offset_of!(mp_memory_report, grad_bytes) == 32);
    assert!(core::mem::offset_of!(mp_memory_report, compensation_bytes) == 40);
    assert!(core::mem::offset_of!(mp_memory_report, total_bytes) == 48);
    assert!(core::mem::offset_of!(mp_memory_report, reduced_grad_bytes) == 56);
    assert!(core::mem::offset_of!(mp_memory_report, state_bytes) == 64);
};

/// See mixedprec/reduce.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_comm_reduce_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub op: i32,
    pub order: i32,
    pub accumulate: i32,
    pub slots: i32,
    pub wire_dtype: i32,
    pub wire_scale: i32,
    pub gather_dtype: i32,
    pub gather_scale: i32,
    pub first_element: i64,
    pub seed: u64,
    pub uid: u64,
    pub step: u64,
    pub deadline_ms: i64,
    pub site: *const c_char,
    pub microbatch: i32,
    pub reserved: i32,
}

impl mp_comm_reduce_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_comm_reduce_desc>() as u32,
        flags: 0,
        op: 0,
        order: 0,
        accumulate: 0,
        slots: 0,
        wire_dtype: 0,
        wire_scale: 0,
        gather_dtype: 0,
        gather_scale: 0,
        first_element: 0,
        seed: 0,
        uid: 0,
        step: 0,
        deadline_ms: 0,
        site: core::ptr::null(),
        microbatch: 0,
        reserved: 0,
    };
}

impl Default for mp_comm_reduce_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_comm_reduce_desc>() == 96);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, op) == 8);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, order) == 12);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, accumulate) == 16);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, slots) == 20);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, wire_dtype) == 24);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, wire_scale) == 28);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, gather_dtype) == 32);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, gather_scale) == 36);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, first_element) == 40);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, seed) == 48);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, uid) == 56);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, step) == 64);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, deadline_ms) == 72);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, site) == 80);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, microbatch) == 88);
    assert!(core::mem::offset_of!(mp_comm_reduce_desc, reserved) == 92);
};

/// See mixedprec/rule.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_hyper {
    pub name: *const c_char,
    pub value: f64,
}

impl mp_hyper {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        name: core::ptr::null(),
        value: 0.0,
    };
}

impl Default for mp_hyper {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_hyper>() == 16);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_hyper, name) == 0);
    assert!(core::mem::offset_of!(mp_hyper, value) == 8);
};

/// See mixedprec/rule.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_rule_info {
    pub struct_size: u32,
    pub corrects_bias: i32,
    pub name: *const c_char,
    pub state_count: i32,
    pub hyper_count: i32,
}

impl mp_rule_info {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_rule_info>() as u32,
        corrects_bias: 0,
        name: core::ptr::null(),
        state_count: 0,
        hyper_count: 0,
    };
}

impl Default for mp_rule_info {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_rule_info>() == 24);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_rule_info, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_rule_info, corrects_bias) == 4);
    assert!(core::mem::offset_of!(mp_rule_info, name) == 8);
    assert!(core::mem::offset_of!(mp_rule_info, state_count) == 16);
    assert!(core::mem::offset_of!(mp_rule_info, hyper_count) == 20);
};

/// See mixedprec/rule.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_rule_state {
    pub struct_size: u32,
    pub is_signed: i32,
    pub name: *const c_char,
    pub number: i32,
    pub reserved: i32,
}

impl mp_rule_state {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_rule_state>() as u32,
        is_signed: 0,
        name: core::ptr::null(),
        number: 0,
        reserved: 0,
    };
}

impl Default for mp_rule_state {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_rule_state>() == 24);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_rule_state, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_rule_state, is_signed) == 4);
    assert!(core::mem::offset_of!(mp_rule_state, name) == 8);
    assert!(core::mem::offset_of!(mp_rule_state, number) == 16);
    assert!(core::mem::offset_of!(mp_rule_state, reserved) == 20);
};

/// See mixedprec/rule.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_rule_hyper {
    pub struct_size: u32,
    pub reserved: i32,
    pub name: *const c_char,
    pub usual: f64,
    pub limit: f64,
}

impl mp_rule_hyper {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_rule_hyper>() as u32,
        reserved: 0,
        name: core::ptr::null(),
        usual: 0.0,
        limit: 0.0,
    };
}

impl Default for mp_rule_hyper {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_rule_hyper>() == 32);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_rule_hyper, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_rule_hyper, reserved) == 4);
    assert!(core::mem::offset_of!(mp_rule_hyper, name) == 8);
    assert!(core::mem::offset_of!(mp_rule_hyper, usual) == 16);
    assert!(core::mem::offset_of!(mp_rule_hyper, limit) == 24);
};

/// See mixedprec/scaler.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_scaler_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub kind: i32,
    pub growth_interval: i32,
    pub hysteresis: i32,
    pub count_offset: i32,
    pub init_scale: f64,
    pub growth_factor: f64,
    pub backoff_factor: f64,
    pub min_scale: f64,
    pub max_scale: f64,
}

impl mp_scaler_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_scaler_desc>() as u32,
        flags: 0,
        kind: 0,
        growth_interval: 0,
        hysteresis: 0,
        count_offset: 0,
        init_scale: 0.0,
        growth_factor: 0.0,
        backoff_factor: 0.0,
        min_scale: 0.0,
        max_scale: 0.0,
    };
}

impl Default for mp_scaler_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_scaler_desc>() == 64);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_scaler_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_scaler_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_scaler_desc, kind) == 8);
    assert!(core::mem::offset_of!(mp_scaler_desc, growth_interval) == 12);
    assert!(core::mem::offset_of!(mp_scaler_desc, hysteresis) == 16);
    assert!(core::mem::offset_of!(mp_scaler_desc, count_offset) == 20);
    assert!(core::mem::offset_of!(mp_scaler_desc, init_scale) == 24);
    assert!(core::mem::offset_of!(mp_scaler_desc, growth_factor) == 32);
    assert!(core::mem::offset_of!(mp_scaler_desc, backoff_factor) == 40);
    assert!(core::mem::offset_of!(mp_scaler_desc, min_scale) == 48);
    assert!(core::mem::offset_of!(mp_scaler_desc, max_scale) == 56);
};

/// See mixedprec/scaler.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_scaler_state {
    pub struct_size: u32,
    pub found_inf: u32,
    pub scale: f64,
    pub growth_tracker: i32,
    pub hysteresis_tracker: i32,
    pub good_steps: i64,
    pub overflow_steps: i64,
}

impl mp_scaler_state {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_scaler_state>() as u32,
        found_inf: 0,
        scale: 0.0,
        growth_tracker: 0,
        hysteresis_tracker: 0,
        good_steps: 0,
        overflow_steps: 0,
    };
}

impl Default for mp_scaler_state {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_scaler_state>() == 40);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_scaler_state, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_scaler_state, found_inf) == 4);
    assert!(core::mem::offset_of!(mp_scaler_state, scale) == 8);
    assert!(core::mem::offset_of!(mp_scaler_state, growth_tracker) == 16);
    assert!(core::mem::offset_of!(mp_scaler_state, hysteresis_tracker) == 20);
    assert!(core::mem::offset_of!(mp_scaler_state, good_steps) == 24);
    assert!(core::mem::offset_of!(mp_scaler_state, overflow_steps) == 32);
};

/// See mixedprec/sharding.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_sharding_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub stage: i32,
    pub kind: i32,
    pub bucket_elements: i64,
    pub wire_dtype: i32,
    pub wire_scale: i32,
    pub order: i32,
    pub slots: i32,
    pub shard_ranks: i32,
    pub check_every: i32,
    pub node_ranks: i32,
    pub reserved: i32,
}

impl mp_sharding_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_sharding_desc>() as u32,
        flags: 0,
        stage: 0,
        kind: 0,
        bucket_elements: 0,
        wire_dtype: 0,
        wire_scale: 0,
        order: 0,
        slots: 0,
        shard_ranks: 0,
        check_every: 0,
        node_ranks: 0,
        reserved: 0,
    };
}

impl Default for mp_sharding_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_sharding_desc>() == 56);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_sharding_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_sharding_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_sharding_desc, stage) == 8);
    assert!(core::mem::offset_of!(mp_sharding_desc, kind) == 12);
    assert!(core::mem::offset_of!(mp_sharding_desc, bucket_elements) == 16);
    assert!(core::mem::offset_of!(mp_sharding_desc, wire_dtype) == 24);
    assert!(core::mem::offset_of!(mp_sharding_desc, wire_scale) == 28);
    assert!(core::mem::offset_of!(mp_sharding_desc, order) == 32);
    assert!(core::mem::offset_of!(mp_sharding_desc, slots) == 36);
    assert!(core::mem::offset_of!(mp_sharding_desc, shard_ranks) == 40);
    assert!(core::mem::offset_of!(mp_sharding_desc, check_every) == 44);
    assert!(core::mem::offset_of!(mp_sharding_desc, node_ranks) == 48);
    assert!(core::mem::offset_of!(mp_sharding_desc, reserved) == 52);
};

/// See mixedprec/sharding.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_sharding_progress {
    pub struct_size: u32,
    pub has_thread: i32,
    pub begun: i64,
    pub finished: i64,
    pub finished_by_thread: i64,
    pub reason: *const c_char,
}

impl mp_sharding_progress {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_sharding_progress>() as u32,
        has_thread: 0,
        begun: 0,
        finished: 0,
        finished_by_thread: 0,
        reason: core::ptr::null(),
    };
}

impl Default for mp_sharding_progress {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_sharding_progress>() == 40);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_sharding_progress, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_sharding_progress, has_thread) == 4);
    assert!(core::mem::offset_of!(mp_sharding_progress, begun) == 8);
    assert!(core::mem::offset_of!(mp_sharding_progress, finished) == 16);
    assert!(core::mem::offset_of!(mp_sharding_progress, finished_by_thread) == 24);
    assert!(core::mem::offset_of!(mp_sharding_progress, reason) == 32);
};

/// See mixedprec/sharding.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_planned_tensor {
    pub struct_size: u32,
    pub weight_dtype: i32,
    pub count: i64,
    pub rule: i32,
    pub ndim: i32,
    pub state_formats: [*const c_char; 4],
}

impl mp_planned_tensor {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_planned_tensor>() as u32,
        weight_dtype: 0,
        count: 0,
        rule: 0,
        ndim: 0,
        state_formats: [core::ptr::null(); 4],
    };
}

impl Default for mp_planned_tensor {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_planned_tensor>() == 56);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_planned_tensor, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_planned_tensor, weight_dtype) == 4);
    assert!(core::mem::offset_of!(mp_planned_tensor, count) == 8);
    assert!(core::mem::offset_of!(mp_planned_tensor, rule) == 16);
    assert!(core::mem::offset_of!(mp_planned_tensor, ndim) == 20);
    assert!(core::mem::offset_of!(mp_planned_tensor, state_formats) == 24);
};

/// See mixedprec/step.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_optimizer_stats {
    pub struct_size: u32,
    pub found_inf: u32,
    pub step: i64,
    pub skipped_steps: i64,
    pub grad_norm: f64,
    pub grad_mul: f64,
    pub outlier_steps: i64,
    pub grad_norm_z: f64,
    pub loss_z: f64,
}

impl mp_optimizer_stats {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_optimizer_stats>() as u32,
        found_inf: 0,
        step: 0,
        skipped_steps: 0,
        grad_norm: 0.0,
        grad_mul: 0.0,
        outlier_steps: 0,
        grad_norm_z: 0.0,
        loss_z: 0.0,
    };
}

impl Default for mp_optimizer_stats {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_optimizer_stats>() == 64);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_optimizer_stats, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_optimizer_stats, found_inf) == 4);
    assert!(core::mem::offset_of!(mp_optimizer_stats, step) == 8);
    assert!(core::mem::offset_of!(mp_optimizer_stats, skipped_steps) == 16);
    assert!(core::mem::offset_of!(mp_optimizer_stats, grad_norm) == 24);
    assert!(core::mem::offset_of!(mp_optimizer_stats, grad_mul) == 32);
    assert!(core::mem::offset_of!(mp_optimizer_stats, outlier_steps) == 40);
    assert!(core::mem::offset_of!(mp_optimizer_stats, grad_norm_z) == 48);
    assert!(core::mem::offset_of!(mp_optimizer_stats, loss_z) == 56);
};

/// See mixedprec/step.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_step_slot {
    pub struct_size: u32,
    pub flags: u32,
    pub count: i64,
    pub uid: u64,
    pub first_element: i64,
    pub param: mp_array,
    pub grad: mp_array,
    pub master: mp_array,
    pub compensation: mp_array,
    pub states: [mp_array; 4],
}

impl mp_step_slot {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_step_slot>() as u32,
        flags: 0,
        count: 0,
        uid: 0,
        first_element: 0,
        param: mp_array::INIT,
        grad: mp_array::INIT,
        master: mp_array::INIT,
        compensation: mp_array::INIT,
        states: [mp_array::INIT; 4],
    };
}

impl Default for mp_step_slot {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_step_slot>() == 288);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_step_slot, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_step_slot, flags) == 4);
    assert!(core::mem::offset_of!(mp_step_slot, count) == 8);
    assert!(core::mem::offset_of!(mp_step_slot, uid) == 16);
    assert!(core::mem::offset_of!(mp_step_slot, first_element) == 24);
    assert!(core::mem::offset_of!(mp_step_slot, param) == 32);
    assert!(core::mem::offset_of!(mp_step_slot, grad) == 64);
    assert!(core::mem::offset_of!(mp_step_slot, master) == 96);
    assert!(core::mem::offset_of!(mp_step_slot, compensation) == 128);
    assert!(core::mem::offset_of!(mp_step_slot, states) == 160);
};

/// See mixedprec/step.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_step_args {
    pub struct_size: u32,
    pub flags: u32,
    pub step: i64,
    pub seed: u64,
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub max_grad_norm: f64,
    pub grad_scale: f64,
    pub lr_pointer: *const f32,
    pub grad_scale_pointer: *const f32,
    pub rule: i32,
    pub hyper_count: i32,
    pub hypers: *const mp_hyper,
    pub step_pointer: *mut i64,
    pub hyper_pointer: *const f64,
    pub grad_mul_pointer: *const f32,
}

impl mp_step_args {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_step_args>() as u32,
        flags: 0,
        step: 1,
        seed: 0,
        lr: 0.0,
        beta1: 0.0,
        beta2: 0.0,
        eps: 0.0,
        weight_decay: 0.0,
        max_grad_norm: 0.0,
        grad_scale: 0.0,
        lr_pointer: core::ptr::null(),
        grad_scale_pointer: core::ptr::null(),
        rule: 0,
        hyper_count: 0,
        hypers: core::ptr::null(),
        step_pointer: core::ptr::null_mut(),
        hyper_pointer: core::ptr::null(),
        grad_mul_pointer: core::ptr::null(),
    };
}

impl Default for mp_step_args {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_step_args>() == 136);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_step_args, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_step_args, flags) == 4);
    assert!(core::mem::offset_of!(mp_step_args, step) == 8);
    assert!(core::mem::offset_of!(mp_step_args, seed) == 16);
    assert!(core::mem::offset_of!(mp_step_args, lr) == 24);
    assert!(core::mem::offset_of!(mp_step_args, beta1) == 32);
    assert!(core::mem::offset_of!(mp_step_args, beta2) == 40);
    assert!(core::mem::offset_of!(mp_step_args, eps) == 48);
    assert!(core::mem::offset_of!(mp_step_args, weight_decay) == 56);
    assert!(core::mem::offset_of!(mp_step_args, max_grad_norm) == 64);
    assert!(core::mem::offset_of!(mp_step_args, grad_scale) == 72);
    assert!(core::mem::offset_of!(mp_step_args, lr_pointer) == 80);
    assert!(core::mem::offset_of!(mp_step_args, grad_scale_pointer) == 88);
    assert!(core::mem::offset_of!(mp_step_args, rule) == 96);
    assert!(core::mem::offset_of!(mp_step_args, hyper_count) == 100);
    assert!(core::mem::offset_of!(mp_step_args, hypers) == 104);
    assert!(core::mem::offset_of!(mp_step_args, step_pointer) == 112);
    assert!(core::mem::offset_of!(mp_step_args, hyper_pointer) == 120);
    assert!(core::mem::offset_of!(mp_step_args, grad_mul_pointer) == 128);
};

/// See mixedprec/tensor.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_tensor_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub dtype: i32,
    pub ndim: i32,
    pub shape: [i64; 8],
    pub device_kind: i32,
    pub device_index: i32,
}

impl mp_tensor_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_tensor_desc>() as u32,
        flags: 0,
        dtype: 0,
        ndim: 0,
        shape: [0; 8],
        device_kind: 0,
        device_index: 0,
    };
}

impl Default for mp_tensor_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_tensor_desc>() == 88);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_tensor_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_tensor_desc, flags) == 4);
    assert!(core::mem::offset_of!(mp_tensor_desc, dtype) == 8);
    assert!(core::mem::offset_of!(mp_tensor_desc, ndim) == 12);
    assert!(core::mem::offset_of!(mp_tensor_desc, shape) == 16);
    assert!(core::mem::offset_of!(mp_tensor_desc, device_kind) == 80);
    assert!(core::mem::offset_of!(mp_tensor_desc, device_index) == 84);
};

/// See mixedprec/watch.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_guard_desc {
    pub struct_size: u32,
    pub window: i32,
    pub max_grad_norm_z: f64,
    pub max_loss_z: f64,
}

impl mp_guard_desc {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_guard_desc>() as u32,
        window: 0,
        max_grad_norm_z: 0.0,
        max_loss_z: 0.0,
    };
}

impl Default for mp_guard_desc {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_guard_desc>() == 24);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_guard_desc, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_guard_desc, window) == 4);
    assert!(core::mem::offset_of!(mp_guard_desc, max_grad_norm_z) == 8);
    assert!(core::mem::offset_of!(mp_guard_desc, max_loss_z) == 16);
};

/// See mixedprec/watch.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mp_step_record {
    pub struct_size: u32,
    pub outcome: u32,
    pub call: i64,
    pub step: i64,
    pub loss: f64,
    pub loss_scale: f64,
    pub lr: f64,
    pub grad_norm: f64,
    pub grad_mul: f64,
    pub grad_norm_z: f64,
    pub loss_z: f64,
}

impl mp_step_record {
    /// The defaults of the header's initializer.
    pub const INIT: Self = Self {
        struct_size: core::mem::size_of::<mp_step_record>() as u32,
        outcome: 0,
        call: 0,
        step: 0,
        loss: 0.0,
        loss_scale: 0.0,
        lr: 0.0,
        grad_norm: 0.0,
        grad_mul: 0.0,
        grad_norm_z: 0.0,
        loss_z: 0.0,
    };
}

impl Default for mp_step_record {
    fn default() -> Self {
        Self::INIT
    }
}

const _: () = assert!(core::mem::size_of::<mp_step_record>() == 80);
#[cfg(has_offset_of)]
const _: () = {
    assert!(core::mem::offset_of!(mp_step_record, struct_size) == 0);
    assert!(core::mem::offset_of!(mp_step_record, outcome) == 4);
    assert!(core::mem::offset_of!(mp_step_record, call) == 8);
    assert!(core::mem::offset_of!(mp_step_record, step) == 16);
    assert!(core::mem::offset_of!(mp_step_record, loss) == 24);
    assert!(core::mem::offset_of!(mp_step_record, loss_scale) == 32);
    assert!(core::mem::offset_of!(mp_step_record, lr) == 40);
    assert!(core::mem::offset_of!(mp_step_record, grad_norm) == 48);
    assert!(core::mem::offset_of!(mp_step_record, grad_mul) == 56);
    assert!(core::mem::offset_of!(mp_step_record, grad_norm_z) == 64);
    assert!(core::mem::offset_of!(mp_step_record, loss_z) == 72);
};

extern "C" {
    /// Makes an empty checkpoint object. Collective with a communicator, which is not used after this call.
    pub fn mp_checkpoint_create(context: *mut mp_context, comm: *mut mp_comm, desc: *const mp_checkpoint_desc, out: *mut *mut mp_checkpoint) -> mp_status;

    /// Adds an optimizer, one at most: its parameters, states, groups and seed. It is kept alive. Parameters and groups that
    /// are added to it later are saved, too. Of one that ranks share
    /// (mp_optimizer_create_sharded) each writes its slices, else rank 0 all.
    pub fn mp_checkpoint_add_optimizer(checkpoint: *mut mp_checkpoint, optimizer: *mut mp_optimizer) -> mp_status;

    /// Adds a loss scaler, one at most: scale and counters. It is kept alive.
    pub fn mp_checkpoint_add_scaler(checkpoint: *mut mp_checkpoint, scaler: *mut mp_scaler) -> mp_status;

    /// Adds a layer's delayed scales and amax histories; its weight belongs to the optimizer. It is kept alive. Amaxes of a step that
    /// has begun (a backward has run, its end has not) are saved as the largest over the ranks; what was evaluated leaves none.
    pub fn mp_checkpoint_add_linear(checkpoint: *mut mp_checkpoint, name: *const c_char, linear: *mut mp_linear) -> mp_status;

    /// Adds bytes of the caller: the position in the data, a schedule, a random state. A save copies them as they are then; a
    /// load of the same size writes them. With a communicator those of rank 0 are saved, and every rank gets them.
    pub fn mp_checkpoint_add_data(checkpoint: *mut mp_checkpoint, name: *const c_char, data: *mut c_void, bytes: usize) -> mp_status;

    /// Saves a new checkpoint. Blocks until it is on the disk, or with MP_SAVE_BACKGROUND until the state is copied.
    /// After a failure the checkpoints are those of before, unless only the last sync of the directory failed.
    pub fn mp_checkpoint_save(checkpoint: *mut mp_checkpoint, directory: *const c_char, step: i64, flags: u32) -> mp_status;

    /// Loads into what was added, from a checkpoint of the same things saved by any number of ranks. A group is known by its
    /// parameters, in whatever order groups were added; one without parameters by its place among such groups. Where ranks share an
    /// optimizer that has not stepped yet it is shared out first (mp_optimizer_shard), also where the checkpoint is then refused. A
    /// scaler whose scale does not move keeps its own. Blocks.
    pub fn mp_checkpoint_load(checkpoint: *mut mp_checkpoint, path: *const c_char, flags: u32, info: *mut mp_checkpoint_info) -> mp_status;

    /// Gives the caller's reference back. Blocks while a save is running.
    pub fn mp_checkpoint_destroy(checkpoint: *mut mp_checkpoint);

    /// Whether a save in the background has ended. Does not block.
    pub fn mp_checkpoint_test(checkpoint: *mut mp_checkpoint) -> mp_status;

    /// Blocks until a save in the background has ended, and gives its status, once.
    pub fn mp_checkpoint_wait(checkpoint: *mut mp_checkpoint) -> mp_status;

    /// What a checkpoint is, without loading it. Blocks.
    pub fn mp_checkpoint_inspect(path: *const c_char, info: *mut mp_checkpoint_info) -> mp_status;

    /// The manifest that a load would take, for programs: {"name": ..., "manifest": ...}. The name is of the checkpoint in the
    /// directory, or "" where the path is a checkpoint itself; what a manifest has is in docs/checkpoints.md. Its file is read once,
    /// and everything in it is checked. Blocks.
    pub fn mp_checkpoint_read_manifest(path: *const c_char, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// The same in words: the checkpoints of a directory, newest first, each as a load would see it; or a checkpoint's recipe, files
    /// and tensors. Blocks.
    pub fn mp_checkpoint_describe(path: *const c_char, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Writes the optimizer's parameters alone as one ordinary safetensors file, each under its name, and for one of codes with
    /// a scale that scale under its name and "_param_scale_inv". Blocks.
    pub fn mp_checkpoint_export_weights(checkpoint: *mut mp_checkpoint, file: *const c_char) -> mp_status;

    /// The communicator of one rank: what it sends, it receives.
    pub fn mp_comm_create_self(desc: *const mp_comm_desc, out: *mut *mut mp_comm) -> mp_status;

    /// Communicators for ranks that are threads of this process: one handle for each, which any one thread may use.
    /// Destroying one tells the others that its rank is lost.
    pub fn mp_comm_create_threads(desc: *const mp_comm_desc, count: i32, out: *mut *mut mp_comm) -> mp_status;

    /// A communicator over MPI, by the module libmixedprec-mpi.so. Collective over the MPI communicator. The caller's one
    /// is duplicated and may be freed. Without one it is MPI_COMM_WORLD, and if MPI is not initialized it is, with
    /// MPI_THREAD_MULTIPLE, and ended at exit or by mp_library_shutdown. Memory of the caller is never in a pending MPI
    /// call. After MPI_Finalize calls that talk to other ranks, this one too, are MP_STATUS_BAD_STATE, and all can be destroyed.
    /// Blocks.
    pub fn mp_comm_create_mpi(desc: *const mp_comm_desc, native: *const c_void, out: *mut *mut mp_comm) -> mp_status;

    /// What the ranks of a new NCCL communicator find each other by: one rank calls it and hands the bytes to the others.
    pub fn mp_comm_get_nccl_unique_id(id: *mut c_void, size: usize) -> mp_status;

    /// A communicator over NCCL on the context's GPU, without blocking calls of NCCL's. Collective over its ranks. Blocks.
    /// Exchanges take device memory, or host memory, which is staged.
    pub fn mp_comm_create_nccl(context: *mut mp_context, desc: *const mp_comm_desc, unique_id: *const c_void, rank: i32, size: i32, out: *mut *mut mp_comm) -> mp_status;

    /// This rank's number.
    pub fn mp_comm_get_rank(comm: *const mp_comm, rank: *mut i32) -> mp_status;

    /// The number of ranks.
    pub fn mp_comm_get_size(comm: *const mp_comm, size: *mut i32) -> mp_status;

    /// Every rank gives every rank its own bytes. Blocks, unless it has a request. With a queue, what is enqueued there
    /// comes first.
    pub fn mp_comm_all_to_all(comm: *mut mp_comm, queue: *mut mp_queue, exchange: *const mp_comm_exchange, request: *mut *mut mp_comm_request) -> mp_status;

    /// Every rank gets every rank's bytes. `send` may be where this rank receives its own. Blocks, unless it has a request.
    pub fn mp_comm_all_gather(comm: *mut mp_comm, queue: *mut mp_queue, exchange: *const mp_comm_exchange, request: *mut *mut mp_comm_request) -> mp_status;

    /// All ranks get the root's bytes. Blocks, unless it has a request.
    pub fn mp_comm_broadcast(comm: *mut mp_comm, queue: *mut mp_queue, data: *mut c_void, bytes: i64, root: i32, request: *mut *mut mp_comm_request) -> mp_status;

    /// Replaces values in host memory by their maxima over the ranks: for flags, and for the bits of magnitudes, which as
    /// unsigned numbers keep NaN above infinity above all else. Blocks, unless it has a request.
    pub fn mp_comm_max_u32(comm: *mut mp_comm, values: *mut u32, count: i64, request: *mut *mut mp_comm_request) -> mp_status;

    /// Returns when every rank has called it. Blocks, unless it has a request.
    pub fn mp_comm_barrier(comm: *mut mp_comm, request: *mut *mut mp_comm_request) -> mp_status;

    /// Gives the caller's reference back. Requests and calls under way keep it; optimizers and checkpoints have communicators of
    /// their own. With the last reference it ends, in the thread that gives it back, and other ranks that wait for this one are told
    /// where the transport can. Over MPI below MPI_THREAD_MULTIPLE the thread that used it last calls MPI: if it is another one, in
    /// its next call over MPI. Waits for nobody, except over NCCL, where ncclCommFinalize has the deadline, 5 seconds at most, to
    /// reach all ranks: for the communicator and its groups together.
    pub fn mp_comm_destroy(comm: *mut mp_comm);

    /// Waits until the operation is done, has failed, or its deadline, counted from its begin, has passed. Blocks.
    pub fn mp_comm_request_wait(request: *mut mp_comm_request) -> mp_status;

    /// Moves all operations of the communicator on, without waiting.
    pub fn mp_comm_request_test(request: *mut mp_comm_request) -> mp_status;

    /// Gives a request back, and the memory of its operation: when the call returns nobody touches that any more. So one that is
    /// neither done nor failed ends its communicator, as mp_comm_abort does. While a wait for it is under way in another
    /// thread it stays until that is over. Waits for no rank; beside a call of another thread on the communicator, for one look of
    /// that at what is in flight, and for an mp_comm_split that is under way.
    pub fn mp_comm_request_destroy(request: *mut mp_comm_request);

    /// Sets the deadline of calls from now on.
    pub fn mp_comm_set_deadline(comm: *mut mp_comm, deadline_ms: i64) -> mp_status;

    /// The deadline of calls.
    pub fn mp_comm_get_deadline(comm: *const mp_comm, deadline_ms: *mut i64) -> mp_status;

    /// Makes communicators of the ranks of one color each, ordered by key and then by rank, with this one's deadline.
    /// They live on their own. Blocks.
    pub fn mp_comm_split(comm: *mut mp_comm, color: i32, key: i32, out: *mut *mut mp_comm) -> mp_status;

    /// Which machine a rank is on: ranks with equal numbers share one.
    pub fn mp_comm_get_node(comm: *const mp_comm, rank: i32, node: *mut i32) -> mp_status;

    /// A communicator over the caller's NCCL communicator, which stays the caller's, outlives this one, must be on the
    /// context's GPU, have been made with blocking = 0, and is aborted when this one fails. Blocks.
    pub fn mp_comm_wrap_nccl(context: *mut mp_context, desc: *const mp_comm_desc, native: *const c_void, out: *mut *mut mp_comm) -> mp_status;

    /// A communicator over the caller's own functions. After a failure the table's destroy has not been called.
    pub fn mp_comm_create_callbacks(desc: *const mp_comm_desc, callbacks: *const mp_comm_callbacks, out: *mut *mut mp_comm) -> mp_status;

    /// Ends the communicator here, and tells the other ranks where the transport can. A call that waits on another thread
    /// returns MP_STATUS_ABORTED.
    pub fn mp_comm_abort(comm: *mut mp_comm, reason: *const c_char) -> mp_status;

    /// Whether the communicator still works: the failure that ended it, with its message.
    pub fn mp_comm_get_status(comm: *const mp_comm) -> mp_status;

    /// What this rank has sent so far.
    pub fn mp_comm_get_traffic(comm: *const mp_comm, traffic: *mut mp_comm_traffic) -> mp_status;

    /// One line: rank, transport and what it found, deadline, operations and bytes so far, what ended it.
    pub fn mp_comm_describe(comm: *const mp_comm, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Opens the host and, if asked for, one accelerator. The module of an accelerator is looked for beside
    /// the library and in MIXEDPREC_MODULE_PATH and loaded here, on first use; a missing module, driver or
    /// device is a status that says which and what to do, never a silent hop to another device.
    /// MIXEDPREC_NUM_THREADS is read here and counts where num_threads is 0.
    pub fn mp_context_create(desc: *const mp_context_desc, out: *mut *mut mp_context) -> mp_status;

    /// Gives the caller's reference back. The devices close when the last object made from them is gone.
    pub fn mp_context_destroy(context: *mut mp_context);

    /// Number of devices of a kind. Opens nothing.
    pub fn mp_device_get_count(device_kind: i32, count: *mut i32) -> mp_status;

    /// Whether a device can be opened, and if not, why: a query that opens nothing.
    pub fn mp_device_available(device_kind: i32, device_index: i32) -> mp_status;

    /// What its driver calls a device; "host" for the host. Opens nothing.
    pub fn mp_device_get_name(device_kind: i32, device_index: i32, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// A device's memory in all. Opens nothing.
    pub fn mp_device_get_memory(device_kind: i32, device_index: i32, bytes: *mut i64) -> mp_status;

    /// Number of host threads the context works with.
    pub fn mp_context_get_num_threads(context: *const mp_context, num_threads: *mut i32) -> mp_status;

    /// Everything the context found and decided, as a JSON object: "host" and, where there is one, "accelerator". Each has its
    /// "kind" and "index", "threads", "backend", "instruction_set", what else its backend says (versions, topology, reasons), and as
    /// "candidates" for each operation the names of its implementations, the one asked first at the beginning.
    pub fn mp_context_describe(context: *const mp_context, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// mp_tensor_cast straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it returns.
    pub fn mp_tensor_cast_pointers(context: *mut mp_context, queue: *mut mp_queue, source: *const c_void, source_dtype: i32, destination: *mut c_void, destination_dtype: i32, count: i64, desc: *const mp_cast_desc) -> mp_status;

    /// How many scales a matrix has.
    pub fn mp_tensor_get_scale_grid(quant: *const mp_quant_desc, rows: i64, columns: i64, grid_rows: *mut i64, grid_columns: *mut i64, dtype: *mut i32) -> mp_status;

    /// mp_tensor_quantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
    /// returns.
    pub fn mp_tensor_quantize_pointers(context: *mut mp_context, queue: *mut mp_queue, source: *const c_void, source_dtype: i32, quant: *const mp_quant_desc, destination: *const mp_quantized_memory, args: *const mp_quantize_args) -> mp_status;

    /// mp_tensor_dequantize straight on the caller's memory, with the same bits. Enqueues; on the host everything is done when it
    /// returns.
    pub fn mp_tensor_dequantize_pointers(context: *mut mp_context, queue: *mut mp_queue, source: *const mp_quantized_memory, quant: *const mp_quant_desc, destination: *mut c_void, destination_dtype: i32) -> mp_status;

    /// Takes over a DLPack tensor without copying. Takes ownership on success and on failure: the producer's
    /// deleter runs when the tensor and the work on it end (as an mp_deleter_fn), or at once on failure (also for a major version
    /// other than 1, after which nothing else of the struct is read). Accepts NULL strides, byte_offset, and any strides that are
    /// row-major for the shape. A read-only tensor is refused: tensors here are writable. No synchronization: see above.
    pub fn mp_dlpack_import(context: *mut mp_context, managed: *mut DLManagedTensorVersioned, out: *mut *mut mp_tensor) -> mp_status;

    /// Lends a tensor as DLPack 1.1 without copying. The tensor's memory stays alive until the consumer calls
    /// the deleter. No synchronization: see above.
    pub fn mp_dlpack_export(tensor: *mut mp_tensor, out: *mut *mut DLManagedTensorVersioned) -> mp_status;

    /// Makes an event of the context's device.
    pub fn mp_event_create(context: *mut mp_context, out: *mut *mut mp_event) -> mp_status;

    /// The event is now after the queue's work so far. Recorded again it is another point; who waits already waits for the old one.
    /// Enqueues.
    pub fn mp_event_record(event: *mut mp_event, queue: *mut mp_queue) -> mp_status;

    /// What is put on the queue from now on begins after the event. Does not wait itself; an event that was never recorded holds
    /// nothing up. Enqueues.
    pub fn mp_queue_wait_event(queue: *mut mp_queue, event: *mut mp_event) -> mp_status;

    /// Whether the event has been reached. Does not block.
    pub fn mp_event_test(event: *mut mp_event) -> mp_status;

    /// Waits until the event has been reached, and reports what went wrong in the work before it. Blocks.
    pub fn mp_event_sync(event: *mut mp_event) -> mp_status;

    /// Gives the caller's reference back. Who waits for the event goes on waiting.
    pub fn mp_event_destroy(event: *mut mp_event);

    /// Plans a product on the context's device: checks the shapes, chooses the implementation, prepares it.
    pub fn mp_gemm_create(context: *mut mp_context, desc: *const mp_gemm_desc, out: *mut *mut mp_gemm) -> mp_status;

    /// Computes the product. Enqueues.
    pub fn mp_gemm_run(gemm: *mut mp_gemm, queue: *mut mp_queue, a: *const mp_tensor, b: *const mp_tensor, bias: *const mp_tensor, c: *const mp_tensor, d: *mut mp_tensor) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_gemm_destroy(gemm: *mut mp_gemm);

    /// Computes the product, of scaled operands too. Enqueues.
    pub fn mp_gemm_run_scaled(gemm: *mut mp_gemm, queue: *mut mp_queue, args: *const mp_gemm_args) -> mp_status;

    /// What was chosen and why: the name of the implementation, and each candidate passed over with its reason.
    pub fn mp_gemm_describe(gemm: *const mp_gemm, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
    /// changes to them (by an optimizer, say) count at once. Freezes the recipe.
    pub fn mp_linear_create(context: *mut mp_context, recipe: *mut mp_recipe, desc: *const mp_linear_desc, weight: *mut mp_tensor, bias: *mut mp_tensor, out: *mut *mut mp_linear) -> mp_status;

    /// y = x * w^T + bias. Enqueues.
    pub fn mp_linear_forward(linear: *mut mp_linear, queue: *mut mp_queue, x: *mut mp_tensor, y: *mut mp_tensor) -> mp_status;

    /// Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
    /// both GEMMs want the same type. The same bits as the two calls. Enqueues.
    pub fn mp_linear_backward(linear: *mut mp_linear, queue: *mut mp_queue, dy: *const mp_tensor, dx: *mut mp_tensor, dw: *mut mp_tensor, dbias: *mut mp_tensor, flags: u32) -> mp_status;

    /// The end of an optimizer step, for many layers at once: delayed scales follow from the amaxes since the last
    /// call, of forwards whose backward has run (where none has run in any of the layers: of all), cached weights are let go, and monitors are called where their step has come. Call it once a step after
    /// the optimizer, whichever the recipe. Enqueues; blocks where a monitor is called, and with `comm`.
    ///
    /// Where ranks train the same layers, `comm` makes them scale alike: every amax becomes the largest of all ranks before delayed
    /// scales move on, unless gemm.reduce_amax is "off". One small message for all layers, which every rank names in the same order;
    /// none at all with mp_optimizer_set_linears, where the optimizer is shared.
    pub fn mp_linear_end_step(linears: *const *mut mp_linear, count: i32, queue: *mut mp_queue, comm: *mut mp_comm) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_linear_destroy(linear: *mut mp_linear);

    /// mp_linear_create over plain memory, for programs that have no tensors.
    pub fn mp_linear_create_pointers(context: *mut mp_context, recipe: *mut mp_recipe, desc: *const mp_linear_desc, weight: *const c_void, weight_dtype: i32, bias: *const c_void, bias_dtype: i32, out: *mut *mut mp_linear) -> mp_status;

    /// mp_linear_forward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
    pub fn mp_linear_forward_pointers(linear: *mut mp_linear, queue: *mut mp_queue, rows: i64, x: *const c_void, y: *mut c_void, dtype: i32) -> mp_status;

    /// mp_linear_backward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
    pub fn mp_linear_backward_pointers(linear: *mut mp_linear, queue: *mut mp_queue, rows: i64, dy: *const c_void, dx: *mut c_void, dtype: i32, dw: *mut c_void, dbias: *mut c_void, grad_dtype: i32, flags: u32) -> mp_status;

    /// dx = dy * w. Enqueues. Needs no forward before it.
    pub fn mp_linear_backward_data(linear: *mut mp_linear, queue: *mut mp_queue, dy: *const mp_tensor, dx: *mut mp_tensor) -> mp_status;

    /// dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
    /// rows are fp32 and are rounded once into dw and dbias. Enqueues.
    pub fn mp_linear_backward_weight(linear: *mut mp_linear, queue: *mut mp_queue, dy: *const mp_tensor, dw: *mut mp_tensor, dbias: *mut mp_tensor, flags: u32) -> mp_status;

    /// What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
    pub fn mp_linear_describe(linear: *const mp_linear, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// What the layer was made with.
    pub fn mp_linear_get_desc(linear: *const mp_linear, desc: *mut mp_linear_desc) -> mp_status;

    /// What happened to an operand since the counts were last cleared: at creation, by a monitor's turn, or by
    /// mp_linear_clear_stats. Each forward counts x and the weight (a copy of it that is kept: when it is made), each backward dy.
    /// Where a call rounds an operand to codes, that rounding counts, each one if there are several. Where it rounds none, as in high
    /// precision or of codes that are given, a pass of its own counts elements, non_finite and amax; nothing saturates or underflows
    /// there. mp_linear_quantize counts, too, so that its codes count again where they are used. An evaluation counts nothing: a
    /// forward with `saved` NULL (saved.h). Blocks.
    pub fn mp_linear_get_stats(linear: *const mp_linear, operand: i32, stats: *mut mp_linear_stats) -> mp_status;

    /// Sets the counts of all operands to zero. Enqueues.
    pub fn mp_linear_clear_stats(linear: *mut mp_linear, queue: *mut mp_queue) -> mp_status;

    /// One sentence that names the recipe key to change where an operand saturates, underflows or is not finite;
    /// empty where all is well.
    pub fn mp_linear_get_advice(linear: *const mp_linear, operand: i32, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Has every so many steps' statistics handed to a function by mp_linear_end_step, and cleared after it.
    pub fn mp_linear_set_monitor(linear: *mut mp_linear, name: *const c_char, every: i32, monitor: mp_linear_monitor_fn, payload: *mut c_void) -> mp_status;

    /// Copies out what the layer must remember for training to go on bit for bit: delayed scales and amax histories.
    /// A few bytes for recipes without them. Blocks.
    pub fn mp_linear_get_scaling(linear: *const mp_linear, buffer: *mut c_void, capacity: usize, needed: *mut usize) -> mp_status;

    /// Puts back what mp_linear_get_scaling copied out of a layer of the same recipe. Blocks.
    pub fn mp_linear_set_scaling(linear: *mut mp_linear, data: *const c_void, bytes: usize) -> mp_status;

    /// Makes an optimizer without groups. Freezes the recipe.
    pub fn mp_optimizer_create(context: *mut mp_context, recipe: *mut mp_recipe, desc: *const mp_optimizer_desc, out: *mut *mut mp_optimizer) -> mp_status;

    /// Adds a group of parameters with its own hyperparameters.
    pub fn mp_optimizer_add_group(optimizer: *mut mp_optimizer, desc: *const mp_param_group_desc, index: *mut i32) -> mp_status;

    /// Adds a parameter and allocates its states, all zero. Allowed also between steps: its bias correction then begins with its own
    /// first step, whatever t its group has; t that was set before the group's first parameter is that parameter's.
    pub fn mp_optimizer_add_param(optimizer: *mut mp_optimizer, group: i32, desc: *const mp_param_desc, index: *mut i32) -> mp_status;

    /// One step of all groups. Enqueues: at most one read of the gradients (only where norm or check are asked
    /// for), then one fused pass. Does not wait to learn whether the step was skipped: see mp_optimizer_get_stats. Ends the step of
    /// the layers of mp_optimizer_set_linears, and calls their monitors.
    pub fn mp_optimizer_step(optimizer: *mut mp_optimizer, queue: *mut mp_queue, scaler: *mut mp_scaler) -> mp_status;

    /// Sets all gradients to zero. Enqueues. Not needed under MP_OPTIMIZER_ZERO_GRAD.
    pub fn mp_optimizer_zero_grad(optimizer: *mut mp_optimizer, queue: *mut mp_queue) -> mp_status;

    /// Names the layers whose step ends with the optimizer's: every later mp_optimizer_step that succeeds does for them what
    /// mp_linear_end_step does, which then must not be called. Where ranks share the optimizer their amaxes go in the step's own agreement,
    /// without a message more: in place of mp_linear_end_step, with the same bits. A skipped step (a gradient that is
    /// not finite) moves delayed scales on as any other, as in Transformer Engine, where an amax that is not finite itself
    /// changes nothing; a step that fails in or before its agreement moves nothing, and the amaxes wait for the next one.
    /// Replaces the layers named before. The optimizer keeps them alive. Blocks where ranks share it: every rank then names as
    /// many layers, of the same sizes and recipes, in the same order, before or after mp_optimizer_shard.
    pub fn mp_optimizer_set_linears(optimizer: *mut mp_optimizer, linears: *const *mut mp_linear, count: i32) -> mp_status;

    /// What the last step did. Blocks.
    pub fn mp_optimizer_get_stats(optimizer: *mut mp_optimizer, queue: *mut mp_queue, stats: *mut mp_optimizer_stats) -> mp_status;

    /// Sets the learning rate of a group from the next step on. Replaces a tensor of mp_optimizer_set_lr_tensor.
    pub fn mp_optimizer_set_lr(optimizer: *mut mp_optimizer, group: i32, lr: f64) -> mp_status;

    /// Turns a group on or off. Parameters of a group that is off are not touched by a step, and their gradients count
    /// neither in the norm nor in the finite check; its t stays. Groups are on at first.
    pub fn mp_optimizer_set_enabled(optimizer: *mut mp_optimizer, group: i32, enabled: i32) -> mp_status;

    /// The norm that gradients are clipped to from the next step on, instead of mp_optimizer_desc.max_grad_norm. Where ranks share the
    /// optimizer, the same on each.
    pub fn mp_optimizer_set_max_grad_norm(optimizer: *mut mp_optimizer, max_grad_norm: f64) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_optimizer_destroy(optimizer: *mut mp_optimizer);

    /// Lets every step read a group's learning rate from a tensor, on the device and in the order of the step's queue: a
    /// schedule that runs on the device, or a captured graph, needs neither the host nor a new upload. Its value is taken as
    /// it is, without a check.
    pub fn mp_optimizer_set_lr_tensor(optimizer: *mut mp_optimizer, group: i32, lr: *mut mp_tensor) -> mp_status;

    /// Lets every step divide the gradients by a number in device memory, beside the scaler's scale: a count of
    /// micro-batches or tokens. Read like mp_optimizer_set_lr_tensor's; the norm is that of the divided gradients.
    pub fn mp_optimizer_set_grad_scale_tensor(optimizer: *mut mp_optimizer, grad_scale: *mut mp_tensor) -> mp_status;

    /// grad_norm of the last step in device memory: one fp32 element that shares the optimizer's memory, for loops that log it
    /// without waiting.
    pub fn mp_optimizer_get_grad_norm_tensor(optimizer: *mut mp_optimizer, out: *mut *mut mp_tensor) -> mp_status;

    /// 1 where the last step was skipped, else 0, likewise.
    pub fn mp_optimizer_get_found_inf_tensor(optimizer: *mut mp_optimizer, out: *mut *mut mp_tensor) -> mp_status;

    /// Has the norm and the check for finite gradients cover the ranks of a communicator, which hold other parameters of the same model:
    /// tensor or pipeline parallelism. They then clip alike and skip alike. Every rank's sum of squares is made of its chunks one
    /// after another, in double, and those of the ranks are summed as chunks of one rank would be. Beside mp_optimizer_create_sharded this
    /// is another communicator, of ranks that do not share parameters. Implies MP_OPTIMIZER_CHECK_FINITE. A scaler's own found_inf of
    /// before the step is not asked for: mp_scaler_combine.
    pub fn mp_optimizer_set_norm_comm(optimizer: *mut mp_optimizer, comm: *mut mp_comm) -> mp_status;

    /// A tensor of one parameter, by name: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"; and
    /// for one of codes with a scale that scale, by its name and "_scale_inv". Contents may be read and written between
    /// steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
    pub fn mp_optimizer_get_state(optimizer: *mut mp_optimizer, index: i32, state: *const c_char, out: *mut *mut mp_tensor) -> mp_status;

    /// The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
    ///   "exp_avg"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
    ///   "exp_avg_sq"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
    ///   "compensation"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
    ///   "fp32_param"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
    ///                   joined, parameter plus compensation, or the parameter alone
    ///                                              Megatron-Core: fp32_param, param; apex: master
    /// t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
    /// stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
    /// optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
    pub fn mp_optimizer_read_state(optimizer: *mut mp_optimizer, queue: *mut mp_queue, index: i32, state: *const c_char, values: *mut mp_tensor) -> mp_status;

    /// Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
    /// scales. "fp32_param" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
    /// compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
    /// compensation, write the parameter, call mp_optimizer_sync_master, then write "compensation". Numbers
    /// must be finite, second moments not negative. Blocks.
    pub fn mp_optimizer_write_state(optimizer: *mut mp_optimizer, queue: *mut mp_queue, index: i32, state: *const c_char, values: *mut mp_tensor) -> mp_status;

    /// After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
    /// compensations zero. Enqueues; blocks for parameters with a scale.
    pub fn mp_optimizer_sync_master(optimizer: *mut mp_optimizer, queue: *mut mp_queue, index: i32) -> mp_status;

    /// Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
    pub fn mp_optimizer_set_step(optimizer: *mut mp_optimizer, queue: *mut mp_queue, step: i64) -> mp_status;

    /// t of one group: the steps it took part in, torch's `step` of its parameters. Of those that were added after a step it
    /// is ahead: they count their own, which checkpoints keep. Blocks.
    pub fn mp_optimizer_get_group_step(optimizer: *mut mp_optimizer, queue: *mut mp_queue, group: i32, step: *mut i64) -> mp_status;

    /// Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
    pub fn mp_optimizer_set_group_step(optimizer: *mut mp_optimizer, queue: *mut mp_queue, group: i32, step: i64) -> mp_status;

    /// What the optimizer was made with; the seed is a checkpoint's where one was loaded.
    pub fn mp_optimizer_get_desc(optimizer: *const mp_optimizer, desc: *mut mp_optimizer_desc) -> mp_status;

    /// Number of groups added.
    pub fn mp_optimizer_get_group_count(optimizer: *const mp_optimizer, count: *mut i32) -> mp_status;

    /// A group as it is now: with what mp_optimizer_set_lr and mp_checkpoint_load have changed. A new group made with it is alike.
    pub fn mp_optimizer_get_group(optimizer: *const mp_optimizer, group: i32, desc: *mut mp_param_group_desc) -> mp_status;

    /// Whether a group is on.
    pub fn mp_optimizer_get_enabled(optimizer: *const mp_optimizer, group: i32, enabled: *mut i32) -> mp_status;

    /// Number of parameters added.
    pub fn mp_optimizer_get_param_count(optimizer: *const mp_optimizer, count: *mut i32) -> mp_status;

    /// A parameter's name.
    pub fn mp_optimizer_get_param_name(optimizer: *const mp_optimizer, index: i32, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// A parameter's group.
    pub fn mp_optimizer_get_param_group(optimizer: *const mp_optimizer, index: i32, group: *mut i32) -> mp_status;

    /// Bytes really held for the parameters added so far, by class.
    pub fn mp_optimizer_get_memory(optimizer: *const mp_optimizer, report: *mut mp_memory_report) -> mp_status;

    /// Makes a quantized tensor in the library's memory; all its values are zero. Blocks.
    pub fn mp_tensor_create_quantized(context: *mut mp_context, desc: *const mp_tensor_desc, quant: *const mp_quant_desc, out: *mut *mut mp_tensor) -> mp_status;

    /// Rounds source to codes, and computes their scales by the destination's rule. Enqueues.
    /// Numerics: code = RN(x * multiply) in fp32, saturating; multiply and scale_inv by the rule; subnormal codes
    /// exact. Infinity and NaN stay visible: NaN in fp8_e4m3, themselves in fp8_e5m2 and fp16.
    /// The scale of a block never is infinite or negative, whatever its elements are.
    pub fn mp_tensor_quantize(source: *const mp_tensor, queue: *mut mp_queue, destination: *mut mp_tensor, transposed: *mut mp_tensor, args: *const mp_quantize_args, stats: *mut mp_quant_stats) -> mp_status;

    /// destination = code * scale_inv, in fp32, rounded once to destination's type. Enqueues.
    pub fn mp_tensor_dequantize(source: *const mp_tensor, queue: *mut mp_queue, destination: *mut mp_tensor) -> mp_status;

    /// The scales (scale_inv) of a quantized tensor: [rows of blocks, columns of blocks], row-major, fp32, e8m0 or
    /// fp8_e4m3. The handle shares their memory, which changes with every quantization.
    pub fn mp_tensor_get_scales(tensor: *const mp_tensor, out: *mut *mut mp_tensor) -> mp_status;

    /// Makes a quantized tensor over the caller's memory, with the codes and scales that are there. What mp_tensor_wrap says of memory
    /// holds for all three pieces.
    pub fn mp_tensor_wrap_quantized(context: *mut mp_context, desc: *const mp_tensor_desc, quant: *const mp_quant_desc, codes: *mut c_void, scale_inv: *mut c_void, amax: *mut f32, deleter: mp_deleter_fn, payload: *mut c_void, out: *mut *mut mp_tensor) -> mp_status;

    /// How a tensor is quantized.
    pub fn mp_tensor_get_quant_desc(tensor: *const mp_tensor, desc: *mut mp_quant_desc) -> mp_status;

    /// The largest |x| of what was quantized last (NVFP4 needs it to read its scales): one fp32 element that shares
    /// the tensor's memory.
    pub fn mp_tensor_get_quantized_amax(tensor: *const mp_tensor, out: *mut *mut mp_tensor) -> mp_status;

    /// Waits for the context's default queue. Blocks.
    pub fn mp_context_sync(context: *mut mp_context) -> mp_status;

    /// Makes a queue on the context's device.
    pub fn mp_queue_create(context: *mut mp_context, out: *mut *mut mp_queue) -> mp_status;

    /// Waits until all work enqueued so far is done, and reports what went wrong in it. Blocks.
    pub fn mp_queue_sync(queue: *mut mp_queue) -> mp_status;

    /// Gives the caller's reference back; the queue ends when its work is done.
    pub fn mp_queue_destroy(queue: *mut mp_queue);

    /// Makes a queue over the caller's own stream, which stays the caller's and must outlive the queue.
    pub fn mp_queue_wrap_native(context: *mut mp_context, native: *const c_void, out: *mut *mut mp_queue) -> mp_status;

    /// The stream under a queue, for work of one's own between the library's. It stays whose it was. Enqueues nothing.
    pub fn mp_queue_get_native(queue: *const mp_queue, native: *mut c_void, size: usize) -> mp_status;

    /// The most memory that work on this queue has held at once for a while (rounded operands, sums), as mp_queue_set_workspace
    /// needs it: run one step, ask, and hand so much over. Enqueues nothing.
    pub fn mp_queue_get_workspace_peak(queue: *const mp_queue, bytes: *mut usize) -> mp_status;

    /// Has work on this queue use the caller's memory instead of memory of the library's. What does not fit makes a call fail
    /// with MP_STATUS_OUT_OF_MEMORY and a message that says how many bytes are needed. What layers and optimizers keep is not
    /// there, nor what oneDNN takes for itself; cuBLASLt's workspace is. Blocks.
    pub fn mp_queue_set_workspace(queue: *mut mp_queue, memory: *mut c_void, bytes: usize) -> mp_status;

    /// What mp_queue_set_workspace was given. Enqueues nothing.
    pub fn mp_queue_get_workspace(queue: *const mp_queue, memory: *mut *mut c_void, bytes: *mut usize) -> mp_status;

    /// Makes a recipe from a preset.
    pub fn mp_recipe_create(context: *mut mp_context, name: *const c_char, out: *mut *mut mp_recipe) -> mp_status;

    /// The weight that a recipe wants, from its values in fp32: a tensor of its weight.dtype, quantized where that has a scale, on the
    /// context's device. Give the same values as mp_param_desc.init_fp32 too, so that a master weight or a compensation has what
    /// rounding them loses. Blocks.
    pub fn mp_recipe_create_weight(context: *mut mp_context, recipe: *const mp_recipe, ndim: i32, shape: *const i64, values: *const f32, out: *mut *mut mp_tensor) -> mp_status;

    /// The weight of an fp8 layer as the codes that its products take, with one scale: what a sharded optimizer gathers under
    /// weight.gather.codes, a byte an element. Its owner keeps the exact numbers of its slice, in weight.dtype: give the same values as
    /// mp_param_desc.init_fp32. A layer over such a weight keeps no copy of it between forward and backward. Blocks.
    pub fn mp_recipe_create_weight_codes(context: *mut mp_context, recipe: *const mp_recipe, ndim: i32, shape: *const i64, values: *const f32, out: *mut *mut mp_tensor) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_recipe_destroy(recipe: *mut mp_recipe);

    /// Sets a key that holds a string.
    pub fn mp_recipe_set_string(recipe: *mut mp_recipe, key: *const c_char, value: *const c_char) -> mp_status;

    /// Sets a key that holds a floating-point number.
    pub fn mp_recipe_set_float(recipe: *mut mp_recipe, key: *const c_char, value: f64) -> mp_status;

    /// Sets a key that holds an integer.
    pub fn mp_recipe_set_int(recipe: *mut mp_recipe, key: *const c_char, value: i64) -> mp_status;

    /// Reads a key that holds a string.
    pub fn mp_recipe_get_string(recipe: *const mp_recipe, key: *const c_char, value: *mut *const c_char) -> mp_status;

    /// Reads a key that holds a floating-point number.
    pub fn mp_recipe_get_float(recipe: *const mp_recipe, key: *const c_char, value: *mut f64) -> mp_status;

    /// Reads a key that holds an integer.
    pub fn mp_recipe_get_int(recipe: *const mp_recipe, key: *const c_char, value: *mut i64) -> mp_status;

    /// Makes a recipe from JSON: {"recipe": "preset", "key": value, ...}. "recipe" defaults to "fp32"; keys are
    /// the dotted names of recipe_keys.h. Unknown or repeated keys, wrong types and impossible combinations are
    /// refused with all reasons. At most 1 MiB.
    pub fn mp_recipe_create_from_json(context: *mut mp_context, json: *const c_char, length: usize, out: *mut *mut mp_recipe) -> mp_status;

    /// Makes a recipe from a JSON file. Blocks.
    pub fn mp_recipe_create_from_file(context: *mut mp_context, path: *const c_char, out: *mut *mut mp_recipe) -> mp_status;

    /// The recipe as JSON in canonical form: every key, in the order of mp_recipe_get_key_info. Read back by
    /// mp_recipe_create_from_json it gives the same recipe.
    pub fn mp_recipe_to_json(recipe: *const mp_recipe, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Checks the combination and reports every problem at once in mp_last_error_message().
    pub fn mp_recipe_validate(recipe: *const mp_recipe) -> mp_status;

    /// A copy that can be changed, also of a recipe that is in use.
    pub fn mp_recipe_clone(recipe: *const mp_recipe, out: *mut *mut mp_recipe) -> mp_status;

    /// Whether something uses the recipe, so that it can no longer change.
    pub fn mp_recipe_get_frozen(recipe: *const mp_recipe, frozen: *mut i32) -> mp_status;

    /// Why the device's choice fell on this preset, in words; empty for a recipe that was not made by "auto".
    pub fn mp_recipe_get_reason(recipe: *const mp_recipe, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// Number of presets.
    pub fn mp_recipe_preset_count() -> i32;

    /// Name and one-line description of a preset.
    pub fn mp_recipe_get_preset_info(index: i32, name: *mut *const c_char, text: *mut *const c_char) -> mp_status;

    /// Number of keys.
    pub fn mp_recipe_key_count() -> i32;

    /// Everything about one key.
    pub fn mp_recipe_get_key_info(index: i32, desc: *mut mp_recipe_key_desc) -> mp_status;

    /// Exact bytes that a recipe needs for so many parameters, before anything is allocated: elements, and the
    /// scales of one tensor where the recipe has scaled codes. Scratch and activations are not in it.
    pub fn mp_recipe_plan_memory(recipe: *const mp_recipe, rule: i32, parameter_count: i64, report: *mut mp_memory_report) -> mp_status;

    /// The same for a model's tensors of the recipe's weight.dtype, each with scales of its own.
    pub fn mp_recipe_plan_memory_of_tensors(recipe: *const mp_recipe, rule: i32, counts: *const i64, tensor_count: i64, report: *mut mp_memory_report) -> mp_status;

    /// The same sums of all elements on every rank: a reduce-scatter, then a gather in gather_dtype. With op MAX_ABS_BITS, the
    /// largest |x| of each element over the ranks as fp32. Blocks, unless it has a request; a maximum takes none.
    pub fn mp_comm_all_reduce(comm: *mut mp_comm, queue: *mut mp_queue, desc: *const mp_comm_reduce_desc, sources: *const *const mp_tensor, source_count: i32, destination: *mut mp_tensor, request: *mut *mut mp_comm_request) -> mp_status;

    /// Rank r gets the sum of its share of all ranks' elements: those from counts[0] + ... + counts[r - 1] on. Shares may be
    /// empty. The destination may be fp32, or fp16 or bf16, to which the sum is rounded once. What is not finite on any rank
    /// is not finite in the sum. Blocks, unless it has a request; what is enqueued on the queue comes first.
    pub fn mp_comm_reduce_scatter(comm: *mut mp_comm, queue: *mut mp_queue, desc: *const mp_comm_reduce_desc, sources: *const *const mp_tensor, source_count: i32, counts: *const i64, destination: *mut mp_tensor, request: *mut *mut mp_comm_request) -> mp_status;

    /// Every rank gets all ranks' values in wire_dtype: of fp8 all get the decoded ones, the owner too. Of the descriptor,
    /// order, slots, accumulate and the gather's fields are not read. Blocks, unless it has a request.
    pub fn mp_comm_all_gather_values(comm: *mut mp_comm, queue: *mut mp_queue, desc: *const mp_comm_reduce_desc, shard: *const mp_tensor, counts: *const i64, destination: *mut mp_tensor, request: *mut *mut mp_comm_request) -> mp_status;

    /// Bytes that so many elements take on the wire, scales included.
    pub fn mp_comm_get_wire_bytes(count: i64, dtype: i32, scale: i32, bytes: *mut i64) -> mp_status;

    /// How many rules there are.
    pub fn mp_rule_get_count(count: *mut i32) -> mp_status;

    /// The number of a rule.
    pub fn mp_rule_get_number(name: *const c_char, rule: *mut i32) -> mp_status;

    /// What a rule is.
    pub fn mp_rule_get_info(rule: i32, info: *mut mp_rule_info) -> mp_status;

    /// One of a rule's states.
    pub fn mp_rule_get_state(rule: i32, index: i32, state: *mut mp_rule_state) -> mp_status;

    /// One of the hyperparameters that a rule reads.
    pub fn mp_rule_get_hyper(rule: i32, index: i32, hyper: *mut mp_rule_hyper) -> mp_status;

    /// The name of a state.
    pub fn mp_rule_state_name(state: i32) -> *const c_char;

    /// Makes a place for what one forward of this layer keeps. It holds memory from its first forward on.
    pub fn mp_saved_create(linear: *mut mp_linear, out: *mut *mut mp_saved) -> mp_status;

    /// mp_linear_forward that keeps what backward needs in `saved` instead of in the layer. What was in it is replaced. Enqueues.
    /// x may be codes (a quantized tensor). In the format of the product they serve as they are, and their amax
    /// (mp_tensor_get_quantized_amax) enters the delayed scale; other codes are read to fp32 and rounded again.
    pub fn mp_linear_forward_saved(linear: *mut mp_linear, queue: *mut mp_queue, x: *mut mp_tensor, y: *mut mp_tensor, saved: *mut mp_saved, flags: u32) -> mp_status;

    /// mp_linear_backward with what that forward kept. It stays there: a second backward may follow. Enqueues. dy may be codes,
    /// as x may; dbias is then the sum of their values.
    pub fn mp_linear_backward_saved(linear: *mut mp_linear, queue: *mut mp_queue, saved: *const mp_saved, dy: *const mp_tensor, dx: *mut mp_tensor, dw: *mut mp_tensor, dbias: *mut mp_tensor, flags: u32) -> mp_status;

    /// Bytes that mp_saved_set_memory needs for a forward of so many rows: x in the format of the weight gradient, and its scales.
    pub fn mp_linear_get_saved_bytes(linear: *const mp_linear, rows: i64, bytes: *mut usize) -> mp_status;

    /// Has what is kept lie in the caller's memory. Where a forward has been, the bytes that were at the old place of the caller's
    /// are taken to be at the new one: copy them first. A saved whose x lies in the library's memory cannot be moved.
    pub fn mp_saved_set_memory(saved: *mut mp_saved, memory: *mut c_void, bytes: usize) -> mp_status;

    /// The caller's memory that mp_saved_set_memory named.
    pub fn mp_saved_get_memory(saved: *const mp_saved, memory: *mut *mut c_void, bytes: *mut usize) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_saved_destroy(saved: *mut mp_saved);

    /// How dw in fp16 or bf16 is rounded from now on, by mp_linear_backward too. Under MP_ROUND_STOCHASTIC the product is added
    /// to dw in fp32 and rounded once, by the bits of (seed, uid, element, step, microbatch): set them before each micro-batch.
    /// A dw in fp32 is not rounded.
    pub fn mp_linear_set_gradient_rounding(linear: *mut mp_linear, desc: *const mp_cast_desc) -> mp_status;

    /// What mp_linear_set_gradient_rounding was told.
    pub fn mp_linear_get_gradient_rounding(linear: *const mp_linear, desc: *mut mp_cast_desc) -> mp_status;

    /// The format in which a product takes an operand: for codes that the caller makes, and for memory that holds them.
    pub fn mp_linear_get_operand_format(linear: *const mp_linear, product: i32, operand: i32, dtype: *mut i32, quant: *mut mp_quant_desc) -> mp_status;

    /// Rounds an operand as the product would, into codes of the caller's: by the layer's delayed scale where it has one, and
    /// counted by the layer at once, so not for an evaluation. Enqueues. Give them to the calls above as x or dy, or to mp_linear_set_weight_codes.
    pub fn mp_linear_quantize(linear: *mut mp_linear, queue: *mut mp_queue, product: i32, operand: i32, source: *const mp_tensor, codes: *mut mp_tensor) -> mp_status;

    /// Has products take these codes of the caller's instead of rounding the weight: who changes the weight makes them anew.
    /// Their amax enters the delayed scale. Kept alive.
    pub fn mp_linear_set_weight_codes(linear: *mut mp_linear, fprop: *mut mp_tensor, dgrad: *mut mp_tensor) -> mp_status;

    /// What mp_linear_set_weight_codes was given.
    pub fn mp_linear_get_weight_codes(linear: *const mp_linear, product: i32, out: *mut *mut mp_tensor) -> mp_status;

    /// The delayed scale of an operand, for kernels of the caller's that make codes: what x is multiplied by before it is
    /// rounded; scale_inv = RN(1 / multiply). One fp32 element in device memory that moves with mp_linear_end_step. In the
    /// first steps of a recipe with a warm-up it is not used.
    pub fn mp_linear_get_multiply_tensor(linear: *const mp_linear, operand: i32, out: *mut *mut mp_tensor) -> mp_status;

    /// Makes the scaler a recipe asks for; for a recipe without loss scaling one of kind MP_SCALER_NONE, so that
    /// the caller's loop is the same for every recipe. Freezes the recipe.
    pub fn mp_scaler_create_from_recipe(context: *mut mp_context, recipe: *mut mp_recipe, out: *mut *mut mp_scaler) -> mp_status;

    /// Makes a scaler on the context's device.
    pub fn mp_scaler_create(context: *mut mp_context, desc: *const mp_scaler_desc, out: *mut *mut mp_scaler) -> mp_status;

    /// The loss scale as it is after all enqueued work. Blocks.
    pub fn mp_scaler_get_scale(scaler: *mut mp_scaler, queue: *mut mp_queue, scale: *mut f64) -> mp_status;

    /// Moves the scale by the rule, once a step, and clears found_inf. Enqueues.
    pub fn mp_scaler_update(scaler: *mut mp_scaler, queue: *mut mp_queue) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_scaler_destroy(scaler: *mut mp_scaler);

    /// Looks whether gradients in the caller's own memory are finite; for loops without mp_optimizer. Adds to
    /// found_inf until the next update: every step until then is skipped. Enqueues; on the host the memory is read before the call returns.
    pub fn mp_scaler_check_pointers(scaler: *mut mp_scaler, queue: *mut mp_queue, count: i64, grads: *const *const c_void, dtypes: *const i32, elements: *const i64) -> mp_status;

    /// The loss scale in device memory: one fp32 element that shares the scaler's memory, for losses that are multiplied on the device
    /// without waiting. 1 of a scaler of kind MP_SCALER_NONE.
    pub fn mp_scaler_get_scale_tensor(scaler: *mut mp_scaler, out: *mut *mut mp_tensor) -> mp_status;

    /// found_inf, 0 or 1, likewise. Kernels of the caller's may write it before mp_scaler_update: the maximum over ranks, say.
    pub fn mp_scaler_get_found_inf_tensor(scaler: *mut mp_scaler, out: *mut *mut mp_tensor) -> mp_status;

    /// found_inf becomes 1 where it is on any rank, before mp_scaler_update; for loops without mp_optimizer, and for ranks that hold other
    /// parameters. One small message. Blocks.
    pub fn mp_scaler_combine(scaler: *mut mp_scaler, queue: *mut mp_queue, comm: *mut mp_comm) -> mp_status;

    /// Reads the whole state. Blocks.
    pub fn mp_scaler_get_state(scaler: *mut mp_scaler, queue: *mut mp_queue, state: *mut mp_scaler_state) -> mp_status;

    /// Replaces the whole state, to go on exactly where a saved run stopped. Blocks.
    pub fn mp_scaler_set_state(scaler: *mut mp_scaler, queue: *mut mp_queue, state: *const mp_scaler_state) -> mp_status;

    /// Fills a descriptor with the rule of a known system.
    pub fn mp_scaler_desc_preset(desc: *mut mp_scaler_desc, size: usize, name: *const c_char) -> mp_status;

    /// As mp_optimizer_create, for an optimizer whose states the ranks of a communicator share. It makes a communicator of its
    /// own from `comm`, which may be destroyed after. Every rank then adds the same groups and parameters, whole, with
    /// the same names, shapes and values. Blocks.
    pub fn mp_optimizer_create_sharded(context: *mut mp_context, recipe: *mut mp_recipe, desc: *const mp_optimizer_desc, comm: *mut mp_comm, sharding: *const mp_sharding_desc, out: *mut *mut mp_optimizer) -> mp_status;

    /// Cuts the parameters, makes this rank's states, and from stage 2 on takes the gradients' memory, in stage 3 the
    /// weights'. The first step does it where nobody has. No parameter can be added after it. Blocks.
    pub fn mp_optimizer_shard(optimizer: *mut mp_optimizer, queue: *mut mp_queue) -> mp_status;

    /// A gradient has its last addition. When all of its bucket are ready the bucket leaves. A thread of the optimizer's moves
    /// what has left on, sums included, while backward goes on, and so it does what mp_optimizer_gather_begin began; it calls
    /// the communicator only between calls of this optimizer, begins nothing on it (what a bucket begins later, in the order
    /// EXACT or between groups and nodes, goes over groups that nothing else uses), sums with one thread, and sleeps when nothing
    /// comes. Where there is none (mp_optimizer_get_progress says why) buckets move in these calls. The bits are the same. A
    /// failure that the thread meets comes out of the next call that moves anything, and of all later ones. Every rank says it in
    /// the same order. In stages 0 and 1 gradients stay in their tensors, so it is said once a step; under MP_OPTIMIZER_ZERO_GRAD,
    /// and from stage 2 on, once a microbatch if wanted: what left is added to what left before. Does nothing without sharding.
    /// Enqueues; blocks for a bucket that leaves.
    pub fn mp_optimizer_grad_ready(optimizer: *mut mp_optimizer, queue: *mut mp_queue, index: i32) -> mp_status;

    /// All gradients of one slot are there, those that were said to be ready and the rest: they are kept in the wire's type, and
    /// zeroed. Needed after each of this rank's slots where it has several; nothing else may add to them before. Does nothing without sharding. Enqueues; blocks for
    /// buckets that leave.
    pub fn mp_optimizer_end_microbatch(optimizer: *mut mp_optimizer, queue: *mut mp_queue) -> mp_status;

    /// Gives a gradient its memory, of zeros, where it has none. Does nothing in stages 0 and 1, or without sharding.
    /// Enqueues.
    pub fn mp_optimizer_acquire_grad(optimizer: *mut mp_optimizer, queue: *mut mp_queue, index: i32) -> mp_status;

    /// Stage 3: gives parameters memory and begins to fetch their slices; those that have memory are left alone. Several may be
    /// under way, for layers to come. Every rank names the same parameters in the same order. Does nothing in other stages.
    /// Blocks until this rank's own slices are ready to be sent.
    pub fn mp_optimizer_gather_begin(optimizer: *mut mp_optimizer, queue: *mut mp_queue, indices: *const i32, count: i32) -> mp_status;

    /// Returns when these parameters are whole. Blocks. Does nothing in other stages.
    pub fn mp_optimizer_gather_wait(optimizer: *mut mp_optimizer, queue: *mut mp_queue, indices: *const i32, count: i32) -> mp_status;

    /// Gives the parameters' memory back; what was written there is lost, unless mp_optimizer_sync_master took it. A step
    /// does it for all. Blocks. Does nothing in other stages.
    pub fn mp_optimizer_gather_free(optimizer: *mut mp_optimizer, queue: *mut mp_queue, indices: *const i32, count: i32) -> mp_status;

    /// Which elements of a parameter a rank owns.
    pub fn mp_optimizer_get_slice(optimizer: *const mp_optimizer, index: i32, rank: i32, start: *mut i64, count: *mut i64) -> mp_status;

    /// Whether messages move while the caller computes, and how many have. What the thread finished was over before the
    /// step, or whoever waits, asked for it.
    pub fn mp_optimizer_get_progress(optimizer: *const mp_optimizer, progress: *mut mp_sharding_progress) -> mp_status;

    /// FP8-LM's factor mu of a gradient that ranks reduce under a shared scale (grad.reduce.scale "shared"): it begins at 1 /
    /// sqrt(ranks), is halved by a step whose sum had to clip more than 1e-5 of its elements (one is forgiven), and doubles in
    /// 1000 steps that had not. Codes are made under it rounded down to a power of two. A checkpoint keeps it.
    pub fn mp_optimizer_get_grad_mu(optimizer: *const mp_optimizer, index: i32, mu: *mut f64) -> mp_status;

    /// What this rank has sent for this optimizer.
    pub fn mp_optimizer_get_traffic(optimizer: *const mp_optimizer, traffic: *mut mp_comm_traffic) -> mp_status;

    /// mp_recipe_plan_memory for one rank of many that share an optimizer, after mp_optimizer_shard: exactly the bytes of its
    /// own elements, and of what every rank has. The one scale of a weight or gradient is on every rank. Gradients from stage
    /// 2 on, and weights in stage 3, are not counted: they have memory while they are in use only. Every tensor is taken for a
    /// matrix; mp_recipe_plan_tensors knows others.
    pub fn mp_recipe_plan_memory_sharded(recipe: *const mp_recipe, rule: i32, counts: *const i64, tensor_count: i64, sharding: *const mp_sharding_desc, rank: i32, ranks: i32, report: *mut mp_memory_report) -> mp_status;

    /// Plans tensors of several kinds: kept in fp32 beside the recipe's weights, of groups with formats of their own, or gathered
    /// as codes; what one rank holds, and what it sends. A model that is made so holds exactly these bytes.
    pub fn mp_recipe_plan_tensors(recipe: *const mp_recipe, tensors: *const mp_planned_tensor, tensor_count: i64, sharding: *const mp_sharding_desc, rank: i32, ranks: i32, memory: *mut mp_memory_report, traffic: *mut mp_comm_traffic) -> mp_status;

    /// Symbolic name of a code, for logs ("MP_STATUS_INVALID_SHAPE").
    pub fn mp_status_string(status: mp_status) -> *const c_char;

    /// What went wrong in this thread's last call, in one line: the argument, what was found, what was
    /// expected, what to do. Every call except the query functions of this header and mp_*_destroy clears it on entry.
    pub fn mp_last_error_message() -> *const c_char;

    /// Copy of mp_last_error_message() into the caller's memory, for languages that cannot borrow.
    pub fn mp_last_error_copy(buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;

    /// One step straight on the caller's memory: no tensors, no recipe, no state in the library. The same
    /// kernel and bits as mp_optimizer_step. Enqueues; on the host everything is done when it returns.
    pub fn mp_optimizer_step_pointers(context: *mut mp_context, queue: *mut mp_queue, args: *const mp_step_args, slots: *const mp_step_slot, slot_count: i64, scaler: *mut mp_scaler, stats: *mut mp_optimizer_stats) -> mp_status;

    /// Prepares the same step once, for loops that must not allocate or wait, and for captures in a graph: tables of the slots and a count of
    /// steps are in device memory from now on. The slots' memory stays the caller's and must outlive the plan. Blocks.
    pub fn mp_step_plan_create(context: *mut mp_context, args: *const mp_step_args, slots: *const mp_step_slot, slot_count: i64, out: *mut *mut mp_step_plan) -> mp_status;

    /// A step, with the bits of mp_optimizer_step_pointers. t grows with every step that is taken. Enqueues; allocates nothing.
    pub fn mp_step_plan_run(plan: *mut mp_step_plan, queue: *mut mp_queue, scaler: *mut mp_scaler) -> mp_status;

    /// Other hyperparameters, from the next run on. What changes every step is better given by hyper_pointer or lr_pointer. Blocks.
    pub fn mp_step_plan_set_args(plan: *mut mp_step_plan, queue: *mut mp_queue, args: *const mp_step_args) -> mp_status;

    /// What the plan was told last.
    pub fn mp_step_plan_get_args(plan: *const mp_step_plan, args: *mut mp_step_args) -> mp_status;

    /// What the last run did, and the steps taken so far. Blocks.
    pub fn mp_step_plan_get_stats(plan: *mut mp_step_plan, queue: *mut mp_queue, stats: *mut mp_optimizer_stats) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_step_plan_destroy(plan: *mut mp_step_plan);

    /// Makes a tensor in the library's memory, 64-byte aligned, all zero bytes.
    pub fn mp_tensor_create(context: *mut mp_context, desc: *const mp_tensor_desc, out: *mut *mut mp_tensor) -> mp_status;

    /// Copies from host memory into a tensor. Blocks.
    pub fn mp_tensor_write(tensor: *mut mp_tensor, queue: *mut mp_queue, data: *const c_void, bytes: usize) -> mp_status;

    /// Copies a tensor into host memory. Blocks.
    pub fn mp_tensor_read(tensor: *const mp_tensor, queue: *mut mp_queue, data: *mut c_void, bytes: usize) -> mp_status;

    /// Copies elements between tensors of the same type and number of elements, on the same or on different
    /// devices; of quantized ones, which must be alike, also scales and amax. Enqueues. Overlapping memory is refused.
    pub fn mp_tensor_copy(source: *const mp_tensor, queue: *mut mp_queue, destination: *mut mp_tensor) -> mp_status;

    /// Sets every byte to zero. Enqueues.
    pub fn mp_tensor_zero(tensor: *mut mp_tensor, queue: *mut mp_queue) -> mp_status;

    /// Converts between fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2. Enqueues.
    /// Numerics: through fp32, exact on the way in; one rounding on the way out; NaN kept; subnormals exact.
    /// Stochastic rounding draws from Philox4x32-10 by (seed, uid, element, step, micro-batch), so the bits do not depend on
    /// threads or device.
    pub fn mp_tensor_cast(source: *const mp_tensor, queue: *mut mp_queue, destination: *mut mp_tensor, desc: *const mp_cast_desc) -> mp_status;

    /// Gives the caller's reference back.
    pub fn mp_tensor_destroy(tensor: *mut mp_tensor);

    /// Makes a tensor over the caller's memory, which must hold the whole shape, be aligned to the element
    /// size, and stay valid until the deleter runs (or, without one, until the tensor and all that uses it are
    /// destroyed).
    pub fn mp_tensor_wrap(context: *mut mp_context, desc: *const mp_tensor_desc, data: *mut c_void, deleter: mp_deleter_fn, payload: *mut c_void, out: *mut *mut mp_tensor) -> mp_status;

    /// Some elements of a tensor as a tensor of their own, without a copy: rows of an embedding, the Q of a QKV weight, one expert
    /// of a stack. What is written through one is seen through the other, and caches of either notice it. The view keeps the
    /// tensor alive, and its memory in its place (of a sharded parameter it cannot be given back meanwhile).
    pub fn mp_tensor_create_view(tensor: *mut mp_tensor, offset: i64, ndim: i32, shape: *const i64, out: *mut *mut mp_tensor) -> mp_status;

    /// Type, shape and device of a tensor.
    pub fn mp_tensor_get_desc(tensor: *const mp_tensor, desc: *mut mp_tensor_desc) -> mp_status;

    /// The tensor's memory: a borrowed pointer, on its device, valid as long as the tensor.
    pub fn mp_tensor_get_data(tensor: *const mp_tensor, data: *mut *mut c_void) -> mp_status;

    /// Largest absolute value. NaN wins over everything and infinity over every number; 0 for no elements.
    /// Enqueues.
    pub fn mp_tensor_amax(tensor: *const mp_tensor, queue: *mut mp_queue, amax: *mut mp_tensor) -> mp_status;

    /// Name of an element type as recipes and messages spell it ("bf16", "fp8_e4m3", ...).
    pub fn mp_dtype_name(dtype: i32) -> *const c_char;

    /// The inverse of mp_dtype_name.
    pub fn mp_dtype_from_name(name: *const c_char) -> i32;

    /// Bytes of one element.
    pub fn mp_dtype_size(dtype: i32) -> usize;

    /// Version of the loaded library, in the form of MP_VERSION. From 0.2 on all 0.x versions are additive: a program
    /// compiled against header version H works with every library whose version is at least H.
    pub fn mp_library_version() -> u32;

    /// Version, compiler, and what was built in, as one line of text for bug reports.
    pub fn mp_library_build_info() -> *const c_char;

    /// Ends the library's own run-time systems (its private Kokkos). Final: later calls that need a device
    /// fail with MP_STATUS_BAD_STATE. Never needed before a normal exit. Refused while contexts are alive.
    /// Blocks.
    pub fn mp_library_shutdown() -> mp_status;

    /// Skips steps that stand out from now on. Gradients are then read once before each step, as for clipping. What the last
    /// guard has seen, here or in the checkpoint that was loaded, stays in the window. Where ranks share the optimizer all give the same; one that does not is named in the
    /// next step. Blocks.
    pub fn mp_optimizer_set_guard(optimizer: *mut mp_optimizer, queue: *mut mp_queue, desc: *const mp_guard_desc) -> mp_status;

    /// The guard as it is.
    pub fn mp_optimizer_get_guard(optimizer: *const mp_optimizer, desc: *mut mp_guard_desc) -> mp_status;

    /// Gives the loss of the step to come, for the guard and the history; each step forgets it. Where ranks share the
    /// optimizer and the guard watches the loss, it is the same number on all, such as the mean over the ranks.
    pub fn mp_optimizer_set_loss(optimizer: *mut mp_optimizer, loss: f64) -> mp_status;

    /// Keeps the last steps. Each mp_optimizer_step then waits for its own decision on an accelerator. Of the first step that is
    /// skipped because something is not finite it finds the first bad tensor: in the order of mp_optimizer_set_linears the weight
    /// or input of a layer that counts its operands (MP_LINEAR_STATS or a monitor), else the first gradient in the order of
    /// parameters. With a path it writes the records and what the layers counted as one JSON object; a failure to write goes to the
    /// log and fails no step. Begins anew: records, call and bad tensor are forgotten.
    pub fn mp_optimizer_set_history(optimizer: *mut mp_optimizer, steps: i32, path: *const c_char) -> mp_status;

    /// Number of records there are: of the steps since the history began, or as many as it keeps.
    pub fn mp_optimizer_get_record_count(optimizer: *const mp_optimizer, count: *mut i32) -> mp_status;

    /// One record of the history.
    pub fn mp_optimizer_get_record(optimizer: *const mp_optimizer, index: i32, record: *mut mp_step_record) -> mp_status;

    /// The first tensor that was not finite, in the first step that was skipped for it, in words such as
    /// "the gradient of 'h0.qkv.weight'". Empty: there was no such step since the history began.
    pub fn mp_optimizer_get_bad_tensor(optimizer: *const mp_optimizer, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> mp_status;
}
