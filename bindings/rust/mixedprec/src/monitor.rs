// SPDX-License-Identifier: Apache-2.0
//! What happens to the numbers of a layer: statistics, advice, monitors.
use crate::error::{c_string, call, callback_with_panic, copied, in_callback, invalid, stored, text, Result};
use crate::{sys, DType, Linear, Operand};
use std::ffi::c_void;
use std::os::raw::c_char;
use std::ptr::null_mut;

/// What happened to an operand since the counts were last cleared, and its delayed scale.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinearStats {
    /// Which operand.
    pub operand: Operand,
    /// Type of the codes, or of the rounded operand.
    pub dtype: Option<DType>,
    /// Elements quantized.
    pub elements: i64,
    /// Finite, beyond the largest code.
    pub saturated: i64,
    /// Not zero, became zero.
    pub underflowed: i64,
    /// Infinity or NaN.
    pub non_finite: i64,
    /// Largest |x|; NaN beats infinity beats numbers.
    pub amax: f64,
    /// Delayed scaling: of the next step.
    pub scale_inv: f64,
    /// Delayed scaling: largest amax remembered.
    pub history_amax: f64,
    /// Delayed scaling: amaxes remembered.
    pub history_len: i32,
    /// Delayed scaling: steps since the last amax that was not finite.
    pub updates: i32,
}

impl LinearStats {
    fn from_raw(raw: &sys::mp_linear_stats) -> LinearStats {
        LinearStats {
            operand: match raw.operand {
                sys::MP_OPERAND_INPUT => Operand::Input,
                sys::MP_OPERAND_WEIGHT => Operand::Weight,
                _ => Operand::GradOutput,
            },
            dtype: DType::from_raw(raw.dtype),
            elements: raw.elements,
            saturated: raw.saturated,
            underflowed: raw.underflowed,
            non_finite: raw.non_finite,
            amax: raw.amax,
            scale_inv: raw.scale_inv,
            history_amax: raw.history_amax,
            history_len: raw.history_len,
            updates: raw.updates,
        }
    }
}

pub(crate) type Monitor<'a> = Box<dyn FnMut(&str, &LinearStats, Option<&str>) + 'a>;

impl<'a> Linear<'a> {
    /// What happened to an operand, of a layer with [`LinearOptions::stats`] or a monitor.
    pub fn stats(&self, operand: Operand) -> Result<LinearStats> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_linear_stats::INIT, |raw| unsafe {
            sys::mp_linear_get_stats(self.raw(), operand as i32, raw)
        })?;
        Ok(LinearStats::from_raw(&raw))
    }

    /// Sets the counts to zero.
    pub fn clear_stats(&mut self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.enqueue(|queue| unsafe { sys::mp_linear_clear_stats(self.raw(), queue) })
    }

    /// One sentence that names the recipe key to change; empty where all is well.
    pub fn advice(&self, operand: Operand) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe {
            sys::mp_linear_get_advice(self.raw(), operand as i32, buffer, capacity, needed)
        })
    }

    /// Hands the statistics of each operand to `monitor(name, stats, advice)` every so many steps, from the thread
    /// that ends the step, until the layer is dropped. It must not call the library, which is an error there. A panic
    /// goes on where that step was called.
    pub fn set_monitor(
        &mut self,
        name: &str,
        every: u16,
        monitor: impl FnMut(&str, &LinearStats, Option<&str>) + 'a,
    ) -> Result<()> {
        if every == 0 {
            return Err(invalid("a monitor is called every 1 or more steps"));
        }
        let name = c_string(name)?;
        let mut monitor: Box<Monitor<'a>> = Box::new(Box::new(monitor));
        let payload: *mut Monitor<'a> = &mut *monitor;
        // SAFETY: the closure stays where it is until another takes its place or the layer's monitoring ends.
        call(|| unsafe {
            let every = i32::from(every);
            sys::mp_linear_set_monitor(self.raw(), name.as_ptr(), every, Some(on_monitor), payload.cast())
        })?;
        self.monitor = Some(monitor);
        Ok(())
    }

    /// Ends the monitoring.
    pub fn clear_monitor(&mut self) -> Result<()> {
        // SAFETY: the handle is alive; nobody has the closure after this.
        call(|| unsafe { sys::mp_linear_set_monitor(self.raw(), NO_NAME, 0, None, null_mut()) })?;
        self.monitor = None;
        Ok(())
    }
}

const NO_NAME: *const c_char = b"\0".as_ptr() as *const c_char;

impl Drop for Linear<'_> {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            // Optimizers and checkpoints may keep the layer, but not the closure. One that drops its own layer is
            // running: it stays for good.
            let cleared = !in_callback()
                // SAFETY: the handle is alive.
                && unsafe { sys::mp_linear_set_monitor(self.raw(), NO_NAME, 0, None, null_mut()) } >= 0;
            if !cleared {
                std::mem::forget(monitor);
            }
        }
    }
}

unsafe extern "C" fn on_monitor(
    payload: *mut c_void,
    name: *const c_char,
    stats: *const sys::mp_linear_stats,
    advice: *const c_char,
) {
    let monitor = &mut *(payload as *mut Monitor);
    let (name, stats) = (copied(name), LinearStats::from_raw(&*stats));
    let advice = if advice.is_null() { None } else { Some(copied(advice)) };
    callback_with_panic(|| monitor(&name, &stats, advice.as_deref()));
}
