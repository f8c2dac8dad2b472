# SPDX-License-Identifier: Apache-2.0
"""Calls into the library with checked arguments, and the objects that hold its handles."""

from __future__ import annotations

import collections
import ctypes
import os
import sys
import threading
import warnings
import weakref
from ctypes import POINTER, byref, c_size_t
from typing import Any

from . import _errors, capi
from ._load import lib

# ---- Calls

# Functions whose number is no status.
_VALUES = {
    "mp_dtype_bytes",
    "mp_dtype_from_name",
    "mp_dtype_name",
    "mp_dtype_size",
    "mp_library_build_info",
    "mp_library_version",
    "mp_last_error_message",
    "mp_recipe_key_count",
    "mp_recipe_preset_count",
    "mp_rule_state_name",
    "mp_status_string",
}
_HANDLES = {
    POINTER(getattr(capi, name)): name[3:]
    for name in (
        "mp_context",
        "mp_queue",
        "mp_event",
        "mp_tensor",
        "mp_recipe",
        "mp_gemm",
        "mp_linear",
        "mp_saved",
        "mp_adapter",
        "mp_scaler",
        "mp_step_plan",
        "mp_optimizer",
        "mp_checkpoint",
        "mp_comm",
        "mp_comm_request",
        "mp_model_file",
        "mp_model_writer",
    )
}


def _handle_converter(kind):
    def converted(value):
        if isinstance(value, Object):
            return value.handle(kind)
        if value is None or isinstance(value, kind):
            return value
        raise TypeError(f"a {_HANDLES[kind]} is needed, not {value!r}")

    return converted


_calls = {
    name: (
        getattr(lib, name),
        name in _VALUES or result is None,
        names.split(", ") if names else [],
        [_handle_converter(kind) if kind in _HANDLES else capi.converter(kind) for kind in kinds],
    )
    for name, (result, kinds, names) in capi.FUNCTIONS.items()
}


class _Thread(threading.local):
    silent = 0  # callbacks under way in this thread that must not call the library
    inside = 0  # calls of the library under way in this thread
    exception = None  # what a transport's function raised during the call


_thread = _Thread()


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the C ABI by its name. For what has no method here; pointers are the caller's to get right.

    Numbers must fit the C types (OverflowError), objects of this package stand for their handles, None for NULL. A
    failure is raised as an Error, advice is given as a Note. Returns the status, or the value of a function that has
    another result.
    """
    try:
        function, plain, names, converters = _calls[name]
    except KeyError:
        raise AttributeError(f"the library has no function {name}") from None
    if len(arguments) != len(converters):
        raise TypeError(f"{name} takes {len(converters)} arguments ({', '.join(names)}), not {len(arguments)}")
    values, i = [], 0
    try:
        for i, converter in enumerate(converters):
            values.append(converter(arguments[i]))
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, _errors.Error):
            raise
        raise type(error)(f"{names[i]}: {error}") from None
    if _thread.silent:
        raise _errors.BadStateError(
            "a function that the library calls for a log line or a checkpoint's progress must not " "call the library"
        )
    # What the objects keep stays until the call is over, also where another thread closes them meanwhile.
    held = [argument.kept for argument in arguments if isinstance(argument, Object)]
    if not _thread.inside:
        _thread.exception = None
    _thread.inside += 1
    try:
        status = function(*values)
    except ctypes.ArgumentError as error:
        raise TypeError(f"{name}: {error}") from None
    finally:
        _thread.inside -= 1
    try:
        if status == 0 or plain:
            return status
        return _report(status)
    finally:
        del held
        _do_chores()


def _report(status):
    message = lib.mp_last_error_message().decode(errors="replace")
    if status < 0:
        cause, _thread.exception = _thread.exception, None
        raise _errors.error(status, message) from cause
    if status != capi.MP_STATUS_NOT_READY:
        warnings.warn(_errors.Note(message), stacklevel=_depth_of_caller())
    return status


def _depth_of_caller():
    """The first frame outside of this package, as warnings.warn in _report counts."""
    folder, depth, frame = os.path.dirname(__file__), 1, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == folder:
        depth, frame = depth + 1, frame.f_back
    return depth


def text(name, *arguments):
    """The text of a function that fills a buffer: the last three arguments are added."""
    needed = c_size_t()
    call(name, *arguments, None, 0, byref(needed))
    while True:
        capacity = needed.value
        buffer = ctypes.create_string_buffer(capacity)
        call(name, *arguments, buffer, capacity, byref(needed))
        if needed.value <= capacity:
            return buffer.value.decode(errors="replace")


def value(kind, name, *arguments):
    """The number that a function writes to its last argument."""
    result = kind()
    call(name, *arguments, byref(result))
    return result.value


def filled(struct, name, *arguments):
    """The struct that a function fills as its last argument."""
    result = struct()
    call(name, *arguments, byref(result))
    return result


def choices(prefix, *left_out):
    """{"row": MP_SCALING_ROW, ...} for a prefix "MP_SCALING_"."""
    return {
        name[len(prefix) :].lower(): number
        for name, number in vars(capi).items()
        if name.startswith(prefix) and name not in left_out
    }


def choice(known, value, noun):
    """The number of a name out of choices()."""
    if value in known:
        return known[value]
    raise ValueError(f"{noun} is {value!r}; it must be one of {', '.join(map(repr, known))}")


def handle_array(noun, objects):
    """Handles of a function that takes several, NULL for None. The caller keeps the objects."""
    kind = POINTER(getattr(capi, f"mp_{noun}"))
    array = (kind * len(objects))()
    for i, one in enumerate(objects):
        if one is not None:
            array[i] = one.handle(kind)
    return array


def flags(**bits):
    """The sum of the bits whose value is true: flags(trans_a=(True, MP_GEMM_TRANS_A), ...)."""
    return sum(bit for wanted, bit in bits.values() if wanted)


# ---- Functions of the caller's


def quiet(function):
    """For a function that the library calls and that must not call back in. What it raises, ctypes hands to
    sys.unraisablehook."""

    def called(*arguments):
        _thread.silent += 1
        try:
            function(*arguments)
        finally:
            _thread.silent -= 1

    return called


def unraisable(error):
    """Hands an exception that nobody can catch to sys.unraisablehook, as ctypes does for functions that C calls."""

    def raised():
        raise error

    ctypes.CFUNCTYPE(None)(raised)()


def remember_exception(error):
    """Makes an exception of a transport's function the cause of the Error that ends the call under way."""
    if _thread.inside:
        _thread.exception = error
    else:
        unraisable(error)


class Registry:
    """Objects by a number that C code can carry as its payload. One for each kind of payload."""

    _kind = dict

    def __init__(self) -> None:
        self._objects = self._kind()
        self._numbers = iter(range(1, sys.maxsize))

    def add(self, item: Any):
        number = next(self._numbers)
        self._objects[number] = item
        return number

    def get(self, number: Any):
        return self._objects.get(number)

    def pop(self, number: Any):
        return self._objects.pop(number, None)

    def __len__(self):
        return len(self._objects)


class Listeners(Registry):
    """The same, held weakly: those with a function that the library calls, which may well refer to them."""

    _kind = weakref.WeakValueDictionary


# What wrapped tensors use, until the library says that nobody does any more.
lent = Registry()


@capi.mp_deleter_fn
def release_lent(number):
    lent.pop(number)


# ---- Objects

_dropped = collections.deque()  # what a callback could not give back


def give_back(function, handle, kept=None):
    """function(handle), but not while this thread is in a callback that must not call the library: then after it.
    `kept` is what must live until then."""
    if _thread.silent:
        _dropped.append((function, handle, kept))
    else:
        function(handle)


def _destroy_dropped():
    while _dropped:
        try:
            dropped = _dropped.popleft()
        except IndexError:  # another thread was faster
            return
        give_back(*dropped)


chores = [(_dropped, _destroy_dropped)]  # (what waits, what is to be done where something does), after calls


def _do_chores():
    if not _thread.silent:
        for waiting, chore in chores:
            if waiting:
                chore()


class Object:
    """What has a handle of the library. A context manager; close() may be called at any time, from any thread, and
    twice.

    What is closed raises InvalidHandleError when it is used. Whatever is not closed is when it is collected. Objects
    keep what they need, so the order does not matter.
    """

    _noun = ""

    def __init__(self, name, *arguments, kept=()):
        """Calls a function whose last argument receives the handle."""
        handle = POINTER(getattr(capi, f"mp_{self._noun}"))()
        call(name, *arguments, byref(handle))
        self._adopt(handle, kept)

    def _adopt(self, handle, kept=()):
        self._handle = handle
        self._kept = list(kept)  # memory and functions that the library knows by address: dropped once it is destroyed
        self._finalizer = weakref.finalize(
            self, give_back, getattr(lib, f"mp_{self._noun}_destroy"), handle, self._kept
        )

    @classmethod
    def _of(cls, handle, kept=()):
        made = cls.__new__(cls)
        made._adopt(handle, kept)
        return made

    @classmethod
    def _returned(cls, name, *arguments, kept=()):
        """The object whose handle a function writes to its last argument; None for NULL."""
        handle = POINTER(getattr(capi, f"mp_{cls._noun}"))()
        call(name, *arguments, byref(handle))
        return cls._of(handle, kept) if handle else None

    def handle(self, kind: str | None = None) -> Any:
        """The handle, for capi. It stays this object's."""
        handle = getattr(self, "_handle", None)
        if handle is None:
            raise _errors.InvalidHandleError(f"this {type(self).__name__} is closed")
        if kind is not None and type(handle) is not kind:
            raise TypeError(f"a {_HANDLES[kind]} is needed, not a {type(self).__name__}")
        return handle

    @property
    def kept(self):
        return getattr(self, "_kept", None)

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return getattr(self, "_handle", None) is None

    def close(self) -> None:
        """Gives the handle back now. Never fails."""
        self._handle = None
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer()
        self._kept = []
        _do_chores()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<mixedprec.{type(self).__name__}{' closed' if self.closed else self._text()}>"

    def _text(self):
        return ""

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it is an object of the library")
