// SPDX-License-Identifier: Apache-2.0
//! A negative status as an error with its text, which is copied at once: the C side keeps it per thread.
use crate::sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// One of the `MP_STATUS_*` numbers.
    pub status: i32,
    /// The status' symbolic name.
    pub name: String,
    /// The reason in words.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) fn new(status: i32, message: String) -> Error {
        // SAFETY: any number is allowed; the result is a static string.
        let name = unsafe { copied(sys::mp_status_string(status)) };
        Error {
            status,
            name,
            message,
        }
    }
}

/// The advice that came with a positive status, if any.
pub(crate) fn check(status: i32) -> Result<Option<String>, Error> {
    if status == 0 {
        return Ok(None);
    }
    // SAFETY: the string lives until this thread's next call into the library.
    let message = unsafe { copied(sys::mp_last_error_message()) };
    if status > 0 {
        Ok(Some(message))
    } else {
        Err(Error::new(status, message))
    }
}

pub(crate) fn c_string(text: &str) -> Result<CString, Error> {
    let refuse = |_| {
        Error::new(
            sys::MP_STATUS_UNKNOWN_NAME,
            format!("the name {:?} has a NUL inside", text),
        )
    };
    CString::new(text).map_err(refuse)
}

/// # Safety
/// `text` points at a string that ends in NUL.
unsafe fn copied(text: *const c_char) -> String {
    CStr::from_ptr(text).to_string_lossy().into_owned()
}
