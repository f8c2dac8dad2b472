// SPDX-License-Identifier: Apache-2.0
//! Finds libmixedprec: the prefix (or build folder) in MIXEDPREC_DIR, otherwise pkg-config.
use std::{
    env,
    path::Path,
    process::{exit, Command},
};

fn main() {
    for name in ["MIXEDPREC_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = rustc_minor_version();
    if rustc >= 80 {
        println!("cargo:rustc-check-cfg=cfg(has_offset_of)");
    }
    if rustc >= 77 {
        println!("cargo:rustc-cfg=has_offset_of");
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation needs no library
    }
    let folder = match env::var("MIXEDPREC_DIR") {
        Ok(prefix) => from_prefix(&prefix),
        Err(_) => from_pkg_config(),
    };
    println!("cargo:rustc-link-lib=dylib=mixedprec");
    if let Some(folder) = folder {
        println!("cargo:rustc-link-search=native={folder}");
        // Reaches this package's own examples and tests only: dependents set theirs, from DEP_MIXEDPREC_LIBDIR.
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:libdir={folder}");
    }
}

fn rustc_minor_version() -> u32 {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().expect("rustc --version");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

fn from_prefix(prefix: &str) -> Option<String> {
    let folders = ["lib", "lib64"].map(|name| Path::new(prefix).join(name));
    match folders.iter().find(|folder| folder.join("libmixedprec.so").exists()) {
        Some(folder) => Some(folder.display().to_string()),
        None => fail(&format!("MIXEDPREC_DIR is '{prefix}', but neither lib nor lib64 there has libmixedprec.so")),
    }
}

/// None when the library is where the linker looks anyway.
fn from_pkg_config() -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(program).args(["--libs-only-L", "mixedprec"]).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().strip_prefix("-L").map(|folder| folder.trim().to_owned())
        }
        _ => fail(
            "libmixedprec was not found: set MIXEDPREC_DIR to its prefix or build folder, \
             or PKG_CONFIG_PATH to the folder of mixedprec.pc",
        ),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    exit(1)
}
