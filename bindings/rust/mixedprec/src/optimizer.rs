// SPDX-License-Identifier: Apache-2.0
//! The optimizer: parameters by name in groups, with states of the library's.
use crate::context::Place;
use crate::error::{call, invalid, number, stored, Result};
use crate::handle::{Handle, Keeps};
use crate::tensor::raw_or_null;
use crate::{
    c_string, sys, Comm, Context, DeviceKind, Linear, MemoryReport, Queue, Recipe, Scaler, Sharding, Tensor,
};
use std::ptr::{null, null_mut};

/// How an optimizer is made. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OptimizerOptions {
    /// Skips a step where a gradient is not finite, also without a scaler.
    pub check_finite: bool,
    /// The step writes zeros into the gradients it has used.
    pub zero_grad: bool,
    /// States and step on the host, parameters and gradients on the context's device.
    pub offload: bool,
    /// With it: gradients on the host, too, or ranks' sums of them.
    pub offload_grads: bool,
    /// Parameters have no gradients of their own: [`Optimizer::step_params`] is given them.
    pub grads_given: bool,
    /// Seed of stochastic rounding.
    pub seed: u64,
    /// Clips the global norm of the unscaled gradients; 0: not.
    pub max_grad_norm: f64,
}

impl OptimizerOptions {
    pub(crate) fn raw(&self) -> sys::mp_optimizer_desc {
        let with = |condition, flag| if condition { flag } else { 0 };
        sys::mp_optimizer_desc {
            flags: with(self.check_finite, sys::MP_OPTIMIZER_CHECK_FINITE)
                | with(self.zero_grad, sys::MP_OPTIMIZER_ZERO_GRAD)
                | with(self.offload, sys::MP_OPTIMIZER_OFFLOAD)
                | with(self.offload_grads, sys::MP_OPTIMIZER_OFFLOAD_GRADS)
                | with(self.grads_given, sys::MP_OPTIMIZER_GRADS_GIVEN),
            seed: self.seed,
            max_grad_norm: self.max_grad_norm,
            ..sys::mp_optimizer_desc::INIT
        }
    }
}

/// What steps with offload have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadTraffic {
    /// Steps that were applied.
    pub steps: i64,
    /// Gradients, or their sums.
    pub to_host_bytes: i64,
    /// Weights.
    pub to_device_bytes: i64,
    /// Of moving and updating, until all of it was there.
    pub step_time: std::time::Duration,
    /// Of it, for copies alone.
    pub waited: std::time::Duration,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// It was skipped because a gradient was not finite.
    pub found_inf: bool,
    /// Steps really taken.
    pub step: i64,
    /// Steps skipped since creation.
    pub skipped_steps: i64,
    /// Of these by the guard.
    pub outlier_steps: i64,
    /// Global norm of the unscaled gradients; 0 where not computed.
    pub grad_norm: f64,
    /// What the gradients were multiplied by.
    pub grad_mul: f64,
    /// The norm's z-score; 0 where no guard watches it.
    pub grad_norm_z: f64,
    /// The loss's z-score, likewise.
    pub loss_z: f64,
}

impl Stats {
    pub(crate) fn from_raw(raw: &sys::mp_optimizer_stats) -> Stats {
        Stats {
            found_inf: raw.found_inf != 0,
            step: raw.step,
            skipped_steps: raw.skipped_steps,
            outlier_steps: raw.outlier_steps,
            grad_norm: raw.grad_norm,
            grad_mul: raw.grad_mul,
            grad_norm_z: raw.grad_norm_z,
            loss_z: raw.loss_z,
        }
    }
}

/// Parameters by name in groups, with states of the library's in the types of a recipe. `'a` is the life of the
/// memory under its tensors.
///
/// The memory outlives the optimizer:
/// ```compile_fail,E0597
/// # fn main() -> mixedprec::Result<()> {
/// # use mixedprec::*;
/// # let context = Context::new()?;
/// let mut optimizer = Optimizer::new(&Recipe::new(&context, "fp32")?, &OptimizerOptions::default())?;
/// let group = optimizer.add_group(&GroupOptions::default())?;
/// {
///     let mut weights = vec![1.0f32; 8];
///     let tensor = Tensor::wrap(&context, &mut weights, &[8])?;
///     optimizer.add_param(group, &Param::new("p", &tensor))?;
/// }
/// optimizer.step(None)?;
/// # Ok(()) }
/// ```
/// whoever keeps it in turn, so its lifetime does not shrink:
/// ```compile_fail
/// # use mixedprec::Optimizer;
/// fn shorter<'a>(optimizer: Optimizer<'static>) -> Optimizer<'a> {
///     optimizer
/// }
/// ```
/// and an optimizer stays in its thread:
/// ```compile_fail,E0277
/// # fn main() -> mixedprec::Result<()> {
/// # use mixedprec::*;
/// # let context = Context::new()?;
/// let mut optimizer = Optimizer::new(&Recipe::new(&context, "fp32")?, &OptimizerOptions::default())?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| optimizer.step(None));
/// });
/// # Ok(()) }
/// ```
pub struct Optimizer<'a> {
    pub(crate) handle: Handle<sys::mp_optimizer>,
    pub(crate) place: Place,
    norm_comm: Option<Comm>,
    _memory: Keeps<'a>,
}

impl<'a> Optimizer<'a> {
    /// An optimizer without groups. Freezes the recipe.
    pub fn new(recipe: &Recipe, options: &OptimizerOptions) -> Result<Optimizer<'a>> {
        let (context, desc) = (recipe.context(), options.raw());
        // SAFETY: handles and descriptor are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_optimizer_create(context.raw(), recipe.raw(), &desc, out) })?;
        Ok(Optimizer { handle, place: Place::new(context), norm_comm: None, _memory: Keeps::new() })
    }

    /// One whose states the ranks of `comm` share; it makes a communicator of its own. Every rank adds the same
    /// groups and parameters, whole. Collective.
    pub fn sharded(
        recipe: &Recipe,
        options: &OptimizerOptions,
        comm: &Comm,
        sharding: &Sharding,
    ) -> Result<Optimizer<'a>> {
        let (context, desc, sharding) = (recipe.context(), options.raw(), sharding.raw());
        // SAFETY: handles and descriptors are good for the call.
        let handle = Handle::new(|out| unsafe {
            let (context, recipe) = (context.raw(), recipe.raw());
            sys::mp_optimizer_create_sharded(context, recipe, &desc, comm.raw(), &sharding, out)
        })?;
        Ok(Optimizer { handle, place: Place::new(context), norm_comm: None, _memory: Keeps::new() })
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    /// One step of all groups. Collective where ranks share it. On the host it is done when this returns; on a device
    /// whoever needs to know what it did asks [`Optimizer::stats`].
    pub fn step(&mut self, scaler: Option<&mut Scaler>) -> Result<()> {
        let scaler = scaler.map_or(null_mut(), |scaler| scaler.raw());
        // SAFETY: both handles are alive, and the memory under all parameters.
        self.enqueue(false, || unsafe { sys::mp_optimizer_step(self.raw(), self.place.queue(), scaler) })
    }

    /// Begins a step in parts, and decides it. [`Optimizer::step_params`] writes each parameter as soon as its gradient
    /// is final, while backward goes on. The bits are those of [`Optimizer::step`]. The scaler may not look for
    /// infinities.
    pub fn step_begin(&mut self, scaler: Option<&mut Scaler>) -> Result<()> {
        let scaler = scaler.map_or(null_mut(), |scaler| scaler.raw());
        // SAFETY: both handles are alive; the optimizer keeps the scaler until the step ends.
        self.enqueue(false, || unsafe { sys::mp_optimizer_step_begin(self.raw(), self.place.queue(), scaler) })
    }

    /// Writes these parameters in the open step, in any order, each once in a step. `grads`: a gradient for each, which
    /// is not kept; `None`: their own.
    pub fn step_params(&mut self, params: &[i32], grads: Option<&[&Tensor]>) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        let raw: Option<Vec<_>> = grads.map(|grads| grads.iter().map(|grad| grad.raw()).collect());
        if let Some(raw) = raw.as_ref().filter(|raw| raw.len() != params.len()) {
            let (found, wanted) = (raw.len(), params.len());
            return Err(invalid(format!("{found} gradients; there must be one for each of {wanted} parameters")));
        }
        let grads = raw.as_ref().map_or(null(), |raw| raw.as_ptr());
        // SAFETY: all handles are alive, the memory under all parameters, and both arrays are good for the call.
        self.enqueue(false, || unsafe {
            sys::mp_optimizer_step_params(self.raw(), self.place.queue(), params.as_ptr(), count, grads)
        })
    }

    /// Ends the open step: what is left is written now, from its own gradients. Where that has none, the step stays
    /// open.
    pub fn step_end(&mut self) -> Result<()> {
        // SAFETY: the handle is alive, and the memory under all parameters.
        self.enqueue(false, || unsafe { sys::mp_optimizer_step_end(self.raw(), self.place.queue()) })
    }

    /// Sets all gradients to zero.
    pub fn zero_grad(&mut self) -> Result<()> {
        // SAFETY: the handle is alive, and the memory under all gradients.
        self.enqueue(false, || unsafe { sys::mp_optimizer_zero_grad(self.raw(), self.place.queue()) })
    }

    /// These parameters have no gradient in the next step, which passes over them.
    pub fn mark_unused(&mut self, params: &[i32]) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        // SAFETY: the handle is alive, the memory under all gradients, and the array is good for the call.
        self.enqueue(false, || unsafe {
            sys::mp_optimizer_mark_unused(self.raw(), self.place.queue(), params.as_ptr(), count)
        })
    }

    /// Names the layers whose step ends with the optimizer's; [`end_step`](crate::end_step) is then not called.
    /// Replaces those named before.
    pub fn set_linears(&mut self, linears: &[&Linear<'a>]) -> Result<()> {
        let raw: Vec<*mut sys::mp_linear> = linears.iter().map(|linear| linear.raw()).collect();
        let count = number(raw.len(), "the number of layers")?;
        // SAFETY: the array has so many live handles.
        call(|| unsafe { sys::mp_optimizer_set_linears(self.raw(), raw.as_ptr(), count) })
    }

    /// What the last step did, waited for.
    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_optimizer_stats::INIT, |raw| unsafe {
            sys::mp_optimizer_get_stats(self.raw(), self.place.queue(), raw)
        })?;
        Ok(Stats::from_raw(&raw))
    }

    /// The norm that gradients are clipped to from the next step on; 0: not.
    pub fn set_max_grad_norm(&mut self, norm: f64) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_max_grad_norm(self.raw(), norm) })
    }

    /// Lets every step divide the gradients by one fp32 element on the context's device.
    pub fn set_grad_scale_tensor(&mut self, scale: Option<&Tensor<'a>>) -> Result<()> {
        // SAFETY: both handles are alive, and the memory under `scale` as long as the optimizer.
        call(|| unsafe { sys::mp_optimizer_set_grad_scale_tensor(self.raw(), raw_or_null(scale)) })
    }

    /// grad_norm of the last step as one fp32 element that shares the optimizer's memory.
    pub fn grad_norm_tensor(&self) -> Result<Tensor<'a>> {
        self.tensor(|out| unsafe { sys::mp_optimizer_get_grad_norm_tensor(self.raw(), out) })
    }

    /// Whether the last step was skipped, 0 or 1, likewise.
    pub fn found_inf_tensor(&self) -> Result<Tensor<'a>> {
        self.tensor(|out| unsafe { sys::mp_optimizer_get_found_inf_tensor(self.raw(), out) })
    }

    fn tensor(&self, create: impl FnOnce(*mut *mut sys::mp_tensor) -> sys::mp_status) -> Result<Tensor<'a>> {
        Tensor::from_handle(self.place.clone(), Handle::new(create)?)
    }

    /// Has norm and finite check cover the ranks of `comm`, which hold other parameters of the model. The step is
    /// then collective. The optimizer takes the communicator, because only one thread may use it. Collective itself.
    pub fn set_norm_comm(&mut self, comm: Option<Comm>) -> Result<()> {
        let raw = comm.as_ref().map_or(null_mut(), Comm::raw);
        // SAFETY: both handles are alive.
        call(|| unsafe { sys::mp_optimizer_set_norm_comm(self.raw(), raw) })?;
        self.norm_comm = comm;
        Ok(())
    }

    /// A tensor of one parameter: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master", or a scale by
    /// its tensor's name and "_scale_inv". It shares the memory.
    pub fn state(&self, param: i32, state: &str) -> Result<Tensor<'a>> {
        let state = c_string(state)?;
        // SAFETY: handle and text are good for the call.
        self.tensor(|out| unsafe { sys::mp_optimizer_get_state(self.raw(), param, state.as_ptr(), out) })
    }

    /// The values of a state, whatever it is stored as: "exp_avg", "exp_avg_sq", "compensation", "fp32_param".
    /// `values`: fp32, fp16 or bf16, as many elements as the parameter.
    pub fn read_state(&self, param: i32, state: &str, values: &Tensor) -> Result<()> {
        let state = c_string(state)?;
        // SAFETY: handles and text are good for the call; shape and type are checked there.
        call(|| unsafe {
            let queue = self.place.queue();
            sys::mp_optimizer_read_state(self.raw(), queue, param, state.as_ptr(), values.raw())
        })
    }

    /// Stores values in a state, rounded once. "fp32_param" writes the parameter as well.
    pub fn write_state(&mut self, param: i32, state: &str, values: &Tensor) -> Result<()> {
        let state = c_string(state)?;
        // SAFETY: handles and text are good for the call; shape and type are checked there.
        call(|| unsafe {
            let queue = self.place.queue();
            sys::mp_optimizer_write_state(self.raw(), queue, param, state.as_ptr(), values.raw())
        })
    }

    /// After the program wrote into parameters: master weights become them, remainders and compensations zero.
    /// `None`: of all.
    pub fn sync_master(&mut self, param: Option<i32>) -> Result<()> {
        let param = all_or(param)?;
        // SAFETY: the handle is alive.
        self.enqueue(false, || unsafe { sys::mp_optimizer_sync_master(self.raw(), self.place.queue(), param) })
    }

    /// Sets the count of steps and t of every group.
    pub fn set_step(&mut self, step: i64) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_step(self.raw(), self.place.queue(), step) })
    }

    /// What it was made with; the seed is a checkpoint's where one was loaded.
    pub fn options(&self) -> Result<OptimizerOptions> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_optimizer_desc::INIT, |raw| unsafe { sys::mp_optimizer_get_desc(self.raw(), raw) })?;
        Ok(OptimizerOptions {
            check_finite: raw.flags & sys::MP_OPTIMIZER_CHECK_FINITE != 0,
            zero_grad: raw.flags & sys::MP_OPTIMIZER_ZERO_GRAD != 0,
            offload: raw.flags & sys::MP_OPTIMIZER_OFFLOAD != 0,
            offload_grads: raw.flags & sys::MP_OPTIMIZER_OFFLOAD_GRADS != 0,
            grads_given: raw.flags & sys::MP_OPTIMIZER_GRADS_GIVEN != 0,
            seed: raw.seed,
            max_grad_norm: raw.max_grad_norm,
        })
    }

    /// Bytes really held for the parameters.
    pub fn memory(&self) -> Result<MemoryReport> {
        // SAFETY: handle and struct are good for the call.
        let raw =
            stored(sys::mp_memory_report::INIT, |raw| unsafe { sys::mp_optimizer_get_memory(self.raw(), raw) })?;
        Ok(MemoryReport::from_raw(&raw))
    }

    /// What steps with offload have moved, and how long they took.
    pub fn offload_traffic(&self) -> Result<OffloadTraffic> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_offload_traffic::INIT, |raw| unsafe {
            sys::mp_optimizer_get_offload_traffic(self.raw(), raw)
        })?;
        let time = |ns: i64| std::time::Duration::from_nanos(ns.max(0) as u64);
        Ok(OffloadTraffic {
            steps: raw.steps,
            to_host_bytes: raw.to_host_bytes,
            to_device_bytes: raw.to_device_bytes,
            step_time: time(raw.step_ns),
            waited: time(raw.waited_ns),
        })
    }

    /// The context it works in.
    pub fn context(&self) -> &Context {
        &self.place.context
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this optimizer's.
    pub fn raw(&self) -> *mut sys::mp_optimizer {
        self.handle.get()
    }

    pub(crate) fn queue(&self) -> *mut sys::mp_queue {
        self.place.queue()
    }

    pub(crate) fn enqueue(&self, wait: bool, function: impl FnOnce() -> sys::mp_status) -> Result<()> {
        self.place.enqueue(wait || self.place.context.device() == DeviceKind::Host, function)
    }
}

/// The number that stands for all where there is none.
pub(crate) fn all_or(index: Option<i32>) -> Result<i32> {
    match index {
        None => Ok(-1),
        Some(index) if index >= 0 => Ok(index),
        Some(index) => Err(invalid(format!("there is no number {index}"))),
    }
}
