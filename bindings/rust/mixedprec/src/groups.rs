// SPDX-License-Identifier: Apache-2.0
//! Groups of an optimizer and their parameters.
use crate::error::{c_string, call, copied, number, stored, text, Result};
use crate::optimizer::all_or;
use crate::tensor::raw_or_null;
use crate::{sys, Hyperparameters, Optimizer, Rule, Tensor};
use std::collections::BTreeMap;
use std::ffi::CString;

/// A group of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupOptions {
    /// Its numbers.
    pub hyperparameters: Hyperparameters,
    /// What its states are kept in, such as "fp32", by [`Rule::states`]; what is not here, as the recipe says.
    pub state_formats: BTreeMap<String, String>,
}

impl From<Hyperparameters> for GroupOptions {
    fn from(hyperparameters: Hyperparameters) -> Self {
        GroupOptions { hyperparameters, ..GroupOptions::default() }
    }
}

/// A parameter, for [`Optimizer::add_param`].
pub struct Param<'t, 'a> {
    /// Unique; keys states, messages and random numbers.
    pub name: &'t str,
    /// The weight: fp32, or the recipe's `weight.dtype`.
    pub param: &'t Tensor<'a>,
    /// Its main gradient; `None`: one is made, to be had as the state "grad".
    pub grad: Option<&'t Tensor<'a>>,
    /// Its exact first value in fp32: the weight becomes its rounding, and master weight or compensation what that
    /// loses.
    pub initial: Option<&'t Tensor<'t>>,
    /// Another rank of [`Optimizer::set_norm_comm`] counts its gradient in the norm.
    pub norm_elsewhere: bool,
    /// It is not trained, and has neither gradient nor states.
    pub frozen: bool,
}

impl<'t, 'a> Param<'t, 'a> {
    /// A parameter whose gradient the optimizer makes.
    pub fn new(name: &'t str, param: &'t Tensor<'a>) -> Param<'t, 'a> {
        Param { name, param, grad: None, initial: None, norm_elsewhere: false, frozen: false }
    }

    /// With a gradient of the program's.
    #[must_use]
    pub fn grad(mut self, grad: &'t Tensor<'a>) -> Self {
        self.grad = Some(grad);
        self
    }

    /// With its exact first value in fp32.
    #[must_use]
    pub fn initial(mut self, values: &'t Tensor<'t>) -> Self {
        self.initial = Some(values);
        self
    }

    // For as long as the name lives.
    fn desc(&self, name: &CString) -> sys::mp_param_desc {
        sys::mp_param_desc {
            flags: if self.norm_elsewhere { sys::MP_PARAM_NORM_ELSEWHERE } else { 0 }
                | if self.frozen { sys::MP_PARAM_FROZEN } else { 0 },
            name: name.as_ptr(),
            param: self.param.raw(),
            grad: raw_or_null(self.grad),
            init_fp32: raw_or_null(self.initial),
            ..sys::mp_param_desc::INIT
        }
    }
}

impl<'a> Optimizer<'a> {
    /// Adds a group and gives its number.
    pub fn add_group(&mut self, options: &GroupOptions) -> Result<i32> {
        let values = &options.hyperparameters;
        let zeros = values.zeros();
        let (state_formats, _texts) = values.rule.formats(&options.state_formats)?;
        let desc = sys::mp_param_group_desc {
            flags: values.flags(),
            lr: values.lr,
            beta1: values.beta1,
            beta2: values.beta2,
            eps: values.eps,
            weight_decay: values.weight_decay,
            rule: values.rule as i32,
            hyper_count: zeros.len() as i32,
            hypers: zeros.as_ptr(),
            state_formats,
            ..sys::mp_param_group_desc::INIT
        };
        // SAFETY: handle, descriptor and what it points to are good for the call.
        stored(0, |index| unsafe { sys::mp_optimizer_add_group(self.raw(), &desc, index) })
    }

    /// Adds a parameter with zero states and gives its number. The same memory under two names is an error.
    pub fn add_param(&mut self, group: i32, param: &Param<'_, 'a>) -> Result<i32> {
        let name = c_string(param.name)?;
        let desc = param.desc(&name);
        let mut index = 0;
        // SAFETY: all handles are alive, the memory under parameter and gradient lives as long as the optimizer, and
        // the initial values are read before this returns.
        self.enqueue(true, || unsafe { sys::mp_optimizer_add_param(self.raw(), group, &desc, &mut index) })?;
        Ok(index)
    }

    /// Adds parameters of one group, all or none, and gives the number of the first one. Where ranks have cut the
    /// parameters there is one exchange for all.
    pub fn add_params(&mut self, group: i32, params: &[Param<'_, 'a>]) -> Result<i32> {
        let names = params.iter().map(|param| c_string(param.name)).collect::<Result<Vec<_>>>()?;
        let descs: Vec<_> = params.iter().zip(&names).map(|(param, name)| param.desc(name)).collect();
        let count = number(descs.len(), "the number of parameters")?;
        let mut first = 0;
        // SAFETY: as for `add_param`, of all of them.
        self.enqueue(true, || unsafe {
            sys::mp_optimizer_add_params(self.raw(), group, descs.as_ptr(), count, &mut first)
        })?;
        Ok(first)
    }

    /// Freezes parameters, which lose gradient and states, or has them trained again, with new ones of zeros and a bias
    /// correction that begins anew. Collective where ranks have cut the parameters.
    pub fn set_frozen(&mut self, params: &[i32], frozen: bool) -> Result<()> {
        let count = number(params.len(), "the number of parameters")?;
        // SAFETY: the handle is alive, the memory under all parameters, and the array is good for the call.
        self.enqueue(true, || unsafe {
            sys::mp_optimizer_set_frozen(self.raw(), self.queue(), params.as_ptr(), count, i32::from(frozen))
        })
    }

    /// Whether a parameter is frozen.
    pub fn is_frozen(&self, param: i32) -> Result<bool> {
        // SAFETY: the handle is alive.
        let frozen = stored(0, |frozen| unsafe { sys::mp_optimizer_get_frozen(self.raw(), param, frozen) })?;
        Ok(frozen != 0)
    }

    /// The learning rate of a group, from the next step on; `None`: of all groups.
    pub fn set_lr(&mut self, group: Option<i32>, lr: f64) -> Result<()> {
        let group = all_or(group)?;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_lr(self.raw(), group, lr) })
    }

    /// Lets every step read a group's learning rate from one fp32 element on the context's device; without `lr`, the
    /// number again.
    pub fn set_lr_tensor(&mut self, group: Option<i32>, lr: Option<&Tensor<'a>>) -> Result<()> {
        let group = all_or(group)?;
        // SAFETY: both handles are alive, and the memory under `lr` as long as the optimizer.
        call(|| unsafe { sys::mp_optimizer_set_lr_tensor(self.raw(), group, raw_or_null(lr)) })
    }

    /// Turns a group on or off: no step touches its parameters, and t stays. `None`: all groups.
    pub fn set_enabled(&mut self, group: Option<i32>, enabled: bool) -> Result<()> {
        let group = all_or(group)?;
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_enabled(self.raw(), group, i32::from(enabled)) })
    }

    /// Whether a group is on.
    pub fn is_enabled(&self, group: i32) -> Result<bool> {
        // SAFETY: the handle is alive.
        let enabled = stored(0, |enabled| unsafe { sys::mp_optimizer_get_enabled(self.raw(), group, enabled) })?;
        Ok(enabled != 0)
    }

    /// Groups added.
    pub fn group_count(&self) -> Result<i32> {
        // SAFETY: the handle is alive.
        stored(0, |count| unsafe { sys::mp_optimizer_get_group_count(self.raw(), count) })
    }

    /// A group as it is now.
    pub fn group(&self, group: i32) -> Result<GroupOptions> {
        // SAFETY: handle and struct are good for the call.
        let raw = stored(sys::mp_param_group_desc::INIT, |raw| unsafe {
            sys::mp_optimizer_get_group(self.raw(), group, raw)
        })?;
        let rule = Rule::from_raw(raw.rule);
        // SAFETY: static texts.
        let formats = raw.state_formats.iter().map(|&format| unsafe { copied(format) });
        Ok(GroupOptions {
            hyperparameters: Hyperparameters {
                rule,
                lr: raw.lr,
                beta1: raw.beta1,
                beta2: raw.beta2,
                eps: raw.eps,
                weight_decay: raw.weight_decay,
                maximize: raw.flags & sys::MP_RULE_MAXIMIZE != 0,
                no_bias_correction: raw.flags & sys::MP_RULE_NO_BIAS_CORRECTION != 0,
            },
            state_formats: rule.states().into_iter().map(str::to_owned).zip(formats).collect(),
        })
    }

    /// t of one group: the steps it took part in.
    pub fn group_step(&self, group: i32) -> Result<i64> {
        // SAFETY: the handle is alive.
        stored(0, |step| unsafe { sys::mp_optimizer_get_group_step(self.raw(), self.place.queue(), group, step) })
    }

    /// Sets t of one group alone.
    pub fn set_group_step(&mut self, group: i32, step: i64) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_optimizer_set_group_step(self.raw(), self.place.queue(), group, step) })
    }

    /// Parameters added.
    pub fn param_count(&self) -> Result<i32> {
        // SAFETY: the handle is alive.
        stored(0, |count| unsafe { sys::mp_optimizer_get_param_count(self.raw(), count) })
    }

    /// A parameter's name.
    pub fn param_name(&self, param: i32) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe {
            sys::mp_optimizer_get_param_name(self.raw(), param, buffer, capacity, needed)
        })
    }

    /// A parameter's group.
    pub fn param_group(&self, param: i32) -> Result<i32> {
        // SAFETY: the handle is alive.
        stored(0, |group| unsafe { sys::mp_optimizer_get_param_group(self.raw(), param, group) })
    }
}
