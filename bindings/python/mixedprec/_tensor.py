# SPDX-License-Identifier: Apache-2.0
"""Tensors: dense row-major arrays, plain or quantized, of the library's memory or of the caller's."""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_void_p
from typing import Any, TYPE_CHECKING

from . import _dlpack, capi
from ._context import _DEVICE_NAMES, Context, device_number
from ._errors import InvalidArgumentError
from ._library import Object, call, filled, lent, release_lent
from ._memory import (
    DTYPE_NAMES,
    checked_dtype,
    dtype_number,
    dtype_size,
    int64_array,
    memory,
    readable,
    shape_of,
)
from ._quant import Quant, QuantStats, Random, cast_desc, scale_grid


if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Array, Shape

_CODES = {dtype_number(name) for name in ("fp16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1")}  # what can have scales
_DLPACK_DEVICES = {"host": 1, "cuda": 2, "hip": 10}
# What memoryview can index; the rest are codes.
_VIEW_FORMATS = {"fp32": "f", "fp16": "H", "bf16": "H", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}


def _tensor_desc(shape, dtype, device=None, deferred=False):
    shape = shape_of(shape)
    return capi.mp_tensor_desc(
        flags=capi.MP_TENSOR_DEFERRED if deferred else 0,
        dtype=dtype_number(dtype),
        ndim=len(shape),
        shape=(ctypes.c_int64 * capi.MP_MAX_DIMS)(*shape),
        device_kind=0 if device is None else device_number(device),
    )


class Tensor(Object):
    """A tensor of zeros in the library's memory. Tensor.wrap and from_dlpack make one over memory of the caller's.

    dtype  "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "e8m0", "int8" ... "int64", "uint8", or numpy's or torch's
    quant  a Quant: the tensor then holds codes of this dtype and has scales
    device "host" for one beside an accelerator; None: on the context's device
    deferred  shape and dtype without memory, a parameter's: the optimizer that it is added to gives it memory
    """

    _noun = "tensor"

    def __init__(
        self,
        context: Context,
        shape: Shape,
        dtype: Any = "fp32",
        quant: Quant | None = None,
        device: str | None = None,
        deferred: bool = False,
    ) -> None:
        desc = _tensor_desc(shape, dtype, device, deferred)
        if quant is None:
            super().__init__("mp_tensor_create", context, byref(desc))
        else:
            super().__init__("mp_tensor_create_quantized", context, byref(desc), byref(quant._desc()))
        self.context = context

    # ---- Made otherwise

    @classmethod
    def _made(cls, context, name, *arguments):
        made = cls._returned(name, *arguments)
        if made is not None:
            made.context = context
        return made

    @classmethod
    def _over(cls, context, name, owner, *arguments):
        """One over memory of the caller's: the library has `owner` until nobody uses it any more."""
        number = lent.add(owner)
        try:
            return cls._made(context, name, context, *arguments, release_lent, number)
        except BaseException:
            lent.pop(number)
            raise

    @classmethod
    def wrap(cls, context: Context, array: Array, dtype: Any = None, deferred: bool = False) -> Tensor:
        """A tensor over the memory of a numpy array, or of what has the buffer interface (array.array, bytearray, ...).

        The array must be writable, contiguous and of the native byte order, else ValueError. It stays alive as long as
        the library uses its memory. dtype says what codes in an integer array of the same width are: "bf16" over
        uint16. deferred: a parameter's or gradient's memory while an optimizer has it in use; others may name it, too.
        """
        found = memory(array)
        desc = _tensor_desc(found.shape, checked_dtype(found, dtype, "array"), "host", deferred)
        return cls._over(context, "mp_tensor_wrap", found.owner, byref(desc), found.address if found.nbytes else None)

    @classmethod
    def wrap_quantized(
        cls,
        context: Context,
        codes: Any,
        scale_inv: Any,
        quant: Quant,
        dtype: Any = None,
        shape: Shape | None = None,
        amax: Array | None = None,
    ) -> Tensor:
        """A quantized tensor over the caller's codes, scales (as many as scale_grid says) and, where wanted, amax (one
        fp32).

        dtype  of the codes; shape: where it is not that of `codes` (fp4: two codes a byte)
        """
        pieces = {"codes": memory(codes, "codes"), "scale_inv": memory(scale_inv, "scale_inv")}
        if dtype is None or dtype_size(dtype):
            dtype = checked_dtype(pieces["codes"], dtype, "codes")
        shape = pieces["codes"].shape if shape is None else shape_of(shape)
        columns = shape[-1] if shape else 1
        rows = math.prod(shape) // columns if columns else 0
        grid_rows, grid_columns, scale_dtype = scale_grid(quant, rows, columns)
        needed = {"codes": _bytes(dtype, shape), "scale_inv": grid_rows * grid_columns * dtype_size(scale_dtype)}
        if amax is not None:
            pieces["amax"], needed["amax"] = memory(amax, "amax"), 4
        for name, found in pieces.items():
            if found.nbytes != needed[name]:
                raise ValueError(f"{name} has {found.nbytes} bytes; it must have {needed[name]}")
        return cls._over(
            context,
            "mp_tensor_wrap_quantized",
            [found.owner for found in pieces.values()],
            byref(_tensor_desc(shape, dtype, "host")),
            byref(quant._desc()),
            pieces["codes"].address,
            pieces["scale_inv"].address,
            ctypes.cast(pieces["amax"].address, ctypes.POINTER(ctypes.c_float)) if amax is not None else None,
        )

    def view(self, shape: Shape, offset: int = 0) -> Tensor:
        """Elements from `offset` on, in row-major order, as a tensor of their own over the same memory."""
        shape = shape_of(shape)
        return Tensor._made(self.context, "mp_tensor_create_view", self, offset, len(shape), int64_array(shape))

    # ---- What it is

    def _desc(self):
        return filled(capi.mp_tensor_desc, "mp_tensor_get_desc", self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, slowest first; () of one scalar."""
        desc = self._desc()
        return tuple(desc.shape[: desc.ndim])

    @property
    def dtype(self) -> str:
        """Name of the element type; of codes, that of a code."""
        return DTYPE_NAMES[self._desc().dtype]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._desc().ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; of codes without their scales."""
        return _bytes(self.dtype, self.shape)

    @property
    def device(self) -> tuple[str, int]:
        """("host", 0), ("cuda", 1)"""
        desc = self._desc()
        return _DEVICE_NAMES[desc.device_kind], desc.device_index

    @property
    def address(self) -> int:
        """Where the memory is: for other libraries, valid as long as the tensor; 0 where there is none."""
        data = c_void_p()
        call("mp_tensor_get_data", self, byref(data))
        return data.value or 0

    def __len__(self):
        shape = self.shape
        if not shape:
            raise TypeError("a tensor of one scalar has no length")
        return shape[0]

    def _text(self):
        try:
            return f" {self.dtype} {list(self.shape)}"
        except Exception:
            return ""

    # ---- Its elements

    def read(self, out: Array | None = None, queue: Queue | None = None) -> Any:
        """Copies the elements, as they are stored, into `out`, of as many bytes, and returns it; without it, into
        bytes. Waits for the queue."""
        if out is None:
            buffer = ctypes.create_string_buffer(max(self.nbytes, 1))
            call("mp_tensor_read", self, queue, buffer, self.nbytes)
            return buffer.raw[: self.nbytes]
        found = memory(out, "out")
        if found.nbytes != self.nbytes:
            raise ValueError(f"out has {found.nbytes} bytes; the tensor has {self.nbytes}")
        call("mp_tensor_read", self, queue, found.address, found.nbytes)
        return out

    def write(self, data: Any, queue: Queue | None = None) -> None:
        """Copies as many bytes as the tensor has out of an array or bytes. Waits for the queue."""
        found = readable(data, self.nbytes, "data")
        call("mp_tensor_write", self, queue, found.address, found.nbytes)

    def tolist(self) -> list:
        """The values as a flat list of numbers. Of quantized tensors code * scale_inv."""
        dtype = self.dtype
        if self.is_quantized:
            plain = Tensor(self.context, self.shape, device=self.device[0])
            self.dequantize(plain)
        elif dtype in ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2"):
            plain = self.cast("fp32")
        else:
            plain = self
        numbers = memoryview(plain.read()).cast(_VIEW_FORMATS.get(plain.dtype, "B"))
        return numbers.tolist()

    def memory(self) -> memoryview:
        """A memoryview over the elements of a tensor on the host. While one is alive the memory stays where it is."""
        if self.device[0] != "host":
            raise BufferError(f"the tensor is on {self.device[0]}: read() copies it")
        shape, dtype = self.shape, self.dtype
        if not self.nbytes:
            return memoryview(bytearray())
        lent_memory = _dlpack.Lent(self)
        buffer = (ctypes.c_char * _bytes(dtype, shape)).from_address(lent_memory.address)
        buffer.owner = lent_memory
        return memoryview(buffer).cast("B").cast(_VIEW_FORMATS.get(dtype, "B"))

    def numpy(self) -> Any:
        """A numpy array over the elements of a tensor on the host. bf16 and fp8 are ml_dtypes' types where that is
        installed, else codes: uint16, uint8. While the array is alive the memory stays where it is."""
        import numpy

        dtype, shape = self.dtype, self.shape
        if dtype == "fp4_e2m1":
            raise TypeError("fp4 codes are two to a byte: use memory()")
        flat = numpy.asarray(self.memory())
        codes = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu"}
        if dtype in codes:
            try:
                import ml_dtypes

                kind = getattr(ml_dtypes, codes[dtype])
            except (ImportError, AttributeError):
                kind = numpy.uint16 if dtype == "bf16" else numpy.uint8
        else:
            kind = {"fp32": numpy.float32, "fp16": numpy.float16}.get(dtype, dtype)
        return flat.view(kind).reshape(shape) if flat.size else numpy.empty(shape, kind)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if copy or (dtype is not None and array.dtype != dtype):
            if copy is False:
                raise ValueError(f"a {self.dtype} tensor cannot be {dtype} without a copy")
            return array.astype(dtype or array.dtype)
        return array

    def copy_from(self, source: Tensor, queue: Queue | None = None) -> None:
        """Copies another tensor's elements, of the same type and number, also of another device."""
        call("mp_tensor_copy", source, queue, self)

    def zero(self, queue: Queue | None = None) -> None:
        """Sets every byte to zero."""
        call("mp_tensor_zero", self, queue)

    # ---- Conversions

    def cast(
        self, destination: Any, random: Random | None = None, saturate: bool | None = None, queue: Queue | None = None
    ) -> Tensor:
        """Rounds the elements into another tensor, or into a new one of a dtype, and returns it. fp32, fp16, bf16, fp8.

        random    a Random: stochastic rounding by it; None: to nearest, ties to even
        saturate  whether what is too large becomes the largest value; None: fp8 does, fp16 and bf16 do not
        """
        if not isinstance(destination, Tensor):
            destination = Tensor(self.context, self.shape, destination, device=self.device[0])
        call("mp_tensor_cast", self, queue, destination, byref(cast_desc(random, saturate)))
        return destination

    def amax(self, queue: Queue | None = None) -> float:
        """The largest absolute value. NaN wins over infinity, and that over all numbers. Waits."""
        with Tensor(self.context, (), device=self.device[0]) as result:
            self.amax_into(result, queue)
            return result.tolist()[0]

    def amax_into(self, result: Tensor, queue: Queue | None = None) -> None:
        """The same into one fp32 element on the same device, without waiting."""
        call("mp_tensor_amax", self, queue, result)

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor has scales."""
        if self._desc().dtype not in _CODES:
            return False
        try:
            self.quant
        except InvalidArgumentError:
            return False
        return True

    @property
    def quant(self) -> Quant:
        """The Quant of a quantized tensor."""
        return Quant._of(filled(capi.mp_quant_desc, "mp_tensor_get_quant_desc", self))

    @property
    def scales(self) -> Tensor:
        """The scales (scale_inv) of a quantized tensor, [rows of blocks, columns of blocks], over the same memory."""
        return Tensor._made(self.context, "mp_tensor_get_scales", self)

    @property
    def quantized_amax(self) -> Tensor:
        """The largest |x| of what was quantized last, one fp32 element over the tensor's memory."""
        return Tensor._made(self.context, "mp_tensor_get_quantized_amax", self)

    def quantize(
        self,
        destination: Tensor,
        transposed: Tensor | None = None,
        random: Random | None = None,
        first_element: int = 0,
        stats: bool = False,
        queue: Queue | None = None,
    ) -> QuantStats | None:
        """Rounds fp32, fp16 or bf16 into a quantized tensor, with new scales by its rule.

        transposed     a tensor of the same code type, [columns, rows]: receives the same codes turned
        random         a Random: stochastic rounding by it
        first_element  stochastic rounding: where element 0 lies in the whole tensor
        stats          whether to return QuantStats, which waits
        """
        drawn = {} if random is None else Random(*random)._asdict()
        args = capi.mp_quantize_args(
            first_element=first_element,
            **drawn,
            rounding=capi.MP_ROUND_NEAREST if random is None else capi.MP_ROUND_STOCHASTIC,
        )
        found = capi.mp_quant_stats()
        call("mp_tensor_quantize", self, queue, destination, transposed, byref(args), byref(found) if stats else None)
        if stats:
            return QuantStats(found.elements, found.saturated, found.underflowed, found.non_finite, found.amax)
        return None

    def dequantize(self, destination: Any = "fp32", queue: Queue | None = None) -> Tensor:
        """code * scale_inv, rounded once, into another tensor, or into a new one of a dtype, and returns it."""
        if not isinstance(destination, Tensor):
            destination = Tensor(self.context, self.shape, destination, device=self.device[0])
        call("mp_tensor_dequantize", self, queue, destination)
        return destination

    # ---- DLPack

    def __dlpack_device__(self):
        kind, index = self.device
        return _DLPACK_DEVICES[kind], index

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule over the elements (of codes over the codes). The memory stays while the consumer uses it.

        stream  the consumer's, on an accelerator: it waits for the default queue, the host does not. -1: nobody waits
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("the tensor is on another device")
        source = self
        if copy:
            source = Tensor(self.context, self.shape, self.dtype, device=self.device[0])
            source.copy_from(self)
            self.context.sync()
        _dlpack.hand_over(self.context, self.__dlpack_device__()[0], stream)
        return _dlpack.capsule(source, versioned=max_version is not None and max_version[0] >= 1)


def _bytes(dtype, shape):
    count = math.prod(shape)
    return count * dtype_size(dtype) if dtype != "fp4_e2m1" else (count + 1) // 2
