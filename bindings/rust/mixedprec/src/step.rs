// SPDX-License-Identifier: Apache-2.0
//! Steps on the program's own slices: no tensors, no recipe, no state in the library.
use crate::context::Place;
use crate::error::{bad_shape, call, Result};
use crate::handle::{Handle, Keeps};
use crate::{sys, Bf16, Context, Element, Hyperparameters, Queue, Scaler, Stats};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// One step's numbers beyond the hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepArgs {
    /// Learning rate, betas and the like.
    pub hyperparameters: Hyperparameters,
    /// t of this step, from 1. Skipped steps do not count.
    pub step: i64,
    /// Seed of stochastic rounding.
    pub seed: u64,
    /// Clips the global norm of the unscaled gradients; 0: not.
    pub max_grad_norm: f64,
    /// What gradients are divided by, beside the scaler's scale.
    pub grad_scale: f64,
    /// Skips the step where a gradient is not finite, also without a scaler.
    pub check_finite: bool,
    /// Writes zeros into the gradients it has used. They are then to be given by [`Slot::zeroed_grad`].
    pub zero_grad: bool,
    /// Stochastic rounding of the parameter.
    pub stochastic_param: bool,
    /// Of these states, by [`Rule::states`](crate::Rule::states).
    pub stochastic_states: &'static [&'static str],
}

impl Default for StepArgs {
    fn default() -> Self {
        StepArgs {
            hyperparameters: Hyperparameters::default(),
            step: 1,
            seed: 0,
            max_grad_norm: 0.0,
            grad_scale: 1.0,
            check_finite: false,
            zero_grad: false,
            stochastic_param: false,
            stochastic_states: &[],
        }
    }
}

impl StepArgs {
    /// `zeros` are those of the hyperparameters, which the struct points to.
    fn raw(&self, zeros: &[sys::mp_hyper]) -> Result<sys::mp_step_args> {
        let with = |condition, flag| if condition { flag } else { 0 };
        let values = &self.hyperparameters;
        let mut flags = values.flags()
            | with(self.check_finite, sys::MP_OPTIMIZER_CHECK_FINITE)
            | with(self.zero_grad, sys::MP_OPTIMIZER_ZERO_GRAD)
            | with(self.stochastic_param, sys::MP_STEP_SR_PARAM);
        for state in self.stochastic_states {
            flags |= sys::MP_STEP_SR_STATE << values.rule.place(state)?;
        }
        Ok(sys::mp_step_args {
            flags,
            step: self.step,
            seed: self.seed,
            lr: values.lr,
            beta1: values.beta1,
            beta2: values.beta2,
            eps: values.eps,
            weight_decay: values.weight_decay,
            max_grad_norm: self.max_grad_norm,
            grad_scale: self.grad_scale,
            rule: values.rule as i32,
            hyper_count: zeros.len() as i32,
            hypers: zeros.as_ptr(),
            ..sys::mp_step_args::INIT
        })
    }
}

/// One parameter of the program's with its gradient and states: slices of one length, each of a type of its own.
/// ```
/// # fn main() -> mixedprec::Result<()> {
/// use mixedprec::{step_slices, Context, Slot, StepArgs};
/// let (mut p, g) = (vec![1.0f32; 100], vec![0.5f32; 100]);
/// let (mut m, mut v) = (vec![0.0f32; 100], vec![0.0f32; 100]);
/// let slots = &mut [Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v)];
/// step_slices(&Context::new()?, &StepArgs::default(), slots, None)?;
/// assert!(p[0] < 1.0);
/// # Ok(()) }
/// ```
pub struct Slot<'a> {
    raw: sys::mp_step_slot,
    /// The first slice of another length than the parameter's.
    misfit: Option<(&'static str, usize)>,
    grad_is_writable: bool,
    memory: PhantomData<&'a mut [u8]>,
}

/// Elements without a scale.
fn plain<T>(data: *mut T, dtype: i32) -> sys::mp_array {
    sys::mp_array { data: data.cast(), dtype, ..sys::mp_array::INIT }
}

impl<'a> Slot<'a> {
    /// A parameter and its gradient.
    pub fn new<P: Element, G: Element>(param: &'a mut [P], grad: &'a [G]) -> Slot<'a> {
        let slot = Slot::param(param);
        // The step does not write it: `step_slices` refuses `zero_grad` here.
        slot.with_grad(grad.as_ptr() as *mut G, grad.len(), false)
    }

    /// The same with a gradient that a step under [`StepArgs::zero_grad`] sets to zero.
    pub fn zeroed_grad<P: Element, G: Element>(param: &'a mut [P], grad: &'a mut [G]) -> Slot<'a> {
        Slot::param(param).with_grad(grad.as_mut_ptr(), grad.len(), true)
    }

    fn param<P: Element>(param: &'a mut [P]) -> Slot<'a> {
        let raw = sys::mp_step_slot {
            count: param.len() as i64,
            param: plain(param.as_mut_ptr(), P::DTYPE as i32),
            ..sys::mp_step_slot::INIT
        };
        Slot { raw, misfit: None, grad_is_writable: false, memory: PhantomData }
    }

    fn with_grad<G: Element>(mut self, grad: *mut G, length: usize, is_writable: bool) -> Slot<'a> {
        self.fit("grad", length);
        self.raw.grad = plain(grad, G::DTYPE as i32);
        self.grad_is_writable = is_writable;
        self
    }

    fn fit(&mut self, name: &'static str, length: usize) {
        if length as i64 != self.raw.count && self.misfit.is_none() {
            self.misfit = Some((name, length));
        }
    }

    /// The first moment.
    #[must_use]
    pub fn exp_avg<T: Element>(mut self, values: &'a mut [T]) -> Self {
        self.fit("exp_avg", values.len());
        self.raw.states[0] = plain(values.as_mut_ptr(), T::DTYPE as i32);
        self
    }

    /// The second moment.
    #[must_use]
    pub fn exp_avg_sq<T: Element>(mut self, values: &'a mut [T]) -> Self {
        self.fit("exp_avg_sq", values.len());
        self.raw.states[1] = plain(values.as_mut_ptr(), T::DTYPE as i32);
        self
    }

    /// Kahan's compensation.
    #[must_use]
    pub fn compensation<T: Element>(mut self, values: &'a mut [T]) -> Self {
        self.fit("compensation", values.len());
        self.raw.compensation = plain(values.as_mut_ptr(), T::DTYPE as i32);
        self
    }

    /// The fp32 weight that is updated; the parameter is then its rounding.
    #[must_use]
    pub fn master(mut self, values: &'a mut [f32]) -> Self {
        self.fit("master", values.len());
        self.raw.master = plain(values.as_mut_ptr(), sys::MP_DTYPE_FP32);
        self
    }

    /// The 16 bits that a bf16 parameter lacks of an fp32 one, in place of a master weight.
    #[must_use]
    pub fn remainder(mut self, values: &'a mut [i16]) -> Self {
        self.fit("remainder", values.len());
        self.raw.master = plain(values.as_mut_ptr(), sys::MP_DTYPE_INT16);
        self.raw.master.coding = sys::MP_CODING_REMAINDER;
        if self.raw.param.dtype != <Bf16 as Element>::DTYPE as i32 {
            self.misfit = self.misfit.or(Some(("remainder beside a parameter that is not bf16", values.len())));
        }
        self
    }

    /// What names the parameter to stochastic rounding.
    #[must_use]
    pub fn uid(mut self, uid: u64) -> Self {
        self.raw.uid = uid;
        self
    }

    /// Where this slice begins in the whole parameter; a multiple of 8.
    #[must_use]
    pub fn first_element(mut self, element: i64) -> Self {
        self.raw.first_element = element;
        self
    }

    /// Becomes the largest of itself and of |new weight|.
    #[must_use]
    pub fn param_amax(mut self, amax: &'a mut f32) -> Self {
        self.raw.param.amax = amax;
        self
    }
}

/// Checks what the library cannot see, and gives the slots as it wants them.
fn raw_slots(context: &Context, args: &StepArgs, slots: &[Slot]) -> Result<Vec<sys::mp_step_slot>> {
    context.expect_host()?;
    for (index, slot) in slots.iter().enumerate() {
        if let Some((name, length)) = slot.misfit {
            let count = slot.raw.count;
            return Err(bad_shape(format!("slot {index}: param has {count} elements, {name} {length}")));
        }
        if args.zero_grad && !slot.grad_is_writable {
            return Err(crate::invalid(format!("slot {index}: zero_grad wants a gradient by Slot::zeroed_grad")));
        }
    }
    Ok(slots.iter().map(|slot| slot.raw).collect())
}

/// One step straight on slices of the program's, done when this returns. For a context of the host alone. A gradient
/// that is not finite skips the step under a scaler or [`StepArgs::check_finite`].
pub fn step_slices(
    context: &Context,
    args: &StepArgs,
    slots: &mut [Slot],
    scaler: Option<&mut Scaler>,
) -> Result<Stats> {
    let slots = raw_slots(context, args, slots)?;
    let zeros = args.hyperparameters.zeros();
    let raw_args = args.raw(&zeros)?;
    let scaler = scaler.map_or(null_mut(), |scaler| scaler.raw());
    let mut stats = sys::mp_optimizer_stats::INIT;
    // SAFETY: each slot's slices are borrowed, have its count and the types it says, and overlap nowhere.
    Place::new(context).enqueue(true, || unsafe {
        let (pointer, count) = (slots.as_ptr(), slots.len() as i64);
        sys::mp_optimizer_step_pointers(context.raw(), null_mut(), &raw_args, pointer, count, scaler, &mut stats)
    })?;
    Ok(Stats::from_raw(&stats))
}

/// The same step prepared once: it allocates nothing and counts its steps by itself. It keeps the slices until it is
/// dropped.
pub struct StepPlan<'a> {
    handle: Handle<sys::mp_step_plan>,
    place: Place,
    writes_grads: bool,
    _memory: Keeps<'a>,
}

impl<'a> StepPlan<'a> {
    /// Prepares a step on these slices; `args.step` is t of the first run. For a context of the host alone.
    pub fn new(context: &Context, args: &StepArgs, slots: Vec<Slot<'a>>) -> Result<StepPlan<'a>> {
        let slots = raw_slots(context, args, &slots)?;
        let zeros = args.hyperparameters.zeros();
        let raw_args = args.raw(&zeros)?;
        // SAFETY: as in `step_slices`, and the slices are borrowed as long as the plan lives.
        let handle = Handle::new(|out| unsafe {
            sys::mp_step_plan_create(context.raw(), &raw_args, slots.as_ptr(), slots.len() as i64, out)
        })?;
        Ok(StepPlan { handle, place: Place::new(context), writes_grads: args.zero_grad, _memory: Keeps::new() })
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    /// A step.
    pub fn run(&mut self, scaler: Option<&mut Scaler>) -> Result<()> {
        let scaler = scaler.map_or(null_mut(), |scaler| scaler.raw());
        // SAFETY: both handles are alive, and the slices are borrowed.
        self.place.enqueue(true, || unsafe { sys::mp_step_plan_run(self.handle.get(), self.place.queue(), scaler) })
    }

    /// Other numbers from the next run on; `step`, the rule and `zero_grad` as they were.
    pub fn set_args(&mut self, args: &StepArgs) -> Result<()> {
        if args.zero_grad != self.writes_grads {
            return Err(crate::invalid("zero_grad must stay as it was when the plan was made"));
        }
        let zeros = args.hyperparameters.zeros();
        let raw = args.raw(&zeros)?;
        // SAFETY: handle and struct are good for the call.
        call(|| unsafe { sys::mp_step_plan_set_args(self.handle.get(), self.place.queue(), &raw) })
    }

    /// What the last run did.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = sys::mp_optimizer_stats::INIT;
        // SAFETY: handle and struct are good for the call.
        call(|| unsafe { sys::mp_step_plan_get_stats(self.handle.get(), self.place.queue(), &mut stats as *mut _) })?;
        Ok(Stats::from_raw(&stats))
    }
}
