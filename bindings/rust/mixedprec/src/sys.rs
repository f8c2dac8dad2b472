// SPDX-License-Identifier: Apache-2.0
//! The C ABI as far as this package uses it: names, types and numbers as in the headers, checked when it is compiled.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_void};

pub type mp_status = i32;
pub const MP_STATUS_INVALID_SHAPE: mp_status = -3;
pub const MP_STATUS_INVALID_DTYPE: mp_status = -4;
pub const MP_STATUS_UNKNOWN_NAME: mp_status = -5;

pub const MP_VERSION: u32 = 200;
pub const MP_DTYPE_NONE: i32 = 0;
pub const MP_DTYPE_FP32: i32 = 1;
pub const MP_DTYPE_FP16: i32 = 2;
pub const MP_DTYPE_BF16: i32 = 3;
pub const MP_DEVICE_HOST: i32 = 1;
pub const MP_MAX_DIMS: usize = 8;
pub const MP_HYPERPARAMETERS_EXPLICIT: u32 = 256;

/// Handles are only ever pointed at, belong to no thread as far as the compiler knows, and cannot be made here.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
            _marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
        }
    )*};
}
opaque! { mp_context mp_queue mp_tensor mp_recipe mp_scaler mp_optimizer }

/// Declares a struct with its fields' offsets and its size, which are those of the C compiler: an error where not.
macro_rules! layouts {
    ($($name:ident: $size:literal { $($field:ident: $type:ty = $offset:literal,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $type,)* }
            const _: () = assert!(std::mem::size_of::<$name>() == $size);
            #[cfg(has_offset_of)]
            const _: () = { $(assert!(std::mem::offset_of!($name, $field) == $offset);)* };
        )*

        /// Name, size and offsets of every struct above, as found at run time.
        pub fn layouts() -> Vec<(&'static str, usize, Vec<usize>)> {
            vec![$({
                let place = std::mem::MaybeUninit::<$name>::uninit();
                let base = place.as_ptr();
                let offsets = vec![$({
                    // SAFETY: an address inside `place`; nothing is read.
                    let field = unsafe { std::ptr::addr_of!((*base).$field) };
                    field as usize - base as usize
                },)*];
                assert_eq!(offsets, [$($offset),*], stringify!($name));
                (stringify!($name), std::mem::size_of::<$name>(), offsets)
            },)*]
        }
    };
}

layouts! {
    mp_context_desc: 96 {
        struct_size: u32 = 0, flags: u32 = 4, api_version: u32 = 8, device_kind: i32 = 12,
        device_index: i32 = 16, num_threads: i32 = 20, log_level: i32 = 24, reserved: i32 = 28,
        backend: *const c_char = 32,
        allocate: Option<unsafe extern "C" fn(usize, usize, *mut c_void) -> *mut c_void> = 40,
        release: Option<unsafe extern "C" fn(*mut c_void, usize, usize, *mut c_void)> = 48,
        allocator_payload: *mut c_void = 56,
        log: Option<unsafe extern "C" fn(i32, *const c_char, *mut c_void)> = 64,
        log_payload: *mut c_void = 72,
        parallel: Option<
            unsafe extern "C" fn(i32, unsafe extern "C" fn(*mut c_void, i32), *mut c_void, *mut c_void),
        > = 80,
        parallel_payload: *mut c_void = 88,
    }
    mp_tensor_desc: 88 {
        struct_size: u32 = 0, flags: u32 = 4, dtype: i32 = 8, ndim: i32 = 12, shape: [i64; MP_MAX_DIMS] = 16,
        device_kind: i32 = 80, device_index: i32 = 84,
    }
    mp_optimizer_desc: 24 {
        struct_size: u32 = 0, flags: u32 = 4, seed: u64 = 8, max_grad_norm: f64 = 16,
    }
    mp_param_group_desc: 72 {
        struct_size: u32 = 0, flags: u32 = 4, lr: f64 = 8, beta1: f64 = 16, beta2: f64 = 24, eps: f64 = 32,
        weight_decay: f64 = 40, rule: i32 = 48, reserved: i32 = 52, exp_avg_format: *const c_char = 56,
        exp_avg_sq_format: *const c_char = 64,
    }
    mp_param_desc: 40 {
        struct_size: u32 = 0, flags: u32 = 4, name: *const c_char = 8, param: *mut mp_tensor = 16,
        grad: *mut mp_tensor = 24, init_fp32: *mut mp_tensor = 32,
    }
    mp_optimizer_stats: 40 {
        struct_size: u32 = 0, found_inf: u32 = 4, step: i64 = 8, skipped_steps: i64 = 16, grad_norm: f64 = 24,
        grad_mul: f64 = 32,
    }
    mp_step_slot: 176 {
        struct_size: u32 = 0, flags: u32 = 4, count: i64 = 8, uid: u64 = 16, param: *mut c_void = 24,
        grad: *mut c_void = 32, exp_avg: *mut c_void = 40, exp_avg_sq: *mut c_void = 48,
        compensation: *mut c_void = 56, master: *mut c_void = 64, param_dtype: i32 = 72, grad_dtype: i32 = 76,
        exp_avg_dtype: i32 = 80, exp_avg_sq_dtype: i32 = 84, compensation_dtype: i32 = 88, master_dtype: i32 = 92,
        param_scale_inv: *mut f32 = 96, grad_scale_inv: *mut f32 = 104, exp_avg_scale_inv: *mut c_void = 112,
        exp_avg_sq_scale_inv: *mut c_void = 120, master_scale_inv: *mut f32 = 128,
        exp_avg_coding: i32 = 136, exp_avg_sq_coding: i32 = 140, master_coding: i32 = 144,
        compensation_coding: i32 = 148, compensation_scale_inv: *mut c_void = 152,
        first_element: i64 = 160, param_amax: *mut f32 = 168,
    }
    mp_step_args: 128 {
        struct_size: u32 = 0, flags: u32 = 4, step: i64 = 8, seed: u64 = 16, lr: f64 = 24, beta1: f64 = 32,
        beta2: f64 = 40, eps: f64 = 48, weight_decay: f64 = 56, max_grad_norm: f64 = 64, grad_scale: f64 = 72,
        lr_pointer: *const f32 = 80, grad_scale_pointer: *const f32 = 88, rule: i32 = 96, reserved: i32 = 100,
        step_pointer: *mut i64 = 104, hyper_pointer: *const f64 = 112, grad_mul_pointer: *const f32 = 120,
    }
}

extern "C" {
    pub fn mp_library_version() -> u32;
    pub fn mp_status_string(status: mp_status) -> *const c_char;
    pub fn mp_last_error_message() -> *const c_char;

    pub fn mp_context_create(desc: *const mp_context_desc, out: *mut *mut mp_context) -> mp_status;
    pub fn mp_context_destroy(context: *mut mp_context);

    pub fn mp_recipe_create(
        context: *mut mp_context,
        name: *const c_char,
        out: *mut *mut mp_recipe,
    ) -> mp_status;
    pub fn mp_recipe_destroy(recipe: *mut mp_recipe);

    pub fn mp_tensor_wrap(
        context: *mut mp_context,
        desc: *const mp_tensor_desc,
        data: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
        payload: *mut c_void,
        out: *mut *mut mp_tensor,
    ) -> mp_status;
    pub fn mp_tensor_read(
        tensor: *const mp_tensor,
        queue: *mut mp_queue,
        data: *mut c_void,
        bytes: usize,
    ) -> mp_status;
    pub fn mp_tensor_get_desc(tensor: *const mp_tensor, desc: *mut mp_tensor_desc) -> mp_status;
    pub fn mp_tensor_destroy(tensor: *mut mp_tensor);

    pub fn mp_optimizer_create(
        context: *mut mp_context,
        recipe: *mut mp_recipe,
        desc: *const mp_optimizer_desc,
        out: *mut *mut mp_optimizer,
    ) -> mp_status;
    pub fn mp_optimizer_add_group(
        optimizer: *mut mp_optimizer,
        desc: *const mp_param_group_desc,
        index: *mut i32,
    ) -> mp_status;
    pub fn mp_optimizer_add_param(
        optimizer: *mut mp_optimizer,
        group: i32,
        desc: *const mp_param_desc,
        index: *mut i32,
    ) -> mp_status;
    pub fn mp_optimizer_step(
        optimizer: *mut mp_optimizer,
        queue: *mut mp_queue,
        scaler: *mut mp_scaler,
    ) -> mp_status;
    pub fn mp_optimizer_get_stats(
        optimizer: *mut mp_optimizer,
        queue: *mut mp_queue,
        stats: *mut mp_optimizer_stats,
    ) -> mp_status;
    pub fn mp_optimizer_get_state(
        optimizer: *mut mp_optimizer,
        index: i32,
        state: *const c_char,
        out: *mut *mut mp_tensor,
    ) -> mp_status;
    pub fn mp_optimizer_destroy(optimizer: *mut mp_optimizer);
    pub fn mp_optimizer_step_pointers(
        context: *mut mp_context,
        queue: *mut mp_queue,
        args: *const mp_step_args,
        slots: *const mp_step_slot,
        slot_count: i64,
        scaler: *mut mp_scaler,
        stats: *mut mp_optimizer_stats,
    ) -> mp_status;
}
