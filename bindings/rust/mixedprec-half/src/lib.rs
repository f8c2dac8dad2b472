// SPDX-License-Identifier: Apache-2.0
//! Slices of the crate `half` as elements of `mixedprec`, without a copy.
//!
//! A crate of its own, because `mixedprec` has no dependencies. In a build it is one line:
//! ```no_run
//! # fn main() -> mixedprec::Result<()> {
//! # let context = mixedprec::Context::new()?;
//! use half::bf16;
//! let mut weights = vec![bf16::from_f32(1.0); 8];
//! let tensor = mixedprec::Tensor::wrap(&context, mixedprec_half::bf16_mut(&mut weights), &[8])?;
//! # drop(tensor);
//! # Ok(()) }
//! ```
#![warn(missing_docs)]
use mixedprec::{Bf16, F16};

macro_rules! views {
    ($($half:ident as $code:ident: $shared:ident, $unique:ident;)*) => {$(
        /// The same numbers, as elements of the library.
        pub fn $shared(numbers: &[half::$half]) -> &[$code] {
            // SAFETY: both types are one u16, transparently, and every bit pattern is a value of both.
            unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
        }

        /// The same numbers, as elements of the library that may change.
        pub fn $unique(numbers: &mut [half::$half]) -> &mut [$code] {
            // SAFETY: as above; the slice is borrowed uniquely.
            unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
        }
    )*};
}

views! {
    bf16 as Bf16: bf16, bf16_mut;
    f16 as F16: f16, f16_mut;
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use mixedprec::{cast_slice, Cast, Context, DType, Tensor};

    #[test]
    fn numbers_are_the_same() {
        let context = Context::new().unwrap();
        let source = [1.5f32, -0.3, 1e-6];
        let mut numbers = [bf16::ZERO; 3];
        cast_slice(&context, &source, super::bf16_mut(&mut numbers), &Cast::default()).unwrap();
        assert_eq!(numbers, source.map(bf16::from_f32));
        let mut halves = source.map(f16::from_f32);
        let mut back = [0.0f32; 3];
        cast_slice(&context, super::f16(&halves), &mut back, &Cast::default()).unwrap();
        assert_eq!(back, halves.map(f16::to_f32));
        let tensor = Tensor::wrap(&context, super::f16_mut(&mut halves), &[3]).unwrap();
        assert_eq!(tensor.dtype(), DType::Fp16);
        tensor.zero().unwrap();
        drop(tensor);
        assert_eq!(halves, [f16::ZERO; 3]);
        assert_eq!(super::bf16(&numbers)[0].to_f32(), 1.5);
    }
}
