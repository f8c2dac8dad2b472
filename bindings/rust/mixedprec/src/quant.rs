// SPDX-License-Identifier: Apache-2.0
//! Quantized tensors: codes with scales beside them. value = code * scale_inv.
use crate::context::Place;
use crate::error::{bad_shape, call, number, stored, Result};
use crate::handle::Handle;
use crate::tensor::{expect_elements, raw_or_null, tensor_desc};
use crate::{invalid, sys, Context, DType, Element, Stochastic, Tensor};
use std::ptr::null_mut;

/// How scales lie over a matrix: its last dimension has the columns, all others together the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Scaling {
    /// One fp32 scale.
    Tensor = sys::MP_SCALING_TENSOR,
    /// One for each row.
    Row = sys::MP_SCALING_ROW,
    /// One for each column.
    Column = sys::MP_SCALING_COLUMN,
    /// One for 128 elements along a row.
    Block1x128 = sys::MP_SCALING_BLOCK_1X128,
    /// One for 128 elements along a column.
    Block128x1 = sys::MP_SCALING_BLOCK_128X1,
    /// One for a square of 128.
    Block128x128 = sys::MP_SCALING_BLOCK_128X128,
    /// An e8m0 scale for 32 elements along a row.
    Mx1x32 = sys::MP_SCALING_MX_1X32,
    /// Along a column.
    Mx32x1 = sys::MP_SCALING_MX_32X1,
    /// fp8_e4m3 scales for 16 elements under the tensor's amax; codes are fp4.
    Nvfp4 = sys::MP_SCALING_NVFP4,
}

/// From a block's amax to its scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum ScaleRule {
    /// The usual one of the scaling.
    #[default]
    Usual = 0,
    /// Transformer Engine's: max / amax.
    Current = sys::MP_SCALE_RULE_CURRENT,
    /// torchao's, in double.
    Float64 = sys::MP_SCALE_RULE_FLOAT64,
    /// MS-AMP's: the largest power of two.
    MsAmp = sys::MP_SCALE_RULE_MSAMP,
    /// DeepSeek-V3's.
    DeepSeek = sys::MP_SCALE_RULE_DEEPSEEK,
    /// MX, exponents rounded up: nothing saturates.
    MxRceil = sys::MP_SCALE_RULE_MX_RCEIL,
    /// MX, the specification's.
    MxFloor = sys::MP_SCALE_RULE_MX_FLOOR,
    /// MX, the ceiling.
    MxCeil = sys::MP_SCALE_RULE_MX_CEIL,
    /// MX, to nearest even.
    MxEven = sys::MP_SCALE_RULE_MX_EVEN,
    /// NVFP4's.
    Nvfp4 = sys::MP_SCALE_RULE_NVFP4,
}

/// How a tensor is quantized. The default: one scale for the tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// How scales lie.
    pub scaling: Scaling,
    /// How they follow from amaxes.
    pub rule: ScaleRule,
    /// Scales are rounded to powers of two, so that nothing saturates.
    pub power_of_two: bool,
    /// An amax below this counts as this; 0: none.
    pub amax_epsilon: f64,
    /// The largest code is taken for 2^-margin of itself.
    pub margin: i32,
}

impl Default for Quantization {
    fn default() -> Self {
        Quantization {
            scaling: Scaling::Tensor,
            rule: ScaleRule::Usual,
            power_of_two: false,
            amax_epsilon: 0.0,
            margin: 0,
        }
    }
}

impl Quantization {
    /// The usual rule of a scaling.
    pub fn new(scaling: Scaling) -> Quantization {
        Quantization { scaling, ..Quantization::default() }
    }

    pub(crate) fn raw(&self) -> sys::mp_quant_desc {
        sys::mp_quant_desc {
            flags: if self.power_of_two { sys::MP_QUANT_POWER_OF_TWO } else { 0 },
            scaling: self.scaling as i32,
            rule: self.rule as i32,
            amax_epsilon: self.amax_epsilon,
            margin: self.margin,
            ..sys::mp_quant_desc::INIT
        }
    }

    /// `None` where the library says that there are no scales.
    pub(crate) fn from_raw(raw: &sys::mp_quant_desc) -> Option<Quantization> {
        use Scaling::*;
        const SCALINGS: [Scaling; 9] =
            [Tensor, Row, Column, Block1x128, Block128x1, Block128x128, Mx1x32, Mx32x1, Nvfp4];
        const RULES: [ScaleRule; 10] = [
            ScaleRule::Usual,
            ScaleRule::Current,
            ScaleRule::Float64,
            ScaleRule::MsAmp,
            ScaleRule::DeepSeek,
            ScaleRule::MxRceil,
            ScaleRule::MxFloor,
            ScaleRule::MxCeil,
            ScaleRule::MxEven,
            ScaleRule::Nvfp4,
        ];
        Some(Quantization {
            scaling: SCALINGS.iter().copied().find(|&scaling| scaling as i32 == raw.scaling)?,
            rule: RULES.iter().copied().find(|&rule| rule as i32 == raw.rule).unwrap_or_default(),
            power_of_two: raw.flags & sys::MP_QUANT_POWER_OF_TWO != 0,
            amax_epsilon: raw.amax_epsilon,
            margin: raw.margin,
        })
    }

    /// Rows and columns of scales over a matrix, and their type.
    pub fn scale_grid(&self, rows: usize, columns: usize) -> Result<(usize, usize, DType)> {
        let (rows, columns) = (number(rows, "the rows")?, number(columns, "the columns")?);
        let (mut grid_rows, mut grid_columns, mut dtype) = (0, 0, 0);
        let raw = self.raw();
        // SAFETY: all pointers are good for the call.
        call(|| unsafe {
            let (down, across) = (&mut grid_rows, &mut grid_columns);
            sys::mp_tensor_get_scale_grid(&raw, rows, columns, down, across, &mut dtype)
        })?;
        let dtype = DType::from_raw(dtype).ok_or_else(|| invalid("scales of an unknown type"))?;
        Ok((number(grid_rows, "the rows")?, number(grid_columns, "the columns")?, dtype))
    }
}

/// How one quantization goes, beyond what its destination says. The default: to nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantize {
    /// Stochastic rounding, by these numbers.
    pub stochastic: Option<Stochastic>,
    /// Stochastic rounding: where the source's first element lies in the whole tensor.
    pub first_element: i64,
}

/// What happened to elements when they were quantized.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct QuantStats {
    /// How many there were.
    pub elements: i64,
    /// Finite, beyond the largest code.
    pub saturated: i64,
    /// Not zero, became zero.
    pub underflowed: i64,
    /// Infinity or NaN.
    pub non_finite: i64,
    /// Largest absolute value; NaN beats infinity beats numbers.
    pub amax: f64,
}

impl Tensor<'static> {
    /// A quantized tensor of zeros in the library's memory: codes of `dtype` (fp8; fp16 under [`ScaleRule::MsAmp`];
    /// fp4 under [`Scaling::Nvfp4`] and [`Scaling::Mx1x32`]) with their scales.
    pub fn quantized(
        context: &Context,
        dtype: DType,
        shape: &[usize],
        how: &Quantization,
    ) -> Result<Tensor<'static>> {
        let (desc, quant) = (tensor_desc(dtype, shape)?, how.raw());
        // SAFETY: context and descriptors are good for the call.
        let handle =
            Handle::new(|out| unsafe { sys::mp_tensor_create_quantized(context.raw(), &desc, &quant, out) })?;
        Tensor::from_handle(Place::new(context), handle)
    }
}

impl<'a> Tensor<'a> {
    /// A quantized tensor over the program's memory, with the codes and scales that are there: fp8 codes, or fp16
    /// under [`ScaleRule::MsAmp`], and as many scales as [`Quantization::scale_grid`] says, aligned to 16 bytes.
    pub fn wrap_quantized<C: Element, S: Element>(
        context: &Context,
        codes: &'a mut [C],
        shape: &[usize],
        scale_inv: &'a mut [S],
        how: &Quantization,
    ) -> Result<Tensor<'a>> {
        expect_elements(shape, codes.len())?;
        let columns = shape.last().copied().unwrap_or(1);
        let rows = codes.len().checked_div(columns).unwrap_or(0);
        let (grid_rows, grid_columns, dtype) = how.scale_grid(rows, columns)?;
        if dtype != S::DTYPE || scale_inv.len() != grid_rows * grid_columns {
            let (found, count) = (S::DTYPE, scale_inv.len());
            let message = format!("scales are [{grid_rows}, {grid_columns}] of {dtype}, not {count} of {found}");
            return Err(bad_shape(message));
        }
        let mut desc = tensor_desc(C::DTYPE, shape)?;
        desc.device_kind = sys::MP_DEVICE_HOST;
        let quant = how.raw();
        // SAFETY: codes and scales are as many as the descriptors say, and borrowed for 'a.
        let handle = Handle::new(|out| unsafe {
            let codes = if codes.is_empty() { null_mut() } else { codes.as_mut_ptr().cast() };
            let (scales, none) = (scale_inv.as_mut_ptr().cast(), null_mut());
            sys::mp_tensor_wrap_quantized(context.raw(), &desc, &quant, codes, scales, none, None, null_mut(), out)
        })?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// Rounds its elements to the codes of `destination`, a quantized tensor of the same shape, and computes its
    /// scales. `transposed`: a tensor of codes `[columns, rows]` that gets them turned.
    pub fn quantize_to(&self, destination: &Tensor, transposed: Option<&Tensor>, how: &Quantize) -> Result<()> {
        self.quantize(destination, transposed, how, null_mut())
    }

    /// The same, and what happened to the elements.
    pub fn quantize_with_stats(
        &self,
        destination: &Tensor,
        transposed: Option<&Tensor>,
        how: &Quantize,
    ) -> Result<QuantStats> {
        let mut raw = sys::mp_quant_stats::INIT;
        self.quantize(destination, transposed, how, &mut raw)?;
        Ok(QuantStats {
            elements: raw.elements,
            saturated: raw.saturated,
            underflowed: raw.underflowed,
            non_finite: raw.non_finite,
            amax: raw.amax,
        })
    }

    fn quantize(
        &self,
        destination: &Tensor,
        transposed: Option<&Tensor>,
        how: &Quantize,
        stats: *mut sys::mp_quant_stats,
    ) -> Result<()> {
        let mut args = sys::mp_quantize_args { first_element: how.first_element, ..sys::mp_quantize_args::INIT };
        if let Some(random) = how.stochastic {
            args.rounding = sys::MP_ROUND_STOCHASTIC;
            args.microbatch = i32::from(random.microbatch);
            args.seed = random.seed;
            args.uid = random.uid;
            args.step = random.step;
        }
        // SAFETY: handles and structs are good for the call; shapes, types and overlap are checked there.
        self.place.enqueue(self.touches_host(&[destination]), || unsafe {
            let (source, queue) = (self.raw(), self.place.queue());
            sys::mp_tensor_quantize(source, queue, destination.raw(), raw_or_null(transposed), &args, stats)
        })
    }

    /// Writes code * scale_inv into `destination`, which is fp32, fp16 or bf16 of the same shape.
    pub fn dequantize_to(&self, destination: &Tensor) -> Result<()> {
        // SAFETY: both handles are alive; shapes, types and overlap are checked there.
        self.place.enqueue(self.touches_host(&[destination]), || unsafe {
            sys::mp_tensor_dequantize(self.raw(), self.place.queue(), destination.raw())
        })
    }

    /// The scales (scale_inv) of a quantized tensor, by blocks. They share its memory.
    pub fn scales(&self) -> Result<Tensor<'a>> {
        // SAFETY: the handle is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_tensor_get_scales(self.raw(), out) })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// The largest |x| of what was quantized into it last. It shares its memory.
    pub fn quantized_amax(&self) -> Result<Tensor<'a>> {
        // SAFETY: the handle is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_tensor_get_quantized_amax(self.raw(), out) })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// How it is quantized; an error for a tensor without scales.
    pub fn quantization(&self) -> Result<Quantization> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_quant_desc::INIT, |raw| unsafe { sys::mp_tensor_get_quant_desc(self.raw(), raw) })?;
        Quantization::from_raw(&raw).ok_or_else(|| invalid("the tensor has an unknown scaling"))
    }
}
