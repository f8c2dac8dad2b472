# SPDX-License-Identifier: Apache-2.0
"""Files of models that are read: safetensors and GGUF, under their names or under others."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple, TYPE_CHECKING

from . import capi
from ._library import Object, call, filled, value
from ._memory import DTYPE_NAMES

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Path
    from ._tensor import Tensor


class FileTensor(NamedTuple):
    """What a file says of a tensor."""

    dtype: str | None  # None where the library has no such type
    shape: tuple[int, ...]
    type_name: str  # as the file has it: "BF16"
    path: str


class ModelFile(Object):
    """A model's files, opened: a safetensors or GGUF file, an index, or a folder.

    with ModelFile("gpt2").map("q.* = rows(transpose(h.*.attn.c_attn.weight), 0/3)") as model:
        model.load("q.0", tensor)
    """

    _noun = "model_file"

    def __init__(self, path: Path) -> None:
        super().__init__("mp_model_file_open", os.fsencode(path), 0)

    def map(self, rules: str) -> ModelFile:
        """The same tensors under other names, split, joined or transposed: lines "NAME = EXPR", see mp_model_file_map. This
        one may be closed before the result."""
        return type(self)._returned("mp_model_file_map", self, rules)

    def tensors(self) -> dict[str, FileTensor]:
        """All tensors by name, in the order of the files or of the rules."""
        found = {}
        for index in range(value(ctypes.c_int64, "mp_model_file_get_count", self)):
            facts = filled(capi.mp_file_tensor, "mp_model_file_get_tensor", self, index)
            dtype = DTYPE_NAMES[facts.dtype] if facts.dtype != capi.MP_DTYPE_NONE else None
            found[facts.name.decode()] = FileTensor(
                dtype, tuple(facts.shape[: facts.ndim]), facts.type_name.decode(), os.fsdecode(facts.path)
            )
        return found

    def load(self, name: str, tensor: Tensor, first_row: int = 0, queue: Queue | None = None) -> None:
        """Rows from `first_row` on into a Tensor, as many as it has, in whatever format it keeps: a slice for a rank, say."""
        index = value(ctypes.c_int64, "mp_model_file_get_index", self, name)
        call("mp_model_file_load", self, queue, index, first_row, tensor)
