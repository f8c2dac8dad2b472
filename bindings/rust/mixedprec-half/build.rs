// SPDX-License-Identifier: Apache-2.0
//! Lets this package's own tests find the library at run time.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_MIXEDPREC_RUST_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
