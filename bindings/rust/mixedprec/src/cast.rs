// SPDX-License-Identifier: Apache-2.0
//! Conversions between element types, and the largest absolute value.
use crate::context::Place;
use crate::error::{bad_shape, call, Result};
use crate::{sys, Context, DType, Element, Tensor};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// How a conversion rounds and what it does beyond the largest number. The default: to nearest even, and only fp8
/// saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cast {
    /// Stochastic rounding, by these numbers.
    pub stochastic: Option<Stochastic>,
    /// What becomes of numbers that are too large.
    pub overflow: Overflow,
}

/// What names the random numbers of stochastic rounding: the same numbers, the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stochastic {
    /// The run's seed.
    pub seed: u64,
    /// Which tensor it is.
    pub uid: u64,
    /// Which step, below 2^48.
    pub step: u64,
    /// Which micro-batch of the step.
    pub microbatch: u16,
}

/// What becomes of a number beyond the largest of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// fp8 saturates, fp16 and bf16 become infinite.
    #[default]
    ByType,
    /// It becomes the largest number.
    Saturate,
    /// It becomes infinity, or NaN where the type has none.
    Infinity,
}

impl Cast {
    pub(crate) fn raw(&self) -> sys::mp_cast_desc {
        let mut desc = sys::mp_cast_desc::INIT;
        desc.flags = match self.overflow {
            Overflow::ByType => 0,
            Overflow::Saturate => sys::MP_CAST_SATURATE,
            Overflow::Infinity => sys::MP_CAST_NO_SATURATE,
        };
        if let Some(random) = self.stochastic {
            desc.rounding = sys::MP_ROUND_STOCHASTIC;
            desc.microbatch = i32::from(random.microbatch);
            desc.seed = random.seed;
            desc.uid = random.uid;
            desc.step = random.step;
        }
        desc
    }
}

impl Tensor<'_> {
    /// Converts its elements to the type of `destination`, which has as many. fp32, fp16, bf16 and fp8.
    pub fn cast_to(&self, destination: &Tensor, cast: &Cast) -> Result<()> {
        let desc = cast.raw();
        // SAFETY: both handles are alive; shapes, types and overlap are checked there.
        self.place.enqueue(self.touches_host(&[destination]), || unsafe {
            sys::mp_tensor_cast(self.raw(), self.place.queue(), destination.raw(), &desc)
        })
    }

    /// Its elements converted to another type, in a tensor of their own.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor<'static>> {
        let tensor = Tensor::zeros(self.context(), dtype, &self.shape())?;
        self.cast_to(&tensor, &Cast::default())?;
        Ok(tensor)
    }

    /// The largest absolute value, waited for. NaN beats infinity beats numbers; 0 without elements.
    pub fn amax(&self) -> Result<f32> {
        let amax = Tensor::zeros(self.context(), DType::Fp32, &[])?;
        self.amax_to(&amax)?;
        let mut value = [0.0];
        // SAFETY: one fp32.
        call(|| unsafe {
            sys::mp_tensor_read(amax.raw(), self.place.queue(), value.as_mut_ptr() as *mut c_void, 4)
        })?;
        Ok(value[0])
    }

    /// The same without waiting, into one fp32 element on the same device.
    pub fn amax_to(&self, amax: &Tensor) -> Result<()> {
        // SAFETY: both handles are alive; shape and type are checked there.
        self.place.enqueue(self.touches_host(&[amax]), || unsafe {
            sys::mp_tensor_amax(self.raw(), self.place.queue(), amax.raw())
        })
    }
}

/// Converts elements of one slice into another of the same length, between fp32, fp16, bf16 and fp8: the bits of
/// [`Tensor::cast_to`]. For a context of the host alone.
pub fn cast_slice<S: Element, D: Element>(
    context: &Context,
    source: &[S],
    destination: &mut [D],
    cast: &Cast,
) -> Result<()> {
    context.expect_host()?;
    if source.len() != destination.len() {
        let message = format!("the source has {} elements, the destination {}", source.len(), destination.len());
        return Err(bad_shape(message));
    }
    let (from, to) = match source.is_empty() {
        true => (null(), null_mut()),
        false => (source.as_ptr(), destination.as_mut_ptr()),
    };
    let desc = cast.raw();
    // SAFETY: both slices have so many elements of their types, and are borrowed until the work is done.
    Place::new(context).enqueue(true, || unsafe {
        sys::mp_tensor_cast_pointers(
            context.raw(),
            null_mut(),
            from.cast(),
            S::DTYPE as i32,
            to.cast(),
            D::DTYPE as i32,
            source.len() as i64,
            &desc,
        )
    })
}
