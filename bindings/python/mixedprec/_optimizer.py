# SPDX-License-Identifier: Apache-2.0
"""Optimizers: parameters by name in groups, and states of the library's."""

from __future__ import annotations

import os
from ctypes import byref, c_int32, c_int64
from typing import Any, Iterable, Mapping, NamedTuple, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor
from ._library import call, filled, flags, handle_array, text, value
from ._recipe import MemoryReport, memory_report
from ._rule import formats_in_order, hyperparameters, rule_name, states
from ._sharding import Sharding
from ._step import OptimizerStats
from ._step_parts import SteppedOptimizer
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._comm import Comm
    from ._context import Queue
    from ._linear import Linear
    from ._memory import Array, Path
    from ._recipe import Recipe
    from ._scaler import Scaler

_OUTCOMES = {getattr(capi, f"MP_STEP_{name.upper()}"): name for name in ("taken", "non_finite", "outlier")}


class Guard(NamedTuple):
    """What a step may be at most; see Optimizer.set_guard."""

    max_grad_norm_z: float
    max_loss_z: float
    window: int


class OffloadTraffic(NamedTuple):
    """What steps with offload have moved."""

    steps: int
    to_host_bytes: int
    to_device_bytes: int
    step_ns: int
    waited_ns: int


class StepRecord(NamedTuple):
    """A step of the history.

    outcome  "taken"; "non_finite": skipped, something was not finite; "outlier": skipped by the guard
    call     steps tried since the history began; step: steps taken in all
    loss     of set_loss, nan without it; lr of the first group
    """

    outcome: str
    call: int
    step: int
    loss: float
    loss_scale: float
    lr: float
    grad_norm: float
    grad_mul: float
    grad_norm_z: float
    loss_z: float


class Group(NamedTuple):
    """A group of parameters as it is now."""

    lr: float
    betas: tuple
    eps: float
    weight_decay: float
    rule: str
    maximize: bool
    bias_correction: bool
    state_formats: dict
    enabled: bool


class Optimizer(SteppedOptimizer):
    """AdamW, Adam or Lion in the dtypes of a recipe.

    max_grad_norm  clip the global norm of the unscaled gradients; 0: no clipping
    seed           of stochastic rounding
    check_finite   skip a step with gradients that are not finite, also without a scaler
    zero_grad      a step writes zeros into the gradients it has used
    offload        states and step on the host, parameters on the accelerator; offload_grads: gradients, too
    grads_given    parameters have no gradients of their own: step_params is given them
    comm           ranks that share the states; sharding: how, a Sharding. Then collective: every rank adds the same

    A parameter is named by its number or its name. Groups are numbers from 0.
    """

    _noun = "optimizer"

    def __init__(
        self,
        recipe: Recipe,
        max_grad_norm: float = 0.0,
        seed: int = 0,
        check_finite: bool = False,
        zero_grad: bool = False,
        offload: bool = False,
        comm: Comm | None = None,
        sharding: Sharding | None = None,
        grads_given: bool = False,
        offload_grads: bool = False,
    ) -> None:
        desc = capi.mp_optimizer_desc(
            max_grad_norm=max_grad_norm,
            seed=seed,
            flags=flags(
                check=(check_finite, capi.MP_OPTIMIZER_CHECK_FINITE),
                zero=(zero_grad, capi.MP_OPTIMIZER_ZERO_GRAD),
                offload=(offload, capi.MP_OPTIMIZER_OFFLOAD),
                grads=(offload_grads, capi.MP_OPTIMIZER_OFFLOAD_GRADS),
                given=(grads_given, capi.MP_OPTIMIZER_GRADS_GIVEN),
            ),
        )
        if comm is None:
            if sharding is not None:
                raise ValueError("sharding needs comm: the ranks that share the optimizer")
            super().__init__("mp_optimizer_create", recipe.context, recipe, byref(desc))
        else:
            super().__init__(
                "mp_optimizer_create_sharded",
                recipe.context,
                recipe,
                byref(desc),
                comm,
                byref((Sharding() if sharding is None else sharding)._desc()),
            )
        self.context, self.recipe = recipe.context, recipe
        self._names, self._linears = {}, []

    def _text(self):
        return f" of {len(self._names)} parameters"

    # ---- Groups and parameters

    def add_group(
        self,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        rule: str = "adamw",
        maximize: bool = False,
        bias_correction: bool = True,
        state_formats: Mapping[str, str] | None = None,
    ) -> int:
        """Adds a group of parameters with its own hyperparameters, and returns its number.

        rule  "adamw", "adam", "lion"; hyperparameters that are None are the rule's usual ones
        state_formats  {"exp_avg": "fp32", ...}: what states are kept in, a value of optimizer.<state>.dtype; the
                       others as the recipe says
        """
        fields = hyperparameters(rule, lr, betas, eps, weight_decay, maximize, bias_correction)
        desc = capi.mp_param_group_desc(state_formats=formats_in_order(fields["rule"], state_formats), **fields)
        return value(c_int32, "mp_optimizer_add_group", self, byref(desc))

    def add_param(
        self,
        name: str,
        param: Array,
        grad: Array | None = None,
        initial: Array | None = None,
        group: int = 0,
        norm_elsewhere: bool = False,
        frozen: bool = False,
    ) -> int:
        """Adds a parameter, makes its states, and returns its number. The first one makes a group where there is none.

        param    the weight, a tensor or an array, which stays in use: fp32 or the recipe's weight.dtype
        grad     of the same shape; None: one is made, state(name, "grad")
        initial  exact fp32 values: param becomes their rounding, and the states get what that loses
        norm_elsewhere  another rank of set_norm_comm counts this gradient
        frozen   it is not trained, and has neither gradient nor states
        """
        tensors = {
            noun: as_tensor(self.context, array, f"{noun} of {name!r}")
            for noun, array in (("param", param), ("grad", grad), ("init_fp32", initial))
            if array is not None
        }
        if group == 0 and not self.group_count:
            self.add_group()
        desc = capi.mp_param_desc(
            name=name,
            flags=flags(
                elsewhere=(norm_elsewhere, capi.MP_PARAM_NORM_ELSEWHERE),
                frozen=(frozen, capi.MP_PARAM_FROZEN),
            ),
            **{noun: tensor.handle() for noun, tensor in tensors.items()},
        )
        index = value(c_int32, "mp_optimizer_add_param", self, group, byref(desc))
        self._names[name] = index
        return index

    @property
    def group_count(self) -> int:
        """Number of groups added."""
        return value(c_int32, "mp_optimizer_get_group_count", self)

    @property
    def groups(self) -> list[Group]:
        """The groups as they are now, a list of Group."""
        return [self._group(i) for i in range(self.group_count)]

    def _group(self, index):
        desc = filled(capi.mp_param_group_desc, "mp_optimizer_get_group", self, index)
        return Group(
            desc.lr,
            (desc.beta1, desc.beta2),
            desc.eps,
            desc.weight_decay,
            rule_name(desc.rule),
            bool(desc.flags & capi.MP_RULE_MAXIMIZE),
            not desc.flags & capi.MP_RULE_NO_BIAS_CORRECTION,
            {name: desc.state_formats[k].decode() for name, k in states(desc.rule).items()},
            bool(value(c_int32, "mp_optimizer_get_enabled", self, index)),
        )

    @property
    def param_names(self) -> list[str]:
        """Names of the parameters, by number."""
        return [
            text("mp_optimizer_get_param_name", self, i)
            for i in range(value(c_int32, "mp_optimizer_get_param_count", self))
        ]

    def param_group(self, param: int | str) -> int:
        """The group of a parameter."""
        return value(c_int32, "mp_optimizer_get_param_group", self, self._index(param))

    # ---- Steps

    def step(self, scaler: Scaler | None = None, queue: Queue | None = None) -> None:
        """One step of all groups. With a scaler its scale is divided out, and a gradient that is not finite skips the
        step."""
        call("mp_optimizer_step", self, queue, scaler)

    def zero_grad(self, queue: Queue | None = None) -> None:
        """Sets all gradients to zero."""
        call("mp_optimizer_zero_grad", self, queue)

    def mark_unused(self, params: Iterable[int | str], queue: Queue | None = None) -> None:
        """These had no part in the loss: the next step passes over them, as over gradients that are None in PyTorch."""
        self._on_params("mp_optimizer_mark_unused", params, queue)

    @property
    def stats(self) -> OptimizerStats:
        """OptimizerStats of the last step. Waits."""
        return OptimizerStats._of(filled(capi.mp_optimizer_stats, "mp_optimizer_get_stats", self, None))

    def set_linears(self, linears: Iterable[Linear]) -> None:
        """Names the layers whose step ends with this optimizer's, in place of end_step; they stay alive. Collective."""
        linears = list(linears)
        call("mp_optimizer_set_linears", self, handle_array("linear", linears), len(linears))
        self._linears = linears

    def set_lr(self, lr: float, group: int = -1) -> None:
        """The learning rate of a group, or of all, from the next step on."""
        call("mp_optimizer_set_lr", self, group, lr)

    def set_enabled(self, enabled: bool, group: int = -1) -> None:
        """Turns a group on or off, or all."""
        call("mp_optimizer_set_enabled", self, group, bool(enabled))

    @property
    def max_grad_norm(self) -> float:
        """The norm that gradients are clipped to; 0: no clipping. May be set."""
        return filled(capi.mp_optimizer_desc, "mp_optimizer_get_desc", self).max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, norm: float) -> None:
        call("mp_optimizer_set_max_grad_norm", self, norm)

    @property
    def seed(self) -> int:
        """Of stochastic rounding; a checkpoint's where one was loaded."""
        return filled(capi.mp_optimizer_desc, "mp_optimizer_get_desc", self).seed

    def set_lr_tensor(self, lr: Array | None, group: int = -1) -> None:
        """Has steps read the learning rate from one fp32 element; None: the number again."""
        call("mp_optimizer_set_lr_tensor", self, group, as_tensor(self.context, lr, "lr"))

    def set_grad_scale_tensor(self, grad_scale: Array | None) -> None:
        """Has steps divide gradients by one fp32 element; None: by nothing."""
        call("mp_optimizer_set_grad_scale_tensor", self, as_tensor(self.context, grad_scale, "grad_scale"))

    @property
    def grad_norm_tensor(self) -> Tensor:
        """grad_norm of the last step as one fp32 element, without waiting."""
        return Tensor._made(self.context, "mp_optimizer_get_grad_norm_tensor", self)

    @property
    def found_inf_tensor(self) -> Tensor:
        """1 where the last step was skipped, likewise."""
        return Tensor._made(self.context, "mp_optimizer_get_found_inf_tensor", self)

    def set_norm_comm(self, comm: Comm | None) -> None:
        """Has norm and finite check cover ranks that hold other parameters of the model; None: this rank alone."""
        call("mp_optimizer_set_norm_comm", self, comm)

    # ---- What stands out, and the last steps

    def set_guard(
        self,
        max_grad_norm_z: float = 0.0,
        max_loss_z: float = 0.0,
        window: int = 0,
        queue: Queue | None = None,
    ) -> None:
        """Skips steps that stand out from now on: whose gradient norm, or loss of set_loss, lies more than so many
        standard deviations above the mean of the last `window` values (0: 128). 0: not watched; both 0: no guard."""
        is_off = not max_grad_norm_z and not max_loss_z and not window
        desc = capi.mp_guard_desc(window=window, max_grad_norm_z=max_grad_norm_z, max_loss_z=max_loss_z)
        call("mp_optimizer_set_guard", self, queue, None if is_off else byref(desc))

    @property
    def guard(self) -> Guard | None:
        """The Guard as it is, or None."""
        desc = filled(capi.mp_guard_desc, "mp_optimizer_get_guard", self)
        found = Guard(desc.max_grad_norm_z, desc.max_loss_z, desc.window)
        return found if found.max_grad_norm_z or found.max_loss_z else None

    def set_loss(self, loss: float) -> None:
        """The loss of the step to come, not multiplied by the loss scale; the same on all ranks."""
        call("mp_optimizer_set_loss", self, loss)

    def set_history(self, steps: int, path: Path | None = None) -> None:
        """Keeps so many of the last steps, 0: none. The first step that is skipped because something is not finite names
        the first bad tensor, and writes the steps to `path`. Begins anew."""
        call("mp_optimizer_set_history", self, steps, None if path is None else os.fsencode(path))

    @property
    def records(self) -> list[StepRecord]:
        """The steps of the history, a list of StepRecord, the oldest first."""
        return [self._record(i) for i in range(value(c_int32, "mp_optimizer_get_record_count", self))]

    def _record(self, index):
        record = filled(capi.mp_step_record, "mp_optimizer_get_record", self, index)
        return StepRecord(_OUTCOMES[record.outcome], *(getattr(record, field) for field in StepRecord._fields[1:]))

    @property
    def bad_tensor(self) -> str:
        """The first tensor that was not finite, in words; "": there was none since the history began."""
        return text("mp_optimizer_get_bad_tensor", self)

    # ---- States

    def state(self, param: int | str, name: str) -> Tensor:
        """A tensor of a parameter as it is stored: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master",
        and those with "_scale_inv". May be read and written between steps."""
        return Tensor._made(self.context, "mp_optimizer_get_state", self, self._index(param), name)

    def read_state(self, param: int | str, name: str, out: Array | None = None, queue: Queue | None = None) -> Array:
        """The values of "exp_avg", "exp_avg_sq", "compensation" or "fp32_param", whatever they are stored as, in `out`,
        an fp32, fp16 or bf16 tensor or array of as many elements, or in a new fp32 tensor. Returns it."""
        if out is None:
            with self.state(param, "param") as weight:
                out = Tensor(self.context, weight.shape)
        written = as_tensor(self.context, out, "out", queue)
        call("mp_optimizer_read_state", self, queue, self._index(param), name, written)
        return out

    def write_state(self, param: int | str, name: str, values: Any, queue: Queue | None = None) -> None:
        """Stores values that came from elsewhere in a state of read_state, rounded once."""
        values = as_tensor(self.context, values, "values", queue)
        call("mp_optimizer_write_state", self, queue, self._index(param), name, values)

    def sync_master(self, param: int | str = -1, queue: Queue | None = None) -> None:
        """After writing into parameters: master weights become the parameters, remainders and compensations zero."""
        call("mp_optimizer_sync_master", self, queue, self._index(param))

    def set_step(self, step: int, queue: Queue | None = None) -> None:
        """Sets the count of steps, and that of every group."""
        call("mp_optimizer_set_step", self, queue, step)

    def group_step(self, group: int = 0) -> int:
        """The steps a group took part in."""
        return value(c_int64, "mp_optimizer_get_group_step", self, None, group)

    def set_group_step(self, step: int, group: int = 0, queue: Queue | None = None) -> None:
        """Sets that count."""
        call("mp_optimizer_set_group_step", self, queue, group, step)

    @property
    def memory(self) -> MemoryReport:
        """Bytes really held, by class."""
        return memory_report("mp_optimizer_get_memory", self)

    @property
    def offload_traffic(self) -> OffloadTraffic:
        """What steps with offload have moved, and how long they took."""
        raw = filled(capi.mp_offload_traffic, "mp_optimizer_get_offload_traffic", self)
        return OffloadTraffic(*(getattr(raw, name) for name in OffloadTraffic._fields))
