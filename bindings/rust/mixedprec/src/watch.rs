// SPDX-License-Identifier: Apache-2.0
//! A guard that skips steps which stand out, and a history of the last steps.
use crate::error::{c_path, call, invalid, stored, text, Result};
use crate::{sys, Optimizer};
use std::path::Path;
use std::ptr::null;

/// What a step may be at most, in standard deviations above the mean of the last steps. One bound at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guard {
    /// Values that a new one is compared with, 2 to 1024; 0: 128.
    pub window: i32,
    /// Largest z-score of the gradient norm; 0: it is not watched.
    pub max_grad_norm_z: f64,
    /// Likewise of the loss of [`Optimizer::set_loss`].
    pub max_loss_z: f64,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Weights and states are new.
    Taken,
    /// Skipped: something was not finite.
    NonFinite,
    /// Skipped by the guard.
    Outlier,
}

/// A step of the history.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepRecord {
    /// What became of it.
    pub outcome: Outcome,
    /// Steps tried since the history began, this one included.
    pub call: i64,
    /// Steps taken in all, this one included.
    pub step: i64,
    /// Of [`Optimizer::set_loss`]; NaN where it was not called.
    pub loss: f64,
    /// What the scaler had; 1 without one.
    pub loss_scale: f64,
    /// Of the first group.
    pub lr: f64,
    /// Unscaled, before clipping; 0 where it was not computed.
    pub grad_norm: f64,
    /// What the gradients were multiplied by.
    pub grad_mul: f64,
    /// The norm's z-score; 0 where the guard does not watch it.
    pub grad_norm_z: f64,
    /// The loss's z-score, likewise.
    pub loss_z: f64,
}

impl Optimizer<'_> {
    /// Skips steps that stand out from now on; `None`: none. What was seen before stays in the window. The same on all
    /// ranks.
    pub fn set_guard(&mut self, guard: Option<Guard>) -> Result<()> {
        let desc = guard.map(|guard| sys::mp_guard_desc {
            window: guard.window,
            max_grad_norm_z: guard.max_grad_norm_z,
            max_loss_z: guard.max_loss_z,
            ..sys::mp_guard_desc::INIT
        });
        let desc = desc.as_ref().map_or(null(), |desc| desc as *const _);
        // SAFETY: handle and descriptor are good for the call.
        call(|| unsafe { sys::mp_optimizer_set_guard(self.raw(), self.queue(), desc) })
    }

    /// The guard as it is.
    pub fn guard(&self) -> Result<Option<Guard>> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_guard_desc::INIT, |raw| unsafe { sys::mp_optimizer_get_guard(self.raw(), raw) })?;
        let guard = Guard { window: raw.window, max_grad_norm_z: raw.max_grad_norm_z, max_loss_z: raw.max_loss_z };
        Ok(if guard.max_grad_norm_z == 0.0 && guard.max_loss_z == 0.0 { None } else { Some(guard) })
    }

    /// The loss of the step to come, not multiplied by the loss scale. The same on all ranks where the guard watches it.
    pub fn set_loss(&mut self, loss: f64) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_loss(self.raw(), loss) })
    }

    /// Keeps so many of the last steps, 0: none. Begins anew. The first step that is skipped because something is not
    /// finite writes them to `path`, and names the first bad tensor. On a device every step then waits.
    pub fn set_history(&mut self, steps: i32, path: Option<&Path>) -> Result<()> {
        let path = path.map(c_path).transpose()?;
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: handle and text are good for the call.
        call(|| unsafe { sys::mp_optimizer_set_history(self.raw(), steps, path) })
    }

    /// The steps that the history has, the oldest first.
    pub fn records(&self) -> Result<Vec<StepRecord>> {
        // SAFETY: the handle is alive.
        let count = stored(0, |count| unsafe { sys::mp_optimizer_get_record_count(self.raw(), count) })?;
        (0..count).map(|index| self.record(index)).collect()
    }

    fn record(&self, index: i32) -> Result<StepRecord> {
        // SAFETY: handle and struct are good for the call.
        let raw =
            stored(sys::mp_step_record::INIT, |raw| unsafe { sys::mp_optimizer_get_record(self.raw(), index, raw) })?;
        Ok(StepRecord {
            outcome: match raw.outcome {
                sys::MP_STEP_TAKEN => Outcome::Taken,
                sys::MP_STEP_NON_FINITE => Outcome::NonFinite,
                sys::MP_STEP_OUTLIER => Outcome::Outlier,
                other => return Err(invalid(format!("a step's outcome is {other}, which this crate does not know"))),
            },
            call: raw.call,
            step: raw.step,
            loss: raw.loss,
            loss_scale: raw.loss_scale,
            lr: raw.lr,
            grad_norm: raw.grad_norm,
            grad_mul: raw.grad_mul,
            grad_norm_z: raw.grad_norm_z,
            loss_z: raw.loss_z,
        })
    }

    /// The first tensor that was not finite, in words; empty: there was none since the history began.
    pub fn bad_tensor(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe {
            sys::mp_optimizer_get_bad_tensor(self.raw(), buffer, capacity, needed)
        })
    }
}
