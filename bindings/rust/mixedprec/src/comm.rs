// SPDX-License-Identifier: Apache-2.0
//! Communicators: ranks that exchange bytes.
use crate::error::{bad_shape, call, call_status, invalid, number, text, Result};
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
        let mut rank = 0;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_get_rank(self.raw(), &mut rank) })?;
        number(rank, "the rank")
    }

    /// How many ranks there are.
    pub fn size(&self) -> Result<usize> {
        let mut size = 0;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_get_size(self.raw(), &mut size) })?;
        number(size, "the number of ranks")
    }

    /// Which machine a rank is on: equal numbers share one.
    pub fn node(&self, rank: usize) -> Result<usize> {
        let rank = number(rank, "the rank")?;
        let mut node = 0;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_get_node(self.raw(), rank, &mut node) })?;
        number(node, "the machine")
    }

    /// Ends this communicator from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter { inner: Arc::downgrade(&self.inner) }
    }

    /// Every rank gives every rank its own bytes: `send` has a part for each, and `receive_bytes` says how many come
    /// from each.
    pub fn all_to_all(&self, send: &[&[u8]], receive_bytes: &[usize]) -> Result<Vec<Vec<u8>>> {
        self.begin_all_to_all(send, receive_bytes)?.wait()
    }

    /// The same without waiting; the request has the bytes.
    pub fn begin_all_to_all(&self, send: &[&[u8]], receive_bytes: &[usize]) -> Result<Request<'_, Vec<Vec<u8>>>> {
        self.expect_parts("send", send.len())?;
        self.expect_parts("receive_bytes", receive_bytes.len())?;
        let parts: Vec<usize> = send.iter().map(|part| part.len()).collect();
        self.begin(Exchange::new(send.concat(), parts, receive_bytes.to_vec()), sys::mp_comm_all_to_all)
    }

    /// Every rank gets every rank's bytes; `receive_bytes` says how many each has.
    pub fn all_gather(&self, send: &[u8], receive_bytes: &[usize]) -> Result<Vec<Vec<u8>>> {
        self.begin_all_gather(send, receive_bytes)?.wait()
    }

    /// The same without waiting; the request has the bytes.
    pub fn begin_all_gather(&self, send: &[u8], receive_bytes: &[usize]) -> Result<Request<'_, Vec<Vec<u8>>>> {
        self.expect_parts("receive_bytes", receive_bytes.len())?;
        let exchange = Exchange::new(send.to_vec(), vec![send.len()], receive_bytes.to_vec());
        self.begin(exchange, sys::mp_comm_all_gather)
    }

    fn expect_parts(&self, name: &str, parts: usize) -> Result<()> {
        let size = self.size()?;
        if parts == size {
            return Ok(());
        }
        Err(bad_shape(format!("{name} has {parts} parts, and there are {size} ranks")))
    }

    fn begin(
        &self,
        mut exchange: Box<Exchange>,
        operation: unsafe extern "C" fn(
            *mut sys::mp_comm,
            *mut sys::mp_queue,
            *const sys::mp_comm_exchange,
            *mut *mut sys::mp_comm_request,
        ) -> sys::mp_status,
    ) -> Result<Request<'_, Vec<Vec<u8>>>> {
        let raw = exchange.raw()?;
        // SAFETY: the buffers have the parts that the arrays say; the request keeps them until the operation is over.
        let handle = Handle::new(|out| unsafe { operation(self.raw(), null_mut(), &raw.0, out) })?;
        Ok(Request { handle: Some(handle), memory: Some(exchange), take: |exchange| exchange.parts(), _comm: self })
    }

    /// All ranks get the root's bytes: `data` is as long on each.
    pub fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        let (bytes, root) = (data.len() as i64, number(root, "the root")?);
        // SAFETY: the slice has so many bytes, and this waits.
        call(|| unsafe {
            let data = data.as_mut_ptr().cast();
            sys::mp_comm_broadcast(self.raw(), null_mut(), data, bytes, root, null_mut())
        })
    }

    /// The same without waiting; the request has the bytes.
    pub fn begin_broadcast(&self, data: Vec<u8>, root: usize) -> Result<Request<'_, Vec<u8>>> {
        let root = number(root, "the root")?;
        let mut memory = Exchange::new(Vec::new(), Vec::new(), vec![data.len()]);
        memory.receive = data;
        // SAFETY: the buffer has so many bytes; the request keeps it until the operation is over.
        let handle = Handle::new(|out| unsafe {
            let (data, bytes) = (memory.receive.as_mut_ptr().cast(), memory.receive.len() as i64);
            sys::mp_comm_broadcast(self.raw(), null_mut(), data, bytes, root, out)
        })?;
        Ok(Request { handle: Some(handle), memory: Some(memory), take: |memory| memory.receive, _comm: self })
    }

    /// Values become their maxima over the ranks.
    pub fn max_u32(&self, values: &mut [u32]) -> Result<()> {
        let count = values.len() as i64;
        // SAFETY: the slice has so many values, and this waits.
        call(|| unsafe { sys::mp_comm_max_u32(self.raw(), values.as_mut_ptr(), count, null_mut()) })
    }

    /// Returns when every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the handle is alive, and this waits.
        call(|| unsafe { sys::mp_comm_barrier(self.raw(), null_mut()) })
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
        let mut deadline = 0;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_comm_get_deadline(self.raw(), &mut deadline) })?;
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
        let mut raw = sys::mp_comm_traffic::INIT;
        // SAFETY: handle and struct are good for the call.
        call(|| unsafe { sys::mp_comm_get_traffic(self.raw(), &mut raw) })?;
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

/// The memory of an operation in flight: each buffer's parts lie behind one another.
struct Exchange {
    send: Vec<u8>,
    receive: Vec<u8>,
    send_bytes: Vec<i64>,
    send_offsets: Vec<i64>,
    receive_sizes: Vec<usize>,
    receive_bytes: Vec<i64>,
    receive_offsets: Vec<i64>,
}

/// A descriptor that is good as long as the exchange.
struct RawExchange(sys::mp_comm_exchange);

impl Exchange {
    fn new(send: Vec<u8>, send_parts: Vec<usize>, receive_sizes: Vec<usize>) -> Box<Exchange> {
        Box::new(Exchange {
            send_bytes: send_parts.iter().map(|&size| size as i64).collect(),
            send_offsets: offsets(&send_parts),
            receive_bytes: receive_sizes.iter().map(|&size| size as i64).collect(),
            receive_offsets: offsets(&receive_sizes),
            receive: Vec::new(),
            receive_sizes,
            send,
        })
    }

    fn raw(&mut self) -> Result<RawExchange> {
        let total = self.receive_sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        let total = total.filter(|&total| total <= isize::MAX as usize);
        self.receive = vec![0; total.ok_or_else(|| invalid("more bytes are to be received than there can be"))?];
        Ok(RawExchange(sys::mp_comm_exchange {
            send: self.send.as_ptr().cast(),
            send_bytes: self.send_bytes.as_ptr(),
            send_offsets: self.send_offsets.as_ptr(),
            receive: self.receive.as_mut_ptr().cast(),
            receive_bytes: self.receive_bytes.as_ptr(),
            receive_offsets: self.receive_offsets.as_ptr(),
            ..sys::mp_comm_exchange::INIT
        }))
    }

    fn parts(self) -> Vec<Vec<u8>> {
        let mut rest = &self.receive[..];
        let mut parts = Vec::with_capacity(self.receive_sizes.len());
        for &size in &self.receive_sizes {
            let (part, behind) = rest.split_at(size);
            parts.push(part.to_vec());
            rest = behind;
        }
        parts
    }
}

fn offsets(sizes: &[usize]) -> Vec<i64> {
    let mut sum = 0i64;
    let mut next = |&size: &usize| {
        let offset = sum;
        sum = sum.saturating_add(size as i64);
        offset
    };
    sizes.iter().map(&mut next).collect()
}

/// An operation in flight, with the memory that it works on. Dropping one that is not done ends the communicator.
pub struct Request<'c, T> {
    /// Dropped before the memory.
    handle: Option<Handle<sys::mp_comm_request>>,
    memory: Option<Box<Exchange>>,
    take: fn(Exchange) -> T,
    _comm: &'c Comm,
}

impl<T> Request<'_, T> {
    /// Moves all operations of the communicator on; whether this one is done.
    pub fn test(&mut self) -> Result<bool> {
        let handle = self.handle.as_ref().map_or(null_mut(), Handle::get);
        // SAFETY: the handle is alive.
        Ok(call_status(|| unsafe { sys::mp_comm_request_test(handle) })? != sys::MP_STATUS_NOT_READY)
    }

    /// Waits until it is done, and gives what came.
    pub fn wait(mut self) -> Result<T> {
        let handle = self.handle.take();
        let raw = handle.as_ref().map_or(null_mut(), Handle::get);
        // SAFETY: the handle is alive.
        let result = call(|| unsafe { sys::mp_comm_request_wait(raw) });
        // From here on nobody touches the memory.
        drop(handle);
        let memory = self.memory.take().expect("a request has its memory until it is waited for");
        result.map(|()| (self.take)(*memory))
    }
}

impl<T> Drop for Request<'_, T> {
    fn drop(&mut self) {
        self.handle = None;
        self.memory = None;
    }
}
