// SPDX-License-Identifier: Apache-2.0
//! Communicators: ranks that exchange bytes.
use crate::error::{call, number, stored, text, Result};
use crate::handle::Handle;
use crate::transport::{self, Transport};
use crate::{c_string, sys, Context};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How a communicator is made. The default: a deadline of 300 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommOptions {
    /// Of every wait; `None`: 300 seconds.
    pub deadline: Option<Duration>,
    /// Threads only: pretend that every so many ranks share a machine; 0: all do.
    pub ranks_per_node: i32,
}

impl CommOptions {
    fn raw(&self) -> Result<sys::mp_comm_desc> {
        Ok(sys::mp_comm_desc {
            deadline_ms: self.deadline.map_or(Ok(0), milliseconds)?,
            ranks_per_node: self.ranks_per_node,
            ..sys::mp_comm_desc::INIT
        })
    }
}

fn milliseconds(time: Duration) -> Result<i64> {
    number(time.as_millis().max(1), "the deadline")
}

/// What a rank has sent, in bytes of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Operations begun.
    pub calls: i64,
    /// All of them together.
    pub total_bytes: i64,
    /// Of all-to-all.
    pub all_to_all_bytes: i64,
    /// Of all-gathers.
    pub all_gather_bytes: i64,
    /// Of broadcasts.
    pub broadcast_bytes: i64,
    /// Of maxima.
    pub max_u32_bytes: i64,
    /// Of sums.
    pub sum_f32_bytes: i64,
}

impl Traffic {
    pub(crate) fn from_raw(raw: &sys::mp_comm_traffic) -> Traffic {
        Traffic {
            calls: raw.calls,
            total_bytes: raw.total_bytes,
            all_to_all_bytes: raw.all_to_all_bytes,
            all_gather_bytes: raw.all_gather_bytes,
            broadcast_bytes: raw.broadcast_bytes,
            max_u32_bytes: raw.max_u32_bytes,
            sum_f32_bytes: raw.sum_f32_bytes,
        }
    }
}

struct Inner {
    handle: Handle<sys::mp_comm>,
    /// Of a communicator over NCCL, whose device it is on.
    _context: Option<Context>,
}

// SAFETY: one thread at a time uses the handle, which `Comm` sees to by not being Sync; of others only mp_comm_abort
// and mp_comm_destroy are called, which are of class A.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

/// A rank of a communicator. Every rank makes the same calls in the same order. A rank that dies, stops or asks for
/// something else gives every other rank an error within the deadline, and ends the communicator.
///
/// It moves between threads, but is used by one at a time:
/// ```compile_fail,E0277
/// # fn main() -> mixedprec::Result<()> {
/// let comm = mixedprec::Comm::own(&Default::default())?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| comm.barrier());
/// });
/// # Ok(()) }
/// ```
pub struct Comm {
    inner: Arc<Inner>,
    /// Send, not Sync.
    _one_thread: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// Ends a communicator from any thread, also while another one waits in it.
#[derive(Clone)]
pub struct Aborter {
    inner: Weak<Inner>,
}

impl Aborter {
    /// Calls that wait in it fail, and other ranks are told where the transport can. Does nothing once the
    /// communicator is gone.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_string(reason)?;
        match self.inner.upgrade() {
            // SAFETY: the handle is alive; any thread may.
            Some(inner) => call(|| unsafe { sys::mp_comm_abort(inner.handle.get(), reason.as_ptr()) }),
            None => Ok(()),
        }
    }
}

/// Bytes that all ranks of NCCL share to find each other.
pub type UniqueId = [u8; sys::MP_COMM_UNIQUE_ID_BYTES as usize];

impl Comm {
    fn from_handle(handle: Handle<sys::mp_comm>, context: Option<&Context>) -> Comm {
        let inner = Arc::new(Inner { handle, _context: context.cloned() });
        Comm { inner, _one_thread: std::marker::PhantomData }
    }

    /// The communicator of one rank alone.
    pub fn own(options: &CommOptions) -> Result<Comm> {
        let desc = options.raw()?;
        // SAFETY: the descriptor is good for the call.
        Ok(Comm::from_handle(Handle::new(|out| unsafe { sys::mp_comm_create_self(&desc, out) })?, None))
    }

    /// Ranks that are threads of this process: one communicator for each.
    pub fn threads(options: &CommOptions, count: usize) -> Result<Vec<Comm>> {
        let desc = options.raw()?;
        let number_of_ranks = number(count, "the number of ranks")?;
        let mut out = vec![null_mut(); count.max(1)];
        // SAFETY: there is room for so many handles.
        call(|| unsafe { sys::mp_comm_create_threads(&desc, number_of_ranks, out.as_mut_ptr()) })?;
        Ok(out.into_iter().filter_map(Handle::from_raw).map(|handle| Comm::from_handle(handle, None)).collect())
    }

    /// All ranks of MPI (MPI_COMM_WORLD), by the library's module for it. MPI is initialized where it is not.
    /// Collective.
    pub fn mpi(options: &CommOptions) -> Result<Comm> {
        // SAFETY: NULL stands for the world.
        unsafe { Comm::from_mpi(options, null()) }
    }

    /// Over a duplicate of an MPI communicator. Collective.
    ///
    /// # Safety
    /// `native` points at an `MPI_Comm` of the MPI that the library's module was built for.
    pub unsafe fn from_mpi(options: &CommOptions, native: *const c_void) -> Result<Comm> {
        let desc = options.raw()?;
        Ok(Comm::from_handle(Handle::new(|out| sys::mp_comm_create_mpi(&desc, native, out))?, None))
    }

    /// What the ranks of a new communicator over NCCL find each other by: one rank calls it and hands it to the
    /// others.
    pub fn nccl_unique_id() -> Result<UniqueId> {
        let mut id = [0; sys::MP_COMM_UNIQUE_ID_BYTES as usize];
        // SAFETY: there is room for so many bytes.
        call(|| unsafe { sys::mp_comm_get_nccl_unique_id(id.as_mut_ptr().cast(), id.len()) })?;
        Ok(id)
    }

    /// Over NCCL on the context's GPU. Collective.
    pub fn nccl(context: &Context, options: &CommOptions, id: &UniqueId, rank: i32, size: i32) -> Result<Comm> {
        let desc = options.raw()?;
        // SAFETY: context, descriptor and bytes are good for the call.
        let handle = Handle::new(|out| unsafe {
            sys::mp_comm_create_nccl(context.raw(), &desc, id.as_ptr().cast(), rank, size, out)
        })?;
        Ok(Comm::from_handle(handle, Some(context)))
    }

    /// Over a communicator of NCCL's that stays the program's. Collective.
    ///
    /// # Safety
    /// `native` points at an `ncclComm_t` on the context's GPU, made with blocking = 0, that outlives this one.
    pub unsafe fn from_nccl(context: &Context, options: &CommOptions, native: *const c_void) -> Result<Comm> {
        let desc = options.raw()?;
        let handle = Handle::new(|out| sys::mp_comm_wrap_nccl(context.raw(), &desc, native, out))?;
        Ok(Comm::from_handle(handle, Some(context)))
    }

    /// Over a transport of the program's.
    pub fn from_transport(options: &CommOptions, transport: Box<dyn Transport>) -> Result<Comm> {
        let desc = options.raw()?;
        let table = transport::table(transport)?;
        // SAFETY: the table is copied, and its payload lives until its `destroy` is called.
        let handle = Handle::new(|out| unsafe { sys::mp_comm_create_callbacks(&desc, table.raw(), out) })?;
        table.keep();
        Ok(Comm::from_handle(handle, None))
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> Result<usize> {
        // SAFETY: the handle is alive.
        let rank = stored(0, |rank| unsafe { sys::mp_comm_get_rank(self.raw(), rank) })?;
        number(rank, "the rank")
    }

    /// How many ranks there are.
    pub fn size(&self) -> Result<usize> {
        // SAFETY: the handle is alive.
        let size = stored(0, |size| unsafe { sys::mp_comm_get_size(self.raw(), size) })?;
        number(size, "the number of ranks")
    }

    /// Which machine a rank is on: equal numbers share one.
    pub fn node(&self, rank: usize) -> Result<usize> {
        let rank = number(rank, "the rank")?;
        // SAFETY: the handle is alive.
        let node = stored(0, |node| unsafe { sys::mp_comm_get_node(self.raw(), rank, node) })?;
        number(node, "the machine")
    }

    /// Ends this communicator from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter { inner: Arc::downgrade(&self.inner) }
    }

    /// Communicators of the ranks of one color each, ordered by `key`. `None`: this rank is in none.
    pub fn split(&self, color: Option<u16>, key: i32) -> Result<Option<Comm>> {
        let color = color.map_or(-1, i32::from);
        // SAFETY: the handle is alive.
        let handle = Handle::optional(|out| unsafe { sys::mp_comm_split(self.raw(), color, key, out) })?;
        Ok(handle.map(|handle| Comm::from_handle(handle, self.inner._context.as_ref())))
    }

    /// The deadline of calls.
    pub fn deadline(&self) -> Result<Duration> {
        // SAFETY: the handle is alive.
        let deadline = stored(0, |deadline| unsafe { sys::mp_comm_get_deadline(self.raw(), deadline) })?;
        Ok(Duration::from_millis(number(deadline, "the deadline")?))
    }

    /// The deadline of calls from now on.
    pub fn set_deadline(&self, deadline: Duration) -> Result<()> {
        let deadline = milliseconds(deadline)?;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_set_deadline(self.raw(), deadline) })
    }

    /// Whether it still works: else the failure that ended it.
    pub fn status(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_get_status(self.raw()) })
    }

    /// What this rank has sent so far.
    pub fn traffic(&self) -> Result<Traffic> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_comm_traffic::INIT, |raw| unsafe { sys::mp_comm_get_traffic(self.raw(), raw) })?;
        Ok(Traffic::from_raw(&raw))
    }

    /// One line: rank, transport, deadline, operations and bytes so far, what ended it.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_comm_describe(self.raw(), buffer, capacity, needed) })
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this communicator's.
    pub fn raw(&self) -> *mut sys::mp_comm {
        self.inner.handle.get()
    }
}
