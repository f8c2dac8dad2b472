// SPDX-License-Identifier: Apache-2.0
//! What the tests share.
#![allow(dead_code)] // not every test needs all of it
use mixedprec::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub fn context() -> Context {
    Context::builder().threads(2).open().unwrap()
}

/// Runs a function on each rank, and gives what they gave.
pub fn on_ranks<T: Send>(comms: Vec<Comm>, function: impl Fn(usize, Comm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms
            .into_iter()
            .enumerate()
            .map(|(rank, comm)| {
                let function = &function;
                scope.spawn(move || function(rank, comm))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Numbers that are no round ones.
pub fn wave(count: usize, phase: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.7 + phase).sin()).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

pub fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => {
            assert!(!error.message().is_empty() && error.status() < 0, "{error}");
            error.kind()
        }
    }
}

pub fn formats(state: &str, format: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(state.to_owned(), format.to_owned())])
}

pub fn optimizer<'a>(context: &Context, recipe: &str, options: OptimizerOptions) -> Optimizer<'a> {
    Optimizer::new(&Recipe::new(context, recipe).unwrap(), &options).unwrap()
}

pub fn group(lr: f64) -> GroupOptions {
    Hyperparameters { lr, ..Default::default() }.into()
}

/// A folder that is gone after the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mixedprec-rust-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
