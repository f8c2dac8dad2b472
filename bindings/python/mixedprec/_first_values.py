# SPDX-License-Identifier: Apache-2.0
"""First values of an optimizer's parameters, for the elements that a rank has."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Iterable, Mapping, TYPE_CHECKING

from . import capi
from ._library import call, choice, choices, flags
from ._memory import int32_array
from ._model_file import ModelFile
from ._sharding import SharedOptimizer
from ._transport import as_status

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Path
    from ._model_writer import ModelWriter

_KINDS = choices("MP_INIT_")


class FilledOptimizer(SharedOptimizer):
    """What an optimizer has besides, for parameters that are new. Collective where ranks share it, after shard()."""

    @contextlib.contextmanager
    def _or_decline(self, function, *words):
        # What fails before the library is called must not leave other ranks waiting.
        try:
            yield
        except Exception:
            with contextlib.suppress(Exception):
                call(function, self, *words)
            raise

    def init_params(
        self, rules: Mapping[int | str, tuple[str, float] | tuple[str, float, float]], seed: int = 0,
        queue: Queue | None = None,
    ) -> None:
        """Values by rules: {"w": ("normal", mean, deviation), "b": ("uniform", low, high), "scale": ("constant", 1.0)}.
        Random numbers go by seed, name and element, so they are the same for any number of ranks."""
        with self._or_decline("mp_optimizer_init_params", queue, 0, None, 1):
            inits = (capi.mp_param_init * len(rules))()
            for init, (param, (kind, *numbers)) in zip(inits, rules.items()):
                a, b = (*numbers, 0.0)[:2]
                fields = capi.mp_param_init(index=self._index(param), kind=choice(_KINDS, kind, "kind"), a=a, b=b)
                ctypes.pointer(init)[0] = fields
        call("mp_optimizer_init_params", self, queue, seed, inits, len(inits))

    def load_params(
        self,
        model: Path | ModelFile,
        prefix: str = "",
        params: Iterable[int | str] | None = None,
        queue: Queue | None = None,
    ) -> None:
        """The values that a model's files (safetensors, GGUF) have, by the parameters' names after `prefix`; None: of all
        parameters. Each rank reads what it has. A path, or a ModelFile, which ModelFile.map may have named anew."""
        with self._or_decline("mp_optimizer_load_params", queue, None, "", None, 0):
            indices = int32_array(() if params is None else (self._index(param) for param in params))
            is_open = isinstance(model, ModelFile)
            if is_open:
                model.handle()  # raises where it is closed, so that other ranks learn of it
            opened = contextlib.nullcontext(model) if is_open else ModelFile(model)
        with opened as source:
            some = None if params is None else indices
            call("mp_optimizer_load_params", self, queue, source, prefix, some, len(indices))

    def write_params(
        self,
        writer: ModelWriter | None,
        prefix: str = "",
        params: Iterable[int | str] | None = None,
        exact: bool = False,
        queue: Queue | None = None,
    ) -> None:
        """Parameters into tensors of the writer, by the parameters' names after `prefix`; None: all parameters. On ranks
        one has the writer, and the others None. Weights as the model computes with them or, with `exact`, the values
        behind them: of the master, the remainder or the compensation."""
        with self._or_decline("mp_optimizer_write_params", queue, None, "", None, 1, 0):
            indices = int32_array(() if params is None else (self._index(param) for param in params))
        some = None if params is None else indices
        bits = flags(exact=(exact, capi.MP_WRITE_PARAMS_EXACT))
        call("mp_optimizer_write_params", self, queue, writer, prefix, some, len(indices), bits)

    def fill_params(
        self,
        params: Iterable[int | str],
        fill: Callable[[int, int, Any], object] | None,
        root: int | None = None,
        queue: Queue | None = None,
    ) -> None:
        """The values that a function writes: fill(index, first, values) for elements from `first` on of a parameter,
        into a writable buffer of floats, numpy.frombuffer(values, "f4") say. With `root` that rank alone is asked, and
        sends them to all; the others' function may be None."""

        @as_status
        def write(index, first, count, values, _payload):
            own = bytearray(4 * count)  # somebody may keep it, so it is not the library's memory
            fill(index, first, memoryview(own).cast("f"))
            ctypes.memmove(values, (ctypes.c_char * len(own)).from_buffer(own), len(own))

        function = capi.mp_fill_fn() if fill is None else capi.mp_fill_fn(write)
        from_rank = -1 if root is None else root
        with self._or_decline("mp_optimizer_fill_params", queue, None, 1, function, None, from_rank):
            indices = int32_array(self._index(param) for param in params)
        call("mp_optimizer_fill_params", self, queue, indices, len(indices), function, None, from_rank)
