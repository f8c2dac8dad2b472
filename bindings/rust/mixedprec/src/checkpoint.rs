// SPDX-License-Identifier: Apache-2.0
//! Checkpoints: everything that the next step depends on, saved and loaded.
use crate::error::{c_path, call, call_status, callback, stored, text, Result};
use crate::handle::{Handle, Keeps};
use crate::rule::by_state;
use crate::{c_string, sys, Comm, Context, Element, Linear, Optimizer, Scaler};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::size_of_val;
use std::path::Path;
use std::ptr::null_mut;

type ProgressFn = Box<dyn Fn(u64, u64) + Send + Sync>;

/// How checkpoints are saved.
#[derive(Default)]
pub struct CheckpointOptions {
    /// After a save older checkpoints beyond so many are deleted; 0: none is.
    pub keep: i32,
    /// Called with the bytes done and the bytes to do, by the thread that works. It must not call the library, which
    /// is an error there. Its panics are swallowed.
    pub progress: Option<ProgressFn>,
}

/// How a checkpoint is loaded. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Checks every byte of every file, not only of what is read.
    pub verify_all: bool,
    /// Takes one of another recipe whose tensors have the same types.
    pub other_recipe: bool,
    /// Takes one of another recipe and rounds its numbers; [`CheckpointInfo`] says what that lost.
    pub convert: bool,
}

/// What a checkpoint is.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Version of the format.
    pub format: i32,
    /// What it was saved as.
    pub step: i64,
    /// Counts the checkpoints of a directory.
    pub sequence: i64,
    /// Ranks that saved it.
    pub world: i64,
    /// Tensors in it.
    pub tensor_count: i64,
    /// Bytes of all its files but the manifest.
    pub bytes: i64,
    /// t of the optimizer.
    pub applied_step: i64,
    /// The optimizer's seed.
    pub seed: u64,
    /// It was of another recipe, and was converted.
    pub converted: bool,
    /// Largest difference of a weight then, and the root of the mean of squares.
    pub weight_error: (f64, f64),
    /// Of states by name, such as "exp_avg".
    pub state_error: BTreeMap<&'static str, (f64, f64)>,
}

impl CheckpointInfo {
    fn from_raw(raw: &sys::mp_checkpoint_info) -> CheckpointInfo {
        CheckpointInfo {
            format: raw.format,
            step: raw.step,
            sequence: raw.sequence,
            world: raw.world,
            tensor_count: raw.tensor_count,
            bytes: raw.bytes,
            applied_step: raw.applied_step,
            seed: raw.seed,
            converted: raw.converted != 0,
            weight_error: (raw.weight_largest_error, raw.weight_rms_error),
            state_error: by_state(raw.state_largest_error.into_iter().zip(raw.state_rms_error)),
        }
    }
}

/// What a checkpoint is, without loading it: the newest intact one of a directory, or one itself.
pub fn inspect(path: impl AsRef<Path>) -> Result<CheckpointInfo> {
    let path = c_path(path.as_ref())?;
    // SAFETY: path and struct are good for the call.
    let raw = stored(sys::mp_checkpoint_info::INIT, |raw| unsafe { sys::mp_checkpoint_inspect(path.as_ptr(), raw) })?;
    Ok(CheckpointInfo::from_raw(&raw))
}

/// The checkpoints of a directory in words, or one's recipe, files and tensors.
pub fn describe(path: impl AsRef<Path>) -> Result<String> {
    let path = c_path(path.as_ref())?;
    // SAFETY: the path is good for the call; `text` hands over its buffer and that one's size.
    text(|buffer, capacity, needed| unsafe { sys::mp_checkpoint_describe(path.as_ptr(), buffer, capacity, needed) })
}

/// What belongs to a training: saved and loaded together, atomically and with checksums. `'a` is the life of the
/// memory under what was added.
pub struct Checkpoint<'a> {
    /// Dropped before the callback: a save that runs is waited for.
    handle: Handle<sys::mp_checkpoint>,
    _progress: Option<Box<ProgressFn>>,
    _context: Context,
    _memory: Keeps<'a>,
}

impl<'a> Checkpoint<'a> {
    /// An empty one; with `comm`, of all its ranks. Then every rank adds the same and makes the same calls.
    pub fn new(context: &Context, comm: Option<&Comm>, options: CheckpointOptions) -> Result<Checkpoint<'a>> {
        // Twice boxed: the library has the address of the inner box.
        let progress = options.progress.map(Box::new);
        let mut desc = sys::mp_checkpoint_desc { keep: options.keep, ..sys::mp_checkpoint_desc::INIT };
        if let Some(progress) = &progress {
            desc.progress = Some(on_progress);
            desc.payload = &**progress as *const ProgressFn as *mut c_void;
        }
        let comm = comm.map_or(null_mut(), Comm::raw);
        // SAFETY: handles and descriptor are good for the call, and the callback lives longer than the object.
        let handle = Handle::new(|out| unsafe { sys::mp_checkpoint_create(context.raw(), comm, &desc, out) })?;
        Ok(Checkpoint { handle, _progress: progress, _context: context.clone(), _memory: Keeps::new() })
    }

    /// Adds the optimizer: parameters, states, groups, seed; also what is added to it later.
    pub fn add_optimizer(&mut self, optimizer: &Optimizer<'a>) -> Result<()> {
        // SAFETY: both handles are alive, and the memory under the optimizer as long as this.
        call(|| unsafe { sys::mp_checkpoint_add_optimizer(self.raw(), optimizer.raw()) })
    }

    /// Adds the loss scaler.
    pub fn add_scaler(&mut self, scaler: &Scaler) -> Result<()> {
        // SAFETY: both handles are alive.
        call(|| unsafe { sys::mp_checkpoint_add_scaler(self.raw(), scaler.raw()) })
    }

    /// Adds a layer's delayed scales and amax histories.
    pub fn add_linear(&mut self, name: &str, linear: &Linear<'a>) -> Result<()> {
        let name = c_string(name)?;
        // SAFETY: handles and name are good for the call, and the memory under the layer lives as long as this.
        call(|| unsafe { sys::mp_checkpoint_add_linear(self.raw(), name.as_ptr(), linear.raw()) })
    }

    /// Adds numbers of the program's, which outlive the checkpoint:
    /// ```compile_fail,E0597
    /// # fn main() -> mixedprec::Result<()> {
    /// # use mixedprec::*;
    /// # let context = Context::new()?;
    /// let mut checkpoint = Checkpoint::new(&context, None, CheckpointOptions::default())?;
    /// {
    ///     let position = std::cell::Cell::new(0i64);
    ///     checkpoint.add_data("position", std::slice::from_ref(&position))?;
    /// }
    /// checkpoint.save("folder", 1)?;
    /// # Ok(()) }
    /// ```
    /// They are the position in the data, a random state. A save copies them as they are then;
    /// a load writes them. One number is `std::slice::from_ref(&cell)`.
    pub fn add_data<T: Element>(&mut self, name: &str, data: &'a [Cell<T>]) -> Result<()> {
        let name = c_string(name)?;
        // SAFETY: the cells are borrowed as long as this lives, have so many bytes, of which every pattern is a
        // value, and are touched in calls of this thread only.
        call(|| unsafe {
            let pointer = data.as_ptr() as *mut c_void;
            sys::mp_checkpoint_add_data(self.raw(), name.as_ptr(), pointer, size_of_val(data))
        })
    }

    /// Saves a checkpoint of this number in `directory`, which is made where it is missing, and waits until it is on
    /// the disk.
    pub fn save(&mut self, directory: impl AsRef<Path>, step: i64) -> Result<()> {
        self.save_with(directory.as_ref(), step, 0)
    }

    /// The same, but returns when the state is copied: [`Checkpoint::wait`] says how it went.
    pub fn save_in_background(&mut self, directory: impl AsRef<Path>, step: i64) -> Result<()> {
        self.save_with(directory.as_ref(), step, sys::MP_SAVE_BACKGROUND)
    }

    fn save_with(&mut self, directory: &Path, step: i64, flags: u32) -> Result<()> {
        let directory = c_path(directory)?;
        // SAFETY: handle and path are good for the call.
        call(|| unsafe { sys::mp_checkpoint_save(self.raw(), directory.as_ptr(), step, flags) })
    }

    /// Loads into what was added: from a checkpoint, or the newest intact one of a directory. Where anything is
    /// wrong, nothing has changed. A note says which damaged ones were passed over.
    pub fn load(&mut self, path: impl AsRef<Path>, how: &Load) -> Result<CheckpointInfo> {
        let path = c_path(path.as_ref())?;
        let with = |condition, flag| if condition { flag } else { 0 };
        let flags = with(how.verify_all, sys::MP_LOAD_VERIFY_ALL)
            | with(how.other_recipe, sys::MP_LOAD_OTHER_RECIPE)
            | with(how.convert, sys::MP_LOAD_CONVERT);
        // SAFETY: handle, path and struct are good for the call.
        let raw = stored(sys::mp_checkpoint_info::INIT, |raw| unsafe {
            sys::mp_checkpoint_load(self.raw(), path.as_ptr(), flags, raw)
        })?;
        Ok(CheckpointInfo::from_raw(&raw))
    }

    /// Whether a save in the background is running.
    pub fn is_saving(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        let status = call_status(|| unsafe { sys::mp_checkpoint_test(self.raw()) })?;
        Ok(status == sys::MP_STATUS_NOT_READY)
    }

    /// Waits until a save in the background has ended, and says how it went, once.
    pub fn wait(&mut self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_checkpoint_wait(self.raw()) })
    }

    /// Writes the parameters alone as one safetensors file, which must not exist.
    pub fn export_weights(&mut self, file: impl AsRef<Path>) -> Result<()> {
        let file = c_path(file.as_ref())?;
        // SAFETY: handle and path are good for the call.
        call(|| unsafe { sys::mp_checkpoint_export_weights(self.raw(), file.as_ptr()) })
    }

    /// The raw handle, for calls of [`sys`]. It stays this object's.
    pub fn raw(&self) -> *mut sys::mp_checkpoint {
        self.handle.get()
    }
}

unsafe extern "C" fn on_progress(done: i64, total: i64, payload: *mut c_void) {
    let progress = &*(payload as *const ProgressFn);
    callback(|| progress(done.max(0) as u64, total.max(0) as u64));
}
