// SPDX-License-Identifier: Apache-2.0
//! Several forwards of a layer in flight, each with what its backward needs.
use crate::context::Place;
use crate::error::{call, number, stored, Result};
use crate::handle::{Handle, Keeps};
use crate::tensor::raw_or_null;
use crate::{sys, Gradients, Linear, Tensor};
use std::ops::Range;
use std::ptr::null_mut;

/// How a forward keeps what backward needs in a [`Saved`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// x, or a reference to it.
    #[default]
    Input,
    /// Only how x was scaled: [`Keep::Again`] must follow before backward.
    ScalesOnly,
    /// x is given once more, and is kept under the scale of the first time.
    Again,
}

/// What one forward of a layer keeps for its backward, where several wait side by side.
pub struct Saved<'a> {
    handle: Handle<sys::mp_saved>,
    place: Place,
    kept_x: Range<usize>,
    _memory: Keeps<'a>,
}

impl<'a> Saved<'a> {
    /// A place for one forward of this layer.
    pub fn new(linear: &Linear<'a>) -> Result<Saved<'a>> {
        // SAFETY: the handle is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_saved_create(linear.raw(), out) })?;
        Ok(Saved { handle, place: linear.place.clone(), kept_x: 0..0, _memory: Keeps::new() })
    }

    /// Has what is kept lie in this memory, aligned to 256 bytes; what is in such memory already moves there. For a
    /// context of the host alone.
    pub fn set_memory(&mut self, memory: &'a mut [u8]) -> Result<()> {
        self.place.context.expect_host()?;
        let (mut old, mut bytes) = (null_mut(), 0);
        // SAFETY: the old memory is still borrowed, the new one is another, and no more than either has is copied.
        unsafe {
            call(|| sys::mp_saved_get_memory(self.handle.get(), &mut old, &mut bytes))?;
            if !old.is_null() {
                std::ptr::copy_nonoverlapping(old as *const u8, memory.as_mut_ptr(), bytes.min(memory.len()));
            }
        }
        // SAFETY: the memory is as large as it is said to be, and borrowed as long as this lives.
        call(|| unsafe { sys::mp_saved_set_memory(self.handle.get(), memory.as_mut_ptr().cast(), memory.len()) })
    }

    /// The library's memory again; what is kept is dropped.
    pub fn clear_memory(&mut self) -> Result<()> {
        // SAFETY: NULL stands for the library's memory.
        call(|| unsafe { sys::mp_saved_set_memory(self.handle.get(), null_mut(), 0) })
    }
}

impl<'a> Linear<'a> {
    /// A forward that keeps what backward needs in `saved`, one of this layer's; `None`: nothing is kept. x may be
    /// codes. y may be missing under [`Keep::Again`].
    pub fn forward_saved(
        &mut self,
        x: &Tensor<'a>,
        y: Option<&Tensor>,
        saved: Option<&mut Saved<'a>>,
        keep: Keep,
    ) -> Result<()> {
        let flags = match keep {
            Keep::Input => 0,
            Keep::ScalesOnly => sys::MP_FORWARD_DROP,
            Keep::Again => sys::MP_FORWARD_RECOMPUTE,
        };
        let kept_x = self.kept(x);
        let raw = saved.as_ref().map_or(null_mut(), |saved| saved.handle.get());
        // SAFETY: as in `forward`; the memory under x lives as long as `saved`, too.
        self.enqueue(|queue| unsafe {
            sys::mp_linear_forward_saved(self.raw(), queue, x.raw(), raw_or_null(y), raw, flags)
        })?;
        if let Some(saved) = saved {
            saved.kept_x = kept_x;
        }
        Ok(())
    }

    /// The gradients of that forward. It stays in `saved`: a second backward may follow. `saved` is `None` where dw
    /// is.
    pub fn backward_saved(&mut self, saved: Option<&Saved<'a>>, dy: &Tensor, gradients: &Gradients) -> Result<()> {
        let Gradients { dx, dw, dbias, .. } = *gradients;
        gradients.expect_apart(saved.map_or(&(0..0), |saved| &saved.kept_x))?;
        let saved = saved.map_or(null_mut(), |saved| saved.handle.get());
        // SAFETY: all handles are alive; shapes, types and overlap are checked there.
        self.enqueue(|queue| unsafe {
            let (dx, dw, dbias) = (raw_or_null(dx), raw_or_null(dw), raw_or_null(dbias));
            sys::mp_linear_backward_saved(self.raw(), queue, saved, dy.raw(), dx, dw, dbias, gradients.flags())
        })
    }

    /// Bytes that [`Saved::set_memory`] needs for a forward of so many rows.
    pub fn saved_bytes(&self, rows: usize) -> Result<usize> {
        let rows = number(rows, "the rows")?;
        // SAFETY: the handle is alive.
        stored(0, |bytes| unsafe { sys::mp_linear_get_saved_bytes(self.raw(), rows, bytes) })
    }
}
