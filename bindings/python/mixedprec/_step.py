# SPDX-License-Identifier: Apache-2.0
"""Steps on the caller's own arrays: no tensors, no recipe, no state in the library."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float
from typing import Any, Iterable, Mapping, NamedTuple, TYPE_CHECKING

from . import capi
from ._arguments import check_device_of
from ._dlpack import Lent
from ._library import Object, call, choice, choices, filled, flags
from ._memory import Memory, checked_dtype, dtype_number, dtype_size, memory
from ._rule import hyperparameters, states
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._context import Context, Queue
    from ._memory import Array
    from ._scaler import Scaler

_CODINGS = choices("MP_CODING_")
_STATES = ("exp_avg", "exp_avg_sq")
# coding: (elements of a block, bytes of a scale)
_BLOCKS = {
    "fp8_block": (256, 4),
    "fp8_block128": (128, 4),
    "dynamic8": (256, 4),
    "dynamic4": (128, 4),
    "companded8": (32, 2),
}


class OptimizerStats(NamedTuple):
    """What the last step did.

    found_inf      it was skipped, because a gradient was not finite
    step           steps really taken
    skipped_steps  since the beginning
    grad_norm      of the unscaled gradients; 0 where it was not computed
    grad_mul       what the gradients were multiplied by
    outlier_steps  of the skipped ones, those that the guard skipped
    grad_norm_z, loss_z  how many standard deviations the norm and the loss lay above the mean of the guard's window
    """

    found_inf: bool
    step: int
    skipped_steps: int
    grad_norm: float
    grad_mul: float
    outlier_steps: int = 0
    grad_norm_z: float = 0.0
    loss_z: float = 0.0

    @classmethod
    def _of(cls, stats):
        return cls(bool(stats.found_inf), *(getattr(stats, field) for field in cls._fields[1:]))


def _piece(array, noun):
    """(memory, dtype, device) of an array, a tensor, or (array, dtype) where the elements are codes."""
    dtype, device = None, "host"
    if isinstance(array, tuple) and len(array) == 2:
        array, dtype = array
    if isinstance(array, Tensor):
        found, own, device = Lent(array), array.dtype, array.device[0]  # in its place as long as the slot
        found = Memory(found.address or 0, array.nbytes, dtype_size(own), array.shape, own, found)
    else:
        found = memory(array, noun)
    return found, checked_dtype(found, dtype, noun), device


class Slot:
    """One array of parameters with its gradient and states, for step() and StepPlan. Checked here, once; the arrays
    stay alive and in their place as long as the slot.

    Each is a numpy array, another array with the buffer interface, a Tensor, or (array, dtype) for codes: (uint16,
    "bf16"). All have as many elements as param.

    exp_avg, exp_avg_sq  states, zeros at first; of Lion exp_avg alone
    compensation         Kahan's; master: fp32 weight that is updated
    uid                  names the parameter to stochastic rounding
    scale_inv            {"grad": array of one fp32, ...}: those that are codes under one scale; of a coding in blocks
                         one for each block
    codings              {"exp_avg": "dynamic8", ...}: "fp8_block", "fp8_block128", "dynamic8", "dynamic4",
                         "companded8"; {"master": "remainder"}: the 16 bits that a bf16 param lacks
    first_element        where element 0 lies in the whole parameter
    param_amax           one fp32 that becomes the largest of itself and |new weight|
    """

    _ARRAYS = ("param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master")

    def __init__(
        self,
        param: Any,
        grad: Any,
        exp_avg: Any = None,
        exp_avg_sq: Any = None,
        compensation: Any = None,
        master: Any = None,
        uid: int = 0,
        scale_inv: Any = None,
        codings: Mapping[str, str] | None = None,
        first_element: int = 0,
        param_amax: Array | None = None,
    ) -> None:
        given = dict(zip(self._ARRAYS, (param, grad, exp_avg, exp_avg_sq, compensation, master)))
        scale_inv, codings = dict(scale_inv or {}), dict(codings or {})
        self._desc = capi.mp_step_slot(uid=uid, first_element=first_element)
        self._owners, self._devices = [], {}
        for name, array in given.items():
            if array is None:
                if name in ("param", "grad"):
                    raise TypeError(f"{name} is None; a slot has both param and grad")
                continue
            found, dtype, device = _piece(array, name)
            self._devices[device] = name
            if name == "param":
                self._desc.count = found.count
            self._add(name, found, dtype, codings.pop(name, "plain"), scale_inv.pop(name, None))
        if codings or scale_inv:
            raise ValueError(f"a coding or scale of {', '.join([*codings, *scale_inv])}, which the slot does not have")
        if param_amax is not None:
            self._desc.param.amax = ctypes.cast(self._scales(param_amax, "param_amax", 4), POINTER(c_float))

    def _array(self, name):
        """The place of an array in the slot."""
        return self._desc.states[_STATES.index(name)] if name in _STATES else getattr(self._desc, name)

    def _add(self, name, found, dtype, coding, scales):
        count, array = self._desc.count, self._array(name)
        needed = (count + 1) // 2 if coding == "dynamic4" else count
        if found.count != needed:
            raise ValueError(f"{name} has {found.count} elements; it must have {needed}, as param has {count}")
        if coding != "plain":
            if name in ("param", "grad"):
                raise ValueError(f"{name} has no coding")
            array.coding = choice(_CODINGS, coding, f"the coding of {name}")
        array.data, array.dtype = found.address, dtype_number(dtype)
        self._owners.append(found.owner)
        if coding in _BLOCKS and scales is None:
            raise ValueError(f"{name} is {coding}, which needs scale_inv={{{name!r}: ...}}")
        if scales is not None:
            block, width = _BLOCKS.get(coding, (max(count, 1), 4))
            if name == "compensation" and coding == "plain":
                raise ValueError("a compensation has scales only in blocks")
            array.scale_inv = self._scales(
                scales, f"scale_inv of {name}", width * max(-(-count // block), int(coding == "plain"))
            )

    def _scales(self, array, noun, nbytes):
        found, _, device = _piece(array, noun)
        self._devices[device] = noun
        if found.nbytes != nbytes:
            raise ValueError(f"{noun} has {found.nbytes} bytes; it must have {nbytes}")
        self._owners.append(found.owner)
        return found.address

    def __repr__(self):
        return f"<mixedprec.Slot of {self._desc.count} elements>"


def _args(
    step,
    lr=None,
    betas=None,
    eps=None,
    weight_decay=None,
    rule="adamw",
    maximize=False,
    bias_correction=True,
    seed=0,
    max_grad_norm=0.0,
    grad_scale=1.0,
    check_finite=False,
    zero_grad=False,
    stochastic=(),
):
    fields = hyperparameters(rule, lr, betas, eps, weight_decay, maximize, bias_correction)
    bits = {"param": capi.MP_STEP_SR_PARAM}
    bits.update((name, capi.MP_STEP_SR_STATE << k) for name, k in states(fields["rule"]).items())
    for name in {stochastic} if isinstance(stochastic, str) else set(stochastic):
        fields["flags"] |= choice(bits, name, "stochastic")
    fields["flags"] |= flags(
        check=(check_finite, capi.MP_OPTIMIZER_CHECK_FINITE),
        zero=(zero_grad, capi.MP_OPTIMIZER_ZERO_GRAD),
    )
    return capi.mp_step_args(step=step, seed=seed, max_grad_norm=max_grad_norm, grad_scale=grad_scale, **fields)


def _slots(context, slots):
    slots = [slots] if isinstance(slots, Slot) else list(slots)
    for slot in slots:
        if not isinstance(slot, Slot):
            raise TypeError(f"a Slot is needed, not a {type(slot).__name__}")
        for device, noun in slot._devices.items():
            check_device_of(context, device, noun)
    return slots, (capi.mp_step_slot * len(slots))(*(slot._desc for slot in slots))


def step(
    context: Context,
    slots: Slot | Iterable[Slot],
    step: int = 1,
    scaler: Scaler | None = None,
    queue: Queue | None = None,
    **args: Any,
) -> OptimizerStats:
    """One step on slots, and its OptimizerStats. The bits of Optimizer.step.

    step        the number of this step, from 1; skipped steps do not count
    scaler      its scale is divided out, and a gradient that is not finite skips the step
    lr, betas, eps, weight_decay, rule ("adamw", "adam", "lion"), maximize, bias_correction
    max_grad_norm   clip the global norm; 0: no clipping
    grad_scale      gradients are divided by it as well
    check_finite    skip a step with gradients that are not finite, also without a scaler
    zero_grad       the step writes zeros into the gradients
    stochastic      which of "param" and the rule's states are rounded stochastically, by `seed` and the slots' uid
    """
    slots, array = _slots(context, slots)
    stats = capi.mp_optimizer_stats()
    call(
        "mp_optimizer_step_pointers",
        context,
        queue,
        byref(_args(step, **args)),
        array,
        len(slots),
        scaler,
        byref(stats),
    )
    return OptimizerStats._of(stats)


class StepPlan(Object):
    """The same step prepared once, for loops that must not allocate. Arguments as for step(); `step` is the first
    one's."""

    _noun = "step_plan"

    def __init__(self, context: Context, slots: Slot | Iterable[Slot], step: int = 1, **args: Any) -> None:
        slots, array = _slots(context, slots)
        self._args = dict(step=step, **args)
        super().__init__("mp_step_plan_create", context, byref(_args(**self._args)), array, len(slots), kept=slots)
        self.context = context

    def run(self, scaler: Scaler | None = None, queue: Queue | None = None) -> None:
        """A step. Its number grows with every one that is taken."""
        call("mp_step_plan_run", self, queue, scaler)

    def set(self, queue: Queue | None = None, **args: Any) -> None:
        """Other hyperparameters from the next run on: set(lr=1e-4)."""
        new = {**self._args, **args}
        call("mp_step_plan_set_args", self, queue, byref(_args(**new)))
        self._args = new

    @property
    def stats(self) -> OptimizerStats:
        """OptimizerStats of the last run. Waits."""
        return OptimizerStats._of(filled(capi.mp_optimizer_stats, "mp_step_plan_get_stats", self, None))
