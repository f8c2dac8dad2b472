// SPDX-License-Identifier: Apache-2.0
//! Ranks that share the states of an optimizer (ZeRO).
use crate::comm::Traffic;
use crate::error::{call, copied, invalid, number, stored, Result};
use crate::{sys, DType, Optimizer, Order, WireScale};
use std::ops::Range;

/// How parameters are cut among ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum ShardKind {
    /// A bucket's chunks in equal runs.
    #[default]
    Flat = sys::MP_SHARD_FLAT,
    /// Each parameter's chunks in equal runs.
    PerParameter = sys::MP_SHARD_PER_PARAMETER,
    /// Whole parameters.
    Greedy = sys::MP_SHARD_GREEDY,
}

/// How ranks share an optimizer. The default is stage 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// 0: gradients are summed; 1: states are shared; 2: gradients, too; 3: weights, too.
    pub stage: i32,
    /// How parameters are cut.
    pub kind: ShardKind,
    /// Gradients are summed, not averaged.
    pub sum_gradients: bool,
    /// Nothing moves between the calls.
    pub no_progress_thread: bool,
    /// Elements of a bucket of gradients; 0: 2^24.
    pub bucket_elements: usize,
    /// Gradients on the wire; `None`: as the recipe says.
    pub wire_dtype: Option<DType>,
    /// Scales of fp8 there.
    pub wire_scale: WireScale,
    /// Which bits are promised.
    pub order: Order,
    /// Orders tree and exact: micro-batches of all ranks together; 0: one a rank.
    pub slots: i32,
    /// So many ranks share one copy; 0: all.
    pub shard_ranks: i32,
    /// Every so many steps a hash of all weights is compared; 0: never.
    pub check_every: i32,
    /// So many ranks add their gradients first; 0: one level.
    pub node_ranks: i32,
}

impl Default for Sharding {
    fn default() -> Self {
        Sharding::stage(1)
    }
}

impl Sharding {
    /// A stage of ZeRO, all else by default.
    pub fn stage(stage: i32) -> Sharding {
        Sharding {
            stage,
            kind: ShardKind::Flat,
            sum_gradients: false,
            no_progress_thread: false,
            bucket_elements: 0,
            wire_dtype: None,
            wire_scale: WireScale::Default,
            order: Order::Rank,
            slots: 0,
            shard_ranks: 0,
            check_every: 0,
            node_ranks: 0,
        }
    }

    pub(crate) fn raw(&self) -> sys::mp_sharding_desc {
        let with = |condition, flag| if condition { flag } else { 0 };
        sys::mp_sharding_desc {
            flags: with(self.sum_gradients, sys::MP_SHARDING_SUM_GRADIENTS)
                | with(self.no_progress_thread, sys::MP_SHARDING_NO_PROGRESS_THREAD),
            stage: if self.stage == 0 { sys::MP_SHARDING_STAGE_0 } else { self.stage },
            kind: self.kind as i32,
            // More than there can be is as good as the largest number.
            bucket_elements: i64::try_from(self.bucket_elements).unwrap_or(i64::MAX),
            wire_dtype: self.wire_dtype.map_or(sys::MP_DTYPE_NONE, |dtype| dtype as i32),
            wire_scale: self.wire_scale as i32,
            order: self.order as i32,
            slots: self.slots,
            shard_ranks: self.shard_ranks,
            check_every: self.check_every,
            node_ranks: self.node_ranks,
            ..sys::mp_sharding_desc::INIT
        }
    }
}

/// A pass of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Pass {
    /// Weights are used.
    Forward = sys::MP_PASS_FORWARD,
    /// Gradients have their last addition.
    Backward = sys::MP_PASS_BACKWARD,
    /// Backward too, but another micro-batch adds to the gradients: they do not leave.
    Accumulate = sys::MP_PASS_ACCUMULATE,
}

/// What moves between the calls of a sharded optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// A thread moves messages on while the program computes.
    pub has_thread: bool,
    /// Messages begun.
    pub begun: i64,
    /// Of them finished.
    pub finished: i64,
    /// Of these by the thread.
    pub finished_by_thread: i64,
    /// Why there is no thread.
    pub reason: String,
}

/// Of a sharded optimizer. Every rank makes the same calls in the same order.
impl Optimizer<'_> {
    /// Cuts the parameters and makes this rank's states. The first step does it where nobody has. From stage 2 on
    /// gradients must be the optimizer's own, in stage 3 weights be memory of the library's: it comes and goes.
    pub fn shard(&mut self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.enqueue(false, || unsafe { sys::mp_optimizer_shard(self.raw(), self.queue()) })
    }

    /// A gradient has its last addition: it leaves as soon as its bucket is full.
    pub fn grad_ready(&mut self, param: i32) -> Result<()> {
        // SAFETY: the handle is alive. The gradient is copied before this returns.
        self.enqueue(true, || unsafe { sys::mp_optimizer_grad_ready(self.raw(), self.queue(), param) })
    }

    /// All gradients of one of this rank's several slots are there.
    pub fn end_microbatch(&mut self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.enqueue(true, || unsafe { sys::mp_optimizer_end_microbatch(self.raw(), self.queue()) })
    }

    /// Stage 2 and 3: gives a gradient its memory, of zeros, where it has none.
    pub fn acquire_grad(&mut self, param: i32) -> Result<()> {
        // SAFETY: the handle is alive.
        self.enqueue(false, || unsafe { sys::mp_optimizer_acquire_grad(self.raw(), self.queue(), param) })
    }

    /// Stage 3: makes these parameters whole.
    pub fn gather(&mut self, params: &[i32]) -> Result<()> {
        // SAFETY: nobody touches the parameters before they are whole.
        unsafe { self.gather_begin(params)? };
        self.gather_wait(params)
    }

    /// Stage 3: begins to fetch these parameters, for layers to come; [`Optimizer::gather_wait`] ends it.
    ///
    /// # Safety
    /// Until then nobody reads or writes their tensors: a thread of the library's writes there.
    pub unsafe fn gather_begin(&mut self, params: &[i32]) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        call(|| sys::mp_optimizer_gather_begin(self.raw(), self.queue(), params.as_ptr(), count))
    }

    /// Stage 3: returns when these parameters are whole.
    pub fn gather_wait(&mut self, params: &[i32]) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        // SAFETY: handle and array are good for the call.
        call(|| unsafe { sys::mp_optimizer_gather_wait(self.raw(), self.queue(), params.as_ptr(), count) })
    }

    /// Stage 3: gives their memory back. What was written there is lost.
    pub fn gather_free(&mut self, params: &[i32]) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        // SAFETY: handle and array are good for the call.
        call(|| unsafe { sys::mp_optimizer_gather_free(self.raw(), self.queue(), params.as_ptr(), count) })
    }

    /// Says which parameters each layer of the model uses, in the order of its forward pass, for
    /// [`Optimizer::layer_begin`]; and how many layers ahead weights are fetched. A parameter may belong to several. Not
    /// while a layer has begun.
    pub fn set_layer_params(&mut self, layers: &[&[i32]], prefetch: usize) -> Result<()> {
        let counts = layers.iter().map(|layer| number(layer.len(), "the number of parameters"));
        let (counts, params) = (counts.collect::<Result<Vec<i32>>>()?, layers.concat());
        let (count, prefetch) = (number(layers.len(), "the number of layers")?, number(prefetch, "prefetch")?);
        // SAFETY: the handle is alive, and the arrays are good for the call.
        call(|| unsafe {
            sys::mp_optimizer_set_layer_params(self.raw(), count, counts.as_ptr(), params.as_ptr(), prefetch)
        })
    }

    /// Before a layer, by its number from 0, computes: its weights are whole, those of the next layers are on their way,
    /// and before backward its gradients have memory. [`Optimizer::layer_end`] follows.
    ///
    /// # Safety
    /// Nobody reads or writes tensors of the layers that are on their way until these begin: a thread of the library's
    /// writes there. Those of layers that have begun are whole. With a `prefetch` of 0 nothing is on its way.
    pub unsafe fn layer_begin(&mut self, layer: usize, pass: Pass) -> Result<()> {
        let layer = number(layer, "the layer")?;
        self.enqueue(false, || sys::mp_optimizer_layer_begin(self.raw(), self.queue(), layer, pass as i32))
    }

    /// After a layer has computed, with the pass that began: its weights give their memory back, and after backward its
    /// gradients leave. A step ends what has not ended.
    pub fn layer_end(&mut self, layer: usize, pass: Pass) -> Result<()> {
        let layer = number(layer, "the layer")?;
        // SAFETY: the handle is alive. The gradients are copied before this returns.
        self.enqueue(true, || unsafe { sys::mp_optimizer_layer_end(self.raw(), self.queue(), layer, pass as i32) })
    }

    /// Which elements of a parameter a rank owns.
    pub fn slice(&self, param: i32, rank: i32) -> Result<Range<usize>> {
        let (mut start, mut count) = (0, 0);
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_get_slice(self.raw(), param, rank, &mut start, &mut count) })?;
        let (start, count): (usize, usize) = (number(start, "the start")?, number(count, "the count")?);
        let end = start.checked_add(count).ok_or_else(|| invalid("the slice is too large"))?;
        Ok(start..end)
    }

    /// Whether messages move while the program computes, and how many have.
    pub fn progress(&self) -> Result<Progress> {
        let mut raw = sys::mp_sharding_progress::INIT;
        // SAFETY: handle and struct are good for the call; the text stays.
        unsafe {
            call(|| sys::mp_optimizer_get_progress(self.raw(), &mut raw))?;
            Ok(Progress {
                has_thread: raw.has_thread != 0,
                begun: raw.begun,
                finished: raw.finished,
                finished_by_thread: raw.finished_by_thread,
                reason: copied(raw.reason),
            })
        }
    }

    /// FP8-LM's factor mu of a gradient that is reduced under a shared scale; 0 where it has none.
    pub fn grad_mu(&self, param: i32) -> Result<f64> {
        // SAFETY: the handle is alive.
        stored(0.0, |mu| unsafe { sys::mp_optimizer_get_grad_mu(self.raw(), param, mu) })
    }

    /// What this rank has sent for this optimizer.
    pub fn traffic(&self) -> Result<Traffic> {
        // SAFETY: handle and struct are good for the call.
        let raw =
            stored(sys::mp_comm_traffic::INIT, |raw| unsafe { sys::mp_optimizer_get_traffic(self.raw(), raw) })?;
        Ok(Traffic::from_raw(&raw))
    }
}
