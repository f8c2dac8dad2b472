// SPDX-License-Identifier: Apache-2.0
//! Linear layers in the forms of a recipe: y = x * w^T + bias and its gradients.
use crate::context::Place;
use crate::error::{call, invalid, number, stored, text, Result};
use crate::handle::{Handle, Keeps};
use crate::monitor::Monitor;
use crate::tensor::raw_or_null;
use crate::{sys, Cast, Comm, Context, DType, DeviceKind, Element, Quantization, Queue, Recipe, Tensor};
use std::ops::Range;
use std::ptr::null_mut;

/// An operand of a layer's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Operand {
    /// x.
    Input = sys::MP_OPERAND_INPUT,
    /// w.
    Weight = sys::MP_OPERAND_WEIGHT,
    /// dy.
    GradOutput = sys::MP_OPERAND_GRAD_OUTPUT,
}

/// A product of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Product {
    /// y = x * w^T.
    Fprop = sys::MP_PRODUCT_FPROP,
    /// dx = dy * w.
    Dgrad = sys::MP_PRODUCT_DGRAD,
    /// dw = dy^T * x.
    Wgrad = sys::MP_PRODUCT_WGRAD,
}

/// What a layer is beside its sizes. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearOptions {
    /// Forward keeps nothing; there are no gradients of the weight.
    pub inference: bool,
    /// A converted weight serves until the step ends: for gradient accumulation.
    pub cache_weight: bool,
    /// It is the first or last of the model: see the key `gemm.filter.first_last`.
    pub first_or_last: bool,
    /// Counts what happens to elements, for [`Linear::stats`].
    pub stats: bool,
    /// The weight does not change; gives dx alone.
    pub frozen: bool,
}

/// What backward writes: each gradient that is wanted. The default: none, overwritten.
#[derive(Clone, Copy, Default)]
pub struct Gradients<'t> {
    /// `[rows, in]`.
    pub dx: Option<&'t Tensor<'t>>,
    /// `[out, in]`: the main gradient, fp32, fp16, bf16 or quantized.
    pub dw: Option<&'t Tensor<'t>>,
    /// `[out]`, of a layer with a bias.
    pub dbias: Option<&'t Tensor<'t>>,
    /// Adds to dw and dbias.
    pub accumulate: bool,
}

/// Where a tensor's elements are; nowhere without memory.
fn span(tensor: &Tensor) -> Range<usize> {
    match tensor.data() {
        Ok(data) if !data.is_null() => data as usize..data as usize + tensor.byte_len(),
        _ => 0..0,
    }
}

impl Gradients<'_> {
    pub(crate) fn flags(&self) -> u32 {
        if self.accumulate {
            sys::MP_BACKWARD_ACCUMULATE
        } else {
            0
        }
    }

    /// Gradients share no memory with one another, nor with the x that is still read.
    pub(crate) fn expect_apart(&self, kept_x: &Range<usize>) -> Result<()> {
        let mut taken = vec![("the x that forward kept", kept_x.clone())];
        for (name, tensor) in [("dx", self.dx), ("dw", self.dw), ("dbias", self.dbias)] {
            let span = tensor.map_or(0..0, span);
            let overlaps = |other: &Range<usize>| span.start < other.end && other.start < span.end;
            if let Some((other, _)) = taken.iter().find(|(_, other)| overlaps(other)) {
                return Err(invalid(format!("linear: {name} overlaps {other}; it needs memory of its own")));
            }
            taken.push((name, span));
        }
        Ok(())
    }
}

/// A linear layer over a weight and a bias, which it keeps. `'a` is the life of the memory under its tensors.
///
/// Shapes, row-major: x `[rows, in]`, w `[out, in]`, bias `[out]`, y `[rows, out]`. One step: forward, backward, once
/// for each micro-batch; then the end of the step, by [`Optimizer::set_linears`](crate::Optimizer::set_linears) or
/// [`end_step`].
pub struct Linear<'a> {
    pub(crate) handle: Handle<sys::mp_linear>,
    pub(crate) place: Place,
    in_features: usize,
    out_features: usize,
    /// The type that x has where forward keeps a reference to it, and where the last one lies.
    kept_dtype: Option<DType>,
    kept_x: Range<usize>,
    /// Twice boxed: the library has the address of the inner box.
    pub(crate) monitor: Option<Box<Monitor<'a>>>,
    _memory: Keeps<'a>,
}

impl<'a> Linear<'a> {
    /// A layer over `weight` `[out, in]` and `bias` `[out]`. Freezes the recipe. A note says where its sizes keep it
    /// in high precision under an fp8 recipe.
    pub fn new(
        recipe: &Recipe,
        weight: &Tensor<'a>,
        bias: Option<&Tensor<'a>>,
        options: &LinearOptions,
    ) -> Result<Linear<'a>> {
        let shape = weight.shape();
        if shape.len() != 2 {
            return Err(crate::error::bad_shape(format!("weight is {shape:?}; it must be [out, in]")));
        }
        let with = |condition, flag| if condition { flag } else { 0 };
        let desc = sys::mp_linear_desc {
            flags: with(options.inference, sys::MP_LINEAR_INFERENCE)
                | with(options.cache_weight, sys::MP_LINEAR_CACHE_WEIGHT)
                | with(options.first_or_last, sys::MP_LINEAR_FIRST_OR_LAST)
                | with(options.stats, sys::MP_LINEAR_STATS)
                | with(options.frozen, sys::MP_LINEAR_FROZEN),
            in_features: shape[1] as i64,
            out_features: shape[0] as i64,
            ..sys::mp_linear_desc::INIT
        };
        let context = recipe.context();
        // SAFETY: all handles are alive, and the memory under weight and bias lives as long as the layer.
        let handle = Handle::new(|out| unsafe {
            let (weight, bias) = (weight.raw(), raw_or_null(bias));
            sys::mp_linear_create(context.raw(), recipe.raw(), &desc, weight, bias, out)
        })?;
        let (in_features, out_features) = (shape[1], shape[0]);
        let place = Place::new(context);
        let mut linear = Linear {
            handle,
            place,
            in_features,
            out_features,
            kept_dtype: None,
            kept_x: 0..0,
            monitor: None,
            _memory: Keeps::new(),
        };
        if let Ok((dtype, None)) = linear.operand_format(Product::Wgrad, Operand::Input) {
            linear.kept_dtype = Some(dtype);
        }
        Ok(linear)
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    /// y = x * w^T + bias. A slice under x outlives the layer:
    /// ```compile_fail,E0597
    /// # fn main() -> mixedprec::Result<()> {
    /// # use mixedprec::*;
    /// # let context = Context::new()?;
    /// # let recipe = Recipe::new(&context, "bf16_mixed")?;
    /// # let weight = recipe.weight(&[4, 8], None)?;
    /// # let y = Tensor::zeros(&context, DType::Fp32, &[2, 4])?;
    /// let mut linear = Linear::new(&recipe, &weight, None, &LinearOptions::default())?;
    /// {
    ///     let mut activations = vec![1.0f32; 16];
    ///     linear.forward(&Tensor::wrap(&context, &mut activations, &[2, 8])?, &y)?;
    /// }
    /// linear.describe()?;
    /// # Ok(()) }
    /// ```
    /// Where x has the recipe's type already, a reference to it is kept: then its values must not
    /// change until backward.
    pub fn forward(&mut self, x: &Tensor<'a>, y: &Tensor) -> Result<()> {
        // SAFETY: all handles are alive, and the memory under x, which may be kept, lives as long as the layer.
        self.enqueue(|queue| unsafe { sys::mp_linear_forward(self.raw(), queue, x.raw(), y.raw()) })?;
        self.kept_x = self.kept(x);
        Ok(())
    }

    /// Where a forward keeps x itself.
    pub(crate) fn kept(&self, x: &Tensor) -> Range<usize> {
        if self.kept_dtype == Some(x.dtype()) {
            span(x)
        } else {
            0..0
        }
    }

    /// The gradients of the last forward. dx alone needs none.
    pub fn backward(&mut self, dy: &Tensor, gradients: &Gradients) -> Result<()> {
        let Gradients { dx, dw, dbias, .. } = *gradients;
        if let (Some(dx), None, None) = (dx, dw, dbias) {
            return self.backward_data(dy, dx);
        }
        gradients.expect_apart(&self.kept_x)?;
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.enqueue(|queue| unsafe {
            let (dx, dw, dbias) = (raw_or_null(dx), raw_or_null(dw), raw_or_null(dbias));
            sys::mp_linear_backward(self.raw(), queue, dy.raw(), dx, dw, dbias, gradients.flags())
        })
    }

    /// [`Linear::forward`] on slices, with the same bits: x `[rows, in]`, which is copied, and y `[rows, out]`. For a
    /// context of the host alone.
    pub fn forward_slices<T: Element>(&mut self, x: &[T], y: &mut [T]) -> Result<()> {
        let context = self.place.context.clone();
        context.expect_host()?;
        let rows = x.len() / self.in_features;
        let x = Tensor::from_slice(&context, x, &[rows, self.in_features])?;
        let y = Tensor::wrap(&context, y, &[rows, self.out_features])?;
        self.forward(&x, &y)
    }

    /// [`Linear::backward`] on slices, with the same bits: each gradient that is wanted. dx is as dy, dw and dbias of
    /// one type. For a context of the host alone.
    pub fn backward_slices<T: Element, G: Element>(
        &mut self,
        dy: &[T],
        dx: Option<&mut [T]>,
        dw: Option<&mut [G]>,
        dbias: Option<&mut [G]>,
        accumulate: bool,
    ) -> Result<()> {
        let context = self.place.context.clone();
        context.expect_host()?;
        let (inner, outer) = (self.in_features, self.out_features);
        let rows = dy.len() / outer;
        // SAFETY: backward reads dy, and keeps nothing.
        let dy = unsafe { Tensor::wrap_shared(&context, dy, &[rows, outer])? };
        let dx = dx.map(|dx| Tensor::wrap(&context, dx, &[rows, inner])).transpose()?;
        let dw = dw.map(|dw| Tensor::wrap(&context, dw, &[outer, inner])).transpose()?;
        let dbias = dbias.map(|dbias| Tensor::wrap(&context, dbias, &[outer])).transpose()?;
        let (dx, dw, dbias) = (dx.as_ref(), dw.as_ref(), dbias.as_ref());
        self.backward(&dy, &Gradients { dx, dw, dbias, accumulate })
    }

    /// dx = dy * w. Needs no forward.
    pub fn backward_data(&mut self, dy: &Tensor, dx: &Tensor) -> Result<()> {
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.enqueue(|queue| unsafe { sys::mp_linear_backward_data(self.raw(), queue, dy.raw(), dx.raw()) })
    }

    /// dw and dbias alone, of the last forward; `accumulate` adds to them.
    pub fn backward_weight<'t>(
        &mut self,
        dy: &Tensor,
        dw: &'t Tensor<'t>,
        dbias: Option<&'t Tensor<'t>>,
        accumulate: bool,
    ) -> Result<()> {
        let gradients = Gradients { dx: None, dw: Some(dw), dbias, accumulate };
        gradients.expect_apart(&self.kept_x)?;
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.enqueue(|queue| unsafe {
            let dbias = raw_or_null(dbias);
            sys::mp_linear_backward_weight(self.raw(), queue, dy.raw(), dw.raw(), dbias, gradients.flags())
        })
    }

    /// How dw in fp16 or bf16 is rounded from now on; set it before each micro-batch. [`Cast::overflow`] stays by
    /// type.
    pub fn set_gradient_rounding(&mut self, rounding: &Cast) -> Result<()> {
        let desc = rounding.raw();
        // SAFETY: handle and struct are good for the call.
        call(|| unsafe { sys::mp_linear_set_gradient_rounding(self.raw(), &desc) })
    }

    /// The type of an operand of a product, and its scales where it has some: what [`Tensor::quantized`] takes.
    pub fn operand_format(&self, product: Product, operand: Operand) -> Result<(DType, Option<Quantization>)> {
        let (mut dtype, mut raw) = (0, sys::mp_quant_desc::INIT);
        // SAFETY: handle, number and struct are good for the call.
        call(|| unsafe {
            let (product, operand) = (product as i32, operand as i32);
            sys::mp_linear_get_operand_format(self.raw(), product, operand, &mut dtype, &mut raw)
        })?;
        let dtype = DType::from_raw(dtype).ok_or_else(|| invalid("the operand has an unknown type"))?;
        Ok((dtype, Quantization::from_raw(&raw)))
    }

    /// Rounds an operand as the product would, into codes that can be given as x or dy.
    pub fn quantize(&mut self, product: Product, operand: Operand, source: &Tensor, codes: &Tensor) -> Result<()> {
        let (product, operand) = (product as i32, operand as i32);
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.enqueue(|queue| unsafe {
            sys::mp_linear_quantize(self.raw(), queue, product, operand, source.raw(), codes.raw())
        })
    }

    /// Has products take these codes instead of rounding the weight. `None`: it is rounded.
    pub fn set_weight_codes(&mut self, fprop: Option<&Tensor<'a>>, dgrad: Option<&Tensor<'a>>) -> Result<()> {
        // SAFETY: all handles are alive, and the codes' memory lives as long as the layer.
        call(|| unsafe { sys::mp_linear_set_weight_codes(self.raw(), raw_or_null(fprop), raw_or_null(dgrad)) })
    }

    /// What [`Linear::set_weight_codes`] was given.
    pub fn weight_codes(&self, product: Product) -> Result<Option<Tensor<'a>>> {
        // SAFETY: the handle is alive.
        let handle =
            Handle::optional(|out| unsafe { sys::mp_linear_get_weight_codes(self.raw(), product as i32, out) })?;
        handle.map(|handle| Tensor::from_handle(self.place.clone(), handle)).transpose()
    }

    /// The delayed scale of an operand: one fp32 element that moves with the end of a step.
    pub fn multiply_tensor(&self, operand: Operand) -> Result<Tensor<'a>> {
        // SAFETY: the handle is alive.
        let handle =
            Handle::new(|out| unsafe { sys::mp_linear_get_multiply_tensor(self.raw(), operand as i32, out) })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// What it keeps, and which implementations it uses and why.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_linear_describe(self.raw(), buffer, capacity, needed) })
    }

    /// What training needs to go on bit for bit: delayed scales and amax histories.
    pub fn scaling(&self) -> Result<Vec<u8>> {
        // SAFETY: the handle is alive; a buffer of no bytes is not written.
        let mut needed =
            stored(0, |needed| unsafe { sys::mp_linear_get_scaling(self.raw(), null_mut(), 0, needed) })?;
        let mut data = vec![0u8; needed];
        // SAFETY: the buffer is as large as it is said to be.
        call(|| unsafe {
            sys::mp_linear_get_scaling(self.raw(), data.as_mut_ptr().cast(), data.len(), &mut needed)
        })?;
        Ok(data)
    }

    /// Puts it back.
    pub fn set_scaling(&mut self, data: &[u8]) -> Result<()> {
        // SAFETY: the slice is as large as it is said to be.
        call(|| unsafe { sys::mp_linear_set_scaling(self.raw(), data.as_ptr().cast(), data.len()) })
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this layer's.
    pub fn raw(&self) -> *mut sys::mp_linear {
        self.handle.get()
    }

    /// Operands may be on the host beside an accelerator only where that is refused, so the context says what there
    /// is to wait for.
    pub(crate) fn enqueue(&self, function: impl FnOnce(*mut sys::mp_queue) -> sys::mp_status) -> Result<()> {
        let on_host = self.place.context.device() == DeviceKind::Host;
        self.place.enqueue(on_host, || function(self.place.queue()))
    }
}

/// The end of a step for layers that no optimizer was told of: delayed scales move on, cached weights are let go,
/// monitors are called. With `comm`, ranks scale alike: a collective call that names the layers in the same order on
/// each.
pub fn end_step(context: &Context, linears: &mut [&mut Linear], comm: Option<&Comm>) -> Result<()> {
    let raw: Vec<*mut sys::mp_linear> = linears.iter().map(|linear| linear.raw()).collect();
    let count = number(raw.len(), "the number of layers")?;
    let comm = comm.map_or(null_mut(), Comm::raw);
    // SAFETY: the array has so many live handles.
    Place::new(context).enqueue(false, || unsafe { sys::mp_linear_end_step(raw.as_ptr(), count, null_mut(), comm) })
}

impl std::fmt::Debug for Linear<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.describe().as_deref().unwrap_or("Linear"))
    }
}
