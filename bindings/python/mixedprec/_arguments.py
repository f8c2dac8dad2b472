# SPDX-License-Identifier: Apache-2.0
"""What calls take for a tensor: a tensor, an array, or whatever has DLPack."""

from __future__ import annotations

import ctypes
from typing import Any, TYPE_CHECKING

from . import _dlpack
from ._context import Context
from ._memory import is_numpy, memory
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._context import Queue


def from_dlpack(context: Context, source: Any, queue: Queue | None = None) -> Tensor:
    """A tensor over the memory of another library's: torch, jax, cupy, numpy, ... or over a DLPack capsule, which is
    taken.

    It must be row-major and writable. What it holds stays alive as long as the library uses it. A torch tensor that
    requires a gradient is passed as source.detach().

    On an accelerator `queue` begins after the other library's work so far; a capsule says nothing of that. What is
    written there later the other library sees once it waits: context.sync(), or from_dlpack of its own.
    """
    if not isinstance(context, Context):
        raise TypeError("from_dlpack takes a context first")
    context.handle()
    return Tensor._made(context, "mp_dlpack_import", context, _dlpack.take(source, context, queue))


def as_tensor(context, array, noun, queue=None):
    """A tensor for an argument of a call on a queue: a tensor itself, one over an array, None for None."""
    if array is None or isinstance(array, Tensor):
        return array
    if not is_numpy(array) and hasattr(array, "__dlpack__"):
        return from_dlpack(context, array, queue)
    try:
        return Tensor.wrap(context, array)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{noun}: {error}") from None


def check_device_of(context, device, noun):
    """ValueError for memory that calls which take addresses cannot reach."""
    if device != context.device:
        raise ValueError(f"{noun} is on {device}; it must be on the context's device, {context.device}")


def host_floats(values, count, noun):
    """fp32 memory of so many elements to read from; None for None."""
    if values is None:
        return None, None
    found = memory(values, noun, writable=False)
    if found.dtype != "fp32" or found.count != count:
        raise ValueError(
            f"{noun} has {found.count} elements of {found.dtype or 'another type'}; it must have {count} of fp32"
        )
    return found, ctypes.cast(found.address, ctypes.POINTER(ctypes.c_float))
