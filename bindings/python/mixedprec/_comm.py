# SPDX-License-Identifier: Apache-2.0
"""Ranks that exchange bytes: communicators, requests and reductions."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int32, c_int64, c_uint32
from typing import Any, NamedTuple, Sequence, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor
from ._library import Object, call, filled, text, value
from ._memory import int64_array, memory
from ._parts import check_parts, part_offsets, part_sizes
from ._reduce import deadline_ms, reduce_desc
from ._transport import fill_table, tables

if TYPE_CHECKING:
    from ._context import Context, Queue
    from ._memory import Array
    from ._transport import Transport


class Traffic(NamedTuple):
    """What a rank has sent."""

    calls: int
    total_bytes: int
    all_to_all_bytes: int
    all_gather_bytes: int
    broadcast_bytes: int
    max_u32_bytes: int
    sum_f32_bytes: int

    @classmethod
    def _of(cls, traffic: Any):
        return cls(*(getattr(traffic, field) for field in cls._fields))


class Request(Object):
    """An operation in flight. Its arrays stay alive and are not to be touched until it is done. Closed or collected
    before that it ends its communicator."""

    _noun = "comm_request"

    def wait(self) -> None:
        """Waits until it is done, or raises what became of it."""
        call("mp_comm_request_wait", self)

    @property
    def done(self) -> bool:
        """Whether it is done; moves all operations of the communicator on."""
        return call("mp_comm_request_test", self) == capi.MP_STATUS_OK


def _comm_desc(deadline, ranks_per_node=0):
    return capi.mp_comm_desc(deadline_ms=deadline_ms(deadline), ranks_per_node=ranks_per_node)


class Comm(Object):
    """A communicator: one rank of several. Every rank makes the same calls in the same order, one thread at a time.

    Comm() is one rank alone. Comm.threads, mpi, nccl and custom make others. `deadline`, in seconds, is that of every
    wait; None: 300. A failure that the ranks have (RankTimeoutError, PeerLostError, RankMismatchError, ...) ends the
    communicator.

    Operations take wait=False and return a Request then.
    """

    _noun = "comm"

    def __init__(self, deadline: float | None = None) -> None:
        super().__init__("mp_comm_create_self", byref(_comm_desc(deadline)))

    @classmethod
    def threads(cls, count: int, deadline: float | None = None, ranks_per_node: int = 0) -> list[Comm]:
        """A list of communicators for ranks that are threads of this process: each thread uses one."""
        count = c_int32(capi.converter(c_int32)(count)).value
        handles = (POINTER(capi.mp_comm) * max(count, 1))()
        call("mp_comm_create_threads", byref(_comm_desc(deadline, ranks_per_node)), count, handles)
        return [cls._of(ctypes.cast(handle, POINTER(capi.mp_comm))) for handle in handles]

    @classmethod
    def mpi(cls, comm: Any = None, deadline: float | None = None) -> Comm:
        """Ranks over MPI. comm: a communicator of mpi4py, which is duplicated; None: MPI_COMM_WORLD. Collective.
        ModuleMissingError where the library has no MPI."""
        native = None
        if comm is not None:
            from mpi4py import MPI

            if not isinstance(comm, MPI.Comm):
                raise TypeError(f"a communicator of mpi4py is needed, not a {type(comm).__name__}")
            native = MPI._addressof(comm)
        return cls._returned("mp_comm_create_mpi", byref(_comm_desc(deadline)), native)

    @staticmethod
    def nccl_unique_id() -> bytes:
        """What the ranks of a new NCCL communicator find each other by, as bytes: one rank calls it and tells the
        others."""
        buffer = ctypes.create_string_buffer(capi.MP_COMM_UNIQUE_ID_BYTES)
        call("mp_comm_get_nccl_unique_id", buffer, len(buffer))
        return buffer.raw

    @classmethod
    def nccl(cls, context: Context, unique_id: bytes, rank: int, size: int, deadline: float | None = None) -> Comm:
        """Ranks over NCCL, each on the GPU of its context. Collective."""
        unique_id = bytes(unique_id)
        if len(unique_id) != capi.MP_COMM_UNIQUE_ID_BYTES:
            raise ValueError(f"unique_id has {len(unique_id)} bytes; it must have {capi.MP_COMM_UNIQUE_ID_BYTES}")
        return cls._returned("mp_comm_create_nccl", context, byref(_comm_desc(deadline)), unique_id, rank, size)

    @classmethod
    def custom(cls, transport: Transport, deadline: float | None = None) -> Comm:
        """Ranks over a Transport written in Python."""
        table = capi.mp_comm_callbacks()
        number = fill_table(table, transport)
        try:
            return cls._returned("mp_comm_create_callbacks", byref(_comm_desc(deadline)), byref(table))
        except BaseException:
            tables.pop(number)
            raise

    # ---- What it is

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return value(c_int32, "mp_comm_get_rank", self)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return value(c_int32, "mp_comm_get_size", self)

    def _text(self):
        try:
            return f" rank {self.rank} of {self.size}"
        except Exception:
            return ""

    def node(self, rank: int) -> int:
        """Which machine a rank is on: ranks with equal numbers share one."""
        return value(c_int32, "mp_comm_get_node", self, rank)

    @property
    def deadline(self) -> float:
        """Seconds that every wait has; None, assigned: 300."""
        return value(c_int64, "mp_comm_get_deadline", self) / 1000

    @deadline.setter
    def deadline(self, seconds: float | None) -> None:
        call("mp_comm_set_deadline", self, deadline_ms(seconds))

    def check(self) -> None:
        """Raises the failure that has ended the communicator."""
        call("mp_comm_get_status", self)

    @property
    def traffic(self) -> Traffic:
        """What this rank has sent so far: a Traffic."""
        return Traffic._of(filled(capi.mp_comm_traffic, "mp_comm_get_traffic", self))

    def describe(self) -> str:
        """One line: rank, transport, deadline, operations and bytes so far, what ended it."""
        return text("mp_comm_describe", self)

    def split(self, color: int, key: int = 0) -> Comm | None:
        """Communicators of the ranks of one color each, ordered by key; None where color is below 0. Collective."""
        return Comm._returned("mp_comm_split", self, color, key)

    def abort(self, reason: str | None = None) -> None:
        """Ends the communicator here and tells the others. From any thread: a call that waits raises AbortedError."""
        call("mp_comm_abort", self, reason)

    # ---- Exchanges

    def _run(self, wait, owners, name, *arguments):
        if wait:
            call(name, *arguments, None)
            return None
        return Request._returned(name, *arguments, kept=owners)

    def _exchange(self, send, receive, send_bytes, send_offsets, receive_bytes, receive_offsets, deadline, site):
        owners, desc = [], capi.mp_comm_exchange(deadline_ms=deadline_ms(deadline), site=site)
        for noun, data, sizes, offsets in (
            ("send", send, send_bytes, send_offsets),
            ("receive", receive, receive_bytes, receive_offsets),
        ):
            found = None if data is None else memory(data, noun, writable=noun == "receive")
            check_parts(noun, 0 if found is None else found.nbytes, sizes, offsets, apart=noun == "receive")
            if found is not None:
                setattr(desc, noun, found.address)
                owners.append(found.owner)
            for field, numbers in ((f"{noun}_bytes", sizes), (f"{noun}_offsets", offsets)):
                numbers = int64_array(numbers)
                owners.append(numbers)
                setattr(desc, field, ctypes.cast(numbers, POINTER(c_int64)))
        return desc, owners

    def all_to_all(
        self,
        send: Any,
        receive: Any,
        send_bytes: Sequence[int] | None = None,
        receive_bytes: Sequence[int] | None = None,
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
        deadline: float | None = None,
        site: str | None = None,
        queue: Queue | None = None,
        wait: bool = True,
    ) -> Request | None:
        """Every rank gives every rank its own bytes. send_bytes[r] bytes of `send` go to rank r, receive_bytes[r] of
        `receive` come from it; even parts where they are None. Parts lie behind one another where offsets are None."""
        size = self.size
        send_bytes = part_sizes(send, send_bytes, size, "send")
        receive_bytes = part_sizes(receive, receive_bytes, size, "receive")
        desc, owners = self._exchange(
            send,
            receive,
            send_bytes,
            part_offsets(send_bytes, send_offsets, size),
            receive_bytes,
            part_offsets(receive_bytes, receive_offsets, size),
            deadline,
            site,
        )
        return self._run(wait, owners, "mp_comm_all_to_all", self, queue, byref(desc))

    def all_gather(
        self,
        send: Any,
        receive: Any,
        receive_bytes: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
        deadline: float | None = None,
        site: str | None = None,
        queue: Queue | None = None,
        wait: bool = True,
    ) -> Request | None:
        """Every rank gets every rank's `send`, in `receive`; receive_bytes where ranks send different amounts."""
        size = self.size
        sent = 0 if send is None else memory(send, "send", writable=False).nbytes
        receive_bytes = part_sizes(receive, receive_bytes, size, "receive")
        desc, owners = self._exchange(
            send, receive, [sent], [0], receive_bytes, part_offsets(receive_bytes, receive_offsets, size), deadline, site
        )
        return self._run(wait, owners, "mp_comm_all_gather", self, queue, byref(desc))

    def broadcast(self, data: Any, root: int = 0, queue: Queue | None = None, wait: bool = True) -> Request | None:
        """All ranks get the root's bytes, in `data`."""
        found = memory(data, "data")
        return self._run(wait, [found.owner], "mp_comm_broadcast", self, queue, found.address, found.nbytes, root)

    def max_u32(self, values: Any, wait: bool = True) -> Request | None:
        """Replaces unsigned 32-bit numbers in an array by their maxima over the ranks."""
        found = memory(values, "values")
        if found.itemsize != 4 or found.dtype is not None and found.dtype != "int32":
            raise TypeError("values must be an array of unsigned 32-bit integers")
        pointer = ctypes.cast(found.address, POINTER(c_uint32))
        return self._run(wait, [found.owner], "mp_comm_max_u32", self, pointer, found.count)

    def barrier(self, wait: bool = True) -> Request | None:
        """Returns when every rank has called it."""
        return self._run(wait, (), "mp_comm_barrier", self)

    # ---- Reductions of tensors

    def all_reduce(
        self,
        context: Context,
        sources: Any,
        destination: Any,
        op: str = "sum",
        queue: Queue | None = None,
        wait: bool = True,
        **how: Any,
    ) -> Request | None:
        """The same sums of all elements on every rank. Tensors or arrays of fp32, fp16 or bf16.

        sources       one, or a list: one for each slot of this rank
        destination   of as many elements, in memory of its own
        op            "sum", or "max_abs": the largest |x| of each element, as fp32
        how           order "rank", "tree", "exact", "fast"; accumulate "default", "fp32", "fp64", "fixed"; slots;
                      wire_dtype, wire_scale; gather_dtype, gather_scale; first_element; random, a Random: stochastic
                      rounding to the wire; deadline; site
        """
        return self._reduce("mp_comm_all_reduce", context, sources, None, destination, op, queue, wait, how)

    def reduce_scatter(
        self,
        context: Context,
        sources: Any,
        destination: Any,
        counts: Any = None,
        queue: Queue | None = None,
        wait: bool = True,
        **how: Any,
    ) -> Request | None:
        """This rank gets the sum of its share: counts[rank] elements; even shares of multiples of 128 where counts is
        None."""
        return self._reduce("mp_comm_reduce_scatter", context, sources, counts, destination, "sum", queue, wait, how)

    def _reduce(self, name, context, sources, counts, destination, op, queue, wait, how):
        sources = [
            as_tensor(context, source, "sources", queue)
            for source in (sources if isinstance(sources, (list, tuple)) else [sources])
        ]
        destination = as_tensor(context, destination, "destination", queue)
        pointers = (POINTER(capi.mp_tensor) * len(sources))(*(source.handle() for source in sources))
        arguments = [self, queue, byref(reduce_desc(op=op, **how)), pointers, len(sources)]
        if name == "mp_comm_reduce_scatter":
            arguments.append(self._counts(counts))
        return self._run(wait, [*sources, destination], name, *arguments, destination)

    def all_gather_values(
        self,
        context: Context,
        shard: Array,
        destination: Any,
        counts: Any = None,
        queue: Queue | None = None,
        wait: bool = True,
        **how: Any,
    ) -> Request | None:
        """Every rank gets all ranks' values, in wire_dtype; counts as for reduce_scatter."""
        shard = as_tensor(context, shard, "shard", queue)
        destination = as_tensor(context, destination, "destination", queue)
        return self._run(
            wait,
            [shard, destination],
            "mp_comm_all_gather_values",
            self,
            queue,
            byref(reduce_desc(**how)),
            shard,
            self._counts(counts),
            destination,
        )

    def _counts(self, counts):
        if counts is None:
            return None
        counts = int64_array(counts)
        if len(counts) != self.size:
            raise ValueError(f"counts has {len(counts)} numbers; it must have one for each of {self.size} ranks")
        return counts
