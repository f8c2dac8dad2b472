// SPDX-License-Identifier: Apache-2.0
//! Queues and events: orders of work on a device.
use crate::error::{call, call_status, stored, Result};
use crate::handle::Handle;
use crate::{sys, Context, DType, Tensor};
use std::cell::RefCell;
use std::ptr::null_mut;
use std::rc::Rc;

struct Inner {
    handle: Handle<sys::mp_queue>,
    workspace: RefCell<Option<Tensor<'static>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.workspace.get_mut().is_some() {
            // SAFETY: the handle is alive. What went wrong in the work, whoever asked for it learns.
            unsafe { sys::mp_queue_sync(self.handle.get()) };
        }
    }
}

/// An in-order stream of work on the context's device. A clone is the same queue. Objects work on the context's
/// default queue until they are told another by their `set_queue`. Work that shares memory across queues is ordered
/// by events.
#[derive(Clone)]
pub struct Queue {
    context: Context,
    inner: Rc<Inner>,
}

impl Queue {
    /// Makes a queue.
    pub fn new(context: &Context) -> Result<Queue> {
        // SAFETY: the context is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_queue_create(context.raw(), out) })?;
        Ok(Queue::from_handle(context, handle))
    }

    /// Makes a queue over the program's own stream.
    ///
    /// # Safety
    /// `native` points at a `cudaStream_t` or `hipStream_t` of the context's device, which outlives the queue and all
    /// that uses it.
    pub unsafe fn from_native(context: &Context, native: *const std::ffi::c_void) -> Result<Queue> {
        let handle = Handle::new(|out| sys::mp_queue_wrap_native(context.raw(), native, out))?;
        Ok(Queue::from_handle(context, handle))
    }

    fn from_handle(context: &Context, handle: Handle<sys::mp_queue>) -> Queue {
        Queue { context: context.clone(), inner: Rc::new(Inner { handle, workspace: RefCell::new(None) }) }
    }

    /// Waits until all its work is done, and reports what went wrong in it.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_queue_sync(self.raw()) })
    }

    /// What is put on this queue from now on begins after the event.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are alive.
        call(|| unsafe { sys::mp_queue_wait_event(self.raw(), event.handle.get()) })
    }

    /// The most scratch memory that its work has held at once, in bytes: what [`Queue::reserve_workspace`] needs.
    pub fn workspace_peak(&self) -> Result<usize> {
        // SAFETY: the handle is alive.
        stored(0, |bytes| unsafe { sys::mp_queue_get_workspace_peak(self.raw(), bytes) })
    }

    /// Takes so many bytes for scratch memory once, instead of when it is needed; work that needs more fails. 0: as
    /// needed again.
    pub fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        const ALIGNMENT: usize = 256;
        let (workspace, memory) = match bytes {
            0 => (None, null_mut()),
            _ => {
                let tensor = Tensor::zeros(&self.context, DType::UInt8, &[bytes.saturating_add(ALIGNMENT - 1)])?;
                let data = tensor.data()?;
                let gap = (ALIGNMENT - data as usize % ALIGNMENT) % ALIGNMENT;
                (Some(tensor), (data as *mut u8).wrapping_add(gap))
            }
        };
        // SAFETY: the memory is as large as it is said to be, and lives until another takes its place or the queue
        // ends.
        call(|| unsafe { sys::mp_queue_set_workspace(self.raw(), memory.cast(), bytes) })?;
        self.inner.workspace.replace(workspace);
        Ok(())
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this queue's.
    pub fn raw(&self) -> *mut sys::mp_queue {
        self.inner.handle.get()
    }
}

/// A point in a queue's work, for ordering queues without waiting for them.
pub struct Event {
    handle: Handle<sys::mp_event>,
    _context: Context,
}

// SAFETY: class B, and it shares no memory with another object.
unsafe impl Send for Event {}

impl Event {
    /// Makes an event, which is reached until it is recorded.
    pub fn new(context: &Context) -> Result<Event> {
        // SAFETY: the context is alive.
        let handle = Handle::new(|out| unsafe { sys::mp_event_create(context.raw(), out) })?;
        Ok(Event { handle, _context: context.clone() })
    }

    /// The event is now after the queue's work so far; `None`: the default queue's.
    pub fn record(&mut self, queue: Option<&Queue>) -> Result<()> {
        let queue = queue.map_or(null_mut(), Queue::raw);
        // SAFETY: both handles are alive.
        call(|| unsafe { sys::mp_event_record(self.handle.get(), queue) })
    }

    /// Whether it has been reached.
    pub fn is_reached(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        let status = call_status(|| unsafe { sys::mp_event_test(self.handle.get()) })?;
        Ok(status != sys::MP_STATUS_NOT_READY)
    }

    /// Waits until it has been reached, and reports what went wrong before it.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_event_sync(self.handle.get()) })
    }
}
