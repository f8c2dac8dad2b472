# SPDX-License-Identifier: Apache-2.0
"""Loss scaling."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, sizeof
from typing import Any, Iterable, NamedTuple, TYPE_CHECKING

from . import capi
from ._arguments import check_device_of
from ._dlpack import Lent
from ._library import Object, call, choice, filled
from ._memory import checked_dtype, dtype_number, int32_array, int64_array, memory
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._comm import Comm
    from ._context import Context, Queue
    from ._memory import Array
    from ._recipe import Recipe

_KINDS = {"dynamic": capi.MP_SCALER_DYNAMIC, "static": capi.MP_SCALER_STATIC, "none": capi.MP_SCALER_NONE}


class ScalerState(NamedTuple):
    """Everything that save and resume need."""

    scale: float
    found_inf: bool
    growth_tracker: int
    hysteresis_tracker: int
    good_steps: int
    overflow_steps: int


class Scaler(Object):
    """The loss scale and the rule that moves it. Multiply the loss by `scale`, hand the scaler to the step, then
    update().

    preset  "torch", "megatron", "deepspeed" or "apex"; what follows replaces parts of it
    kind    "dynamic", "static", "none"
    growth_interval, hysteresis, count_offset, init_scale, growth_factor, backoff_factor, min_scale, max_scale
    refill_on_good_step, error_at_min    see scaler.h
    """

    _noun = "scaler"

    def __init__(
        self,
        context: Context,
        preset: str = "torch",
        kind: str | None = None,
        refill_on_good_step: Any = None,
        error_at_min: Any = None,
        **fields: Any,
    ) -> None:
        desc = capi.mp_scaler_desc()
        call("mp_scaler_desc_preset", byref(desc), sizeof(desc), preset)
        if kind is not None:
            desc.kind = choice(_KINDS, kind, "kind")
        for wanted, bit in (
            (refill_on_good_step, capi.MP_SCALER_REFILL_ON_GOOD_STEP),
            (error_at_min, capi.MP_SCALER_ERROR_AT_MIN),
        ):
            if wanted is not None:
                desc.flags = desc.flags | bit if wanted else desc.flags & ~bit
        for name, field in fields.items():
            if name in ("struct_size", "flags"):
                raise TypeError(f"Scaler has no argument {name}")
            setattr(desc, name, field)
        super().__init__("mp_scaler_create", context, byref(desc))
        self.context = context

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Scaler:
        """The scaler that a recipe asks for; for one without loss scaling a scaler of kind "none", whose scale is 1."""
        made = cls._returned("mp_scaler_create_from_recipe", recipe.context, recipe)
        made.context = recipe.context
        return made

    @property
    def scale(self) -> float:
        """The loss scale after all work so far. Waits."""
        return self.get_scale()

    def get_scale(self, queue: Queue | None = None) -> float:
        """The same of a queue's work."""
        found = c_double()
        call("mp_scaler_get_scale", self, queue, byref(found))
        return found.value

    def update(self, queue: Queue | None = None) -> None:
        """Moves the scale by the rule; once a step."""
        call("mp_scaler_update", self, queue)

    @property
    def state(self) -> ScalerState:
        """The ScalerState; assigned, it is put back. BadStateError after a backoff at the minimum under
        error_at_min."""
        found = filled(capi.mp_scaler_state, "mp_scaler_get_state", self, None)
        return ScalerState(
            found.scale,
            bool(found.found_inf),
            found.growth_tracker,
            found.hysteresis_tracker,
            found.good_steps,
            found.overflow_steps,
        )

    @state.setter
    def state(self, state: Any) -> None:
        fields = ScalerState(*state)._asdict()
        call("mp_scaler_set_state", self, None, byref(capi.mp_scaler_state(**fields)))

    def check(self, grads: Iterable[Array], queue: Queue | None = None) -> None:
        """Looks whether gradients are finite; for loops without Optimizer. Arrays or tensors of fp32, fp16 or bf16."""
        pointers, dtypes, counts, held = [], [], [], []
        for grad in grads:
            if isinstance(grad, Tensor):
                check_device_of(self.context, grad.device[0], "grad")
                held.append(Lent(grad))
                pointers.append(held[-1].address)
                dtypes.append(dtype_number(grad.dtype))
                counts.append(grad.size)
            else:
                check_device_of(self.context, "host", "grad")
                found = memory(grad, "grad", writable=False)
                pointers.append(found.address)
                dtypes.append(dtype_number(checked_dtype(found, None, "grad")))
                counts.append(found.count)
                held.append(found)
        call(
            "mp_scaler_check_pointers",
            self,
            queue,
            len(pointers),
            (ctypes.c_void_p * len(pointers))(*pointers),
            int32_array(dtypes),
            int64_array(counts),
        )
        del held

    def combine(self, comm: Comm, queue: Queue | None = None) -> None:
        """found_inf becomes 1 where it is on any rank; for loops without a sharded optimizer. Collective."""
        call("mp_scaler_combine", self, queue, comm)

    @property
    def scale_tensor(self) -> Tensor:
        """The loss scale as one fp32 element over the scaler's memory."""
        return Tensor._made(self.context, "mp_scaler_get_scale_tensor", self)

    @property
    def found_inf_tensor(self) -> Tensor:
        """found_inf, 0 or 1, likewise; it may be written before update()."""
        return Tensor._made(self.context, "mp_scaler_get_found_inf_tensor", self)
