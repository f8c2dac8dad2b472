# SPDX-License-Identifier: Apache-2.0
"""How ranks sum and how long they wait: the words that Comm and Sharding take for it."""

from __future__ import annotations

from ctypes import c_int64
from typing import Any

from . import capi
from ._library import choice, choices, flags, value
from ._memory import dtype_number
from ._quant import Random

ORDERS, WIRE_SCALES = choices("MP_COMM_ORDER_"), choices("MP_COMM_SCALE_")
_ACCUMULATE = choices("MP_COMM_ACCUMULATE_")
_OPS = {"sum": capi.MP_COMM_OP_SUM, "max_abs": capi.MP_COMM_OP_MAX_ABS_BITS}


def deadline_ms(seconds):
    if seconds is None:
        return 0
    if not 0 < seconds < 2**53:
        raise ValueError(f"deadline is {seconds!r}; it must be more than 0 seconds, or None")
    return max(1, round(1000 * seconds))


def reduce_desc(
    op="sum",
    order="rank",
    accumulate="default",
    slots=0,
    wire_dtype=None,
    wire_scale="default",
    gather_dtype=None,
    gather_scale="default",
    first_element=0,
    random=None,
    deadline=None,
    site=None,
):
    drawn = {} if random is None else Random(*random)._asdict()
    return capi.mp_comm_reduce_desc(
        op=choice(_OPS, op, "op"),
        order=choice(ORDERS, order, "order"),
        slots=slots,
        first_element=first_element,
        site=site,
        accumulate=choice(_ACCUMULATE, accumulate, "accumulate"),
        deadline_ms=deadline_ms(deadline),
        wire_dtype=0 if wire_dtype is None else dtype_number(wire_dtype),
        wire_scale=choice(WIRE_SCALES, wire_scale, "wire_scale"),
        gather_dtype=0 if gather_dtype is None else dtype_number(gather_dtype),
        gather_scale=choice(WIRE_SCALES, gather_scale, "gather_scale"),
        flags=flags(random=(random is not None, capi.MP_REDUCE_STOCHASTIC)),
        **drawn,
    )


def wire_bytes(count: int, dtype: Any, scale: Any = "default") -> int:
    """Bytes that so many elements take on the wire, scales included."""
    return value(c_int64, "mp_comm_get_wire_bytes", count, dtype_number(dtype), choice(WIRE_SCALES, scale, "scale"))
