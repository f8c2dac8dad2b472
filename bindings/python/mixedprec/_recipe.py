# SPDX-License-Identifier: Apache-2.0
"""Recipes: which dtype every class of tensor has, how it is rounded, how the loss is scaled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_double, c_int32, c_int64
from typing import Any, NamedTuple, Optional, TYPE_CHECKING

from . import capi
from ._arguments import host_floats
from ._comm import Traffic
from ._library import Object, call, filled, flags, lib, text, value
from ._memory import dtype_number, int64_array, shape_of
from ._rule import by_state, formats_in_order, rule_number
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._context import Context
    from ._memory import Path, Shape
    from ._optimizer import Sharding


class RecipeKey(NamedTuple):
    """One key of recipes: kind is str, float or int."""

    name: str
    kind: type
    allowed: str
    text: str
    fp32_value: str


class MemoryReport(NamedTuple):
    """Bytes by class of tensor; state_bytes: {"exp_avg": bytes, ...}."""

    parameter_count: int
    weight_bytes: int
    master_bytes: int
    grad_bytes: int
    state_bytes: dict
    compensation_bytes: int
    total_bytes: int
    reduced_grad_bytes: int
    offload_bytes: int
    host_bytes: int


def memory_report(name, *arguments):
    return _report_of(filled(capi.mp_memory_report, name, *arguments))


def _report_of(report):
    found = MemoryReport(*(getattr(report, field) for field in MemoryReport._fields))
    return found._replace(state_bytes=by_state(report.state_bytes))


class PlannedTensor(NamedTuple):
    """A parameter before there is one, for Recipe.plan_tensors.

    weight_dtype  None: the recipe's weight.dtype; "fp32": kept in fp32; "fp8_e4m3", "fp8_e5m2": codes that ranks gather
    rule, state_formats  of its group, as for Optimizer.add_group
    ndim  dimensions: vectors are gathered as they are kept; 0: 1 where weight_dtype is "fp32", else 2
    name  for the rules of the recipe's key "layers"; None: none fits
    """

    count: int
    weight_dtype: Optional[str] = None
    rule: str = "adamw"
    state_formats: Optional[Mapping[str, str]] = None
    ndim: int = 0
    name: Optional[str] = None

    def _planned(self):
        rule = rule_number(self.rule)
        return capi.mp_planned_tensor(
            count=self.count,
            weight_dtype=0 if self.weight_dtype is None else dtype_number(self.weight_dtype),
            rule=rule,
            state_formats=formats_in_order(rule, self.state_formats),
            ndim=self.ndim,
            name=self.name,
        )


def presets() -> dict[str, str]:
    """The recipes there are: {name: what it is}."""
    found = {}
    for i in range(lib.mp_recipe_preset_count()):
        name, line = c_char_p(), c_char_p()
        call("mp_recipe_get_preset_info", i, byref(name), byref(line))
        found[name.value.decode()] = line.value.decode()
    return found


def recipe_keys() -> dict[str, RecipeKey]:
    """The keys of recipes: {name: RecipeKey}."""
    kinds = {capi.MP_RECIPE_TYPE_STRING: str, capi.MP_RECIPE_TYPE_FLOAT: float, capi.MP_RECIPE_TYPE_INT: int}
    found = {}
    for i in range(lib.mp_recipe_key_count()):
        key = filled(capi.mp_recipe_key_desc, "mp_recipe_get_key_info", i)
        name, allowed, line, default = (t.decode() for t in (key.name, key.allowed, key.text, key.fp32_value))
        found[name] = RecipeKey(name, kinds[key.type], allowed, line, default)
    return found


_KINDS = {name: key.kind for name, key in recipe_keys().items()}
_READ = {
    str: ("mp_recipe_get_string", c_char_p),
    float: ("mp_recipe_get_float", c_double),
    int: ("mp_recipe_get_int", c_int64),
}


class Recipe(Object):
    """A recipe by a preset's name (presets() has them), "auto" or "auto_fp8", with keys changed: Recipe(context,
    "fp8_delayed", {"gemm.margin": 1}).

    recipe[key] reads and sets a key. What uses a recipe freezes it: setting is a BadStateError then, and clone() a copy
    that can be changed. A name or key that does not exist is an UnknownNameError with the nearest ones.
    """

    _noun = "recipe"

    def __init__(self, context: Context, name: str = "auto", keys: Mapping[str, Any] | None = None) -> None:
        super().__init__("mp_recipe_create", context, name)
        self.context = context
        for key, setting in (keys or {}).items():
            self[key] = setting

    @classmethod
    def _made(cls, context, name, *arguments):
        made = cls._returned(name, *arguments)
        made.context = context
        return made

    @classmethod
    def from_json(cls, context: Context, source: Any) -> Recipe:
        """A recipe from JSON text or a dict: {"recipe": "bf16_mixed", "gemm.margin": 1}."""
        data = json.dumps(source) if isinstance(source, Mapping) else source
        data = data.encode() if isinstance(data, str) else bytes(data)
        if b"\0" in data:
            raise ValueError("JSON with a NUL inside")
        return cls._made(context, "mp_recipe_create_from_json", context, data, len(data))

    @classmethod
    def from_file(cls, context: Context, path: Path) -> Recipe:
        """A recipe from a JSON file."""
        return cls._made(context, "mp_recipe_create_from_file", context, os.fsencode(path))

    def __getitem__(self, key: str) -> Any:
        name, kind = _READ[_KINDS.get(key, str)]
        found = value(kind, name, self, key)
        return found.decode() if isinstance(found, bytes) else found

    def __setitem__(self, key: str, setting: str | float | int) -> None:
        kind = _KINDS.get(key, str)
        if kind is str and not isinstance(setting, str):
            raise TypeError(f"{key} is {setting!r}; it must be text")
        call(
            {str: "mp_recipe_set_string", float: "mp_recipe_set_float", int: "mp_recipe_set_int"}[kind],
            self,
            key,
            setting,
        )

    def __contains__(self, key: str) -> bool:
        return key in _KINDS

    def __iter__(self):
        return iter(_KINDS)

    def keys(self):
        """Names of the keys; dict(recipe) has their values."""
        return _KINDS.keys()

    def to_json(self) -> str:
        """Every key, as JSON; from_json makes the same recipe of it."""
        return text("mp_recipe_to_json", self)

    def validate(self) -> None:
        """Raises every problem of the combination at once; gives advice as a Note."""
        call("mp_recipe_validate", self)

    def clone(self) -> Recipe:
        """A copy that can be changed."""
        return Recipe._made(self.context, "mp_recipe_clone", self)

    def for_layer(self, name: str) -> Recipe:
        """The recipe as a layer of this name has it: the rules of key "layers" resolved."""
        return Recipe._made(self.context, "mp_recipe_clone_for_layer", self, name)

    def for_param(self, name: str) -> Recipe:
        """Likewise as a parameter of this name has it."""
        return Recipe._made(self.context, "mp_recipe_clone_for_param", self, name)

    @property
    def frozen(self) -> bool:
        """Whether something uses the recipe, so that it can no longer change."""
        return bool(value(c_int32, "mp_recipe_get_frozen", self))

    @property
    def reason(self) -> str:
        """Why "auto" chose what it chose; "" for other recipes."""
        return text("mp_recipe_get_reason", self)

    def weight(self, shape: Shape, values: Any = None, codes: bool = False) -> Tensor:
        """The weight that this recipe wants, from its fp32 values (None: zeros): rounded, quantized where weight.dtype
        has a scale. Give the same values to Optimizer.add_param as `initial`.

        codes  make the codes that an fp8 layer's products take, for weight.gather.codes
        """
        shape = shape_of(shape)
        count = 1
        for size in shape:
            count *= size
        held, pointer = host_floats(values, count, "values")
        made = Tensor._made(
            self.context,
            "mp_recipe_create_weight_codes" if codes else "mp_recipe_create_weight",
            self.context,
            self,
            len(shape),
            int64_array(shape),
            pointer,
        )
        del held
        return made

    def plan_memory(
        self,
        counts: Any,
        rule: str = "adamw",
        sharding: Sharding | None = None,
        rank: int = 0,
        ranks: int | None = None,
    ) -> MemoryReport:
        """Bytes that the recipe needs, before anything is allocated: a MemoryReport.

        counts    elements in all, or of each tensor
        sharding  a Sharding: for this rank of `ranks`
        """
        number = rule_number(rule)
        if ranks is not None or sharding is not None:
            counts = int64_array([counts] if hasattr(counts, "__index__") else counts)
            return memory_report(
                "mp_recipe_plan_memory_sharded",
                self,
                number,
                counts,
                len(counts),
                None if sharding is None else byref(sharding._desc()),
                rank,
                1 if ranks is None else ranks,
            )
        if hasattr(counts, "__index__"):
            return memory_report("mp_recipe_plan_memory", self, number, counts)
        counts = int64_array(counts)
        return memory_report("mp_recipe_plan_memory_of_tensors", self, number, counts, len(counts))

    def plan_tensors(
        self,
        tensors: Any,
        sharding: Sharding | None = None,
        rank: int = 0,
        ranks: int = 1,
        offload: bool = False,
        grads_given: bool = False,
        offload_grads: bool = False,
    ) -> tuple[MemoryReport, Traffic]:
        """The same where tensors differ, and what a rank sends in a step: a MemoryReport and a Traffic, the latter the
        mean over the ranks.

        tensors  PlannedTensor, or numbers of elements
        offload, grads_given, offload_grads  as of Optimizer
        """
        desc = capi.mp_optimizer_desc(
            flags=flags(
                offload=(offload, capi.MP_OPTIMIZER_OFFLOAD),
                offload_grads=(offload_grads, capi.MP_OPTIMIZER_OFFLOAD_GRADS),
                given=(grads_given, capi.MP_OPTIMIZER_GRADS_GIVEN),
            )
        )
        planned = [(PlannedTensor(t) if hasattr(t, "__index__") else t)._planned() for t in tensors]
        memory, traffic = capi.mp_memory_report(), capi.mp_comm_traffic()
        call(
            "mp_recipe_plan_tensors",
            self,
            byref(desc),
            (capi.mp_planned_tensor * len(planned))(*planned),
            len(planned),
            None if sharding is None else byref(sharding._desc()),
            rank,
            ranks,
            byref(memory),
            byref(traffic),
        )
        return _report_of(memory), Traffic._of(traffic)
