# SPDX-License-Identifier: Apache-2.0
"""Transports written in Python: what the library calls instead of sending bytes itself."""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, c_int32
from typing import Any

from . import capi
from ._library import Registry, flags, remember_exception

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


tables = Registry()


def as_status(function):
    """A function that the library calls: what it raises is a status, and the exception the cause of the Error."""

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
@as_status
def _begin(operation, request, number):
    table = tables.get(number)
    seen = Operation(operation.contents, table.transport.rank, table.transport.size)
    request[0] = table.requests.add((table.transport.begin(seen), seen))


@capi.mp_comm_poll_fn
@as_status
def _poll(request, done, number):
    table = tables.get(number)
    done[0] = bool(table.transport.poll(table.requests.get(request)[0]))


@capi.mp_comm_release_fn
def _release(request, number):
    table = tables.get(number)
    found = table.requests.pop(request)
    if found is not None:
        found[1]._end()
        table.transport.release(found[0])


@capi.mp_comm_abort_fn
def _abort(status, reason, number):
    tables.get(number).transport.abort(status, (reason or b"").decode(errors="replace"))


@capi.mp_comm_split_fn
@as_status
def _split(group, out, number):
    group = group.contents
    made = tables.get(number).transport.split(
        group.color, group.key, list(group.members[: group.count]), group.rank, group.context
    )
    if group.color >= 0:
        fill_table(out.contents, made)


@capi.mp_comm_end_fn
def _end(number):
    table = tables.pop(number)
    if table is not None:
        table.transport.close()


def fill_table(table, transport):
    for name in ("rank", "size", "begin", "poll", "release", "abort", "split", "close", "nodes", "name"):
        if not hasattr(transport, name):
            raise TypeError(f"a transport needs {name}; derive its class from mixedprec.Transport")
    kept = _Table(transport)
    if kept.nodes is not None and len(kept.nodes) != transport.size:
        raise ValueError(f"nodes has {len(kept.nodes)} numbers; it must have one for each of {transport.size} ranks")
    number = tables.add(kept)
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
        tables.pop(number)
        raise
    return number
