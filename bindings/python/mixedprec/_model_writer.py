# SPDX-License-Identifier: Apache-2.0
"""Files of a model that are written: safetensors and GGUF."""

from __future__ import annotations

import ctypes
import os
from typing import Sequence, TYPE_CHECKING, Union

from . import capi
from ._library import Object, call, choice, choices, value
from ._memory import dtype_number, memory
from ._model_file import ModelFile

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Array, Path, Shape
    from ._tensor import Tensor

_FORMATS = choices("MP_MODEL_", "MP_MODEL_FILE_NO_LINKS")


class ModelWriter(Object):
    """First add_tensor and set, then write in pieces of any order, then finish. Without finish nothing is left.

    with ModelWriter("tiny.gguf") as writer:
        writer.set("general.architecture", "llama")
        writer.add_tensor("w", "q8_0", (2, 32))
        writer.write_floats("w", array.array("f", range(64)))
        writer.finish()

    max_file_bytes, of safetensors: tensors of more bytes are split over files and an index."""

    _noun = "model_writer"

    def __init__(self, path: Path, max_file_bytes: int = 0, format: str = "default") -> None:
        number = choice(_FORMATS, format, "format")
        desc = capi.mp_model_writer_desc(format=number, max_file_bytes=max_file_bytes)
        super().__init__("mp_model_writer_create", os.fsencode(path), desc)
        self._indices: dict[str, int] = {}

    def _index(self, name):
        if name not in self._indices:
            raise KeyError(f"the writer has no tensor {name!r}; add it before the first write")
        return self._indices[name]

    def add_tensor(self, name: str, dtype: object, shape: Shape) -> None:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        array = (ctypes.c_int64 * len(sizes))(*sizes)
        number = dtype_number(dtype)
        self._indices[name] = value(
            ctypes.c_int64, "mp_model_writer_add_tensor", self, name, number, len(sizes), array
        )

    def set(self, key: str, item: Union[str, bool, float, Sequence[str], Sequence[float]]) -> None:
        """A text; of GGUF also a bool, a float, and lists of texts and floats. Integers: set_integer."""
        if isinstance(item, str):
            call("mp_model_writer_set_text", self, key, item)
        elif isinstance(item, bool):
            call("mp_model_writer_set_boolean", self, key, item)
        elif isinstance(item, float):
            call("mp_model_writer_set_float", self, key, item)
        elif isinstance(item, int):
            raise TypeError(f"{key!r} is an integer, of which files say how many bits it has; see set_integer")
        elif all(isinstance(one, str) for one in item):
            texts = (ctypes.c_char_p * len(item))(*(one.encode() for one in item))
            call("mp_model_writer_set_texts", self, key, texts, len(item))
        else:
            call("mp_model_writer_set_floats", self, key, (ctypes.c_float * len(item))(*item), len(item))

    def set_integer(self, key: str, item: Union[int, Sequence[int]], bits: int = 32, signed: bool = True) -> None:
        """An integer of GGUF, or a list of signed ones. llama.cpp's have 32 bits, and most of them no sign."""
        if not isinstance(item, int):
            if not signed:
                raise ValueError("integers of a list are signed")
            numbers = (ctypes.c_int64 * len(item))(*item)
            call("mp_model_writer_set_integers", self, key, bits, numbers, len(item))
        elif signed:
            call("mp_model_writer_set_integer", self, key, bits, item)
        else:
            call("mp_model_writer_set_unsigned", self, key, bits, item)

    def copy_metadata(self, model: Path | ModelFile) -> None:
        """All keys of another model's files that are not set yet."""
        if isinstance(model, ModelFile):
            call("mp_model_writer_copy_metadata", self, model)
            return
        with ModelFile(model) as opened:
            call("mp_model_writer_copy_metadata", self, opened)

    def write(self, name: str, data: Array, offset: int = 0) -> None:
        """Bytes as the file has them, from a byte of the tensor's on."""
        found = memory(data, "data", False)
        call("mp_model_writer_write", self, self._index(name), offset, found.address, found.nbytes)

    def write_floats(self, name: str, values: Array, first: int = 0) -> None:
        """fp32 numbers, as the nearest of the tensor's type, from an element on."""
        found = memory(values, "values", False)
        if found.dtype != "fp32":
            raise TypeError(f"values are {found.dtype}; they must be fp32")
        numbers = ctypes.cast(found.address, ctypes.POINTER(ctypes.c_float))
        call("mp_model_writer_write_floats", self, self._index(name), first, numbers, found.count)

    def write_tensor(self, name: str, tensor: Tensor, queue: Queue | None = None) -> None:
        """A whole Tensor of the library's, from any device."""
        call("mp_model_writer_write_tensor", self, queue, self._index(name), tensor)

    def finish(self) -> None:
        """All of it is on the disk, and has its name."""
        call("mp_model_writer_finish", self)
