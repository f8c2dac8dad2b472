# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules: the structs of DLPack 1.x and of the versions before, who deletes what when, and whose work comes first."""

import collections
import ctypes
import sys
import weakref
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    py_object,
    pythonapi,
)

from . import capi
from ._context import Event, Queue
from ._library import Registry, call, chores, give_back


class Device(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


Deleter = CFUNCTYPE(None, c_void_p)


class Legacy(Structure):
    """DLManagedTensor: what "dltensor" capsules hold."""

    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", Deleter)]


class Versioned(Structure):
    """DLManagedTensorVersioned: what "dltensor_versioned" capsules hold."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


# Names live as long as the process: a capsule keeps the pointer.
_LEGACY, _VERSIONED = c_char_p(b"dltensor"), c_char_p(b"dltensor_versioned")
_USED = {b"dltensor": c_char_p(b"used_dltensor"), b"dltensor_versioned": c_char_p(b"used_dltensor_versioned")}

_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
_name = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_set_name = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", pythonapi))


def delete(address, kind=Versioned):
    """Calls the deleter of the struct at an address."""
    deleter = kind.from_address(address).deleter
    if deleter:
        deleter(address)


# ---- Streams

# Numbers of device types, and of streams in the protocol, which are also the handles of the runtimes.
_CUDA, _ROCM = (2, 13), (10,)
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2


def wrap(context, stream):
    return Queue._returned("mp_queue_wrap_native", context, byref(c_void_p(stream)))


def order(context, first, second):
    """What is put on the queue `second` from now on begins after the work of `first`. None: the default queue."""
    with Event(context) as event:
        event.record(first)
        call("mp_queue_wait_event", second, event)


def hand_over(context, device_type, stream):
    """Has a consumer's stream, as the protocol gives it, begin after the default queue's work."""
    if stream == -1:  # it sees to that itself
        return
    if device_type in _CUDA:
        if stream == 0:
            raise ValueError("stream is 0, which may be either of CUDA's default streams; it must be 1 or 2 for those")
        stream = _LEGACY_STREAM if stream is None else stream
        if stream == _PER_THREAD_STREAM:  # no queue can be made over it
            context.sync()
            return
    elif device_type in _ROCM:
        if stream in (1, 2):
            raise ValueError(f"stream is {stream}, which means nothing for ROCm; it must be 0 or the handle of a stream")
        if not stream:  # the null stream, over which no queue can be made
            context.sync()
            return
    elif stream is None:
        return
    else:
        raise ValueError(f"stream is {stream}, but the tensor is on the host, where it must be None")
    with wrap(context, stream) as theirs:
        order(context, None, theirs)


# ---- Out

# Capsules that may not have been taken yet. They have no destructor: one runs wherever the last reference goes, often
# beside an exception of the consumer's, and Python code cannot. So they are held here, and looked at when the library
# is called.
_capsules = collections.deque()


def _look():
    capsule = _capsules.popleft()
    return capsule, sys.getrefcount(capsule)


_capsules.append(object())
_ALONE = _look()[1]


def _delete_lost():
    for _ in range(len(_capsules)):
        try:
            made, references = _look()
        except IndexError:  # another thread was faster
            return
        name = _name(made)
        if name in _USED:  # nobody has taken it
            if references > _ALONE:
                _capsules.append(made)
            else:
                delete(_pointer(made, name), Legacy if name == _LEGACY.value else Versioned)


chores.append((_capsules, _delete_lost))

_exported = Registry()  # number: (Legacy, address of the Versioned that it stands for)


@Deleter
def _end_legacy(address):
    _, versioned = _exported.pop(Legacy.from_address(address).context)
    delete(versioned)


def _export(tensor):
    """Address of a Versioned over a tensor's memory, which the caller must delete."""
    managed = POINTER(capi.DLManagedTensorVersioned)()
    call("mp_dlpack_export", tensor, byref(managed))
    return cast(managed, c_void_p).value


def capsule(tensor, versioned):
    """A capsule over a tensor's memory."""
    address, name = _export(tensor), _VERSIONED
    if not versioned:
        legacy = Legacy(Versioned.from_address(address).tensor, None, _end_legacy)
        legacy.context = _exported.add((legacy, address))
        address, name = ctypes.addressof(legacy), _LEGACY
    made = _new(address, name, None)
    _capsules.append(made)
    return made


class Lent:
    """A tensor's memory, in its place until this is collected."""

    def __init__(self, tensor):
        address = _export(tensor)
        self.address = Versioned.from_address(address).tensor.data
        weakref.finalize(self, give_back, delete, address).atexit = False


# ---- In

_imported = Registry()  # number: (Versioned, address of the Legacy that it stands for)


@Deleter
def _end_import(address):
    _, legacy = _imported.pop(Versioned.from_address(address).context)
    delete(legacy, Legacy)


def _capsule_of(source, **arguments):
    """That of an object with __dlpack__, which may be of before DLPack 1.0."""
    try:
        return source.__dlpack__(max_version=(1, 1), **arguments)
    except TypeError:
        return source.__dlpack__(**arguments)


def _capsule_in_order(source, device_type, context, queue):
    """That of an object on an accelerator, whose work so far then comes before the queue's."""
    arrivals = queue if queue is not None else context.arrivals()
    try:
        made = _capsule_of(source, stream=arrivals.native)
    except TypeError:  # it takes no stream: its work comes before that of the default one
        if device_type in _ROCM:
            raise
        made = _capsule_of(source)
        with wrap(context, _LEGACY_STREAM) as theirs:
            order(context, theirs, arrivals)
    if queue is None:
        order(context, arrivals, None)
    return made


def take(source, context, queue):
    """The Versioned, now the caller's, of an object with __dlpack__ or of a capsule."""
    made = source
    if hasattr(source, "__dlpack__"):
        device_type = source.__dlpack_device__()[0] if context.device != "host" else None
        if device_type in _CUDA + _ROCM:
            made = _capsule_in_order(source, device_type, context, queue)
        else:
            made = _capsule_of(source)
    if type(made).__name__ != "PyCapsule":
        raise TypeError(f"a {type(source).__name__} has no __dlpack__ and is no DLPack capsule")
    name = _name(made)
    if name not in _USED:
        raise ValueError(
            f"a capsule of the name {(name or b'').decode()!r}: it has been taken already, or is none of DLPack"
        )
    address = _pointer(made, name)
    if name == b"dltensor":
        versioned = Versioned(1, 0, None, _end_import, 0, Legacy.from_address(address).tensor)
        versioned.context = _imported.add((versioned, address))
        address = ctypes.addressof(versioned)
    _set_name(made, _USED[name])
    return cast(c_void_p(address), POINTER(capi.DLManagedTensorVersioned))
