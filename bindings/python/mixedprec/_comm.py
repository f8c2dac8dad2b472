# SPDX-License-Identifier: Apache-2.0
"""Ranks that exchange bytes: communicators, requests, reductions, and transports written in Python."""

from __future__ import annotations

import array
import ctypes
import threading
from ctypes import POINTER, byref, c_int32, c_int64, c_uint32
from typing import Any, NamedTuple, Sequence, TYPE_CHECKING

from . import capi
from ._library import Object, Registry, call, choice, choices, filled, flags, remember_exception, text, value
from ._memory import dtype_number, int64_array, memory
from ._tensor import Random, Tensor, as_tensor

if TYPE_CHECKING:
    from ._context import Context, Queue
    from ._memory import Array

ORDERS, WIRE_SCALES = choices("MP_COMM_ORDER_"), choices("MP_COMM_SCALE_")
_ACCUMULATE = choices("MP_COMM_ACCUMULATE_")
_OPS = {"sum": capi.MP_COMM_OP_SUM, "max_abs": capi.MP_COMM_OP_MAX_ABS_BITS}


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
    return capi.mp_comm_desc(deadline_ms=_milliseconds(deadline), ranks_per_node=ranks_per_node)


def _milliseconds(seconds):
    if seconds is None:
        return 0
    if not 0 < seconds < 2**53:
        raise ValueError(f"deadline is {seconds!r}; it must be more than 0 seconds, or None")
    return max(1, round(1000 * seconds))


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
        number = _fill(table, transport)
        try:
            return cls._returned("mp_comm_create_callbacks", byref(_comm_desc(deadline)), byref(table))
        except BaseException:
            _tables.pop(number)
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
        call("mp_comm_set_deadline", self, _milliseconds(seconds))

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
        owners, desc = [], capi.mp_comm_exchange(deadline_ms=_milliseconds(deadline), site=site)
        for noun, data, sizes, offsets in (
            ("send", send, send_bytes, send_offsets),
            ("receive", receive, receive_bytes, receive_offsets),
        ):
            found = None if data is None else memory(data, noun, writable=noun == "receive")
            _check_parts(noun, 0 if found is None else found.nbytes, sizes, offsets, apart=noun == "receive")
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
        send_bytes = _parts(send, send_bytes, size, "send")
        receive_bytes = _parts(receive, receive_bytes, size, "receive")
        desc, owners = self._exchange(
            send,
            receive,
            send_bytes,
            _offsets(send_bytes, send_offsets, size),
            receive_bytes,
            _offsets(receive_bytes, receive_offsets, size),
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
        receive_bytes = _parts(receive, receive_bytes, size, "receive")
        desc, owners = self._exchange(
            send, receive, [sent], [0], receive_bytes, _offsets(receive_bytes, receive_offsets, size), deadline, site
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
        arguments = [self, queue, byref(_reduce_desc(op=op, **how)), pointers, len(sources)]
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
            byref(_reduce_desc(**how)),
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


def _reduce_desc(
    op="sum",
    order="rank",
    accumulate="default",
    slots=0,
    wire_dtype=None,
    wire_scale="default",
    gather_dtype=None,
    gather_scale="default",
    first_element=0,
    random=None,
    deadline=None,
    site=None,
):
    drawn = {} if random is None else Random(*random)._asdict()
    return capi.mp_comm_reduce_desc(
        op=choice(_OPS, op, "op"),
        order=choice(ORDERS, order, "order"),
        slots=slots,
        first_element=first_element,
        site=site,
        accumulate=choice(_ACCUMULATE, accumulate, "accumulate"),
        deadline_ms=_milliseconds(deadline),
        wire_dtype=0 if wire_dtype is None else dtype_number(wire_dtype),
        wire_scale=choice(WIRE_SCALES, wire_scale, "wire_scale"),
        gather_dtype=0 if gather_dtype is None else dtype_number(gather_dtype),
        gather_scale=choice(WIRE_SCALES, gather_scale, "gather_scale"),
        flags=flags(random=(random is not None, capi.MP_REDUCE_STOCHASTIC)),
        **drawn,
    )


def wire_bytes(count: int, dtype: Any, scale: Any = "default") -> int:
    """Bytes that so many elements take on the wire, scales included."""
    return value(c_int64, "mp_comm_get_wire_bytes", count, dtype_number(dtype), choice(WIRE_SCALES, scale, "scale"))


def _parts(data, sizes, ranks, noun):
    if sizes is None:
        nbytes = 0 if data is None else memory(data, noun, writable=False).nbytes
        if nbytes % ranks:
            raise ValueError(f"{noun} has {nbytes} bytes, which {ranks} ranks cannot share evenly: say {noun}_bytes")
        return [nbytes // ranks] * ranks
    sizes = list(int64_array(sizes))
    if len(sizes) != ranks:
        raise ValueError(f"{noun}_bytes has {len(sizes)} numbers; it must have one for each of {ranks} ranks")
    return sizes


def _offsets(sizes, offsets, ranks):
    if offsets is None:
        offsets, end = [], 0
        for size in sizes:
            offsets.append(end)
            end += size
        return offsets
    offsets = list(int64_array(offsets))
    if len(offsets) != ranks:
        raise ValueError(f"there are {len(offsets)} offsets; there must be one for each of {ranks} ranks")
    return offsets


def _check_parts(noun, nbytes, sizes, offsets, apart):
    end = 0
    for offset, size in sorted(zip(offsets, sizes)):
        if size < 0 or offset < 0 or offset + size > nbytes:
            raise ValueError(f"{noun}: {size} bytes from {offset} on are not inside of its {nbytes} bytes")
        if apart and size and offset < end:
            raise ValueError(f"{noun}: the parts overlap at {offset}")
        end = max(end, offset + size)


# ---- Transports written in Python

_OPERATION_KINDS = {
    capi.MP_COMM_ALL_TO_ALL: "all_to_all",
    capi.MP_COMM_ALL_GATHER: "all_gather",
    capi.MP_COMM_BROADCAST: "broadcast",
    capi.MP_COMM_BARRIER: "barrier",
    capi.MP_COMM_MAX_U32: "max_u32",
    capi.MP_COMM_SUM_F32: "sum_f32",
}


class Operation:
    """What Transport.begin gets. Its memory is the library's: it is copied in and out here, until the release.

    kind      "all_to_all", "all_gather", "broadcast", "barrier", "max_u32", "sum_f32"
    sequence  0, 1, ... the same on every rank; root: of a broadcast
    """

    def __init__(self, operation: Any, rank: int, size: int) -> None:
        self.kind, self.sequence, self.root = _OPERATION_KINDS[operation.kind], operation.sequence, operation.root
        self._lock, self._alive = threading.RLock(), True
        send, receive = operation.send or 0, operation.receive or 0
        self._send, self._receive = {}, {}
        if self.kind == "all_to_all":
            self._send = {r: (send + operation.send_offsets[r], operation.send_bytes[r]) for r in range(size)}
        elif self.kind == "all_gather":
            self._send = {r: (send, operation.send_bytes[0]) for r in range(size)}
        if self.kind in ("all_to_all", "all_gather"):
            self._receive = {
                r: (receive + operation.receive_offsets[r], operation.receive_bytes[r]) for r in range(size)
            }
        elif self.kind == "broadcast":
            self._send = {r: (receive, operation.receive_bytes[0]) for r in range(size) if rank == self.root}
            self._receive = {self.root: (receive, operation.receive_bytes[0])}
        elif self.kind in ("max_u32", "sum_f32"):
            self._send = self._receive = {r: (receive, 4 * operation.count) for r in range(size)}

    def send(self, rank: int) -> bytes:
        """The bytes for a rank. Of "max_u32" and "sum_f32" this rank's values."""
        with self._lock:
            address, nbytes = self._part(self._send, rank)
            return ctypes.string_at(address, nbytes)

    def receive(self, rank: int, data: Any) -> None:
        """Stores the bytes that came from a rank. Of "max_u32" and "sum_f32" the results, from any."""
        with self._lock:
            address, nbytes = self._part(self._receive, rank)
            data = memoryview(data).cast("B")
            if data.nbytes != nbytes:
                raise ValueError(f"{data.nbytes} bytes from rank {rank}; there must be {nbytes}")
            if nbytes:
                memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")[:] = data

    def _part(self, parts, rank):
        if not self._alive:
            raise ValueError("the operation is over")
        if rank not in parts:
            raise ValueError(f"{self.kind} has nothing for rank {rank} there")
        return parts[rank]

    def _end(self):
        with self._lock:
            self._alive = False


class Transport:
    """A way for ranks to exchange bytes, for Comm.custom: a class of your own with these attributes and methods.

    They must not wait for other ranks, nor use the communicator they serve. What they raise ends it; the Error has it
    as its __cause__.

    rank, size     this rank and the number of ranks
    nodes          a list: equal numbers share a machine; None: all do
    name           for messages
    has_sum_f32    begin takes "sum_f32"
    any_thread     poll and release may be called by a thread of the library's
    """

    rank, size, nodes, name = 0, 1, None, "python"
    has_sum_f32 = any_thread = False

    def begin(self, operation: Operation) -> Any:
        """Starts an Operation and returns something that stands for it."""
        raise NotImplementedError

    def poll(self, request: Any) -> bool:
        """Moves it on. True when all is received, and what was sent is no longer needed."""
        raise NotImplementedError

    def release(self, request: Any) -> None:
        """It is over, done or not."""

    def abort(self, status: int, reason: str | None) -> None:
        """This rank gives up; the others should learn it. From any thread."""

    def split(self, color: int, key: int, members: list[int], rank: int, number: int) -> Transport | None:
        """The Transport of a group of ranks: `members` in the order of the new ranks, this one is `rank`; None where
        color is below 0. `number` is one that no other group has."""
        raise NotImplementedError("this transport cannot split")

    def close(self) -> None:
        """Called once, when nothing else will be."""


class _Table:
    def __init__(self, transport):
        self.transport, self.requests = transport, Registry()
        nodes = transport.nodes
        self.nodes = None if nodes is None else (c_int32 * len(nodes))(*nodes)


_tables = Registry()


def _status(function):
    """A function of the table: what it raises is a status, and the exception the cause of the Error."""

    def called(*arguments):
        try:
            function(*arguments)
            return capi.MP_STATUS_OK
        except BaseException as error:
            remember_exception(error)
            return (
                capi.MP_STATUS_UNSUPPORTED if isinstance(error, NotImplementedError) else capi.MP_STATUS_CALLBACK_FAILED
            )

    return called


@capi.mp_comm_begin_fn
@_status
def _begin(operation, request, number):
    table = _tables.get(number)
    seen = Operation(operation.contents, table.transport.rank, table.transport.size)
    request[0] = table.requests.add((table.transport.begin(seen), seen))


@capi.mp_comm_poll_fn
@_status
def _poll(request, done, number):
    table = _tables.get(number)
    done[0] = bool(table.transport.poll(table.requests.get(request)[0]))


@capi.mp_comm_release_fn
def _release(request, number):
    table = _tables.get(number)
    found = table.requests.pop(request)
    if found is not None:
        found[1]._end()
        table.transport.release(found[0])


@capi.mp_comm_abort_fn
def _abort(status, reason, number):
    _tables.get(number).transport.abort(status, (reason or b"").decode(errors="replace"))


@capi.mp_comm_split_fn
@_status
def _split(group, out, number):
    group = group.contents
    made = _tables.get(number).transport.split(
        group.color, group.key, list(group.members[: group.count]), group.rank, group.context
    )
    if group.color >= 0:
        _fill(out.contents, made)


@capi.mp_comm_end_fn
def _end(number):
    table = _tables.pop(number)
    if table is not None:
        table.transport.close()


def _fill(table, transport):
    for name in ("rank", "size", "begin", "poll", "release", "abort", "split", "close", "nodes", "name"):
        if not hasattr(transport, name):
            raise TypeError(f"a transport needs {name}; derive its class from mixedprec.Transport")
    kept = _Table(transport)
    if kept.nodes is not None and len(kept.nodes) != transport.size:
        raise ValueError(f"nodes has {len(kept.nodes)} numbers; it must have one for each of {transport.size} ranks")
    number = _tables.add(kept)
    try:
        table.struct_size = ctypes.sizeof(table)
        table.flags = flags(
            sum=(transport.has_sum_f32, capi.MP_COMM_HAS_SUM_F32),
            thread=(transport.any_thread, capi.MP_COMM_TAKES_ANY_THREAD),
        )
        table.rank, table.size, table.name, table.payload = transport.rank, transport.size, transport.name, number
        if kept.nodes is not None:
            table.nodes = ctypes.cast(kept.nodes, POINTER(c_int32))
        table.begin, table.poll, table.release = _begin, _poll, _release
        table.abort, table.split, table.destroy = _abort, _split, _end
    except BaseException:
        _tables.pop(number)
        raise
    return number
