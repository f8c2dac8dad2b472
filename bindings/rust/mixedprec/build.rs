// SPDX-License-Identifier: Apache-2.0
//! Lets this package's own tests and examples find the library at run time, and tells dependents where it is: see the
//! README.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_MIXEDPREC_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:libdir={folder}");
    }
}
