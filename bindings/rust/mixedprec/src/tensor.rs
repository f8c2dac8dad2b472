// SPDX-License-Identifier: Apache-2.0
//! Tensors over the caller's memory.
use crate::{check, size_of_u32, sys, Context, Error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// A type that arrays of the library can hold.
///
/// # Safety
/// The type has the size and alignment of `DTYPE`, and every bit pattern is a value.
pub unsafe trait Element: Copy {
    /// One of the `MP_DTYPE_*` numbers.
    const DTYPE: i32;
}

/// A bf16 number as its code: the upper half of an fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

// SAFETY: IEEE binary32.
unsafe impl Element for f32 {
    const DTYPE: i32 = sys::MP_DTYPE_FP32;
}
// SAFETY: 16 bits, all of them codes.
unsafe impl Element for Bf16 {
    const DTYPE: i32 = sys::MP_DTYPE_BF16;
}

/// A tensor over memory that lives at least as long as `'a`.
pub struct Tensor<'a> {
    pub(crate) handle: *mut sys::mp_tensor,
    pub(crate) memory: PhantomData<&'a [Cell<u8>]>,
}

impl<'a> Tensor<'a> {
    /// A one-dimensional tensor over the caller's memory. Cells, because the library writes there while the caller
    /// still may: `Cell::from_mut(slice).as_slice_of_cells()` makes them from a slice.
    ///
    /// The memory must outlive the tensor and every optimizer that was given it:
    /// ```compile_fail
    /// # use mixedprec::*;
    /// # use std::cell::Cell;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::host(1)?;
    /// let mut optimizer = Optimizer::new(&context, &Recipe::preset(&context, "fp32")?)?;
    /// let group = optimizer.add_group(&Hyperparameters::default())?;
    /// {
    ///     let weights = [Cell::new(1.0f32)]; // without these braces it compiles
    ///     let tensor = Tensor::wrap(&context, &weights)?;
    ///     optimizer.add_param(&group, "p", &tensor, &tensor, None)?;
    /// }
    /// # drop(optimizer);
    /// # Ok(()) }
    /// ```
    pub fn wrap<T: Element>(context: &Context, data: &'a [Cell<T>]) -> Result<Tensor<'a>, Error> {
        let mut desc = empty_desc();
        desc.dtype = T::DTYPE;
        desc.ndim = 1;
        desc.shape[0] = data.len() as i64;
        desc.device_kind = sys::MP_DEVICE_HOST;
        let mut handle = null_mut();
        // SAFETY: the memory is as large and as aligned as the descriptor says, and outlives the tensor and, by the
        // lifetime of `Optimizer`, all that uses it.
        check(unsafe {
            sys::mp_tensor_wrap(
                context.handle,
                &desc,
                data.as_ptr() as *mut _,
                None,
                null_mut(),
                &mut handle,
            )
        })?;
        Ok(Tensor {
            handle,
            memory: PhantomData,
        })
    }

    /// Copies the elements out, when all work on them is done.
    pub fn read<T: Element>(&self, out: &mut [T]) -> Result<(), Error> {
        let mut desc = empty_desc();
        // SAFETY: both pointers are good for the call.
        check(unsafe { sys::mp_tensor_get_desc(self.handle, &mut desc) })?;
        if desc.dtype != T::DTYPE {
            let message = format!(
                "the tensor has dtype {}, the slice {}",
                desc.dtype,
                T::DTYPE
            );
            return Err(Error::new(sys::MP_STATUS_INVALID_DTYPE, message));
        }
        let bytes = std::mem::size_of_val(out);
        // SAFETY: the library refuses a size that is not the tensor's.
        check(unsafe {
            sys::mp_tensor_read(self.handle, null_mut(), out.as_mut_ptr().cast(), bytes)
        })?;
        Ok(())
    }
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: our reference, given back once.
        unsafe { sys::mp_tensor_destroy(self.handle) }
    }
}

fn empty_desc() -> sys::mp_tensor_desc {
    sys::mp_tensor_desc {
        struct_size: size_of_u32::<sys::mp_tensor_desc>(),
        flags: 0,
        dtype: sys::MP_DTYPE_NONE,
        ndim: 0,
        shape: [0; sys::MP_MAX_DIMS],
        device_kind: 0,
        device_index: 0,
    }
}
