// SPDX-License-Identifier: Apache-2.0
//! Exchange of tensors with other libraries by DLPack 1.x.
use crate::context::Place;
use crate::error::{call, Result};
use crate::handle::Handle;
use crate::{sys, Context, Tensor};
use std::ptr::null_mut;

/// DLPack's struct, which this crate only passes on: another crate declares what is in it.
pub type DlManagedTensor = sys::DLManagedTensorVersioned;

impl<'a> Tensor<'a> {
    /// Takes over a DLPack tensor without a copy. Its deleter runs when the tensor ends, or at once on failure.
    ///
    /// # Safety
    /// `managed` is a DLPack 1.x tensor of the caller's. Until its deleter runs, which is within `'a`, nobody else
    /// touches its memory while this thread works on the tensor or reads its cells.
    pub unsafe fn from_dlpack(context: &Context, managed: *mut DlManagedTensor) -> Result<Tensor<'a>> {
        let handle = Handle::new(|out| sys::mp_dlpack_import(context.raw(), managed, out))?;
        Tensor::from_handle(Place::new(context), handle)
    }
}

impl Tensor<'static> {
    /// Lends it as DLPack 1.1 without a copy. Whoever gets the pointer calls its deleter once; the memory lives until
    /// then. Work of others is to be ordered behind the queue's. The callbacks of a context that has some are kept
    /// for good.
    pub fn to_dlpack(&self) -> Result<*mut DlManagedTensor> {
        let mut managed = null_mut();
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_dlpack_export(self.raw(), &mut managed) })?;
        self.context().keep_callbacks();
        Ok(managed)
    }
}
