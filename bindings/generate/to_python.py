# SPDX-License-Identifier: Apache-2.0
"""The raw layer in Python: the module mixedprec.capi, on ctypes."""

NUMBERS = {"int32_t": "c_int32", "int64_t": "c_int64", "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
           "size_t": "c_size_t", "float": "c_float", "double": "c_double", "char": "c_char", "mp_status": "c_int32"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Made by bindings/generate/generate.py from the public headers. Do not edit.
"""The C ABI as it is: constants, structs with the defaults of their initializers, and FUNCTIONS, the argument types of
every call. load() opens the library and gives each function those types. A call lets go of the interpreter's lock."""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)


class Struct(Structure):
    """A struct of the ABI: begins as its initializer says, and takes fields by name."""
    _initial_ = {}

    def __init__(self, **fields):
        unknown = [name for name in fields if name not in dict(self._fields_)]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")
        super().__init__(**{**self._initial_, **fields})

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
    """Opens the library at a path, or by a name that the system's loader knows, and gives its functions their types."""
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
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
    out.append("\nLAYOUT = {\n")
    for struct in api.structs:
        offsets = ", ".join(str(api.layout.offsets[struct.name, f.name]) for f in struct.fields)
        out.append(f'    "{struct.name}": ({api.layout.sizes[struct.name]}, ({offsets},)),\n')
    out.append("}\n\n# name: (result, arguments)\nFUNCTIONS = {\n")
    for function in api.functions:
        for line in function.summary():
            out.append(f"    # {line}".rstrip() + "\n")
        arguments = ", ".join(python(kind) for kind, _ in function.parameters)
        names = ", ".join(name for _, name in function.parameters)
        out.append(f'    "{function.name}": ({python(function.result)}, [{arguments}]),  # {names}'.rstrip("# ").rstrip() + "\n")
    out.append("}\n" + TAIL)
    return "".join(out)
