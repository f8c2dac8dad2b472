// SPDX-License-Identifier: Apache-2.0
//! AnyPrecisionAdamW over wrapped tensors.
use crate::{c_string, check, size_of_u32, sys, Context, Error, Recipe, Tensor};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

/// What moves the weights (MP_RULE_*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Rule {
    /// Decoupled weight decay.
    #[default]
    AdamW = 0,
    /// Weight decay as a part of the gradient (L2).
    Adam = 1,
    /// One state; no eps (leave it at zero).
    Lion = 2,
}

/// What a rule can be told; each number is meant as it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperparameters {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, in [0, 1).
    pub beta1: f64,
    /// Decay of the second moment, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// What moves the weights.
    pub rule: Rule,
}

impl Default for Hyperparameters {
    fn default() -> Self {
        Hyperparameters {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            rule: Rule::AdamW,
        }
    }
}

/// What the last step did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Steps really taken.
    pub step: i64,
    /// Steps left out because a gradient was not finite.
    pub skipped_steps: i64,
}

/// A group of parameters.
pub struct Group {
    /// Its number, from 0.
    pub index: i32,
    /// Advice of the library on these hyperparameters, if it has any.
    pub note: Option<String>,
}

/// Parameters in groups, with states kept by the library. `'a` is the life of the wrapped memory.
pub struct Optimizer<'a> {
    handle: *mut sys::mp_optimizer,
    memory: PhantomData<&'a [Cell<u8>]>,
}

impl<'a> Optimizer<'a> {
    /// An optimizer without groups.
    pub fn new(context: &Context, recipe: &Recipe) -> Result<Optimizer<'a>, Error> {
        let mut handle = null_mut();
        // SAFETY: both handles are alive, and the optimizer keeps what it needs.
        check(unsafe {
            sys::mp_optimizer_create(context.handle, recipe.handle, null(), &mut handle)
        })?;
        Ok(Optimizer {
            handle,
            memory: PhantomData,
        })
    }

    /// Adds a group of parameters.
    pub fn add_group(&mut self, values: &Hyperparameters) -> Result<Group, Error> {
        let desc = sys::mp_param_group_desc {
            struct_size: size_of_u32::<sys::mp_param_group_desc>(),
            flags: sys::MP_HYPERPARAMETERS_EXPLICIT,
            lr: values.lr,
            beta1: values.beta1,
            beta2: values.beta2,
            eps: values.eps,
            weight_decay: values.weight_decay,
            rule: values.rule as i32,
            reserved: 0,
            exp_avg_format: null(),
            exp_avg_sq_format: null(),
        };
        let mut index = -1;
        // SAFETY: all pointers are good for the call.
        let note = check(unsafe { sys::mp_optimizer_add_group(self.handle, &desc, &mut index) })?;
        Ok(Group { index, note })
    }

    /// Adds a parameter with its main gradient; `init` is its exact start in fp32 where `param` is narrower.
    /// Returns its number.
    pub fn add_param(
        &mut self,
        group: &Group,
        name: &str,
        param: &Tensor<'a>,
        grad: &Tensor<'a>,
        init: Option<&Tensor<'_>>,
    ) -> Result<i32, Error> {
        let name = c_string(name)?;
        let desc = sys::mp_param_desc {
            struct_size: size_of_u32::<sys::mp_param_desc>(),
            flags: 0,
            name: name.as_ptr(),
            param: param.handle,
            grad: grad.handle,
            init_fp32: init.map_or(null_mut(), |tensor| tensor.handle),
        };
        let mut index = -1;
        // SAFETY: the tensors' memory outlives this optimizer; the name and `init` are copied in the call, which
        // get_stats waits for.
        check(unsafe { sys::mp_optimizer_add_param(self.handle, group.index, &desc, &mut index) })?;
        self.stats()?;
        Ok(index)
    }

    /// One step of all groups, done when this returns.
    pub fn step(&mut self) -> Result<Stats, Error> {
        // SAFETY: alive; no queue and no scaler are allowed.
        check(unsafe { sys::mp_optimizer_step(self.handle, null_mut(), null_mut()) })?;
        self.stats()
    }

    /// What the last step did.
    pub fn stats(&mut self) -> Result<Stats, Error> {
        let mut stats = empty_stats();
        // SAFETY: both pointers are good for the call.
        check(unsafe { sys::mp_optimizer_get_stats(self.handle, null_mut(), &mut stats) })?;
        Ok(Stats {
            step: stats.step,
            skipped_steps: stats.skipped_steps,
        })
    }

    /// A tensor of one parameter: "param", "grad", "exp_avg", "exp_avg_sq", "compensation" or "master".
    pub fn state(&mut self, param: i32, state: &str) -> Result<Tensor<'a>, Error> {
        let state = c_string(state)?;
        let mut handle = null_mut();
        // SAFETY: all pointers are good for the call; the reference that comes back is ours.
        check(unsafe { sys::mp_optimizer_get_state(self.handle, param, state.as_ptr(), &mut handle) })?;
        Ok(Tensor {
            handle,
            memory: PhantomData,
        })
    }
}

impl Drop for Optimizer<'_> {
    fn drop(&mut self) {
        // SAFETY: our reference, given back once.
        unsafe { sys::mp_optimizer_destroy(self.handle) }
    }
}

pub(crate) fn empty_stats() -> sys::mp_optimizer_stats {
    sys::mp_optimizer_stats {
        struct_size: size_of_u32::<sys::mp_optimizer_stats>(),
        found_inf: 0,
        step: 0,
        skipped_steps: 0,
        grad_norm: 0.0,
        grad_mul: 0.0,
    }
}
