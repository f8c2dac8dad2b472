// SPDX-License-Identifier: Apache-2.0
//! The step straight on the caller's slices: no tensors, no recipe, no state in the library.
use crate::optimizer::{empty_stats, Hyperparameters};
use crate::{check, size_of_u32, sys, Context, Element, Error};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

/// The arrays of one parameter, borrowed for one step.
#[repr(transparent)]
pub struct Slot<'a> {
    raw: sys::mp_step_slot,
    arrays: PhantomData<&'a mut ()>,
}

impl<'a> Slot<'a> {
    /// A parameter with its gradient and both moments, all of one length.
    pub fn new<P: Element, G: Element, M: Element, V: Element>(
        param: &'a mut [P],
        grad: &'a [G],
        exp_avg: &'a mut [M],
        exp_avg_sq: &'a mut [V],
    ) -> Result<Slot<'a>, Error> {
        for len in [grad.len(), exp_avg.len(), exp_avg_sq.len()] {
            same_length(param.len(), len)?;
        }
        let raw = sys::mp_step_slot {
            struct_size: size_of_u32::<sys::mp_step_slot>(),
            flags: 0,
            count: param.len() as i64,
            uid: 0,
            param: param.as_mut_ptr().cast(),
            grad: grad.as_ptr() as *mut _, // only read: MP_OPTIMIZER_ZERO_GRAD is not offered here
            exp_avg: exp_avg.as_mut_ptr().cast(),
            exp_avg_sq: exp_avg_sq.as_mut_ptr().cast(),
            compensation: null_mut(),
            master: null_mut(),
            param_dtype: P::DTYPE,
            grad_dtype: G::DTYPE,
            exp_avg_dtype: M::DTYPE,
            exp_avg_sq_dtype: V::DTYPE,
            compensation_dtype: sys::MP_DTYPE_NONE,
            master_dtype: sys::MP_DTYPE_NONE,
            param_scale_inv: null_mut(),
            grad_scale_inv: null_mut(),
            exp_avg_scale_inv: null_mut(),
            exp_avg_sq_scale_inv: null_mut(),
            master_scale_inv: null_mut(),
            exp_avg_coding: 0,
            exp_avg_sq_coding: 0,
            master_coding: 0,
            compensation_coding: 0,
            compensation_scale_inv: null_mut(),
            first_element: 0,
            param_amax: null_mut(),
        };
        Ok(Slot {
            raw,
            arrays: PhantomData,
        })
    }

    /// The same with a Kahan compensation.
    pub fn with_compensation<C: Element>(
        mut self,
        compensation: &'a mut [C],
    ) -> Result<Slot<'a>, Error> {
        same_length(self.raw.count as usize, compensation.len())?;
        self.raw.compensation = compensation.as_mut_ptr().cast();
        self.raw.compensation_dtype = C::DTYPE;
        Ok(self)
    }
}

/// Step number `step` (from 1) of AdamW, done when this returns.
pub fn step_pointers(
    context: &Context,
    values: &Hyperparameters,
    step: i64,
    slots: &mut [Slot<'_>],
) -> Result<(), Error> {
    let args = sys::mp_step_args {
        struct_size: size_of_u32::<sys::mp_step_args>(),
        flags: sys::MP_HYPERPARAMETERS_EXPLICIT,
        step,
        seed: 0,
        lr: values.lr,
        beta1: values.beta1,
        beta2: values.beta2,
        eps: values.eps,
        weight_decay: values.weight_decay,
        max_grad_norm: 0.0,
        grad_scale: 1.0,
        lr_pointer: null(),
        grad_scale_pointer: null(),
        rule: values.rule as i32,
        reserved: 0,
        step_pointer: null_mut(),
        hyper_pointer: null(),
        grad_mul_pointer: null(),
    };
    let mut stats = empty_stats(); // asking for them makes the call wait
    let raw = slots.as_ptr().cast::<sys::mp_step_slot>();
    let count = slots.len() as i64;
    // SAFETY: a slot is exactly its raw part; its arrays have the length and type it says and are borrowed.
    check(unsafe {
        sys::mp_optimizer_step_pointers(
            context.handle,
            null_mut(),
            &args,
            raw,
            count,
            null_mut(),
            &mut stats,
        )
    })?;
    Ok(())
}

fn same_length(expected: usize, found: usize) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let message = format!(
        "the parameter has {} elements, another array {}",
        expected, found
    );
    Err(Error::new(sys::MP_STATUS_INVALID_SHAPE, message))
}
