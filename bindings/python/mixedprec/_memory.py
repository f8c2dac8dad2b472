# SPDX-License-Identifier: Apache-2.0
"""The caller's memory: numpy arrays and whatever has Python's buffer interface. numpy is used only where the caller
does."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, NamedTuple, Optional, Sequence, Union

from . import capi
from ._library import choice, choices, lib

Array = Any  # a Tensor, a numpy array, a torch tensor, array.array, bytearray, ...
Shape = Union[int, Sequence[int]]
Path = Union[str, bytes, os.PathLike]

DTYPES = choices("MP_DTYPE_")
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
# What numpy, ml_dtypes and torch call them
_ALIASES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float8_e8m0fnu": "e8m0",
    "float4_e2m1fn": "fp4_e2m1",
    "float": "fp32",
    "half": "fp16",
}
_FORMATS = {"f": "fp32", "e": "fp16", "b": "int8", "B": "uint8", "h": "int16", "i": "int32", "q": "int64", "l": "int64"}
_FLOATS = {"fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "e8m0", "fp4_e2m1"}


def dtype_name(dtype: Any) -> str:
    """The library's name of an element type: "bf16" for "bf16", numpy.dtype("bfloat16"), torch.bfloat16."""
    if not isinstance(dtype, str):
        dtype = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).replace("torch.", "")
    dtype = _ALIASES.get(dtype, dtype)
    choice(DTYPES, dtype, "dtype")
    return dtype


def dtype_number(dtype):
    return DTYPES[dtype_name(dtype)]


def dtype_size(dtype: Any) -> int:
    """Bytes of one element; 0 for types of less than a byte."""
    return lib.mp_dtype_size(dtype_number(dtype))


class Memory(NamedTuple):
    """Memory by its address. It is valid as long as `owner` is."""

    address: int
    nbytes: int
    itemsize: int
    shape: tuple
    dtype: Optional[str]  # None for numbers the library has no name of
    owner: object

    @property
    def count(self):
        return self.nbytes // self.itemsize


def is_numpy(array):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def memory(array: Array, noun: Any = "array", writable: Any = True) -> Memory:
    """An array's memory. ValueError for one that is not row-major, not writable, or of the other byte order; TypeError
    for what is no array."""
    if is_numpy(array):
        return _of_numpy(array, noun, writable)
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(
            f"{noun} is {_kind(array)}; it must be a tensor, a numpy array or another object with the buffer "
            f"interface"
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"{noun} is not contiguous and row-major")
    if view.format.startswith((">", "!")):
        raise ValueError(f"{noun} has the other byte order")
    if writable and view.readonly:
        raise ValueError(f"{noun} is read-only; it must be writable")
    if view.readonly:
        owner = ctypes.create_string_buffer(view.tobytes(), max(view.nbytes, 1))
    else:
        # as long as it lives the object cannot resize its memory
        owner = (ctypes.c_char * view.nbytes).from_buffer(view)
    code = view.format.lstrip("@=<")
    return Memory(ctypes.addressof(owner), view.nbytes, view.itemsize, view.shape, _FORMATS.get(code), owner)


def _of_numpy(array, noun, writable):
    if array.dtype.hasobject:
        raise TypeError(f"{noun} holds Python objects; it must hold numbers")
    if not array.dtype.isnative:
        raise ValueError(f"{noun} has the other byte order; use {noun}.astype({noun}.dtype.newbyteorder('='))")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{noun} is not contiguous and row-major (strides {array.strides}); use numpy.ascontiguousarray"
        )
    if writable and not array.flags.writeable:
        raise ValueError(f"{noun} is read-only; it must be writable")
    name = array.dtype.name
    name = _ALIASES.get(name, name)
    return Memory(array.ctypes.data, array.nbytes, array.itemsize, array.shape, name if name in DTYPES else None, array)


def _kind(value):
    return f"{value!r}" if isinstance(value, (int, float, str, type(None))) else f"a {type(value).__name__}"


def checked_dtype(found, dtype, noun):
    """The dtype of an array's elements: its own, or the one that the caller says its codes are. Both must have one
    size."""
    if dtype is None:
        if found.dtype is None:
            raise TypeError(
                f"{noun} has elements that the library does not have; it takes "
                f"{', '.join(name for name in DTYPES if name != 'none')}; codes of such a type in an integer array "
                f"need dtype="
            )
        return found.dtype
    name = dtype_name(dtype)
    if dtype_size(name) != found.itemsize:
        raise ValueError(f"{noun} has elements of {found.itemsize} bytes; {name} has {dtype_size(name)}")
    if found.dtype in _FLOATS and found.dtype != name:
        raise TypeError(
            f"{noun} is {found.dtype}, not {name}; only codes in an integer array can be said to be another type"
        )
    return name


def readable(data, nbytes, noun):
    """Memory to copy `nbytes` bytes from."""
    found = memory(data, noun, writable=False)
    if found.nbytes != nbytes:
        raise ValueError(f"{noun} has {found.nbytes} bytes; it must have {nbytes}")
    return found


def int64_array(numbers):
    numbers = [int64(n) for n in numbers]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def int64(number):
    return _int64(number)


_int64 = capi.converter(ctypes.c_int64)
_int32 = capi.converter(ctypes.c_int32)


def int32_array(numbers):
    numbers = [_int32(n) for n in numbers]
    return (ctypes.c_int32 * len(numbers))(*numbers)


def shape_of(shape):
    """A shape as a tuple; a number is a shape of one dimension."""
    if hasattr(shape, "__index__"):
        return (int64(shape),)
    shape = tuple(int64(size) for size in shape)
    if len(shape) > capi.MP_MAX_DIMS:
        raise ValueError(f"a shape of {len(shape)} dimensions; at most {capi.MP_MAX_DIMS} are possible")
    return shape
