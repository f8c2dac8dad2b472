# SPDX-License-Identifier: Apache-2.0
"""libmixedprec by ctypes and numpy, as far as optimizer_step.py needs it: a file to copy and extend, not a package."""
import ctypes
import os
import weakref
from ctypes import byref, c_char_p as text, c_double as f64, c_int32 as i32, c_int64 as i64, c_size_t as size
from ctypes import c_uint32 as u32, c_uint64 as u64, c_void_p as pointer

import numpy as np

VERSION, HOST, HYPERPARAMETERS_EXPLICIT = 100, 1, 256
FP32, FP16, BF16 = 1, 2, 3
DTYPES = {np.dtype(np.float32): FP32, np.dtype(np.float16): FP16}  # bf16: np.uint16 with dtype=BF16


class Error(Exception):
    """A negative status, with its text."""

    def __init__(self, status, name, message):
        super().__init__(f"{name}: {message}")
        self.status, self.name, self.message = status, name, message


def _struct(c_name, c_size, declaration):
    """A C struct whose struct_size sets itself. Its size must be the C compiler's."""
    fields = []
    for part in declaration.split(";"):
        c_type, *names = part.split()
        fields += [(name, TYPES[c_type]) for name in names]

    def init(self, **values):
        ctypes.Structure.__init__(self, struct_size=c_size, **values)

    made = type(c_name, (ctypes.Structure,), {"_fields_": fields, "__init__": init})
    if ctypes.sizeof(made) != c_size:
        raise AssertionError(f"{c_name} has {ctypes.sizeof(made)} bytes here and {c_size} in C")
    return made


TYPES = {"u32": u32, "u64": u64, "i32": i32, "i64": i64, "f64": f64, "shape": i64 * 8, "text": text, "pointer": pointer}
STRUCTS = context_desc, tensor_desc, optimizer_desc, group_desc, param_desc, optimizer_stats, step_slot, step_args = (
    _struct("mp_context_desc", 96, "u32 struct_size flags api_version; i32 device_kind device_index num_threads "
            "log_level reserved; text backend; pointer allocate release allocator_payload log log_payload parallel "
            "parallel_payload"),
    _struct("mp_tensor_desc", 88, "u32 struct_size flags; i32 dtype ndim; shape shape; i32 device_kind device_index"),
    _struct("mp_optimizer_desc", 24, "u32 struct_size flags; u64 seed; f64 max_grad_norm"),
    _struct("mp_param_group_desc", 72, "u32 struct_size flags; f64 lr beta1 beta2 eps weight_decay; i32 rule reserved; "
            "text exp_avg_format exp_avg_sq_format"),
    _struct("mp_param_desc", 40, "u32 struct_size flags; text name; pointer param grad init_fp32"),
    _struct("mp_optimizer_stats", 40, "u32 struct_size found_inf; i64 step skipped_steps; f64 grad_norm grad_mul"),
    _struct("mp_step_slot", 176, "u32 struct_size flags; i64 count; u64 uid; pointer param grad exp_avg exp_avg_sq "
            "compensation master; i32 param_dtype grad_dtype exp_avg_dtype exp_avg_sq_dtype compensation_dtype "
            "master_dtype; pointer param_scale_inv grad_scale_inv exp_avg_scale_inv exp_avg_sq_scale_inv "
            "master_scale_inv; i32 exp_avg_coding exp_avg_sq_coding master_coding "
            "compensation_coding; pointer compensation_scale_inv; i64 first_element; pointer param_amax"),
    _struct("mp_step_args", 128, "u32 struct_size flags; i64 step; u64 seed; f64 lr beta1 beta2 eps weight_decay "
            "max_grad_norm grad_scale; pointer lr_pointer grad_scale_pointer; i32 rule reserved; "
            "pointer step_pointer hyper_pointer grad_mul_pointer"),
)


def _load():
    """The library under MIXEDPREC_DIR (a prefix or a build folder), otherwise wherever the loader looks."""
    folder, file = os.environ.get("MIXEDPREC_DIR"), "libmixedprec.so.0"
    if folder:
        files = [os.path.join(folder, lib, file) for lib in ("lib", "lib64")]
        file = next(filter(os.path.exists, files), files[0])
    library = ctypes.CDLL(file)
    library.mp_library_version.restype = u32
    library.mp_status_string.restype = library.mp_last_error_message.restype = text
    return library


_lib = _load()


def call(name, *arguments):
    """Calls a function that returns a status. A failure is an Error; a note is returned, "" where there is none."""
    function = getattr(_lib, name)
    status = function(*arguments)  # ints go as i32: wider ones and pointers come as ctypes objects
    message = _lib.mp_last_error_message().decode() if status else ""
    if status < 0:
        raise Error(status, _lib.mp_status_string(status).decode(), message)
    return message


class Handle:
    """An object of the library. `keep`: what must live as long, such as arrays whose memory it uses."""

    def __init__(self, noun, function, *arguments, keep=()):
        handle = pointer()
        call(function, *arguments, byref(handle))
        self._as_parameter_, self.keep = handle, list(keep)
        self.close = weakref.finalize(self, getattr(_lib, f"mp_{noun}_destroy"), handle)  # once, at the latest at exit


def library_version():
    number = _lib.mp_library_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def context(num_threads=0):
    desc = context_desc(api_version=VERSION, device_kind=HOST, num_threads=num_threads)
    return Handle("context", "mp_context_create", byref(desc))


def recipe(context, name):
    return Handle("recipe", "mp_recipe_create", context, name.encode())


def tensor(context, array, dtype=None):
    """A tensor over the array's own memory."""
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError("the array must be C-contiguous and writable")
    shape = (i64 * 8)(*array.shape)
    desc = tensor_desc(dtype=dtype or DTYPES[array.dtype], ndim=array.ndim, shape=shape, device_kind=HOST)
    return Handle("tensor", "mp_tensor_wrap", context, byref(desc), address(array), None, None, keep=[array])


def address(array):
    return pointer(array.ctypes.data)


def optimizer(context, recipe):
    return Handle("optimizer", "mp_optimizer_create", context, recipe, None)


def add_param(optimizer, group, name, param, grad, init=None):
    """`init`: the exact start in fp32 where `param` is narrower."""
    desc = param_desc(name=name.encode(), param=param._as_parameter_, grad=grad._as_parameter_,
                      init_fp32=init and init._as_parameter_)
    call("mp_optimizer_add_param", optimizer, group, byref(desc), None)
    optimizer.keep += param.keep + grad.keep
    stats(optimizer)  # waits: `init` may go now


def stats(optimizer):
    result = optimizer_stats()
    call("mp_optimizer_get_stats", optimizer, None, byref(result))
    return result


def read_state(optimizer, index, name, out):
    state = Handle("tensor", "mp_optimizer_get_state", optimizer, index, name.encode())
    call("mp_tensor_read", state, None, address(out), size(out.nbytes))
    return out
