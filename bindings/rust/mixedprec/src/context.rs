// SPDX-License-Identifier: Apache-2.0
//! The host, at most one accelerator, and the devices there are.
use crate::error::{call, callback, copied, number, stored, text, Result};
use crate::handle::Handle;
use crate::queue::Queue;
use crate::{c_string, invalid, sys};
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DeviceKind {
    /// The processor.
    Host = sys::MP_DEVICE_HOST,
    /// A GPU through CUDA.
    Cuda = sys::MP_DEVICE_CUDA,
    /// A GPU through HIP.
    Hip = sys::MP_DEVICE_HIP,
}

impl DeviceKind {
    /// How many there are. An error says why there is none.
    pub fn count(self) -> Result<usize> {
        // SAFETY: `count` is good for the call.
        let count = stored(0, |count| unsafe { sys::mp_device_get_count(self as i32, count) })?;
        number(count, "the number of devices")
    }

    /// Whether device `index` can be opened; an error says why not.
    pub fn available(self, index: i32) -> Result<()> {
        // SAFETY: numbers only.
        call(|| unsafe { sys::mp_device_available(self as i32, index) })
    }

    /// What its driver calls device `index`.
    pub fn name(self, index: i32) -> Result<String> {
        // SAFETY: `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe {
            sys::mp_device_get_name(self as i32, index, buffer, capacity, needed)
        })
    }

    /// Bytes of memory of device `index`.
    pub fn memory(self, index: i32) -> Result<u64> {
        // SAFETY: `bytes` is good for the call.
        let bytes = stored(0, |bytes| unsafe { sys::mp_device_get_memory(self as i32, index, bytes) })?;
        number(bytes, "the memory")
    }
}

/// How much a log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum LogLevel {
    /// What failed.
    Error = sys::MP_LOG_ERROR,
    /// Fall-backs and damage that was passed over.
    Warning = sys::MP_LOG_WARNING,
    /// Skipped steps, loss scales that move, checkpoints.
    Info = sys::MP_LOG_INFO,
    /// The implementation of each product.
    Debug = sys::MP_LOG_DEBUG,
}

type Log = Box<dyn Fn(LogLevel, &str) + Send + Sync>;
type Parallel = Box<dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Send + Sync>;

/// The callbacks of a context: it has their address, so they stay where they are.
#[derive(Default)]
struct Callbacks {
    log: Option<Log>,
    parallel: Option<Parallel>,
}

/// How a [`Context`] is opened: all defaults, or what was said instead.
#[must_use]
pub struct ContextBuilder {
    device: DeviceKind,
    device_index: i32,
    threads: i32,
    flags: u32,
    backend: Option<String>,
    log_level: i32,
    callbacks: Callbacks,
}

impl ContextBuilder {
    /// An accelerator beside the host, by its number from 0.
    pub fn device(mut self, kind: DeviceKind, index: i32) -> Self {
        self.device = kind;
        self.device_index = index;
        self
    }

    /// Host threads; 0: one for each physical core that the process may use.
    pub fn threads(mut self, threads: i32) -> Self {
        self.threads = threads;
        self
    }

    /// Binds the worker threads to cores of their own.
    pub fn bind_threads(mut self) -> Self {
        self.flags |= sys::MP_CONTEXT_BIND_THREADS;
        self
    }

    /// On the host: "host" (fast), "reference" (scalar) or "kokkos" (what a GPU runs).
    pub fn backend(mut self, name: &str) -> Self {
        self.backend = Some(name.to_owned());
        self
    }

    /// Hands lines up to `level` to `log`, from any thread. It must not call the library, which is an error there.
    /// Its panics are swallowed.
    pub fn log(mut self, level: LogLevel, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.log_level = level as i32;
        self.callbacks.log = Some(Box::new(log));
        self
    }

    /// Runs the library's loops by the program's own threads: `parallel(count, task)` calls `task` once for each
    /// index below `count`, in any order, also at once, and returns when all calls have. Indices that it forgets are
    /// done after it, also where it panics, which is swallowed; those that are no index, or are done already, do
    /// nothing.
    ///
    /// It is called in a thread that is made for the loop, which takes some 20 microseconds: the calling thread may have
    /// [`Cells`](crate::Cells) of the memory that the tasks work on, and code that it runs meanwhile could use them.
    pub fn parallel(mut self, parallel: impl Fn(usize, &(dyn Fn(usize) + Sync)) + Send + Sync + 'static) -> Self {
        self.callbacks.parallel = Some(Box::new(parallel));
        self
    }

    /// Opens the context.
    pub fn open(self) -> Result<Context> {
        let callbacks = Box::new(self.callbacks);
        let payload = &*callbacks as *const Callbacks as *mut c_void;
        let backend = self.backend.as_deref().map(c_string).transpose()?;
        let desc = sys::mp_context_desc {
            flags: self.flags,
            device_kind: self.device as i32,
            device_index: self.device_index,
            num_threads: self.threads,
            log_level: self.log_level,
            backend: backend.as_ref().map_or(null(), |name| name.as_ptr()),
            log: callbacks.log.as_ref().and(Some(on_log)),
            log_payload: payload,
            parallel: callbacks.parallel.as_ref().and(Some(on_parallel)),
            parallel_payload: payload,
            ..sys::mp_context_desc::INIT
        };
        // SAFETY: the texts are good for the call, and the callbacks as long as the context.
        let handle = Handle::new(|out| unsafe { sys::mp_context_create(&desc, out) })?;
        Ok(Context { inner: Arc::new(Inner { handle, device: self.device, callbacks }) })
    }
}

unsafe extern "C" fn on_log(level: i32, message: *const c_char, payload: *mut c_void) {
    let callbacks = &*(payload as *const Callbacks);
    let level = match level {
        sys::MP_LOG_ERROR => LogLevel::Error,
        sys::MP_LOG_WARNING => LogLevel::Warning,
        sys::MP_LOG_INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    if let Some(log) = &callbacks.log {
        callback(|| log(level, &copied(message)));
    }
}

/// The library's task with its data, which it lets any thread call.
#[derive(Clone, Copy)]
struct Task {
    function: unsafe extern "C" fn(*mut c_void, i32),
    data: *mut c_void,
}

// SAFETY: mp_parallel_fn lets any thread make the calls.
unsafe impl Sync for Task {}

impl Task {
    /// # Safety
    /// Once for each index, while the loop runs.
    unsafe fn run(&self, index: usize) {
        (self.function)(self.data, index as i32)
    }
}

#[allow(unused_unsafe)] // of the closure, which newer compilers want and Rust 1.63 calls needless
unsafe extern "C" fn on_parallel(
    count: i32,
    task: Option<unsafe extern "C" fn(*mut c_void, i32)>,
    data: *mut c_void,
    payload: *mut c_void,
) {
    let callbacks = &*(payload as *const Callbacks);
    let (parallel, function) = match (&callbacks.parallel, task) {
        (Some(parallel), Some(function)) => (parallel, function),
        _ => return,
    };
    let task = Task { function, data };
    let started: Vec<AtomicBool> = (0..count.max(0)).map(|_| AtomicBool::new(false)).collect();
    let run_once = |index: usize| {
        if started.get(index).map_or(false, |started| !started.swap(true, Ordering::AcqRel)) {
            // SAFETY: the first time for this index, and the loop that lent us the task waits for us.
            unsafe { task.run(index) }
        }
    };
    // In a thread of its own: the one that called the library may have, in a thread local, cells of the memory that the
    // tasks work on. Where there is no thread to be had this one does it all.
    std::thread::scope(|scope| {
        let body = || callback(|| parallel(started.len(), &run_once));
        if let Ok(thread) = std::thread::Builder::new().spawn_scoped(scope, body) {
            let _ = thread.join();
        }
    });
    (0..started.len()).for_each(run_once);
}

struct Inner {
    handle: Handle<sys::mp_context>,
    device: DeviceKind,
    callbacks: Box<Callbacks>,
}

// SAFETY: every function of a context is of class A: any thread at any time. The callbacks are Send and Sync.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

/// The host with its threads and memory, and at most one accelerator. A clone is the same context; it closes when the
/// last clone and the last object made from it are gone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

impl Context {
    /// Opens the host with all defaults.
    pub fn new() -> Result<Context> {
        Context::builder().open()
    }

    /// To open it in another way.
    pub fn builder() -> ContextBuilder {
        ContextBuilder {
            device: DeviceKind::Host,
            device_index: 0,
            threads: 0,
            flags: 0,
            backend: None,
            log_level: 0,
            callbacks: Callbacks::default(),
        }
    }

    /// Host threads it works with.
    pub fn threads(&self) -> Result<usize> {
        // SAFETY: the handle is alive.
        let threads = stored(0, |threads| unsafe { sys::mp_context_get_num_threads(self.raw(), threads) })?;
        number(threads, "the number of threads")
    }

    /// Everything it found and decided, as JSON.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_context_describe(self.raw(), buffer, capacity, needed) })
    }

    /// Waits for all work on the default queue, and reports what went wrong in it.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_context_sync(self.raw()) })
    }

    /// The device that tensors are made on.
    pub fn device(&self) -> DeviceKind {
        self.inner.device
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this context's.
    pub fn raw(&self) -> *mut sys::mp_context {
        self.inner.handle.get()
    }

    /// The library's context may outlive this crate's objects from now on, and its callbacks must do so too.
    pub(crate) fn keep_callbacks(&self) {
        let callbacks = &self.inner.callbacks;
        if callbacks.log.is_some() || callbacks.parallel.is_some() {
            std::mem::forget(self.clone());
        }
    }

    /// Slices are host memory, so what works on them straight needs a context of the host alone.
    pub(crate) fn expect_host(&self) -> Result<()> {
        if self.inner.device == DeviceKind::Host {
            return Ok(());
        }
        Err(invalid("slices are memory of the host; this context works on an accelerator: use tensors"))
    }
}

/// Where an object's work goes: its context's default queue, or one that it was told.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) context: Context,
    pub(crate) queue: Option<Queue>,
}

impl Place {
    pub(crate) fn new(context: &Context) -> Place {
        Place { context: context.clone(), queue: None }
    }

    pub(crate) fn queue(&self) -> *mut sys::mp_queue {
        self.queue.as_ref().map_or(null_mut(), Queue::raw)
    }

    /// Makes a call that puts work on the queue. Where that touches memory of the host it is over when this returns,
    /// also after a failure: what the program does with its memory next needs no thought.
    pub(crate) fn enqueue(&self, touches_host: bool, function: impl FnOnce() -> sys::mp_status) -> Result<()> {
        let result = call(function);
        if !touches_host && self.context.device() != DeviceKind::Host {
            return result;
        }
        let waited = match &self.queue {
            Some(queue) => queue.sync(),
            None => self.context.sync(),
        };
        result.and(waited)
    }
}
