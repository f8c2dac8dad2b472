// SPDX-License-Identifier: Apache-2.0
//! Plans of memory and traffic, before anything is allocated.
use crate::comm::Traffic;
use crate::error::{c_string, call, number, Result};
use crate::rule::by_state;
use crate::{sys, DType, OptimizerOptions, Recipe, Rule, Sharding};
use std::collections::BTreeMap;

/// Bytes by class of tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Elements.
    pub parameter_count: i64,
    /// The model's own copy.
    pub weight_bytes: i64,
    /// The extra copy that is updated.
    pub master_bytes: i64,
    /// Main gradients.
    pub grad_bytes: i64,
    /// States of rules by name, such as "exp_avg".
    pub state_bytes: BTreeMap<&'static str, i64>,
    /// Kahan's compensation.
    pub compensation_bytes: i64,
    /// Gradients summed over ranks, in fp32.
    pub reduced_grad_bytes: i64,
    /// With offload: the host's copy of the weights, and the buckets in which gradients and weights travel.
    pub offload_bytes: i64,
    /// Of the total, what lies in host memory with offload.
    pub host_bytes: i64,
    /// All of it.
    pub total_bytes: i64,
}

impl MemoryReport {
    pub(crate) fn from_raw(raw: &sys::mp_memory_report) -> MemoryReport {
        MemoryReport {
            parameter_count: raw.parameter_count,
            weight_bytes: raw.weight_bytes,
            master_bytes: raw.master_bytes,
            grad_bytes: raw.grad_bytes,
            state_bytes: by_state(raw.state_bytes),
            compensation_bytes: raw.compensation_bytes,
            reduced_grad_bytes: raw.reduced_grad_bytes,
            offload_bytes: raw.offload_bytes,
            host_bytes: raw.host_bytes,
            total_bytes: raw.total_bytes,
        }
    }
}

/// A parameter before there is one, for [`Recipe::plan_tensors`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedTensor {
    /// Elements.
    pub count: usize,
    /// `None`: the recipe's weight.dtype. `Fp32`: kept in fp32. `Fp8E4M3`, `Fp8E5M2`: codes that ranks gather.
    pub weight_dtype: Option<DType>,
    /// Of its group.
    pub rule: Rule,
    /// What the states of its group are kept in, by [`Rule::states`]; what is not here, as the recipe says.
    pub state_formats: BTreeMap<String, String>,
    /// Dimensions: vectors are gathered as they are kept. 0: 1 where `weight_dtype` is `Fp32`, else 2.
    pub ndim: i32,
    /// For the rules of the recipe's key "layers"; empty: none fits.
    pub name: String,
}

impl PlannedTensor {
    /// In the recipe's types.
    pub fn new(count: usize) -> PlannedTensor {
        PlannedTensor { count, ..PlannedTensor::default() }
    }
}

impl Recipe {
    /// Exact bytes for tensors of so many elements each, before anything is allocated.
    pub fn plan_memory(&self, rule: Rule, counts: &[usize]) -> Result<MemoryReport> {
        let counts = counts.iter().map(|&count| number(count, "a count")).collect::<Result<Vec<i64>>>()?;
        let mut report = sys::mp_memory_report::INIT;
        // SAFETY: handle, counts and report are good for the call.
        call(|| unsafe {
            let (pointer, length) = (counts.as_ptr(), counts.len() as i64);
            sys::mp_recipe_plan_memory_of_tensors(self.raw(), rule as i32, pointer, length, &mut report)
        })?;
        Ok(MemoryReport::from_raw(&report))
    }

    /// The same for rank `rank` of `ranks` that share an optimizer.
    pub fn plan_memory_sharded(
        &self,
        rule: Rule,
        counts: &[usize],
        sharding: &Sharding,
        rank: usize,
        ranks: usize,
    ) -> Result<MemoryReport> {
        let counts = counts.iter().map(|&count| number(count, "a count")).collect::<Result<Vec<i64>>>()?;
        let (rank, ranks) = (number(rank, "the rank")?, number(ranks, "the number of ranks")?);
        let desc = sharding.raw();
        let mut report = sys::mp_memory_report::INIT;
        // SAFETY: handle, counts, descriptor and report are good for the call.
        call(|| unsafe {
            sys::mp_recipe_plan_memory_sharded(
                self.raw(),
                rule as i32,
                counts.as_ptr(),
                counts.len() as i64,
                &desc,
                rank,
                ranks,
                &mut report,
            )
        })?;
        Ok(MemoryReport::from_raw(&report))
    }

    /// The same where tensors differ: kept in fp32 beside the recipe's weights, in groups with formats of their own, or
    /// gathered as codes; and what a rank sends in a step, the mean over the ranks. Of the options `offload` and
    /// `grads_given` count.
    pub fn plan_tensors(
        &self,
        options: &OptimizerOptions,
        tensors: &[PlannedTensor],
        sharding: &Sharding,
        rank: usize,
        ranks: usize,
    ) -> Result<(MemoryReport, Traffic)> {
        let (rank, ranks) = (number(rank, "the rank")?, number(ranks, "the number of ranks")?);
        let formats =
            tensors.iter().map(|tensor| tensor.rule.formats(&tensor.state_formats)).collect::<Result<Vec<_>>>()?;
        let names = tensors.iter().map(|tensor| c_string(&tensor.name)).collect::<Result<Vec<_>>>()?;
        let planned = tensors
            .iter()
            .zip(&formats)
            .zip(&names)
            .map(|((tensor, &(state_formats, _)), name)| {
                Ok(sys::mp_planned_tensor {
                    weight_dtype: tensor.weight_dtype.map_or(sys::MP_DTYPE_NONE, |dtype| dtype as i32),
                    count: number(tensor.count, "a count")?,
                    rule: tensor.rule as i32,
                    ndim: tensor.ndim,
                    state_formats,
                    name: name.as_ptr(),
                    ..sys::mp_planned_tensor::INIT
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let (optimizer, desc) = (options.raw(), sharding.raw());
        let (mut memory, mut traffic) = (sys::mp_memory_report::INIT, sys::mp_comm_traffic::INIT);
        // SAFETY: handle, tensors with their texts, descriptor and reports are good for the call.
        call(|| unsafe {
            let (pointer, length) = (planned.as_ptr(), planned.len() as i64);
            sys::mp_recipe_plan_tensors(
                self.raw(),
                &optimizer,
                pointer,
                length,
                &desc,
                rank,
                ranks,
                &mut memory,
                &mut traffic,
            )
        })?;
        Ok((MemoryReport::from_raw(&memory), Traffic::from_raw(&traffic)))
    }
}
