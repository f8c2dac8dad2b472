// SPDX-License-Identifier: Apache-2.0
//! Element types: their numbers, and the Rust types that hold them.
use crate::error::static_text;
use crate::sys;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum DType {
    /// IEEE binary32.
    Fp32 = sys::MP_DTYPE_FP32,
    /// IEEE binary16.
    Fp16 = sys::MP_DTYPE_FP16,
    /// The upper half of an fp32.
    Bf16 = sys::MP_DTYPE_BF16,
    /// fp8 with 3 mantissa bits: at most 448, no infinity.
    Fp8E4M3 = sys::MP_DTYPE_FP8_E4M3,
    /// fp8 with 2 mantissa bits: at most 57344, has infinities.
    Fp8E5M2 = sys::MP_DTYPE_FP8_E5M2,
    /// A power of two as a byte, for scales.
    E8M0 = sys::MP_DTYPE_E8M0,
    /// 8-bit integers.
    Int8 = sys::MP_DTYPE_INT8,
    /// 16-bit integers.
    Int16 = sys::MP_DTYPE_INT16,
    /// 32-bit integers.
    Int32 = sys::MP_DTYPE_INT32,
    /// 64-bit integers.
    Int64 = sys::MP_DTYPE_INT64,
    /// Bytes.
    UInt8 = sys::MP_DTYPE_UINT8,
    /// fp4, two to a byte; in quantized tensors only.
    Fp4E2M1 = sys::MP_DTYPE_FP4_E2M1,
}

impl DType {
    const ALL: [DType; 12] = [
        DType::Fp32,
        DType::Fp16,
        DType::Bf16,
        DType::Fp8E4M3,
        DType::Fp8E5M2,
        DType::E8M0,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::UInt8,
        DType::Fp4E2M1,
    ];

    /// The type of this name ("bf16", "fp8_e4m3", ...).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// Its name in recipes and messages.
    pub fn name(self) -> &'static str {
        // SAFETY: any number is allowed; the text is static.
        unsafe { static_text(sys::mp_dtype_name(self as i32)) }
    }

    /// Bytes of one element; 0 where that is less than a byte.
    pub fn size(self) -> usize {
        // SAFETY: any number is allowed.
        unsafe { sys::mp_dtype_size(self as i32) }
    }

    pub(crate) fn from_raw(number: i32) -> Option<DType> {
        DType::ALL.iter().copied().find(|&dtype| dtype as i32 == number)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that arrays of the library can hold.
///
/// # Safety
/// The type has the size and alignment of `DTYPE`, no padding, and every bit pattern is a value.
pub unsafe trait Element: Copy + 'static {
    /// The element type that it is.
    const DTYPE: DType;
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident($code:ident) = $dtype:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub $code);

        // SAFETY: a transparent integer; all its values are codes.
        unsafe impl Element for $name {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

codes! {
    /// A bf16 number as its code. The crate `mixedprec-half` has slices of `half::bf16` as these.
    Bf16(u16) = Bf16,
    /// An fp16 number as its code. The crate `mixedprec-half` has slices of `half::f16` as these.
    F16(u16) = Fp16,
    /// An fp8 number with 3 mantissa bits as its code.
    Fp8E4M3(u8) = Fp8E4M3,
    /// An fp8 number with 2 mantissa bits as its code.
    Fp8E5M2(u8) = Fp8E5M2,
    /// The scale 2^(code - 127) as its code.
    E8M0(u8) = E8M0,
}

impl Bf16 {
    /// The number as fp32, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

macro_rules! elements {
    ($($type:ty = $dtype:ident),* $(,)?) => {$(
        // SAFETY: a number of that size; all its bit patterns are values.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! { f32 = Fp32, i8 = Int8, i16 = Int16, i32 = Int32, i64 = Int64, u8 = UInt8 }
