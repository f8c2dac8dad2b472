# SPDX-License-Identifier: Apache-2.0
"""The library, its devices, contexts, queues and events."""

from __future__ import annotations

import json
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p, sizeof
from typing import Callable

from . import capi
from ._library import Listeners, Object, call, choice, choices, flags, lib, quiet, text, value

_DEVICES = choices("MP_DEVICE_", "MP_DEVICE_DEFAULT")
_DEVICE_NAMES = {number: name for name, number in _DEVICES.items()}
_LEVELS = choices("MP_LOG_")
_LEVEL_NAMES = {number: name for name, number in _LEVELS.items()}


def library_version() -> str:
    """Version of the loaded library, "0.2.0"."""
    number = lib.mp_library_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_info() -> str:
    """Version, compiler and what was built in, as one line for bug reports."""
    return lib.mp_library_build_info().decode()


def shutdown() -> None:
    """Ends the library's own run-time systems, for good. BadStateError while a context is open. Never needed before
    exit."""
    call("mp_library_shutdown")


def device_number(kind):
    return choice(_DEVICES, kind, "device")


def device_count(kind: str = "cuda") -> int:
    """Number of devices of a kind: "host", "cuda" or "hip". Raises with the reason where there can be none."""
    return value(c_int32, "mp_device_get_count", device_number(kind))


def check_device(kind: str = "cuda", index: int = 0) -> None:
    """Raises where a device cannot be opened, with the reason and what to do. Opens nothing."""
    call("mp_device_available", device_number(kind), index)


def device_name(kind: str = "cuda", index: int = 0) -> str:
    """What the driver calls a device."""
    return text("mp_device_get_name", device_number(kind), index)


def device_memory(kind: str = "cuda", index: int = 0) -> int:
    """A device's memory, in bytes."""
    return value(c_int64, "mp_device_get_memory", device_number(kind), index)


_logging = Listeners()


@capi.mp_log_fn
@quiet
def _log(level, message, number):
    context = _logging.get(number)
    if context is not None:
        context._log(_LEVEL_NAMES.get(level, str(level)), message.decode(errors="replace"))


class Context(Object):
    """The host and, if asked for, one accelerator: where everything else is made. May be used by many threads.

    threads       host threads; 0: one for each core that this process may use
    device        "host", or an accelerator beside it: "cuda", "hip"
    index         which accelerator
    log           log(level, message), called from any thread, level as below; must not call the library
    log_level     the most detailed level to report: "error", "warning", "info", "debug"
    backend       None, "host", "reference" or "kokkos"
    bind_threads  bind the host threads to cores of their own

    Raises ModuleMissingError or DeviceUnavailableError where an accelerator cannot be opened.
    """

    _noun = "context"

    def __init__(
        self,
        threads: int = 0,
        device: str = "host",
        index: int = 0,
        log: Callable[[str, str], object] | None = None,
        log_level: str = "warning",
        backend: str | None = None,
        bind_threads: bool = False,
    ) -> None:
        desc = capi.mp_context_desc(
            device_kind=device_number(device),
            device_index=index,
            num_threads=threads,
            log_level=choice(_LEVELS, log_level, "log_level"),
            backend=backend,
            flags=flags(bind=(bind_threads, capi.MP_CONTEXT_BIND_THREADS)),
        )
        if log is not None:
            self._log = log
            desc.log, desc.log_payload = _log, _logging.add(self)
        super().__init__("mp_context_create", byref(desc))
        self._device = device
        self._arrivals = None

    @property
    def device(self) -> str:
        """Where work is done: "host", "cuda" or "hip"."""
        return self._device

    @property
    def threads(self) -> int:
        """Number of host threads."""
        return value(c_int32, "mp_context_get_num_threads", self)

    def describe(self) -> dict:
        """What the context found and decided, as a dict: "host", "accelerator"."""
        return json.loads(text("mp_context_describe", self))

    def sync(self) -> None:
        """Waits for the default queue, and raises what went wrong in it."""
        call("mp_context_sync", self)

    def arrivals(self) -> Queue:
        """A queue with no work of ours, whose stream other libraries have wait for theirs."""
        if self._arrivals is None:
            self._arrivals = Queue._returned("mp_queue_create", self)  # without a reference back
        return self._arrivals

    def close(self) -> None:
        """Gives the handle back now. Never fails."""
        arrivals, self._arrivals = getattr(self, "_arrivals", None), None
        if arrivals is not None:
            arrivals.close()
        super().close()


class Queue(Object):
    """An in-order stream of work. None stands for the context's default queue wherever a `queue` is taken."""

    _noun = "queue"

    def __init__(self, context: Context) -> None:
        super().__init__("mp_queue_create", context)
        self.context = context

    def sync(self) -> None:
        """Waits until all work so far is done, and raises what went wrong in it."""
        call("mp_queue_sync", self)

    def wait(self, event: Event) -> None:
        """What is put on this queue from now on begins after the event."""
        call("mp_queue_wait_event", self, event)

    @property
    def workspace_peak(self) -> int:
        """The most bytes of scratch memory that work on this queue has held at once."""
        return value(c_size_t, "mp_queue_get_workspace_peak", self)

    @property
    def native(self) -> int:
        """The cudaStream_t or hipStream_t under the queue, as a number. UnsupportedError on the host."""
        stream = c_void_p()
        call("mp_queue_get_native", self, byref(stream), sizeof(stream))
        return stream.value or 0


class Event(Object):
    """A point in a queue's work, for ordering queues without waiting."""

    _noun = "event"

    def __init__(self, context: Context) -> None:
        super().__init__("mp_event_create", context)
        self.context = context

    def record(self, queue: Queue | None = None) -> None:
        """The event is now after the queue's work so far."""
        call("mp_event_record", self, queue)

    @property
    def done(self) -> bool:
        """Whether the event has been reached."""
        return call("mp_event_test", self) == capi.MP_STATUS_OK

    def sync(self) -> None:
        """Waits until the event has been reached, and raises what went wrong before it."""
        call("mp_event_sync", self)
