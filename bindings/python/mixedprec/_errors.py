# SPDX-License-Identifier: Apache-2.0
"""Every failure of the library as an exception: one class for each status, which is also the Python class of its
kind."""

from . import capi


class Note(UserWarning):
    """Advice that came with a success, given by warnings.warn."""


class Error(Exception):
    """A failure. str() is the library's message: the argument, what was found, what was expected, what to do.

    status: the number, MP_STATUS_*. name: its name.
    """

    status = 0

    def __init__(self, message, status=None):
        super().__init__(message)
        if status is not None:
            self.status = status

    @property
    def name(self):
        """The status as C spells it, "MP_STATUS_INVALID_SHAPE"."""
        return _NAMES.get(self.status, "MP_STATUS_UNKNOWN")


class NullArgumentError(Error, ValueError):
    """Something that is required was not given."""

    status = capi.MP_STATUS_NULL_ARGUMENT


class InvalidArgumentError(Error, ValueError):
    """A value outside its bounds, memory that overlaps, devices that do not belong together."""

    status = capi.MP_STATUS_INVALID_ARGUMENT


class InvalidShapeError(Error, ValueError):
    """A shape or a length that does not fit."""

    status = capi.MP_STATUS_INVALID_SHAPE


class InvalidDtypeError(Error, TypeError):
    """An element type that does not fit."""

    status = capi.MP_STATUS_INVALID_DTYPE


class UnknownNameError(Error, LookupError):
    """No such recipe, key, state or backend; the message has the nearest names."""

    status = capi.MP_STATUS_UNKNOWN_NAME


class StructTooNewError(Error, RuntimeError):
    """The package is newer than the library."""

    status = capi.MP_STATUS_STRUCT_TOO_NEW


class BadStateError(Error, RuntimeError):
    """The right call at the wrong moment: a frozen recipe, backward before forward, two threads in one object."""

    status = capi.MP_STATUS_BAD_STATE


class InvalidHandleError(Error, ValueError):
    """An object that was closed."""

    status = capi.MP_STATUS_INVALID_HANDLE


class ParseError(Error, ValueError):
    """Text or bytes that cannot be read."""

    status = capi.MP_STATUS_PARSE_ERROR


class UnsupportedError(Error, NotImplementedError):
    """What this device or recipe cannot do, with the reasons."""

    status = capi.MP_STATUS_UNSUPPORTED


class DeviceUnavailableError(Error, OSError):
    """No such device or driver, with the reason."""

    status = capi.MP_STATUS_DEVICE_UNAVAILABLE


class ModuleMissingError(Error, OSError):
    """A module of the library (libmixedprec-cuda.so and the like) is not there."""

    status = capi.MP_STATUS_MODULE_NOT_FOUND


class VersionMismatchError(Error, RuntimeError):
    """Two parts, or a file, of different versions."""

    status = capi.MP_STATUS_VERSION_MISMATCH


class OutOfMemoryError(Error, MemoryError):
    """No memory."""

    status = capi.MP_STATUS_OUT_OF_MEMORY


class IOFailure(Error, OSError):
    """A file could not be read or written."""

    status = capi.MP_STATUS_IO_ERROR


class CallbackFailedError(Error, RuntimeError):
    """A function of the caller's failed; its exception is __cause__."""

    status = capi.MP_STATUS_CALLBACK_FAILED


class RankTimeoutError(Error, TimeoutError):
    """A rank did not come before the deadline."""

    status = capi.MP_STATUS_TIMEOUT


class PeerLostError(Error, ConnectionError):
    """Another rank died, left, or gave up."""

    status = capi.MP_STATUS_PEER_LOST


class PeerError(Error, ConnectionError):
    """Another rank reported an error of its own."""

    status = capi.MP_STATUS_PEER_ERROR


class RankMismatchError(Error, RuntimeError):
    """The ranks do not ask for the same."""

    status = capi.MP_STATUS_RANK_MISMATCH


class AbortedError(Error, ConnectionAbortedError):
    """This rank gave its communicator up."""

    status = capi.MP_STATUS_ABORTED


class CorruptDataError(Error, ValueError):
    """A checksum does not fit what was read or received."""

    status = capi.MP_STATUS_CORRUPT_DATA


class VendorError(Error, RuntimeError):
    """A failure of oneDNN, CUDA, cuBLAS, NCCL, MPI, Kokkos or a device; status says of which."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""

    status = capi.MP_STATUS_INTERNAL


_NAMES = {value: name for name, value in vars(capi).items() if name.startswith("MP_STATUS_")}
_CLASSES = {kind.status: kind for kind in Error.__subclasses__() if kind.status}


def error(status, message):
    """The exception of a negative status."""
    kind = _CLASSES.get(status, VendorError if -80 < status <= -60 else Error)
    return kind(message or _NAMES.get(status, f"status {status}"), status)


__all__ = [kind.__name__ for kind in (Error, Note, *Error.__subclasses__())]
