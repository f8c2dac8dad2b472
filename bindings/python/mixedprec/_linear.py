# SPDX-License-Identifier: Apache-2.0
"""Linear layers."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_int32, c_size_t
from typing import Any, Callable, Iterable, NamedTuple, Optional, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor, check_device_of
from ._library import Listeners, Object, call, choice, choices, filled, flags, handle_array, quiet, text, value
from ._memory import DTYPE_NAMES, memory
from ._quant import Quant, Random, cast_desc
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._comm import Comm
    from ._context import Queue
    from ._memory import Array
    from ._recipe import Recipe

_OPERANDS = choices("MP_OPERAND_", "MP_OPERAND_COUNT")
_OPERAND_NAMES = {number: name for name, number in _OPERANDS.items()}
_PRODUCTS = choices("MP_PRODUCT_")


class LinearStats(NamedTuple):
    """What happened to one operand of a layer since the counts were last cleared, and its delayed scale."""

    operand: str
    dtype: str
    elements: int
    saturated: int
    underflowed: int
    non_finite: int
    amax: float
    scale_inv: float
    history_amax: float
    history_len: int
    updates: int

    @classmethod
    def _of(cls, stats):
        return cls(
            _OPERAND_NAMES[stats.operand], DTYPE_NAMES[stats.dtype], *(getattr(stats, f) for f in cls._fields[2:])
        )


_monitored = Listeners()


@capi.mp_linear_monitor_fn
@quiet
def _monitor(number, name, stats, advice):
    linear = _monitored.get(number)
    if linear is not None:
        linear._monitor(name.decode(), LinearStats._of(stats.contents), advice.decode() if advice else None)


class Saved(Object):
    """What one forward of a layer keeps for its backward: for several forwards in flight, for recomputing, for moving
    away.

    Made by Linear.saved(). set_memory() has what is kept lie in an array of the caller's.
    """

    _noun = "saved"

    def __init__(self, linear: Linear) -> None:
        super().__init__("mp_saved_create", linear)
        self.linear = linear

    def set_memory(self, array: Array | None) -> None:
        """Has what is kept lie in an array of Linear.saved_bytes() bytes, aligned to 256; None: the library's memory
        again. Of a forward that has been, the bytes are taken to be in the new place: copy them first."""
        if array is None:
            call("mp_saved_set_memory", self, None, 0)
            self._kept[:] = []
            return
        check_device_of(self.linear.context, "host", "array")
        found = memory(array)
        old = list(self._kept)
        self._kept.append(found.owner)
        try:
            call("mp_saved_set_memory", self, found.address, found.nbytes)
        except BaseException:
            self._kept[:] = old
            raise
        self._kept[:] = [found.owner]


class Linear(Object):
    """y = x w^T + bias and its gradients, in the forms of a recipe. weight [out, in], bias [out]; both stay in use.

    x, y and their gradients are fp32, fp16 or bf16 tensors or arrays, [rows, in] and [rows, out]; a temporary tensor
    over an array costs 20 microseconds. Where x already has the recipe's dtype, forward keeps no copy: its numbers must
    stay until backward.

    inference      forward keeps nothing
    cache_weight   a converted weight serves until end_step
    first_or_last  of the model: see the key gemm.filter.first_last
    stats          count what happens to elements: stats(), advice()
    frozen         the weight does not change; gives dx alone, and gradients of its adapters
    name           of the layer, for the recipe's rules and for random bits

    A layer whose sizes keep it out of fp8 under an fp8 recipe gives a Note.
    """

    _noun = "linear"

    def __init__(
        self,
        recipe: Recipe,
        weight: Array,
        bias: Any = None,
        inference: bool = False,
        cache_weight: bool = False,
        first_or_last: bool = False,
        stats: bool = False,
        frozen: bool = False,
        name: str | None = None,
    ) -> None:
        context = recipe.context
        weight, bias = as_tensor(context, weight, "weight"), as_tensor(context, bias, "bias")
        shape = weight.shape
        if len(shape) != 2:
            raise ValueError(f"weight is {list(shape)}; it must be [out, in]")
        desc = capi.mp_linear_desc(
            in_features=shape[1],
            out_features=shape[0],
            flags=flags(
                inference=(inference, capi.MP_LINEAR_INFERENCE),
                cache=(cache_weight, capi.MP_LINEAR_CACHE_WEIGHT),
                first=(first_or_last, capi.MP_LINEAR_FIRST_OR_LAST),
                stats=(stats, capi.MP_LINEAR_STATS),
                frozen=(frozen, capi.MP_LINEAR_FROZEN),
            ),
            name=None if name is None else name.encode(),
        )
        super().__init__("mp_linear_create", context, recipe, byref(desc), weight, bias)
        self.context, self.in_features, self.out_features = context, shape[1], shape[0]
        self._adapters: weakref.WeakSet[Object] = weakref.WeakSet()

    def _text(self):
        return f" {self.in_features} -> {self.out_features}"

    # ---- Forward and backward

    def forward(
        self,
        x: Array,
        y: Array | None = None,
        saved: Saved | None = None,
        drop: bool = False,
        recompute: bool = False,
        queue: Queue | None = None,
    ) -> Array:
        """y = x w^T + bias. Returns y; without it, a new tensor of x's dtype.

        saved      a Saved to keep what backward needs, instead of the layer
        drop       keep how x was scaled, not x: backward needs a forward of the same x with recompute before it
        """
        x = as_tensor(self.context, x, "x", queue)
        if y is None:
            y = Tensor(self.context, x.shape[:-1] + (self.out_features,), "fp32" if x.is_quantized else x.dtype)
        written = as_tensor(self.context, y, "y", queue)
        if saved is None and not drop and not recompute and not x.is_quantized:
            call("mp_linear_forward", self, queue, x, written)
        else:
            call(
                "mp_linear_forward_saved",
                self,
                queue,
                x,
                written,
                saved,
                flags(drop=(drop, capi.MP_FORWARD_DROP), recompute=(recompute, capi.MP_FORWARD_RECOMPUTE)),
            )
        return y

    def backward(
        self,
        dy: Array,
        dx: Array | None = None,
        dw: Array | None = None,
        dbias: Array | None = None,
        accumulate: bool = False,
        saved: Saved | None = None,
        queue: Queue | None = None,
    ) -> None:
        """dx = dy w, dw = dy^T x, dbias = column sums of dy, those that are given, and those of adapters;
        `accumulate` adds to what is there, but for dx."""
        dy, dx, dw, dbias = self._tensors(queue, dy=dy, dx=dx, dw=dw, dbias=dbias)
        bits = flags(accumulate=(accumulate, capi.MP_BACKWARD_ACCUMULATE))
        if saved is None and (dw is not None or len(self._adapters) > 0):
            call("mp_linear_backward", self, queue, dy, dx, dw, dbias, bits)
        else:
            call("mp_linear_backward_saved", self, queue, saved, dy, dx, dw, dbias, bits)

    def backward_data(self, dy: Array, dx: Array | None = None, queue: Queue | None = None) -> Array:
        """dx = dy w. Returns dx; without it, a new tensor of dy's dtype. Needs no forward."""
        dy = as_tensor(self.context, dy, "dy", queue)
        if dx is None:
            dx = Tensor(self.context, dy.shape[:-1] + (self.in_features,), dy.dtype)
        call("mp_linear_backward_data", self, queue, dy, as_tensor(self.context, dx, "dx", queue))
        return dx

    def backward_weight(
        self, dy: Array, dw: Array, dbias: Array | None = None, accumulate: bool = False, queue: Queue | None = None
    ) -> None:
        """dw = dy^T x and dbias, with the x that the last forward kept."""
        dy, dw, dbias = self._tensors(queue, dy=dy, dw=dw, dbias=dbias)
        call(
            "mp_linear_backward_weight",
            self,
            queue,
            dy,
            dw,
            dbias,
            flags(accumulate=(accumulate, capi.MP_BACKWARD_ACCUMULATE)),
        )

    def _tensors(self, queue, **arrays):
        return [as_tensor(self.context, array, name, queue) for name, array in arrays.items()]

    def end_step(self, comm: Comm | None = None, queue: Queue | None = None) -> None:
        """The end of an optimizer step for this layer alone: see end_step()."""
        end_step([self], comm, queue)

    # ---- What happens to numbers

    def describe(self) -> str:
        """What the layer keeps, in which dtype, how many bytes, and which implementations it uses and why."""
        return text("mp_linear_describe", self)

    def stats(self, operand: str) -> LinearStats:
        """LinearStats of "input", "weight" or "grad_output", of a layer with stats or a monitor. Waits."""
        return LinearStats._of(
            filled(capi.mp_linear_stats, "mp_linear_get_stats", self, choice(_OPERANDS, operand, "operand"))
        )

    def advice(self, operand: str) -> str:
        """One sentence that names the recipe key to change; "" where all is well."""
        return text("mp_linear_get_advice", self, choice(_OPERANDS, operand, "operand"))

    def clear_stats(self, queue: Queue | None = None) -> None:
        """Sets all counts to zero."""
        call("mp_linear_clear_stats", self, queue)

    def set_monitor(self, name: str, every: int, monitor: Callable[[str, LinearStats, str | None], object]) -> None:
        """Every so many steps calls monitor(name, stats, advice) for each operand; every=0 ends it. The function must
        not call the library; what it raises is printed by sys.unraisablehook. It is kept as long as the layer."""
        call("mp_linear_set_monitor", self, name, every, _monitor, _monitored.add(self))
        self._monitor = monitor

    @property
    def scaling(self) -> bytes:
        """Delayed scales and amax histories, as bytes to save; assigned, they are put back."""
        needed = c_size_t()
        call("mp_linear_get_scaling", self, None, 0, byref(needed))
        buffer = ctypes.create_string_buffer(max(needed.value, 1))
        call("mp_linear_get_scaling", self, buffer, needed.value, byref(needed))
        return buffer.raw[: needed.value]

    @scaling.setter
    def scaling(self, data: Any) -> None:
        found = memory(data, "scaling", writable=False)
        call("mp_linear_set_scaling", self, found.address, found.nbytes)

    # ---- Saved forwards, codes of the caller's, rounding

    def saved(self) -> Saved:
        """A place for what one forward keeps."""
        return Saved(self)

    def saved_bytes(self, rows: int) -> int:
        """Bytes that Saved.set_memory needs for a forward of so many rows."""
        return value(c_size_t, "mp_linear_get_saved_bytes", self, rows)

    @property
    def gradient_rounding(self) -> Random | None:
        """How dw in fp16 or bf16 is rounded: None for to nearest, or a Random. Set it before each micro-batch."""
        desc = filled(capi.mp_cast_desc, "mp_linear_get_gradient_rounding", self)
        return Random(desc.seed, desc.uid, desc.step, desc.microbatch) if desc.rounding else None

    @gradient_rounding.setter
    def gradient_rounding(self, random: Random | None) -> None:
        call("mp_linear_set_gradient_rounding", self, None if random is None else byref(cast_desc(random, None)))

    def operand_format(self, product: str, operand: str) -> tuple[str, Quant | None]:
        """(dtype, Quant or None) in which a product ("fprop", "dgrad", "wgrad") takes an operand."""
        dtype, quant = c_int32(), capi.mp_quant_desc()
        call(
            "mp_linear_get_operand_format",
            self,
            choice(_PRODUCTS, product, "product"),
            choice(_OPERANDS, operand, "operand"),
            byref(dtype),
            byref(quant),
        )
        return DTYPE_NAMES[dtype.value], Quant._of(quant) if quant.scaling else None

    def quantize(
        self, product: str, operand: str, source: Any, codes: Any = None, queue: Queue | None = None
    ) -> Tensor:
        """Rounds an operand as the product would, into `codes` or a new tensor, and returns it."""
        source = as_tensor(self.context, source, "source", queue)
        if codes is None:
            dtype, quant = self.operand_format(product, operand)
            codes = Tensor(self.context, source.shape, dtype, quant)
        call(
            "mp_linear_quantize",
            self,
            queue,
            choice(_PRODUCTS, product, "product"),
            choice(_OPERANDS, operand, "operand"),
            source,
            codes,
        )
        return codes

    def set_weight_codes(self, fprop: Tensor | None, dgrad: Tensor | None = None) -> None:
        """Has products take these codes instead of rounding the weight; None: the weight again."""
        call("mp_linear_set_weight_codes", self, fprop, dgrad)

    def weight_codes(self, product: str) -> Optional[Tensor]:
        """What set_weight_codes was given for "fprop" or "dgrad"."""
        return Tensor._made(self.context, "mp_linear_get_weight_codes", self, choice(_PRODUCTS, product, "product"))

    def multiply_tensor(self, operand: str) -> Tensor:
        """The delayed scale of an operand, one fp32 element that moves with every step."""
        return Tensor._made(self.context, "mp_linear_get_multiply_tensor", self, choice(_OPERANDS, operand, "operand"))


def end_step(linears: Iterable[Linear], comm: Comm | None = None, queue: Queue | None = None) -> None:
    """The end of an optimizer step for layers: delayed scales move on, cached weights are let go, monitors are called.
    Not for layers of Optimizer.set_linears. With a comm all its ranks scale alike."""
    linears = list(linears)
    call("mp_linear_end_step", handle_array("linear", linears), len(linears), queue, comm)
