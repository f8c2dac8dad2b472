// SPDX-License-Identifier: Apache-2.0
//! References to the library's objects, given back when dropped.
use crate::error::{call, Result};
use crate::sys;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

/// Marks what keeps memory of lifetime `'a`: the memory outlives it strictly, and `'a` neither grows nor shrinks,
/// because other objects may keep the same one in turn.
pub(crate) struct Keeps<'a>(PhantomData<Cell<&'a mut ()>>);

impl Keeps<'_> {
    pub(crate) fn new() -> Self {
        Keeps(PhantomData)
    }
}

impl Drop for Keeps<'_> {
    fn drop(&mut self) {
        // Only to be here: so the compiler knows that the memory is still looked at.
    }
}

/// A kind of object, and how a reference to it is given back.
pub(crate) trait Object {
    /// # Safety
    /// `object` is a reference of the caller's, and is not used after this.
    unsafe fn destroy(object: *mut Self);
}

/// One reference. As a pointer it is neither `Send` nor `Sync`; who may be either says so where it holds one.
pub(crate) struct Handle<T: Object>(NonNull<T>);

impl<T: Object> Handle<T> {
    /// The object that `create` stores.
    pub(crate) fn new(create: impl FnOnce(*mut *mut T) -> sys::mp_status) -> Result<Handle<T>> {
        Ok(Handle::optional(create)?.expect("a success without an object"))
    }

    /// The same where a success may come without an object.
    pub(crate) fn optional(create: impl FnOnce(*mut *mut T) -> sys::mp_status) -> Result<Option<Handle<T>>> {
        let mut object = null_mut();
        call(|| create(&mut object))?;
        Ok(NonNull::new(object).map(Handle))
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Takes over a reference.
    pub(crate) fn from_raw(object: *mut T) -> Option<Handle<T>> {
        NonNull::new(object).map(Handle)
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and this is its end.
        unsafe { T::destroy(self.0.as_ptr()) }
    }
}

macro_rules! objects {
    ($($object:ident by $destroy:ident),* $(,)?) => {$(
        impl Object for sys::$object {
            unsafe fn destroy(object: *mut Self) {
                sys::$destroy(object)
            }
        }
    )*};
}

objects! {
    mp_context by mp_context_destroy,
    mp_queue by mp_queue_destroy,
    mp_event by mp_event_destroy,
    mp_model_file by mp_model_file_destroy,
    mp_tensor by mp_tensor_destroy,
    mp_recipe by mp_recipe_destroy,
    mp_gemm by mp_gemm_destroy,
    mp_linear by mp_linear_destroy,
    mp_saved by mp_saved_destroy,
    mp_scaler by mp_scaler_destroy,
    mp_step_plan by mp_step_plan_destroy,
    mp_optimizer by mp_optimizer_destroy,
    mp_checkpoint by mp_checkpoint_destroy,
    mp_comm by mp_comm_destroy,
    mp_comm_request by mp_comm_request_destroy,
}
