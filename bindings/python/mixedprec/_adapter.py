# SPDX-License-Identifier: Apache-2.0
"""Adapters of frozen layers: LoRA, rsLoRA, DoRA."""

from __future__ import annotations

from ctypes import byref, c_int32
from typing import NamedTuple, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor
from ._library import Object, call, flags, value
from ._linear import Linear

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Array
    from ._recipe import Recipe


class Adapter(Object):
    """scale * (drop(x) a^T) b^T beside a frozen layer's own product, as long as this object lives.

    a [r, in] and b [out, r] stay in use: they are what an optimizer trains. alpha 0 is the rank, so that the scale
    alpha / r is one; rank_stabilized has alpha / sqrt(r). Dropout needs a layer with a name.

    layer = Linear(recipe, weight, frozen=True, name="q_proj")
    adapter = Adapter(layer, recipe, a, b, alpha=32)
    adapter.set_grads(da, db)
    layer.forward(x, y)
    layer.backward(dy, dx)          # writes da, db and dx
    """

    _noun = "adapter"

    def __init__(
        self,
        linear: Linear,
        recipe: Recipe,
        a: Array,
        b: Array,
        alpha: float = 0.0,
        dropout: float = 0.0,
        rank_stabilized: bool = False,
        name: str | None = None,
    ) -> None:
        self.linear = linear
        desc = capi.mp_adapter_desc(
            alpha=alpha,
            dropout=dropout,
            flags=flags(rank_stabilized=(rank_stabilized, capi.MP_ADAPTER_RANK_STABILIZED)),
            name=None if name is None else name.encode(),
        )
        context = linear.context
        super().__init__(
            "mp_adapter_create", linear, recipe, byref(desc), as_tensor(context, a, "a"), as_tensor(context, b, "b")
        )
        linear._adapters.add(self)

    def set_grads(self, da: Array | None, db: Array | None) -> None:
        """Where a backward of the layer writes; None: not wanted."""
        context = self.linear.context
        call("mp_adapter_set_grads", self, as_tensor(context, da, "da"), as_tensor(context, db, "db"))

    def set_magnitude(self, magnitude: Array | None, gradient: Array | None = None) -> None:
        """DoRA's magnitude [out], and where its gradient goes; None: none."""
        context = self.linear.context
        call(
            "mp_adapter_set_magnitude",
            self,
            as_tensor(context, magnitude, "magnitude"),
            as_tensor(context, gradient, "gradient"),
        )

    def init_magnitude(self, queue: Queue | None = None) -> None:
        """Sets the magnitude to the norms that the rows of the merged weight have now."""
        call("mp_adapter_init_magnitude", self, queue)

    @property
    def active(self) -> bool:
        """Whether it takes part; assigned, from the next forward on."""
        return value(c_int32, "mp_adapter_get_active", self) != 0

    @active.setter
    def active(self, active: bool) -> None:
        call("mp_adapter_set_active", self, int(active))


class MergeReport(NamedTuple):
    """What rounding to the target's type has done to a merged weight."""

    elements: int
    rms_change: float
    rms_error: float
    max_error: float


def merge_adapters(
    linear: Linear, target: Array, first_row: int = 0, requantize: bool = False, queue: Queue | None = None
) -> MergeReport:
    """Rows of a layer's weight with its active adapters, from first_row on, into target [rows, in]. Codes are written
    with requantize alone. Waits."""
    report = capi.mp_merge_report()
    call(
        "mp_linear_merge_adapters",
        linear,
        queue,
        first_row,
        as_tensor(linear.context, target, "target", queue),
        flags(requantize=(requantize, capi.MP_MERGE_REQUANTIZE)),
        byref(report),
    )
    return MergeReport(*(getattr(report, field) for field in MergeReport._fields))
