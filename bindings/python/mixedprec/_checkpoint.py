# SPDX-License-Identifier: Apache-2.0
"""Saving and loading everything that the next step depends on."""

from __future__ import annotations

import os
from ctypes import byref
from typing import Any, Callable, NamedTuple, TYPE_CHECKING

from . import capi
from ._library import Listeners, Object, call, filled, flags, quiet, text
from ._memory import memory
from ._rule import by_state

if TYPE_CHECKING:
    from ._comm import Comm
    from ._context import Context
    from ._linear import Linear
    from ._memory import Array, Path
    from ._optimizer import Optimizer
    from ._scaler import Scaler


class CheckpointInfo(NamedTuple):
    """What a checkpoint is. The errors are what Checkpoint.load(convert=True) lost by rounding, where converted is
    true; those of states by name: {"exp_avg": error, ...}."""

    format: int
    step: int
    sequence: int
    world: int
    tensor_count: int
    bytes: int
    applied_step: int
    seed: int
    converted: bool
    weight_largest_error: float
    weight_rms_error: float
    state_largest_error: dict
    state_rms_error: dict

    @classmethod
    def _of(cls, info: Any):
        found = cls(*(getattr(info, field) for field in cls._fields))
        return found._replace(
            converted=bool(found.converted),
            state_largest_error=by_state(found.state_largest_error),
            state_rms_error=by_state(found.state_rms_error),
        )


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """CheckpointInfo of a checkpoint, or of the newest one in a directory. IOFailure where there is none."""
    return CheckpointInfo._of(filled(capi.mp_checkpoint_info, "mp_checkpoint_inspect", os.fsencode(path)))


def describe_checkpoint(path: Path) -> str:
    """The same in words: the checkpoints of a directory, or a checkpoint's recipe, files and tensors."""
    return text("mp_checkpoint_describe", os.fsencode(path))


def read_manifest(path: Path) -> str:
    """The manifest that a load would take, as JSON: {"name": ..., "manifest": ...}."""
    return text("mp_checkpoint_read_manifest", os.fsencode(path))


_watched = Listeners()


@capi.mp_checkpoint_progress_fn
@quiet
def _progress(done, total, number):
    checkpoint = _watched.get(number)
    if checkpoint is not None:
        checkpoint._progress(done, total)


class Checkpoint(Object):
    """Add what belongs to the training, then save and load it.

    comm      the ranks, for a collective checkpoint
    keep      after a save, older checkpoints beyond so many are deleted; 0: none
    progress  progress(done, total), in bytes, from the thread that works; must not call the library
    """

    _noun = "checkpoint"

    def __init__(
        self,
        context: Context,
        comm: Comm | None = None,
        keep: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        desc = capi.mp_checkpoint_desc(keep=keep)
        if progress is not None:
            self._progress = progress
            desc.progress, desc.payload = _progress, _watched.add(self)
        super().__init__("mp_checkpoint_create", context, comm, byref(desc))
        self.context = context

    def add_optimizer(self, optimizer: Optimizer) -> None:
        """Its parameters, states, groups and seed."""
        call("mp_checkpoint_add_optimizer", self, optimizer)

    def add_scaler(self, scaler: Scaler) -> None:
        """Scale and counters."""
        call("mp_checkpoint_add_scaler", self, scaler)

    def add_linear(self, name: str, linear: Linear) -> None:
        """A layer's delayed scales and amax histories."""
        call("mp_checkpoint_add_linear", self, name, linear)

    def add_data(self, name: str, array: Array) -> None:
        """An array or bytearray of the caller's: saved as it is then, written by a load. It stays in use."""
        found = memory(array)
        self.handle()
        self._kept.append(found.owner)
        call("mp_checkpoint_add_data", self, name, found.address, found.nbytes)

    def save(self, directory: Path, step: int, background: bool = False) -> None:
        """Saves a new checkpoint in a directory of them. background: returns when the state is copied; a thread
        writes."""
        call(
            "mp_checkpoint_save",
            self,
            os.fsencode(directory),
            step,
            flags(background=(background, capi.MP_SAVE_BACKGROUND)),
        )

    def load(
        self, path: Path, verify_all: bool = False, other_recipe: bool = False, convert: bool = False
    ) -> CheckpointInfo:
        """Loads a checkpoint, or the newest intact one of a directory, and returns its CheckpointInfo. On an error
        nothing has changed.

        verify_all    check every byte of every file
        other_recipe  take another recipe's whose tensors have the same types
        convert       take another recipe's and round its numbers
        """
        info = capi.mp_checkpoint_info()
        call(
            "mp_checkpoint_load",
            self,
            os.fsencode(path),
            flags(
                all=(verify_all, capi.MP_LOAD_VERIFY_ALL),
                other=(other_recipe, capi.MP_LOAD_OTHER_RECIPE),
                convert=(convert, capi.MP_LOAD_CONVERT),
            ),
            byref(info),
        )
        return CheckpointInfo._of(info)

    @property
    def saving(self) -> bool:
        """Whether a save in the background is running."""
        return call("mp_checkpoint_test", self) == capi.MP_STATUS_NOT_READY

    def wait(self) -> None:
        """Waits for a save in the background, and raises what became of it."""
        call("mp_checkpoint_wait", self)

    def export_weights(self, file: Path) -> None:
        """Writes the parameters alone as one ordinary safetensors file, which must not exist."""
        call("mp_checkpoint_export_weights", self, os.fsencode(file))
