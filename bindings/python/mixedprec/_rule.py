# SPDX-License-Identifier: Apache-2.0
"""The optimizer's rules as the library knows them: their numbers, states and hyperparameters."""

from ctypes import c_char_p, c_int32
from functools import cache

from . import capi
from ._library import call, choice, filled, flags, value


@cache
def rules():
    """{"adamw": MP_RULE_ADAMW, ...}"""
    count = value(c_int32, "mp_rule_get_count")
    return {filled(capi.mp_rule_info, "mp_rule_get_info", rule).name.decode(): rule for rule in range(count)}


def rule_number(rule):
    return choice(rules(), rule, "rule")


def rule_name(number):
    return next(name for name, known in rules().items() if known == number)


@cache
def usual(rule):
    """{"lr": 1e-3, ...} of what the rule with this number reads."""
    count = filled(capi.mp_rule_info, "mp_rule_get_info", rule).hyper_count
    known = (filled(capi.mp_rule_hyper, "mp_rule_get_hyper", rule, index) for index in range(count))
    return {hyper.name.decode(): hyper.usual for hyper in known}


@cache
def states(rule):
    """{"exp_avg": 0, ...}: the states that the rule with this number keeps, and their places in its order."""
    count = filled(capi.mp_rule_info, "mp_rule_get_info", rule).state_count
    return {filled(capi.mp_rule_state, "mp_rule_get_state", rule, k).name.decode(): k for k in range(count)}


def formats_in_order(rule, formats):
    """state_formats of a struct, of {"exp_avg": "fp32", ...}."""
    found = [None] * capi.MP_MAX_RULE_STATES
    for name, text in (formats or {}).items():
        found[choice(states(rule), name, "a state of state_formats")] = capi.converter(c_char_p)(text)
    return tuple(found)


def by_state(numbers):
    """{"exp_avg": ..., ...} of numbers by MP_STATE_*."""
    names = (call("mp_rule_state_name", state) for state in range(len(numbers)))
    return {name.decode(): number for name, number in zip(names, numbers) if name}


def hyperparameters(rule, lr, betas, eps, weight_decay, maximize, bias_correction):
    """Those of a group and of a step: what is None has the rule's usual value, anything else is meant as it is."""
    number = rule_number(rule)
    beta1, beta2 = betas if betas is not None else (None, None)
    told = dict(lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
    fields = {name: usual(number).get(name, 0.0) if given is None else given for name, given in told.items()}
    # By name, as a field's 0 is the usual value.
    zeros = [capi.mp_hyper(name=name) for name, known in usual(number).items() if known and fields.get(name) == 0]
    bits = flags(
        maximize=(maximize, capi.MP_RULE_MAXIMIZE),
        no_correction=(not bias_correction, capi.MP_RULE_NO_BIAS_CORRECTION),
    )
    named = (capi.mp_hyper * len(zeros))(*zeros)
    return dict(rule=number, flags=bits, hypers=named, hyper_count=len(zeros), **fields)
