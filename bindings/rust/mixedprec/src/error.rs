// SPDX-License-Identifier: Apache-2.0
//! Statuses as errors and notes. The library keeps one message per thread, so it is copied at once.
use crate::sys;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure an [`Error`] is: the library's statuses, grouped by what a program can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument that cannot be, or a file or text that cannot be read as one.
    InvalidArgument,
    /// Sizes that do not fit each other.
    InvalidShape,
    /// An element type that is not allowed there.
    InvalidDType,
    /// No recipe, key, state, implementation or the like of this name.
    UnknownName,
    /// The right call at the wrong moment.
    BadState,
    /// Text or bytes that do not parse.
    Parse,
    /// Nothing here can do it; the message has all reasons.
    Unsupported,
    /// No such device, module or driver.
    DeviceUnavailable,
    /// Library, module and program do not go together.
    VersionMismatch,
    /// No memory left.
    OutOfMemory,
    /// A file could not be read or written.
    Io,
    /// A callback failed or panicked.
    CallbackFailed,
    /// A rank did not come before the deadline.
    Timeout,
    /// Another rank is gone, failed, or asks for something else; or this one gave up.
    Peer,
    /// A checksum does not fit.
    CorruptData,
    /// An error of a vendor's library or driver.
    Vendor,
    /// A defect of the library's own, or a status that this crate does not know.
    Internal,
}

/// A failed call. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: i32,
    message: String,
}

impl Error {
    pub(crate) fn new(status: i32, message: impl Into<String>) -> Error {
        Error { status, message: message.into() }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        use ErrorKind::*;
        match self.status {
            sys::MP_STATUS_NULL_ARGUMENT | sys::MP_STATUS_INVALID_ARGUMENT => InvalidArgument,
            sys::MP_STATUS_INVALID_SHAPE => InvalidShape,
            sys::MP_STATUS_INVALID_DTYPE => InvalidDType,
            sys::MP_STATUS_UNKNOWN_NAME => UnknownName,
            sys::MP_STATUS_BAD_STATE | sys::MP_STATUS_INVALID_HANDLE => BadState,
            sys::MP_STATUS_PARSE_ERROR => Parse,
            sys::MP_STATUS_UNSUPPORTED => Unsupported,
            sys::MP_STATUS_DEVICE_UNAVAILABLE | sys::MP_STATUS_MODULE_NOT_FOUND => DeviceUnavailable,
            sys::MP_STATUS_VERSION_MISMATCH | sys::MP_STATUS_STRUCT_TOO_NEW => VersionMismatch,
            sys::MP_STATUS_OUT_OF_MEMORY => OutOfMemory,
            sys::MP_STATUS_IO_ERROR => Io,
            sys::MP_STATUS_CALLBACK_FAILED => CallbackFailed,
            sys::MP_STATUS_TIMEOUT => Timeout,
            sys::MP_STATUS_ABORTED..=sys::MP_STATUS_PEER_LOST => Peer,
            sys::MP_STATUS_CORRUPT_DATA => CorruptData,
            -79..=-60 => Vendor,
            _ => Internal,
        }
    }

    /// The library's number, one of `sys::MP_STATUS_*`.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The number's name, such as "MP_STATUS_INVALID_SHAPE".
    pub fn status_name(&self) -> &'static str {
        // SAFETY: any number is allowed; the text is static and ASCII.
        unsafe { static_text(sys::mp_status_string(self.status)) }
    }

    /// The reason in words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status_name(), self.message)
    }
}

impl std::error::Error for Error {}

/// Most notes that wait for [`take_notes`].
const MOST_NOTES: usize = 64;

thread_local! {
    static NOTES: RefCell<VecDeque<String>> = RefCell::new(VecDeque::new());
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = RefCell::new(None);
}

/// The advice that came with successes of this thread since it was last asked, oldest first; the newest 64 are kept.
///
/// A call may be done and have something to say: second moments that cannot decrease, a layer that falls back to high
/// precision, damaged checkpoints that were passed over.
/// ```
/// # fn main() -> mixedprec::Result<()> {
/// let recipe = mixedprec::Recipe::new(&mixedprec::Context::new()?, "bf16_pure")?;
/// recipe.validate()?;
/// assert!(mixedprec::take_notes()[0].contains("second moments"));
/// # Ok(()) }
/// ```
pub fn take_notes() -> Vec<String> {
    NOTES.with(|notes| notes.borrow_mut().drain(..).collect())
}

/// Makes a call of the library: its status, or an error where that is negative. Not from inside of a callback, which
/// the library's rules forbid.
pub(crate) fn call_status(function: impl FnOnce() -> sys::mp_status) -> Result<sys::mp_status> {
    if IN_CALLBACK.with(Cell::get) {
        return Err(Error::new(sys::MP_STATUS_BAD_STATE, "a callback must not call the library"));
    }
    let status = function();
    let message = match status {
        sys::MP_STATUS_OK | sys::MP_STATUS_NOT_READY => String::new(),
        // SAFETY: the text lives until this thread's next call.
        _ => unsafe { copied(sys::mp_last_error_message()) },
    };
    if let Some(panic) = PANIC.with(|panic| panic.borrow_mut().take()) {
        resume_unwind(panic);
    }
    if status < 0 {
        return Err(Error::new(status, message));
    }
    if !message.is_empty() {
        NOTES.with(|notes| {
            let mut notes = notes.borrow_mut();
            notes.push_back(message);
            if notes.len() > MOST_NOTES {
                notes.pop_front();
            }
        });
    }
    Ok(status)
}

/// The same where the number of a success says nothing.
pub(crate) fn call(function: impl FnOnce() -> sys::mp_status) -> Result<()> {
    call_status(function).map(|_| ())
}

/// What a function of the library stores in place of `initial`.
pub(crate) fn stored<T>(initial: T, function: impl FnOnce(&mut T) -> sys::mp_status) -> Result<T> {
    let mut value = initial;
    call(|| function(&mut value))?;
    Ok(value)
}

/// Runs a callback of the caller's for the library. `None` after a panic, which does not cross the library.
pub(crate) fn callback<T>(function: impl FnOnce() -> T) -> Option<T> {
    callback_or_panic(function).ok()
}

/// The same; a panic goes on in the call that this thread is making, when that returns.
pub(crate) fn callback_with_panic<T>(function: impl FnOnce() -> T) -> Option<T> {
    let result = callback_or_panic(function);
    result.map_err(|panic| PANIC.with(|first| *first.borrow_mut() = Some(panic))).ok()
}

fn callback_or_panic<T>(function: impl FnOnce() -> T) -> std::thread::Result<T> {
    let outer = IN_CALLBACK.with(|inside| inside.replace(true));
    let result = catch_unwind(AssertUnwindSafe(function));
    IN_CALLBACK.with(|inside| inside.set(outer));
    result
}

/// Whether this thread is in a callback.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.with(Cell::get)
}

/// A text that the library copies out: first its size, then itself.
pub(crate) fn text(copy: impl Fn(*mut c_char, usize, *mut usize) -> sys::mp_status) -> Result<String> {
    let mut needed = 0;
    call(|| copy(null_mut(), 0, &mut needed))?;
    let mut buffer = vec![0u8; needed.max(1)];
    call(|| copy(buffer.as_mut_ptr().cast(), buffer.len(), null_mut()))?;
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    buffer.truncate(end);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// A text of the caller's for the library.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| invalid(format!("{text:?} has a NUL inside")))
}

/// A path of the caller's for the library.
pub(crate) fn c_path(path: &std::path::Path) -> Result<CString> {
    match path.to_str() {
        Some(text) => c_string(text),
        None => Err(invalid(format!("{} is not UTF-8", path.display()))),
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(sys::MP_STATUS_INVALID_ARGUMENT, message)
}

pub(crate) fn bad_shape(message: impl Into<String>) -> Error {
    Error::new(sys::MP_STATUS_INVALID_SHAPE, message)
}

/// A number as the library wants it.
pub(crate) fn number<T, U: TryFrom<T>>(value: T, what: &str) -> Result<U> {
    U::try_from(value).map_err(|_| invalid(format!("{what} is too large")))
}

/// # Safety
/// `text` is NULL or ends in NUL.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        String::new()
    } else {
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// # Safety
/// `text` is NULL or ends in NUL, and stays.
pub(crate) unsafe fn static_text(text: *const c_char) -> &'static str {
    if text.is_null() {
        ""
    } else {
        CStr::from_ptr(text).to_str().unwrap_or("")
    }
}
