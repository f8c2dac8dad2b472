# SPDX-License-Identifier: Apache-2.0
"""How ranks share an optimizer (ZeRO)."""

from __future__ import annotations

import contextlib
import itertools
from ctypes import byref, c_double, c_int64
from typing import Iterable, Iterator, NamedTuple, Optional, TYPE_CHECKING

from . import capi
from ._comm import Traffic
from ._errors import Error
from ._library import Object, call, choice, choices, filled, flags, value
from ._memory import dtype_number, int32_array
from ._reduce import ORDERS, WIRE_SCALES

if TYPE_CHECKING:
    from ._context import Queue

_KINDS = choices("MP_SHARD_")


class Sharding(NamedTuple):
    """How ranks share an optimizer.

    stage   of ZeRO: 0 sums gradients, 1 shares states, 2 gradients too, 3 weights too
    kind    how parameters are cut: "flat", "per_parameter", "greedy"
    bucket_elements  of a bucket of gradients; 0: 2^24
    wire_dtype  gradients on the wire; None: the recipe's. wire_scale: "default", "block", "mx", "tensor", "shared"
    order   of sums: "rank", "tree", "exact", "fast"; slots: micro-batches of all ranks, for "tree" and "exact"
    shard_ranks, node_ranks  hybrid sharding, sums in two levels; check_every: compare weights every so many steps
    sum_gradients    the sum of the gradients, not their mean
    progress_thread  move gradients while the caller computes
    """

    stage: int = 1
    kind: str = "flat"
    bucket_elements: int = 0
    wire_dtype: Optional[str] = None
    wire_scale: str = "default"
    order: str = "rank"
    slots: int = 0
    shard_ranks: int = 0
    check_every: int = 0
    node_ranks: int = 0
    sum_gradients: bool = False
    progress_thread: bool = True

    def _desc(self):
        return capi.mp_sharding_desc(
            stage=self.stage or capi.MP_SHARDING_STAGE_0,
            kind=choice(_KINDS, self.kind, "kind"),
            bucket_elements=self.bucket_elements,
            wire_dtype=0 if self.wire_dtype is None else dtype_number(self.wire_dtype),
            wire_scale=choice(WIRE_SCALES, self.wire_scale, "wire_scale"),
            order=choice(ORDERS, self.order, "order"),
            slots=self.slots,
            shard_ranks=self.shard_ranks,
            check_every=self.check_every,
            node_ranks=self.node_ranks,
            flags=flags(
                sum=(self.sum_gradients, capi.MP_SHARDING_SUM_GRADIENTS),
                thread=(not self.progress_thread, capi.MP_SHARDING_NO_PROGRESS_THREAD),
            ),
        )


def _pass(backward, last):
    if not backward:
        return capi.MP_PASS_FORWARD
    return capi.MP_PASS_BACKWARD if last else capi.MP_PASS_ACCUMULATE


class Progress(NamedTuple):
    """What moves between the calls of a sharded optimizer. reason: why there is no thread."""

    has_thread: bool
    begun: int
    finished: int
    finished_by_thread: int
    reason: str


class SharedOptimizer(Object):
    """What an Optimizer does whose states ranks share. Without other ranks most of it does nothing."""

    _names: dict[str, int]  # numbers of the parameters

    def _index(self, param):
        if isinstance(param, str):
            if param not in self._names:
                raise KeyError(f"no parameter {param!r}")
            return self._names[param]
        return param

    def shard(self, queue: Queue | None = None) -> None:
        """Cuts the parameters among the ranks now; the first step does it otherwise. Collective."""
        call("mp_optimizer_shard", self, queue)

    def grad_ready(self, param: int | str, queue: Queue | None = None) -> None:
        """A gradient is complete and may travel. Every rank says it in the same order."""
        call("mp_optimizer_grad_ready", self, queue, self._index(param))

    def end_microbatch(self, queue: Queue | None = None) -> None:
        """All gradients of one slot are there, for the orders "tree" and "exact"."""
        call("mp_optimizer_end_microbatch", self, queue)

    def acquire_grad(self, param: int | str, queue: Queue | None = None) -> None:
        """Stages 2 and 3: gives a gradient its memory, of zeros."""
        call("mp_optimizer_acquire_grad", self, queue, self._index(param))

    def _on_params(self, function, params, queue):
        indices = int32_array(self._index(param) for param in params)
        call(function, self, queue, indices, len(indices))

    def gather_begin(self, params: Iterable[int | str], queue: Queue | None = None) -> None:
        """Stage 3: gives parameters memory and begins to fetch them. Collective."""
        self._on_params("mp_optimizer_gather_begin", params, queue)

    def gather_wait(self, params: Iterable[int | str], queue: Queue | None = None) -> None:
        """Returns when they are whole."""
        self._on_params("mp_optimizer_gather_wait", params, queue)

    def gather_free(self, params: Iterable[int | str], queue: Queue | None = None) -> None:
        """Gives their memory back."""
        self._on_params("mp_optimizer_gather_free", params, queue)

    @contextlib.contextmanager
    def gathered(self, params: Iterable[int | str], queue: Queue | None = None) -> Iterator[None]:
        """with optimizer.gathered(["w"]): the parameters are whole inside."""
        params = list(params)
        self.gather_begin(params, queue)
        try:
            self.gather_wait(params, queue)
            yield
        finally:
            self.gather_free(params, queue)

    def set_layer_params(self, layers: Iterable[Iterable[int | str]], prefetch: int = 1) -> None:
        """Which parameters each layer of the model uses, in the order of its forward pass, for layer(). Weights are
        fetched `prefetch` layers ahead. The same on every rank; not while a layer has begun."""
        numbers = [[self._index(param) for param in layer] for layer in layers]
        counts = int32_array(map(len, numbers))
        indices = int32_array(itertools.chain.from_iterable(numbers))
        call("mp_optimizer_set_layer_params", self, len(counts), counts, indices, prefetch)

    def layer_begin(
        self, index: int, backward: bool = False, last: bool = True, queue: Queue | None = None
    ) -> None:
        """Before a layer computes: its weights are whole, and in backward its gradients have memory. Collective."""
        call("mp_optimizer_layer_begin", self, queue, index, _pass(backward, last))

    def layer_end(self, index: int, backward: bool = False, last: bool = True, queue: Queue | None = None) -> None:
        """After it, with the arguments that it began with: the memory of its weights is given back. After backward its
        gradients are ready, unless another micro-batch adds to them: last=False."""
        call("mp_optimizer_layer_end", self, queue, index, _pass(backward, last))

    @contextlib.contextmanager
    def layer(
        self, index: int, backward: bool = False, last: bool = True, queue: Queue | None = None
    ) -> Iterator[None]:
        """with optimizer.layer(0): the forward pass of a layer; with backward=True its backward pass. An exception ends
        the pass, too, but its gradients are not ready then."""
        self.layer_begin(index, backward, last, queue)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Error):
                self.layer_end(index, backward, False, queue)
            raise
        self.layer_end(index, backward, last, queue)

    def slice(self, param: int | str, rank: int) -> tuple[int, int]:
        """(first element, count) that a rank owns of a parameter."""
        start, count = c_int64(), c_int64()
        call("mp_optimizer_get_slice", self, self._index(param), rank, byref(start), byref(count))
        return start.value, count.value

    @property
    def progress(self) -> Progress:
        """What moves between the calls: a Progress."""
        found = filled(capi.mp_sharding_progress, "mp_optimizer_get_progress", self)
        return Progress(
            bool(found.has_thread),
            found.begun,
            found.finished,
            found.finished_by_thread,
            (found.reason or b"").decode(),
        )

    def grad_mu(self, param: int | str) -> float:
        """FP8-LM's factor mu of a gradient that ranks reduce under a shared scale; 0 where it has none."""
        return value(c_double, "mp_optimizer_get_grad_mu", self, self._index(param))

    @property
    def traffic(self) -> Traffic:
        """What this rank has sent for this optimizer: a Traffic."""
        return Traffic._of(filled(capi.mp_comm_traffic, "mp_optimizer_get_traffic", self))
