// SPDX-License-Identifier: Apache-2.0
//! The loss scale and the rule that moves it.
use crate::context::Place;
use crate::error::{call, stored, Result};
use crate::handle::Handle;
use crate::{c_string, sys, Comm, Context, Element, Queue, Recipe, Tensor};
use std::ffi::c_void;

/// What kind of scaler it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum ScalerKind {
    /// The scale follows from overflows.
    #[default]
    Dynamic = sys::MP_SCALER_DYNAMIC,
    /// The first scale for ever; steps with gradients that are not finite are still skipped.
    Static = sys::MP_SCALER_STATIC,
    /// Scale 1 and no check.
    None = sys::MP_SCALER_NONE,
}

/// The rule of a scaler. The default is torch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerOptions {
    /// What kind it is.
    pub kind: ScalerKind,
    /// Good steps before growth.
    pub growth_interval: i32,
    /// Overflows that are forgiven, plus 1.
    pub hysteresis: i32,
    /// Good steps after an overflow that do not count: 0 or 1.
    pub count_offset: i32,
    /// The first scale.
    pub init_scale: f64,
    /// What it is multiplied by to grow.
    pub growth_factor: f64,
    /// What it is multiplied by after an overflow.
    pub backoff_factor: f64,
    /// Its minimum; 0: none.
    pub min_scale: f64,
    /// Its maximum; 0: none.
    pub max_scale: f64,
    /// Hysteresis is refilled by good steps, not only by growth.
    pub refill_on_good_step: bool,
    /// A backoff at the minimum makes [`Scaler::state`] fail.
    pub error_at_min: bool,
}

impl Default for ScalerOptions {
    fn default() -> Self {
        ScalerOptions::preset("torch").expect("a preset of the library")
    }
}

impl ScalerOptions {
    /// The rule of "torch", "megatron", "deepspeed" or "apex".
    pub fn preset(name: &str) -> Result<ScalerOptions> {
        let name = c_string(name)?;
        let mut raw = sys::mp_scaler_desc::INIT;
        // SAFETY: struct and name are good for the call, and the size is the struct's.
        call(|| unsafe { sys::mp_scaler_desc_preset(&mut raw, std::mem::size_of_val(&raw), name.as_ptr()) })?;
        Ok(ScalerOptions {
            kind: match raw.kind {
                sys::MP_SCALER_STATIC => ScalerKind::Static,
                sys::MP_SCALER_NONE => ScalerKind::None,
                _ => ScalerKind::Dynamic,
            },
            growth_interval: raw.growth_interval,
            hysteresis: raw.hysteresis,
            count_offset: raw.count_offset,
            init_scale: raw.init_scale,
            growth_factor: raw.growth_factor,
            backoff_factor: raw.backoff_factor,
            min_scale: raw.min_scale,
            max_scale: raw.max_scale,
            refill_on_good_step: raw.flags & sys::MP_SCALER_REFILL_ON_GOOD_STEP != 0,
            error_at_min: raw.flags & sys::MP_SCALER_ERROR_AT_MIN != 0,
        })
    }

    fn raw(&self) -> sys::mp_scaler_desc {
        let mut flags = 0;
        if self.refill_on_good_step {
            flags |= sys::MP_SCALER_REFILL_ON_GOOD_STEP;
        }
        if self.error_at_min {
            flags |= sys::MP_SCALER_ERROR_AT_MIN;
        }
        sys::mp_scaler_desc {
            flags,
            kind: self.kind as i32,
            growth_interval: self.growth_interval,
            hysteresis: self.hysteresis,
            count_offset: self.count_offset,
            init_scale: self.init_scale,
            growth_factor: self.growth_factor,
            backoff_factor: self.backoff_factor,
            min_scale: self.min_scale,
            max_scale: self.max_scale,
            ..sys::mp_scaler_desc::INIT
        }
    }
}

/// Everything that save and resume need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerState {
    /// The loss scale.
    pub scale: f64,
    /// The gradients since the last update are not all finite.
    pub found_inf: bool,
    /// Good steps counted towards growth.
    pub growth_tracker: i32,
    /// Overflows still forgiven, plus 1.
    pub hysteresis_tracker: i32,
    /// Good steps since creation.
    pub good_steps: i64,
    /// Steps with an overflow since creation.
    pub overflow_steps: i64,
}

/// The loss scale and the rule that moves it: multiply the loss by [`Scaler::scale`], run backward, give the scaler
/// to the step, which divides the gradients and is skipped where they are not finite, then [`Scaler::update`].
pub struct Scaler {
    pub(crate) handle: Handle<sys::mp_scaler>,
    place: Place,
}

impl Scaler {
    /// A scaler by this rule.
    pub fn new(context: &Context, options: &ScalerOptions) -> Result<Scaler> {
        let desc = options.raw();
        // SAFETY: context and descriptor are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_scaler_create(context.raw(), &desc, out) })?;
        Ok(Scaler { handle, place: Place::new(context) })
    }

    /// The one that a recipe asks for: of kind [`ScalerKind::None`] where it has no loss scaling. Freezes the recipe.
    pub fn from_recipe(recipe: &Recipe) -> Result<Scaler> {
        let context = recipe.context();
        // SAFETY: both handles are alive.
        let handle =
            Handle::new(|out| unsafe { sys::mp_scaler_create_from_recipe(context.raw(), recipe.raw(), out) })?;
        Ok(Scaler { handle, place: Place::new(context) })
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    /// What the loss is to be multiplied by, after all work so far.
    pub fn scale(&self) -> Result<f64> {
        // SAFETY: the handle is alive.
        stored(0.0, |scale| unsafe { sys::mp_scaler_get_scale(self.raw(), self.place.queue(), scale) })
    }

    /// Moves the scale, once a step.
    pub fn update(&mut self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.place.enqueue(false, || unsafe { sys::mp_scaler_update(self.raw(), self.place.queue()) })
    }

    /// Looks whether gradients in slices are finite, for loops without an optimizer of the library's. For a context
    /// of the host alone.
    pub fn check<T: Element>(&mut self, grads: &[&[T]]) -> Result<()> {
        self.place.context.expect_host()?;
        let pointers: Vec<*const c_void> = grads.iter().map(|grad| grad.as_ptr() as *const c_void).collect();
        let dtypes = vec![T::DTYPE as i32; grads.len()];
        let elements: Vec<i64> = grads.iter().map(|grad| grad.len() as i64).collect();
        // SAFETY: the arrays have so many members, and each pointer so many elements, which are read before this
        // returns.
        self.place.enqueue(true, || unsafe {
            sys::mp_scaler_check_pointers(
                self.raw(),
                self.place.queue(),
                grads.len() as i64,
                pointers.as_ptr(),
                dtypes.as_ptr(),
                elements.as_ptr(),
            )
        })
    }

    /// `found_inf` becomes true where it is on any rank. Collective.
    pub fn combine(&mut self, comm: &Comm) -> Result<()> {
        // SAFETY: both handles are alive.
        call(|| unsafe { sys::mp_scaler_combine(self.raw(), self.place.queue(), comm.raw()) })
    }

    /// The whole state.
    pub fn state(&self) -> Result<ScalerState> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_scaler_state::INIT, |raw| unsafe {
            sys::mp_scaler_get_state(self.raw(), self.place.queue(), raw)
        })?;
        Ok(ScalerState {
            scale: raw.scale,
            found_inf: raw.found_inf != 0,
            growth_tracker: raw.growth_tracker,
            hysteresis_tracker: raw.hysteresis_tracker,
            good_steps: raw.good_steps,
            overflow_steps: raw.overflow_steps,
        })
    }

    /// Goes on where a saved run stopped.
    pub fn set_state(&mut self, state: &ScalerState) -> Result<()> {
        let raw = sys::mp_scaler_state {
            found_inf: u32::from(state.found_inf),
            scale: state.scale,
            growth_tracker: state.growth_tracker,
            hysteresis_tracker: state.hysteresis_tracker,
            good_steps: state.good_steps,
            overflow_steps: state.overflow_steps,
            ..sys::mp_scaler_state::INIT
        };
        // SAFETY: handle and struct are good for the call.
        call(|| unsafe { sys::mp_scaler_set_state(self.raw(), self.place.queue(), &raw) })
    }

    /// The scale as one fp32 element that shares the scaler's memory, for losses that are scaled on the device.
    pub fn scale_tensor(&self) -> Result<Tensor<'static>> {
        // SAFETY: the handle is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_scaler_get_scale_tensor(self.raw(), out) })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// `found_inf` likewise, 0 or 1. It may be written before [`Scaler::update`].
    pub fn found_inf_tensor(&self) -> Result<Tensor<'static>> {
        // SAFETY: the handle is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_scaler_get_found_inf_tensor(self.raw(), out) })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this scaler's.
    pub fn raw(&self) -> *mut sys::mp_scaler {
        self.handle.get()
    }
}
