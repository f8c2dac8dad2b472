// SPDX-License-Identifier: Apache-2.0
//! The C ABI of libmixedprec as it is: every function, struct, callback type and constant of its headers, made from
//! them.
//! The safe layer is the crate `mixedprec`.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
