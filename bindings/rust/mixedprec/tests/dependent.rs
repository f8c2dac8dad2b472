// SPDX-License-Identifier: Apache-2.0
//! A package outside of the workspace, as the README says to write one, builds and finds the library at run time.
mod common;
use common::Folder;
use std::process::Command;

#[test]
fn a_dependent_package_builds_and_runs() {
    let folder = Folder::new();
    let manifest = format!(
        "[package]\nname = \"dependent\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
         [dependencies]\nmixedprec = {{ path = {:?} }}\n\n[workspace]\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let build = r#"
        fn main() {
            if let Ok(folder) = std::env::var("DEP_MIXEDPREC_RUST_LIBDIR") {
                println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
            }
        }
    "#;
    let main = r#"
        fn main() -> mixedprec::Result<()> {
            let context = mixedprec::Context::new()?;
            let tensor = mixedprec::Tensor::from_slice(&context, &[1.0f32, -3.0], &[2])?;
            println!("amax {}", tensor.amax()?);
            Ok(())
        }
    "#;
    std::fs::create_dir(folder.path().join("src")).unwrap();
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("build.rs", build), ("src/main.rs", main)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let output = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet"])
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Not by cargo, which would help it to find the library.
    let program = Command::new(folder.path().join("target/debug/dependent")).env_remove("LD_LIBRARY_PATH").output();
    let program = program.unwrap();
    assert_eq!(String::from_utf8_lossy(&program.stdout), "amax 3\n", "{}", String::from_utf8_lossy(&program.stderr));
}
