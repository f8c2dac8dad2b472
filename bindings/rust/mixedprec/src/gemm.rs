// SPDX-License-Identifier: Apache-2.0
//! Planned matrix products: D = epilogue(alpha * op(A) * op(B) + beta * C + bias).
use crate::context::Place;
use crate::error::{bad_shape, number, text, Result};
use crate::handle::Handle;
use crate::tensor::raw_or_null;
use crate::{c_string, sys, Context, DType, Quantization, Queue, Tensor};
use std::ptr::null;

/// Scales of a product's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockScales {
    /// fp32 or e8m0.
    pub dtype: DType,
    /// Rows of a block of the operand as stored; 0: all.
    pub rows: i32,
    /// Columns of it; 0: all.
    pub columns: i32,
}

/// A product D = epilogue(alpha * op(A) * op(B) + beta * C + bias): op(A) is m x k, op(B) k x n. All else has
/// defaults:
/// ```
/// # fn main() -> mixedprec::Result<()> {
/// use mixedprec::{Context, Gemm, GemmOptions, GemmOperands, Tensor, DType};
/// let context = Context::new()?;
/// let a = Tensor::from_slice(&context, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let d = Tensor::zeros(&context, DType::Fp32, &[2, 2])?;
/// let options = GemmOptions { trans_b: true, ..GemmOptions::new(2, 2, 2, DType::Fp32) };
/// Gemm::new(&context, &options)?.run(&GemmOperands::new(&a, &a, &d))?;
/// assert_eq!(d.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct GemmOptions {
    /// Rows of D.
    pub m: usize,
    /// Columns of D.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// A is stored k x m.
    pub trans_a: bool,
    /// B is stored n x k.
    pub trans_b: bool,
    /// Adds a vector of n elements to every row.
    pub bias: bool,
    /// GELU (its tanh form) after the bias.
    pub gelu: bool,
    /// All scales are powers of two.
    pub power_of_two_scales: bool,
    /// fp8 operands: a device may sum with fewer bits than fp32 has.
    pub fast_accumulation: bool,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C; 0: C is not read.
    pub beta: f64,
    /// Type of A.
    pub dtype_a: DType,
    /// Type of B: that of A, or the other fp8.
    pub dtype_b: DType,
    /// Type of D, and of C.
    pub dtype_d: DType,
    /// Type of the bias.
    pub dtype_bias: DType,
    /// Elements from row to row of A, B, C and D as stored; 0: dense.
    pub leading: [usize; 4],
    /// How many products at once; 0: one.
    pub batch_count: usize,
    /// Elements from matrix to matrix of A, B, C and D; 0: dense.
    pub batch_strides: [usize; 4],
    /// Scales of A.
    pub scale_a: Option<BlockScales>,
    /// Scales of B.
    pub scale_b: Option<BlockScales>,
    /// What a quantized D was made with: the product becomes its codes and scales.
    pub quant_d: Option<Quantization>,
    /// This implementation and no other; [`Context::describe`] lists them.
    pub implementation: Option<String>,
}

impl GemmOptions {
    /// A plain product of operands of one type into fp32.
    pub fn new(m: usize, n: usize, k: usize, dtype: DType) -> GemmOptions {
        GemmOptions {
            m,
            n,
            k,
            trans_a: false,
            trans_b: false,
            bias: false,
            gelu: false,
            power_of_two_scales: false,
            fast_accumulation: false,
            alpha: 1.0,
            beta: 0.0,
            dtype_a: dtype,
            dtype_b: dtype,
            dtype_d: DType::Fp32,
            dtype_bias: DType::Fp32,
            leading: [0; 4],
            batch_count: 0,
            batch_strides: [0; 4],
            scale_a: None,
            scale_b: None,
            quant_d: None,
            implementation: None,
        }
    }
}

/// What one run works on. Overlap of what is written with anything else is an error.
pub struct GemmOperands<'t> {
    /// Read.
    pub a: &'t Tensor<'t>,
    /// Read.
    pub b: &'t Tensor<'t>,
    /// Written.
    pub d: &'t Tensor<'t>,
    /// With [`GemmOptions::bias`].
    pub bias: Option<&'t Tensor<'t>>,
    /// Where beta is not 0; may be d itself.
    pub c: Option<&'t Tensor<'t>>,
    /// Scales of A; `None`: those of a quantized A.
    pub scale_a: Option<&'t Tensor<'t>>,
    /// Scales of B; `None`: those of a quantized B.
    pub scale_b: Option<&'t Tensor<'t>>,
    /// fp8 D: what it is multiplied by; one fp32 element.
    pub multiply_d: Option<&'t Tensor<'t>>,
    /// fp8 D: becomes the maximum of itself and of |d|; one fp32 element.
    pub amax_d: Option<&'t Tensor<'t>>,
}

impl<'t> GemmOperands<'t> {
    /// D from A and B.
    pub fn new(a: &'t Tensor<'t>, b: &'t Tensor<'t>, d: &'t Tensor<'t>) -> GemmOperands<'t> {
        GemmOperands { a, b, d, bias: None, c: None, scale_a: None, scale_b: None, multiply_d: None, amax_d: None }
    }
}

/// A product that is planned once and run many times.
pub struct Gemm {
    handle: Handle<sys::mp_gemm>,
    place: Place,
}

impl Gemm {
    /// Checks the shapes, chooses the implementation, prepares it.
    pub fn new(context: &Context, options: &GemmOptions) -> Result<Gemm> {
        let with = |condition, flag| if condition { flag } else { 0 };
        let size = |value| number(value, "a size");
        for (name, size) in [("m", options.m), ("n", options.n), ("k", options.k)] {
            // Implementations under the library count in 32 bits, and not all of them check it.
            if size > i32::MAX as usize {
                return Err(bad_shape(format!("{name} is {size}; it must be below 2^31")));
            }
        }
        let implementation = options.implementation.as_deref().map(c_string).transpose()?;
        let scale = |scale: Option<BlockScales>| scale.map_or((0, 0, 0), |s| (s.dtype as i32, s.rows, s.columns));
        let (scale_a, scale_b) = (scale(options.scale_a), scale(options.scale_b));
        let quant_d = options.quant_d.map(|quant| quant.raw());
        let desc = sys::mp_gemm_desc {
            flags: with(options.trans_a, sys::MP_GEMM_TRANS_A)
                | with(options.trans_b, sys::MP_GEMM_TRANS_B)
                | with(options.bias, sys::MP_GEMM_BIAS)
                | with(options.gelu, sys::MP_GEMM_GELU)
                | with(options.power_of_two_scales, sys::MP_GEMM_POWER_OF_TWO_SCALES)
                | with(options.fast_accumulation, sys::MP_GEMM_FAST_ACCUMULATION)
                | sys::MP_GEMM_HAS_ALPHA,
            m: size(options.m)?,
            n: size(options.n)?,
            k: size(options.k)?,
            lda: size(options.leading[0])?,
            ldb: size(options.leading[1])?,
            ldc: size(options.leading[2])?,
            ldd: size(options.leading[3])?,
            batch_count: size(options.batch_count)?,
            batch_stride_a: size(options.batch_strides[0])?,
            batch_stride_b: size(options.batch_strides[1])?,
            batch_stride_c: size(options.batch_strides[2])?,
            batch_stride_d: size(options.batch_strides[3])?,
            alpha: options.alpha,
            beta: options.beta,
            dtype_a: options.dtype_a as i32,
            dtype_b: options.dtype_b as i32,
            dtype_d: options.dtype_d as i32,
            dtype_bias: options.dtype_bias as i32,
            scale_a_dtype: scale_a.0,
            scale_a_rows: scale_a.1,
            scale_a_columns: scale_a.2,
            scale_b_dtype: scale_b.0,
            scale_b_rows: scale_b.1,
            scale_b_columns: scale_b.2,
            implementation: implementation.as_ref().map_or(null(), |name| name.as_ptr()),
            quant_d: quant_d.as_ref().map_or(null(), |quant| quant),
            ..sys::mp_gemm_desc::INIT
        };
        // SAFETY: context, descriptor and name are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_gemm_create(context.raw(), &desc, out) })?;
        Ok(Gemm { handle, place: Place::new(context) })
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    /// Computes the product.
    pub fn run(&mut self, operands: &GemmOperands) -> Result<()> {
        let args = sys::mp_gemm_args {
            a: operands.a.raw(),
            b: operands.b.raw(),
            bias: raw_or_null(operands.bias),
            c: raw_or_null(operands.c),
            d: operands.d.raw(),
            scale_a: raw_or_null(operands.scale_a),
            scale_b: raw_or_null(operands.scale_b),
            multiply_d: raw_or_null(operands.multiply_d),
            amax_d: raw_or_null(operands.amax_d),
            ..sys::mp_gemm_args::INIT
        };
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.place.enqueue(operands.d.touches_host(&[operands.a, operands.b]), || unsafe {
            sys::mp_gemm_run_scaled(self.handle.get(), self.place.queue(), &args)
        })
    }

    /// The implementation that was chosen, and why the others were not.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_gemm_describe(self.handle.get(), buffer, capacity, needed) })
    }
}
