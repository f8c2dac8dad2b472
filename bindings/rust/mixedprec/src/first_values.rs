// SPDX-License-Identifier: Apache-2.0
//! First values of an optimizer's parameters, for the elements that a rank has. Collective where ranks share it, after
//! [`Optimizer::shard`].
use crate::error::{c_path, c_string, call, callback_with_panic, number};
use crate::handle::Handle;
use crate::{sys, Optimizer, Result};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::{null, null_mut};

/// A rule for the first values of a parameter. Random numbers go by seed, the parameter's name and the element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FirstValues {
    /// All alike.
    Constant(f64),
    /// Between two bounds.
    Uniform {
        /// The lower one.
        low: f64,
        /// The upper one.
        high: f64,
    },
    /// Normally distributed.
    Normal {
        /// Their mean.
        mean: f64,
        /// Their standard deviation.
        deviation: f64,
    },
}

type Fill<'f> = &'f mut dyn FnMut(i32, i64, &mut [f32]);

impl Optimizer<'_> {
    /// Gives parameters their values by rules: the same for any number of ranks.
    pub fn init_params(&mut self, seed: u64, rules: &[(i32, FirstValues)]) -> Result<()> {
        let count = number(rules.len(), "the number of parameters")?;
        let inits: Vec<_> = rules
            .iter()
            .map(|&(index, rule)| {
                let (kind, a, b) = match rule {
                    FirstValues::Constant(value) => (sys::MP_INIT_CONSTANT, value, 0.0),
                    FirstValues::Uniform { low, high } => (sys::MP_INIT_UNIFORM, low, high),
                    FirstValues::Normal { mean, deviation } => (sys::MP_INIT_NORMAL, mean, deviation),
                };
                sys::mp_param_init { index, kind, a, b, ..sys::mp_param_init::INIT }
            })
            .collect();
        // SAFETY: handle and array are good for the call.
        call(|| unsafe { sys::mp_optimizer_init_params(self.raw(), self.queue(), seed, inits.as_ptr(), count) })
    }

    /// Gives parameters, all where none are named, the values that a model's files (safetensors, GGUF) have, by their names
    /// after `prefix`. Each rank reads what it has.
    pub fn load_params(&mut self, path: impl AsRef<Path>, prefix: &str, params: Option<&[i32]>) -> Result<()> {
        let (path, prefix) = (c_path(path.as_ref())?, c_string(prefix)?);
        let (indices, named) = params.map_or((null(), 0), |all| (all.as_ptr(), all.len()));
        let count = number(named, "the number of parameters")?;
        // SAFETY: the path is good for the call.
        let model: Result<Handle<sys::mp_model_file>> =
            Handle::new(|out| unsafe { sys::mp_model_file_open(path.as_ptr(), 0, out) });
        // Also without files, so that other ranks do not wait.
        let files = model.as_ref().map_or(null_mut(), Handle::get);
        // SAFETY: handles, text and array are good for the call.
        let loaded = call(|| unsafe {
            sys::mp_optimizer_load_params(self.raw(), self.queue(), files, prefix.as_ptr(), indices, count)
        });
        model.and(loaded)
    }

    /// Gives parameters the values that `fill(index, first, values)` writes, for elements from `first` on. With `root`
    /// that rank alone is asked, and sends them to all. A panic goes on here.
    pub fn fill_params(
        &mut self,
        params: &[i32],
        root: Option<i32>,
        mut fill: impl FnMut(i32, i64, &mut [f32]),
    ) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        let mut fill: Fill = &mut fill;
        let payload: *mut Fill = &mut fill;
        // SAFETY: handle, array and closure are good for the call, which alone calls the closure.
        call(|| unsafe {
            let (queue, root) = (self.queue(), root.unwrap_or(-1));
            sys::mp_optimizer_fill_params(
                self.raw(),
                queue,
                params.as_ptr(),
                count,
                Some(on_fill),
                payload.cast(),
                root,
            )
        })
    }
}

unsafe extern "C" fn on_fill(
    index: i32,
    first: i64,
    count: i64,
    values: *mut f32,
    payload: *mut c_void,
) -> sys::mp_status {
    let fill = &mut *(payload as *mut Fill);
    let values = std::slice::from_raw_parts_mut(values, count as usize);
    match callback_with_panic(|| fill(index, first, values)) {
        Some(()) => sys::MP_STATUS_OK,
        None => sys::MP_STATUS_CALLBACK_FAILED,
    }
}
