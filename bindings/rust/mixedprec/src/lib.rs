// SPDX-License-Identifier: Apache-2.0
//! Low-precision training: optimizer states and weights in bf16, fp16 and fp8, loss scaling, linear layers with fp8
//! products, sharded optimizers and checkpoints, by libmixedprec.
//!
//! A step on arrays of the program's own needs nothing else:
//! ```
//! use mixedprec::{step_slices, Context, Slot, StepArgs};
//! # fn main() -> mixedprec::Result<()> {
//! let context = Context::new()?;
//! let (mut p, mut m, mut v) = (vec![1.0f32; 1000], vec![0.0f32; 1000], vec![0.0f32; 1000]);
//! let mut args = StepArgs::default();
//! for _ in 0..10 {
//!     let grad: Vec<f32> = p.iter().map(|p| 2.0 * p).collect();
//!     step_slices(&context, &args, &mut [Slot::new(&mut p, &grad).exp_avg(&mut m).exp_avg_sq(&mut v)], None)?;
//!     args.step += 1;
//! }
//! assert!(p[0] < 0.991);
//! # Ok(()) }
//! ```
//!
//! # Memory
//! - A [`Tensor`] is in the library's memory, or borrows a slice uniquely for as long as anything has it that it was
//!   given to. It is read and written by copies, or in place as [`Tensor::cells`].
//! - Work on memory of the host is done when a call returns. Work on a device may go on; what reads waits for it.
//! - Drop objects in any order. What needs another one keeps it.
//!
//! # Threads
//! Objects that may share memory stay in the thread that made them: tensors, layers, optimizers, scalers,
//! checkpoints, queues, plans. A [`Context`] is used by all threads; a [`Comm`], a [`Recipe`] and an [`Event`] by one
//! at a time. Ranks that are threads get a [`Comm`] each, and make everything else themselves.
//!
//! # Errors
//! Each call gives an [`Error`] with a kind and the library's words. Advice that comes with a success is in
//! [`take_notes`].
#![warn(missing_docs)]

mod cast;
pub mod checkpoint;
mod comm;
mod context;
mod dlpack;
mod element;
mod error;
mod exchange;
mod first_values;
mod gemm;
mod groups;
mod handle;
mod linear;
mod monitor;
mod optimizer;
mod plan;
mod quant;
mod queue;
mod recipe;
mod reduce;
mod rule;
mod saved;
mod scaler;
mod sharding;
mod step;
mod tensor;
mod transport;
mod watch;

pub use mixedprec_sys as sys;

pub use cast::{cast_slice, Cast, Overflow, Stochastic};
pub use checkpoint::{Checkpoint, CheckpointInfo, CheckpointOptions, Load};
pub use comm::{Aborter, Comm, CommOptions, Traffic, UniqueId};
pub use context::{Context, ContextBuilder, DeviceKind, LogLevel};
pub use dlpack::DlManagedTensor;
pub use element::{Bf16, DType, Element, Fp8E4M3, Fp8E5M2, E8M0, F16};
pub use error::{take_notes, Error, ErrorKind, Result};
pub use exchange::Request;
pub use first_values::FirstValues;
pub use gemm::{BlockScales, Gemm, GemmOperands, GemmOptions};
pub use groups::{GroupOptions, Param};
pub use linear::{end_step, Gradients, Linear, LinearOptions, Operand, Product};
pub use monitor::LinearStats;
pub use optimizer::{OffloadTraffic, Optimizer, OptimizerOptions, Stats};
pub use plan::{MemoryReport, PlannedTensor};
pub use quant::{QuantStats, Quantization, Quantize, ScaleRule, Scaling};
pub use queue::{Event, Queue};
pub use recipe::{keys, presets, Key, KeyType, Preset, Recipe};
pub use reduce::{wire_bytes, Accumulate, Order, ReduceOptions, WireScale};
pub use rule::{Hyperparameters, Rule};
pub use saved::{Keep, Saved};
pub use scaler::{Scaler, ScalerKind, ScalerOptions, ScalerState};
pub use sharding::{Pass, Progress, ShardKind, Sharding};
pub use step::{step_slices, Slot, StepArgs, StepPlan};
pub use tensor::{Cells, Tensor};
pub use transport::{Group, Operation, OperationKind, Transport};
pub use watch::{Guard, Outcome, StepRecord};

use error::{c_string, invalid};

/// Version of the loaded library: major, minor, patch.
pub fn library_version() -> (u32, u32, u32) {
    // SAFETY: takes nothing.
    let number = unsafe { sys::mp_library_version() };
    (number / 10000, number / 100 % 100, number % 100)
}

/// The library's version, compiler, and what was built in, in one line.
pub fn library_build_info() -> &'static str {
    // SAFETY: a static text.
    unsafe { error::static_text(sys::mp_library_build_info()) }
}

/// Ends the library's own run-time systems for good. Never needed before a normal exit; refused while contexts are
/// alive.
pub fn library_shutdown() -> Result<()> {
    // SAFETY: takes nothing.
    error::call(|| unsafe { sys::mp_library_shutdown() })
}

/// The programs of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
