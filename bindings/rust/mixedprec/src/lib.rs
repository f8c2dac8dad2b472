// SPDX-License-Identifier: Apache-2.0
//! Low-precision training from Rust: a small safe layer over the C ABI of libmixedprec, as far as
//! `examples/optimizer_step.rs` needs it. Everything else is reachable through [`sys`].
#![warn(missing_docs)]

mod error;
mod optimizer;
mod pointers;
#[allow(missing_docs)]
pub mod sys;
mod tensor;

use std::ptr::{null, null_mut};

pub use error::Error;
pub use optimizer::{Group, Hyperparameters, Optimizer, Rule, Stats};
pub use pointers::{step_pointers, Slot};
pub use tensor::{Bf16, Element, Tensor};

use error::{c_string, check};

/// Version of the loaded library: major, minor, patch.
pub fn library_version() -> (u32, u32, u32) {
    // SAFETY: takes nothing, may be called at any time.
    let number = unsafe { sys::mp_library_version() };
    (number / 10000, number / 100 % 100, number % 100)
}

/// The host with its threads and memory.
pub struct Context {
    handle: *mut sys::mp_context,
}

// SAFETY: every function of the C ABI that takes a context may be called from any thread at any time.
unsafe impl Send for Context {}
unsafe impl Sync for Context {}

impl Context {
    /// Opens the host with so many threads; 0: one for each physical core.
    pub fn host(num_threads: i32) -> Result<Context, Error> {
        let desc = sys::mp_context_desc {
            struct_size: size_of_u32::<sys::mp_context_desc>(),
            flags: 0,
            api_version: sys::MP_VERSION,
            device_kind: sys::MP_DEVICE_HOST,
            device_index: 0,
            num_threads,
            log_level: 0,
            reserved: 0,
            backend: null(),
            allocate: None,
            release: None,
            allocator_payload: null_mut(),
            log: None,
            log_payload: null_mut(),
            parallel: None,
            parallel_payload: null_mut(),
        };
        let mut handle = null_mut();
        // SAFETY: both pointers are good for the call.
        check(unsafe { sys::mp_context_create(&desc, &mut handle) })?;
        Ok(Context { handle })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: our reference, given back once.
        unsafe { sys::mp_context_destroy(self.handle) }
    }
}

/// Which dtype every class of tensor has, and how it is rounded.
pub struct Recipe {
    handle: *mut sys::mp_recipe,
}

impl Recipe {
    /// A preset by name, such as "bf16_pure_kahan".
    pub fn preset(context: &Context, name: &str) -> Result<Recipe, Error> {
        let name = c_string(name)?;
        let mut handle = null_mut();
        // SAFETY: all pointers are good for the call.
        check(unsafe { sys::mp_recipe_create(context.handle, name.as_ptr(), &mut handle) })?;
        Ok(Recipe { handle })
    }
}

impl Drop for Recipe {
    fn drop(&mut self) {
        // SAFETY: our reference, given back once.
        unsafe { sys::mp_recipe_destroy(self.handle) }
    }
}

/// A struct's size as `struct_size` wants it.
const fn size_of_u32<T>() -> u32 {
    std::mem::size_of::<T>() as u32
}
