// SPDX-License-Identifier: Apache-2.0
//! Rules of the optimizer, as the library knows them: their states and hyperparameters.
use crate::error::{c_string, static_text, Error, Result};
use crate::sys;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr::null;

/// What moves the weights, and which states it keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Rule {
    /// exp_avg and exp_avg_sq; weight decay is decoupled.
    #[default]
    AdamW = sys::MP_RULE_ADAMW,
    /// The same states; weight decay is a part of the gradient (L2).
    Adam = sys::MP_RULE_ADAM,
    /// exp_avg; no eps, no bias correction.
    Lion = sys::MP_RULE_LION,
}

impl Rule {
    pub(crate) fn from_raw(number: i32) -> Rule {
        match number {
            sys::MP_RULE_ADAM => Rule::Adam,
            sys::MP_RULE_LION => Rule::Lion,
            _ => Rule::AdamW,
        }
    }

    fn info(self) -> sys::mp_rule_info {
        let mut info = sys::mp_rule_info::INIT;
        // SAFETY: every Rule is a number of the library's, and the struct is good for the call.
        unsafe { sys::mp_rule_get_info(self as i32, &mut info) };
        info
    }

    /// The states that it keeps for each parameter, in its order: "exp_avg" and so on.
    pub fn states(self) -> Vec<&'static str> {
        let name = |index| {
            let mut state = sys::mp_rule_state::INIT;
            // SAFETY: as above; names are static.
            unsafe {
                sys::mp_rule_get_state(self as i32, index, &mut state);
                static_text(state.name)
            }
        };
        (0..self.info().state_count).map(name).collect()
    }

    /// Where a state stands in that order.
    pub(crate) fn place(self, state: &str) -> Result<usize> {
        let states = self.states();
        states.iter().position(|&name| name == state).ok_or_else(|| {
            let message = format!("{self:?} keeps no state {state:?}; it keeps {}", states.join(", "));
            Error::new(sys::MP_STATUS_UNKNOWN_NAME, message)
        })
    }

    /// `state_formats` of a struct, and the texts that it points to.
    pub(crate) fn formats(
        self,
        formats: &BTreeMap<String, String>,
    ) -> Result<([*const c_char; sys::MP_MAX_RULE_STATES as usize], Vec<CString>)> {
        let (mut ordered, mut texts) = ([null(); sys::MP_MAX_RULE_STATES as usize], Vec::new());
        for (state, format) in formats {
            let text = c_string(format)?;
            ordered[self.place(state)?] = text.as_ptr();
            texts.push(text);
        }
        Ok((ordered, texts))
    }

    /// Its hyperparameters.
    fn hypers(self) -> impl Iterator<Item = sys::mp_rule_hyper> {
        (0..self.info().hyper_count).map(move |index| {
            let mut hyper = sys::mp_rule_hyper::INIT;
            // SAFETY: as above.
            unsafe { sys::mp_rule_get_hyper(self as i32, index, &mut hyper) };
            hyper
        })
    }
}

/// Numbers by MP_STATE_*, by name.
pub(crate) fn by_state<T>(numbers: impl IntoIterator<Item = T>) -> BTreeMap<&'static str, T> {
    // SAFETY: any number is allowed; names are static.
    let named =
        (0..).zip(numbers).map(|(state, number)| (unsafe { static_text(sys::mp_rule_state_name(state)) }, number));
    named.take_while(|(name, _)| !name.is_empty()).collect()
}

/// What a rule is told. Each number is meant as it stands, zero too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperparameters {
    /// What moves the weights.
    pub rule: Rule,
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, in [0, 1).
    pub beta1: f64,
    /// Decay of the second moment, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// The gradient's sign is turned.
    pub maximize: bool,
    /// Both bias corrections are 1.
    pub no_bias_correction: bool,
}

impl Default for Hyperparameters {
    fn default() -> Self {
        Hyperparameters::usual(Rule::default())
    }
}

impl Hyperparameters {
    /// What is usual for a rule, as the library has it; 0 where the rule does not read it.
    pub fn usual(rule: Rule) -> Self {
        let mut usual = Hyperparameters {
            rule,
            lr: 0.0,
            beta1: 0.0,
            beta2: 0.0,
            eps: 0.0,
            weight_decay: 0.0,
            maximize: false,
            no_bias_correction: false,
        };
        for hyper in rule.hypers() {
            if let Some(number) = usual.named(&hyper) {
                *number = hyper.usual;
            }
        }
        usual
    }

    /// The usual numbers of Lion.
    pub fn lion() -> Self {
        Hyperparameters::usual(Rule::Lion)
    }

    fn named(&mut self, hyper: &sys::mp_rule_hyper) -> Option<&mut f64> {
        // SAFETY: names are static.
        match unsafe { static_text(hyper.name) } {
            "lr" => Some(&mut self.lr),
            "beta1" => Some(&mut self.beta1),
            "beta2" => Some(&mut self.beta2),
            "eps" => Some(&mut self.eps),
            "weight_decay" => Some(&mut self.weight_decay),
            _ => None,
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        let with = |condition, flag| if condition { flag } else { 0 };
        with(self.maximize, sys::MP_RULE_MAXIMIZE) | with(self.no_bias_correction, sys::MP_RULE_NO_BIAS_CORRECTION)
    }

    /// The zeros, by name: where the library's structs have 0, it is the usual number that is meant.
    pub(crate) fn zeros(mut self) -> Vec<sys::mp_hyper> {
        let hypers = self.rule.hypers();
        let zeros =
            hypers.filter(|hyper| hyper.usual != 0.0 && self.named(hyper).map_or(false, |number| *number == 0.0));
        zeros.map(|hyper| sys::mp_hyper { name: hyper.name, value: 0.0 }).collect()
    }
}
