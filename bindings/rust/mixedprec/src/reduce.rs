// SPDX-License-Identifier: Apache-2.0
//! Reductions of tensors over ranks: what goes over the wire and what comes out have types of their own.
use crate::context::Place;
use crate::error::{bad_shape, number, stored, Result};
use crate::{sys, Comm, DType, Tensor};
use std::ptr::{null, null_mut};

/// Which bits are promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Order {
    /// Left to right by rank: the same for a fixed number of ranks.
    #[default]
    Rank = sys::MP_COMM_ORDER_RANK,
    /// The balanced tree over slots: the same for every number of ranks.
    Tree = sys::MP_COMM_ORDER_TREE,
    /// Fixed point and one rounding: also for any order of the slots.
    Exact = sys::MP_COMM_ORDER_EXACT,
    /// Only that every rank gets the same.
    Fast = sys::MP_COMM_ORDER_FAST,
}

/// What is added in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Accumulate {
    /// fp32; integers for [`Order::Exact`].
    #[default]
    Default = sys::MP_COMM_ACCUMULATE_DEFAULT,
    /// fp32.
    Fp32 = sys::MP_COMM_ACCUMULATE_FP32,
    /// fp64.
    Fp64 = sys::MP_COMM_ACCUMULATE_FP64,
    /// 64-bit integers.
    Fixed = sys::MP_COMM_ACCUMULATE_FIXED,
}

/// Scales of fp8 on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum WireScale {
    /// By block for fp8; other types have none.
    #[default]
    Default = sys::MP_COMM_SCALE_DEFAULT,
    /// One fp32 scale a message.
    Tensor = sys::MP_COMM_SCALE_TENSOR,
    /// An fp32 scale for 128 elements.
    Block = sys::MP_COMM_SCALE_BLOCK,
    /// An e8m0 scale for 32 elements.
    Mx = sys::MP_COMM_SCALE_MX,
    /// None: ranks agreed on it; for a sharded optimizer.
    Shared = sys::MP_COMM_SCALE_SHARED,
}

/// How values are sent and added. The default: sums in order of the ranks, in the types of the tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReduceOptions {
    /// The largest |x| of each element instead of the sum.
    pub max_abs: bool,
    /// Which bits are promised.
    pub order: Order,
    /// What is added in.
    pub accumulate: Accumulate,
    /// Orders tree and exact: contributions of all ranks; 0: one a rank.
    pub slots: i32,
    /// The type on the wire; `None`: the sources'.
    pub wire_dtype: Option<DType>,
    /// Its scales.
    pub wire_scale: WireScale,
    /// The type in the second half of an all-reduce; `None`: the destination's.
    pub gather_dtype: Option<DType>,
    /// Its scales.
    pub gather_scale: WireScale,
    /// Which logical element the array begins with.
    pub first_element: i64,
    /// Stochastic rounding to the wire.
    pub stochastic: Option<crate::Stochastic>,
}

impl ReduceOptions {
    fn raw(&self) -> sys::mp_comm_reduce_desc {
        let dtype = |dtype: Option<DType>| dtype.map_or(sys::MP_DTYPE_NONE, |dtype| dtype as i32);
        let mut desc = sys::mp_comm_reduce_desc {
            op: if self.max_abs { sys::MP_COMM_OP_MAX_ABS_BITS } else { sys::MP_COMM_OP_SUM },
            order: self.order as i32,
            accumulate: self.accumulate as i32,
            slots: self.slots,
            wire_dtype: dtype(self.wire_dtype),
            wire_scale: self.wire_scale as i32,
            gather_dtype: dtype(self.gather_dtype),
            gather_scale: self.gather_scale as i32,
            first_element: self.first_element,
            ..sys::mp_comm_reduce_desc::INIT
        };
        if let Some(random) = self.stochastic {
            desc.flags = sys::MP_REDUCE_STOCHASTIC;
            desc.seed = random.seed;
            desc.uid = random.uid;
            desc.step = random.step;
            desc.microbatch = i32::from(random.microbatch);
        }
        desc
    }
}

/// Bytes that so many elements take on the wire, scales included.
pub fn wire_bytes(count: usize, dtype: DType, scale: WireScale) -> Result<usize> {
    let count = number(count, "the count")?;
    // SAFETY: numbers, and a place for one.
    let bytes = stored(0, |bytes| unsafe { sys::mp_comm_get_wire_bytes(count, dtype as i32, scale as i32, bytes) })?;
    number(bytes, "the number of bytes")
}

/// Reductions wait until they are done. All are collective.
impl Comm {
    /// The same sums (or maxima) of all elements on every rank. `sources`: one tensor, or one for each slot of this
    /// rank; `destination`: as many elements, in memory of its own.
    pub fn all_reduce(&self, options: &ReduceOptions, sources: &[&Tensor], destination: &Tensor) -> Result<()> {
        let (desc, sources) = (options.raw(), raw(sources));
        let count = number(sources.len(), "the number of sources")?;
        // SAFETY: all handles are alive and used until this returns; shapes, types and overlap are checked there.
        self.reduce(destination, |queue| unsafe {
            let destination = destination.raw();
            sys::mp_comm_all_reduce(self.raw(), queue, &desc, sources.as_ptr(), count, destination, null_mut())
        })
    }

    /// Each rank gets the sums of its share: `counts` says how many elements each rank has; `None`: even shares that
    /// begin at multiples of 128.
    pub fn reduce_scatter(
        &self,
        options: &ReduceOptions,
        sources: &[&Tensor],
        counts: Option<&[usize]>,
        destination: &Tensor,
    ) -> Result<()> {
        let (desc, sources, counts) = (options.raw(), raw(sources), self.shares(counts)?);
        let count = number(sources.len(), "the number of sources")?;
        // SAFETY: as above, and there is a count for each rank.
        self.reduce(destination, |queue| unsafe {
            let (counts, destination) = (pointer(&counts), destination.raw());
            let sources = sources.as_ptr();
            sys::mp_comm_reduce_scatter(self.raw(), queue, &desc, sources, count, counts, destination, null_mut())
        })
    }

    /// Every rank gets the values of all: `shard` has this rank's share, `destination` all elements.
    pub fn all_gather_values(
        &self,
        options: &ReduceOptions,
        shard: &Tensor,
        counts: Option<&[usize]>,
        destination: &Tensor,
    ) -> Result<()> {
        let (desc, counts) = (options.raw(), self.shares(counts)?);
        // SAFETY: as above, and there is a count for each rank.
        self.reduce(destination, |queue| unsafe {
            let (counts, destination) = (pointer(&counts), destination.raw());
            sys::mp_comm_all_gather_values(self.raw(), queue, &desc, shard.raw(), counts, destination, null_mut())
        })
    }

    fn shares(&self, counts: Option<&[usize]>) -> Result<Option<Vec<i64>>> {
        let counts = match counts {
            None => return Ok(None),
            Some(counts) => counts,
        };
        let size = self.size()?;
        if counts.len() != size {
            return Err(bad_shape(format!("{} counts, and there are {size} ranks", counts.len())));
        }
        counts.iter().map(|&count| number(count, "a count")).collect::<Result<Vec<i64>>>().map(Some)
    }

    fn reduce(
        &self,
        destination: &Tensor,
        function: impl FnOnce(*mut sys::mp_queue) -> sys::mp_status,
    ) -> Result<()> {
        let place: &Place = &destination.place;
        place.enqueue(destination.touches_host(&[]), || function(place.queue()))
    }
}

fn raw(tensors: &[&Tensor]) -> Vec<*const sys::mp_tensor> {
    tensors.iter().map(|tensor| tensor.raw() as *const _).collect()
}

fn pointer(counts: &Option<Vec<i64>>) -> *const i64 {
    counts.as_ref().map_or(null(), |counts| counts.as_ptr())
}
