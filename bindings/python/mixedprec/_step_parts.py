# SPDX-License-Identifier: Apache-2.0
"""Steps of an optimizer that are taken in parts."""

from __future__ import annotations

from typing import Iterable, TYPE_CHECKING

from ._arguments import as_tensor
from ._library import call, handle_array
from ._memory import int32_array
from ._param_changes import ChangedOptimizer

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Array
    from ._scaler import Scaler


class SteppedOptimizer(ChangedOptimizer):
    """What an optimizer has besides, for steps while backward goes on. The bits are those of step()."""

    def step_begin(self, scaler: Scaler | None = None, queue: Queue | None = None) -> None:
        """Begins a step in parts, and decides it. Each parameter is written as soon as its gradient is final, by
        step_params. A scaler's scale is divided out; it may not look for infinities."""
        call("mp_optimizer_step_begin", self, queue, scaler)

    def step_params(
        self, params: Iterable[int | str], grads: Iterable[Array] | None = None, queue: Queue | None = None
    ) -> None:
        """Writes parameters in the open step, in any order, each once in a step.

        grads  a gradient for each, a tensor or an array, which is not kept; None: their own
        """
        indices, handles = int32_array(self._index(param) for param in params), None
        if grads is not None:
            grads = list(grads)
            if len(grads) != len(indices):
                raise ValueError(f"there are {len(grads)} grads; there must be one for each of {len(indices)} params")
            grads = [as_tensor(self.context, grad, f"grads[{i}]", queue) for i, grad in enumerate(grads)]
            handles = handle_array("tensor", grads)
        call("mp_optimizer_step_params", self, queue, indices, len(indices), handles)

    def step_end(self, queue: Queue | None = None) -> None:
        """Ends the open step: what is left is written now, from its own gradients. Waits."""
        call("mp_optimizer_step_end", self, queue)
