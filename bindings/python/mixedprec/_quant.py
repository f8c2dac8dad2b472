# SPDX-License-Identifier: Apache-2.0
"""How tensors are quantized and rounded."""

from __future__ import annotations

from ctypes import byref, c_int32, c_int64
from typing import Any, NamedTuple, Optional

from . import capi
from ._library import call, choice, choices, flags
from ._memory import DTYPE_NAMES

_SCALINGS, _RULES = choices("MP_SCALING_"), choices("MP_SCALE_RULE_")
_SCALING_NAMES, _RULE_NAMES = ({n: name for name, n in known.items()} for known in (_SCALINGS, _RULES))


class Quant(NamedTuple):
    """How a tensor is quantized: value = code * scale_inv.

    scaling  how scales lie: "tensor", "row", "column", "block_1x128", "block_128x1", "block_128x128", "mx_1x32",
             "mx_32x1", "nvfp4"
    rule     from an amax to a scale: "current", "float64", "msamp", "deepseek", "mx_rceil", "mx_floor", "mx_ceil",
             "mx_even", "nvfp4"; None: the usual one of the scaling
    power_of_two  scales are rounded to powers of two
    amax_epsilon  an amax below this counts as this
    margin        the largest code is taken for 2^-margin of itself
    """

    scaling: str = "tensor"
    rule: Optional[str] = None
    power_of_two: bool = False
    amax_epsilon: float = 0.0
    margin: int = 0

    def _desc(self):
        return capi.mp_quant_desc(
            scaling=choice(_SCALINGS, self.scaling, "scaling"),
            rule=0 if self.rule is None else choice(_RULES, self.rule, "rule"),
            flags=flags(two=(self.power_of_two, capi.MP_QUANT_POWER_OF_TWO)),
            amax_epsilon=self.amax_epsilon,
            margin=self.margin,
        )

    @classmethod
    def _of(cls, desc: Any):
        return cls(
            _SCALING_NAMES.get(desc.scaling, "none"),
            _RULE_NAMES.get(desc.rule),
            bool(desc.flags & capi.MP_QUANT_POWER_OF_TWO),
            desc.amax_epsilon,
            desc.margin,
        )


class QuantStats(NamedTuple):
    """What happened to elements when they were quantized."""

    elements: int
    saturated: int
    underflowed: int
    non_finite: int
    amax: float


class Random(NamedTuple):
    """What stochastic rounding draws its bits from: the run's seed, the tensor's number, the step, the micro-batch."""

    seed: int = 0
    uid: int = 0
    step: int = 0
    microbatch: int = 0


def cast_desc(random, saturate):
    """mp_cast_desc: stochastic rounding where there is a Random."""
    drawn = {} if random is None else Random(*random)._asdict()
    return capi.mp_cast_desc(
        rounding=capi.MP_ROUND_NEAREST if random is None else capi.MP_ROUND_STOCHASTIC,
        flags={None: 0, True: capi.MP_CAST_SATURATE, False: capi.MP_CAST_NO_SATURATE}[saturate],
        **drawn,
    )


def scale_grid(quant: Quant, rows: int, columns: int) -> tuple[int, int, str]:
    """(rows of blocks, columns of blocks, dtype of a scale) of a quantized rows x columns matrix."""
    grid, dtype = (c_int64(), c_int64()), c_int32()
    call("mp_tensor_get_scale_grid", byref(quant._desc()), rows, columns, byref(grid[0]), byref(grid[1]), byref(dtype))
    return grid[0].value, grid[1].value, DTYPE_NAMES[dtype.value]
