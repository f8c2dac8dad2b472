# SPDX-License-Identifier: Apache-2.0
"""The raw layer in Python: the module mixedprec.capi, on ctypes."""

NUMBERS = {"int32_t": "c_int32", "int64_t": "c_int64", "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
           "size_t": "c_size_t", "float": "c_float", "double": "c_double", "char": "c_char", "mp_status": "c_int32"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Made by bindings/generate/generate.py from the public headers. Do not edit.
"""The C ABI as it is: constants, structs with the defaults of their initializers, and FUNCTIONS: the result, the argument
types and the arguments' names of every call. load() opens the library and gives each function those types. A call lets
go of the interpreter's lock.

ctypes cuts a whole number that does not fit and knows nothing of numpy's; convert() refuses the first and takes the second.
The structs use it for their fields."""
import ctypes
import operator
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)


def _integer(kind):
    bits, unsigned = 8 * ctypes.sizeof(kind), kind(-1).value > 0
    low, high = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)

    def converted(value):
        number = operator.index(value)
        if not low <= number <= high:
            raise OverflowError(f"{number} does not fit: it must be in {low} to {high}")
        return number
    return converted


def _real(value):
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a number is needed, not {value!r}")
    return float(value)


def _text(value):
    if isinstance(value, str):
        value = value.encode()
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"text is needed, not {value!r}")
    if value is not None and b"\\0" in value:
        raise ValueError(f"text with a NUL inside: {value!r}")
    return value


_CONVERTERS = {kind: _integer(kind) for kind in (c_int32, c_int64, c_uint32, c_uint64, c_size_t)}
_CONVERTERS.update({c_float: _real, c_double: _real, c_char_p: _text})


def converter(kind):
    """What makes a Python value one of this C type, or raises TypeError, ValueError or OverflowError."""
    if kind in _CONVERTERS:
        return _CONVERTERS[kind]
    if isinstance(kind, type) and issubclass(kind, ctypes._CFuncPtr):
        return lambda value: kind() if value is None else value
    return lambda value: value


class Struct(Structure):
    """A struct of the ABI: begins as its initializer says, and takes fields by name, whose values must fit."""
    _initial_ = {}
    _converters_ = {}

    def __init__(self, **fields):
        super().__init__(**self._initial_)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if name not in self._converters_:
            raise TypeError(f"{type(self).__name__} has no field {name}")
        try:
            value = self._converters_[name](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"{type(self).__name__}.{name}: {error}") from None
        super().__setattr__(name, value)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{f[0]}={getattr(self, f[0])!r}' for f in self._fields_)})"

'''
TAIL = '''

def check_layout():
    """Raises ImportError where a struct here is not laid out as the C compiler lays it out."""
    for name, (size, offsets) in LAYOUT.items():
        struct = globals()[name]
        found = tuple(getattr(struct, field[0]).offset for field in struct._fields_)
        if ctypes.sizeof(struct) != size or found != offsets:
            raise ImportError(f"{name} is laid out as {ctypes.sizeof(struct)} {found}, not as {size} {offsets}")


def load(path):
    """Opens the library at a path, or by a name that the system's loader knows, and gives its functions their types. One that
    is older than the headers that this file was made from is refused with ImportError."""
    library = ctypes.CDLL(path)
    library.mp_library_version.restype = c_uint32
    found = library.mp_library_version()
    if found // 10000 != MP_VERSION_MAJOR or found < MP_VERSION:
        def text(number):
            return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        raise ImportError(f"{path} is libmixedprec {text(found)}; this package needs {text(MP_VERSION)} or a later one of "
                          f"the same major version")
    for name, (result, arguments, _) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


check_layout()
'''


def python(kind):
    if kind.signature:
        result, parameters = kind.signature
        return function_pointer(result, parameters)
    if str(kind) == "void":
        return "None"
    levels = list(kind.levels)
    if kind.base in ("void", "char") and levels:
        constant = levels.pop(0)
        text = "c_void_p" if kind.base == "void" else "c_char_p" if constant else "POINTER(c_char)"
    else:
        text = NUMBERS.get(kind.base, kind.base)
    for _ in levels:
        text = f"POINTER({text})"
    return text


def function_pointer(result, parameters):
    return f"CFUNCTYPE({', '.join([python(result), *(python(kind) for kind, _ in parameters)])})"


def field_type(api, field):
    length = api.length(field)
    return f"{python(field.type)} * {length}" if length else python(field.type)


def text(api):
    out = [HEAD]
    for name in api.handles:
        out.append(f"\nclass {name}(Structure):\n    pass\n\n")
    out.append("\n")
    for name, kind in api.constants:
        value = api.layout.values[name]
        out.append(f"{name} = {value}\n")
    out.append("\n")
    # Callbacks name structs, and structs name callbacks: a struct is declared first and gets its fields afterwards.
    for struct in api.structs:
        out.append(f'\nclass {struct.name}(Struct):\n    """See {struct.header}."""\n\n')
    out.append("\n")
    for callback in api.callbacks:
        out.append(f"{callback.name} = {function_pointer(callback.result, callback.parameters)}\n")
    for struct in api.structs:
        name = struct.name
        out.append(f"\n{name}._fields_ = [\n")
        out += [f'    ("{f.name}", {field_type(api, f)}),\n' for f in struct.fields]
        initial = ", ".join(f'"{f.name}": {api.initial(struct, f)}' for f in struct.fields
                            if api.initial(struct, f) not in ("", "NULL", "0"))
        out.append(f"]\n{name}._initial_ = {{{initial}}}\n")
        out.append(f"{name}._converters_ = {{name: converter(kind) for name, kind in {name}._fields_}}\n")
    out.append("\nLAYOUT = {\n")
    for struct in api.structs:
        offsets = ", ".join(str(api.layout.offsets[struct.name, f.name]) for f in struct.fields)
        out.append(f'    "{struct.name}": ({api.layout.sizes[struct.name]}, ({offsets},)),\n')
    out.append("}\n\n# name: (result, types of the arguments, their names)\nFUNCTIONS = {\n")
    for function in api.functions:
        for line in function.summary():
            out.append(f"    # {line}".rstrip() + "\n")
        arguments = ", ".join(python(kind) for kind, _ in function.parameters)
        names = ", ".join(name for _, name in function.parameters)
        out.append(f'    "{function.name}": ({python(function.result)}, [{arguments}], "{names}"),\n')
    out.append("}\n" + TAIL)
    return "".join(out)
