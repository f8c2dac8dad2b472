// SPDX-License-Identifier: Apache-2.0
//! Communicators over a transport of the program's.
use crate::error::{callback, copied, invalid, number, Result};
use crate::sys;
use std::ffi::{c_void, CString};
use std::marker::PhantomData;
use std::os::raw::c_char;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What moves the bytes of a communicator. None of these functions waits for other ranks, or calls the library. One
/// that fails or panics ends the communicator with [`ErrorKind::CallbackFailed`](crate::ErrorKind::CallbackFailed).
///
/// The library begins operations, numbered alike on every rank, and asks again and again whether they are done. Each
/// time the transport gets the operation's memory, and moves on what it can.
pub trait Transport: Send {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// How many ranks there are.
    fn size(&self) -> usize;
    /// For messages.
    fn name(&self) -> String {
        "transport".to_owned()
    }
    /// An operation begins.
    fn begin(&mut self, operation: &mut Operation<'_>) -> std::result::Result<(), String>;
    /// Moves an operation on. True when all is received, and what was sent is needed no more.
    fn poll(&mut self, operation: &mut Operation<'_>) -> std::result::Result<bool, String>;
    /// An operation ends, done or not.
    fn release(&mut self, _sequence: u64) {}
    /// This rank gives up; the others should learn it.
    fn abort(&mut self, _reason: &str) {}
    /// The transport of a group of these ranks, whose new numbers are their places among `members`. No two groups of
    /// these ranks have the same `context`. Sharded optimizers and checkpoints need it.
    fn split(&mut self, _group: &Group) -> std::result::Result<Box<dyn Transport>, String> {
        Err("this transport makes no groups".to_owned())
    }
}

/// Some ranks that become a communicator of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their present ranks, in the order of the new ones.
    pub members: Vec<usize>,
    /// This rank's new number.
    pub rank: usize,
    /// A number that no other group of these ranks has or had.
    pub context: i32,
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Every rank gives every rank its own bytes.
    AllToAll,
    /// Every rank gets every rank's bytes: each is sent all of [`Operation::send`] of rank 0.
    AllGather,
    /// All get the root's bytes, in [`Operation::data`].
    Broadcast,
    /// Nothing is exchanged, but all come.
    Barrier,
    /// [`Operation::values`] become their maxima over the ranks.
    Max,
}

/// An operation of a communicator with its memory.
pub struct Operation<'o> {
    raw: &'o sys::mp_comm_operation,
    size: usize,
    /// What is sent and what is received may be the same memory: one at a time.
    memory: PhantomData<&'o mut [u8]>,
}

impl Operation<'_> {
    /// What it is.
    pub fn kind(&self) -> OperationKind {
        match self.raw.kind {
            sys::MP_COMM_ALL_TO_ALL => OperationKind::AllToAll,
            sys::MP_COMM_ALL_GATHER => OperationKind::AllGather,
            sys::MP_COMM_BROADCAST => OperationKind::Broadcast,
            sys::MP_COMM_MAX_U32 => OperationKind::Max,
            _ => OperationKind::Barrier,
        }
    }

    /// Its number, the same on every rank.
    pub fn sequence(&self) -> u64 {
        self.raw.sequence
    }

    /// The rank whose bytes a broadcast gives to all.
    pub fn root(&self) -> usize {
        self.raw.root as usize
    }

    /// What rank `to` is sent; empty for operations without such parts.
    pub fn send(&self, to: usize) -> &[u8] {
        assert!(to < self.size, "there are {} ranks", self.size);
        let part = match self.kind() {
            OperationKind::AllToAll => to,
            OperationKind::AllGather => 0,
            _ => return &[],
        };
        // SAFETY: the library's arrays have a member for each rank, or one; the memory stays until release.
        unsafe {
            let offset = match self.kind() {
                OperationKind::AllToAll => *self.raw.send_offsets.add(part) as usize,
                _ => 0,
            };
            let bytes = *self.raw.send_bytes.add(part) as usize;
            if bytes == 0 {
                return &[];
            }
            std::slice::from_raw_parts((self.raw.send as *const u8).add(offset), bytes)
        }
    }

    /// Where the bytes of rank `from` belong; empty for operations without such parts.
    pub fn receive(&mut self, from: usize) -> &mut [u8] {
        assert!(from < self.size, "there are {} ranks", self.size);
        match self.kind() {
            OperationKind::AllToAll | OperationKind::AllGather => {}
            _ => return &mut [],
        }
        // SAFETY: the library's arrays have a member for each rank; the memory stays until release.
        unsafe {
            let offset = *self.raw.receive_offsets.add(from) as usize;
            let bytes = *self.raw.receive_bytes.add(from) as usize;
            if bytes == 0 {
                return &mut [];
            }
            std::slice::from_raw_parts_mut((self.raw.receive as *mut u8).add(offset), bytes)
        }
    }

    /// A broadcast's bytes: read on the root, written on the others.
    pub fn data(&mut self) -> &mut [u8] {
        if self.kind() != OperationKind::Broadcast {
            return &mut [];
        }
        // SAFETY: the library's array has one member; the memory stays until release.
        unsafe {
            match *self.raw.receive_bytes as usize {
                0 => &mut [],
                bytes => std::slice::from_raw_parts_mut(self.raw.receive as *mut u8, bytes),
            }
        }
    }

    /// A maximum's values.
    pub fn values(&mut self) -> &mut [u32] {
        if self.kind() != OperationKind::Max || self.raw.count <= 0 {
            return &mut [];
        }
        // SAFETY: so many values, which stay until release.
        unsafe { std::slice::from_raw_parts_mut(self.raw.receive as *mut u32, self.raw.count as usize) }
    }
}

/// What the library has of a transport. The lock is for requests that another thread gives back.
struct Payload {
    transport: Mutex<Box<dyn Transport>>,
    size: usize,
}

/// A transport as a table of functions. Gives the payload back unless it is kept by a communicator.
pub(crate) struct Table {
    raw: sys::mp_comm_callbacks,
    _name: CString,
}

impl Table {
    pub(crate) fn raw(&self) -> *const sys::mp_comm_callbacks {
        &self.raw
    }

    /// The library has it now, and ends it.
    pub(crate) fn keep(mut self) -> sys::mp_comm_callbacks {
        let raw = self.raw;
        self.raw.payload = null_mut();
        raw
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.raw.payload.is_null() {
            // SAFETY: nobody else has the payload.
            unsafe { on_end(self.raw.payload) }
        }
    }
}

pub(crate) fn table(transport: Box<dyn Transport>) -> Result<Table> {
    let (rank, size) = (transport.rank(), transport.size());
    if rank >= size {
        return Err(invalid(format!("rank {rank} of {size} ranks")));
    }
    let name = crate::c_string(&transport.name())?;
    let payload = Box::new(Payload { transport: Mutex::new(transport), size });
    let raw = sys::mp_comm_callbacks {
        rank: number(rank, "the rank")?,
        size: number(size, "the number of ranks")?,
        nodes: null(),
        name: name.as_ptr(),
        begin: Some(on_begin),
        poll: Some(on_poll),
        release: Some(on_release),
        abort: Some(on_abort),
        split: Some(on_split),
        destroy: Some(on_end),
        payload: Box::into_raw(payload).cast(),
        ..sys::mp_comm_callbacks::INIT
    };
    Ok(Table { raw, _name: name })
}

/// A lock that a panic has not spoilt: the failure of that call has ended the communicator already.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn status_of<T>(result: Option<std::result::Result<T, String>>) -> std::result::Result<T, sys::mp_status> {
    match result {
        Some(Ok(value)) => Ok(value),
        _ => Err(sys::MP_STATUS_CALLBACK_FAILED),
    }
}

/// # Safety
/// `operation` is one that was begun and not released.
unsafe fn operation_of<'o>(operation: *const sys::mp_comm_operation, size: usize) -> Operation<'o> {
    Operation { raw: &*operation, size, memory: PhantomData }
}

unsafe extern "C" fn on_begin(
    operation: *const sys::mp_comm_operation,
    request: *mut *mut c_void,
    payload: *mut c_void,
) -> sys::mp_status {
    let payload = &*(payload as *const Payload);
    let mut transport = lock(&payload.transport);
    match status_of(callback(|| transport.begin(&mut operation_of(operation, payload.size)))) {
        Ok(()) => {
            // The operation stays until release, so its address is the request.
            *request = operation as *mut c_void;
            sys::MP_STATUS_OK
        }
        Err(status) => status,
    }
}

unsafe extern "C" fn on_poll(request: *mut c_void, done: *mut i32, payload: *mut c_void) -> sys::mp_status {
    let payload = &*(payload as *const Payload);
    let mut transport = lock(&payload.transport);
    let operation = request as *const sys::mp_comm_operation;
    match status_of(callback(|| transport.poll(&mut operation_of(operation, payload.size)))) {
        Ok(is_done) => {
            *done = i32::from(is_done);
            sys::MP_STATUS_OK
        }
        Err(status) => status,
    }
}

unsafe extern "C" fn on_release(request: *mut c_void, payload: *mut c_void) {
    let payload = &*(payload as *const Payload);
    let sequence = (*(request as *const sys::mp_comm_operation)).sequence;
    let mut transport = lock(&payload.transport);
    callback(|| transport.release(sequence));
}

unsafe extern "C" fn on_abort(_status: sys::mp_status, reason: *const c_char, payload: *mut c_void) {
    let payload = &*(payload as *const Payload);
    let mut transport = lock(&payload.transport);
    callback(|| transport.abort(&copied(reason)));
}

unsafe extern "C" fn on_split(
    group: *const sys::mp_comm_group,
    out: *mut sys::mp_comm_callbacks,
    payload: *mut c_void,
) -> sys::mp_status {
    let payload = &*(payload as *const Payload);
    let group = &*group;
    let mut transport = lock(&payload.transport);
    let members = match group.count {
        0 => &[][..],
        count => std::slice::from_raw_parts(group.members, count as usize),
    };
    let group = Group {
        members: members.iter().map(|&rank| rank as usize).collect(),
        rank: group.rank.max(0) as usize,
        context: group.context,
    };
    if group.members.is_empty() {
        return sys::MP_STATUS_OK; // this rank is in no group
    }
    match status_of(callback(|| transport.split(&group))).map(table) {
        Ok(Ok(table)) => {
            *out = table.keep();
            // The name was the table's, which is gone.
            (*out).name = null();
            sys::MP_STATUS_OK
        }
        _ => sys::MP_STATUS_CALLBACK_FAILED,
    }
}

unsafe extern "C" fn on_end(payload: *mut c_void) {
    drop(Box::from_raw(payload as *mut Payload));
}
