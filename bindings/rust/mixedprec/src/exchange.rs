// SPDX-License-Identifier: Apache-2.0
//! What ranks exchange: bytes, at once or in flight.
use crate::error::{bad_shape, call, call_status, invalid, number, Result};
use crate::handle::Handle;
use crate::{sys, Comm};
use std::ptr::null_mut;

impl Comm {
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
