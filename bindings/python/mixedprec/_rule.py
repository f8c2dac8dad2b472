# SPDX-License-Identifier: Apache-2.0
"""The optimizer's rules as the library knows them: their numbers, and what their hyperparameters usually are."""

from ctypes import c_int32
from functools import cache

from . import capi
from ._library import choice, filled, flags, value


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


def hyperparameters(rule, lr, betas, eps, weight_decay, maximize, bias_correction):
    """Those of a group and of a step: what is None has the rule's usual value, anything else is meant as it is."""
    number = rule_number(rule)
    beta1, beta2 = betas if betas is not None else (None, None)
    told = dict(lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
    fields = {name: usual(number).get(name, 0.0) if given is None else given for name, given in told.items()}
    bits = flags(
        explicit=(True, capi.MP_HYPERPARAMETERS_EXPLICIT),
        maximize=(maximize, capi.MP_RULE_MAXIMIZE),
        no_correction=(not bias_correction, capi.MP_RULE_NO_BIAS_CORRECTION),
    )
    return dict(rule=number, flags=bits, **fields)
