# SPDX-License-Identifier: Apache-2.0
"""The raw layer in Julia: src/capi.jl, the module CAPI of the package MixedPrec."""

NUMBERS = {"int32_t": "Int32", "int64_t": "Int64", "uint8_t": "UInt8", "uint32_t": "UInt32", "uint64_t": "UInt64",
           "size_t": "Csize_t", "float": "Float32", "double": "Float64", "char": "UInt8", "void": "Cvoid",
           "mp_status": "Int32"}
KEYWORDS = {"begin", "end", "function", "module", "struct", "global", "local", "let", "do", "quote", "export", "import", "using"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Made by bindings/generate/generate.py from the public headers. Do not edit.
"""
The C ABI as it is: constants, structs with the defaults of their initializers as keywords, and every function.
`CAPI.load(path)` opens the library. Functions that may wait, if only for another thread that uses the same object, let
the garbage collector run meanwhile.
"""
module CAPI

import Libdl

# The functions' addresses, in the order of NAMES; filled by load.
const ADDRESSES = Ptr{Cvoid}[]

function load(path)
    handle = Libdl.dlopen(path, Libdl.RTLD_NOW | Libdl.RTLD_LOCAL)
    empty!(ADDRESSES)
    append!(ADDRESSES, [Libdl.dlsym(handle, name) for name in NAMES])
    check_layout()
    return handle
end

# A ccall during which the garbage collector may run. Arguments are converted before, and kept alive; nothing of Julia's
# is touched in between.
macro waiting(index, result, types, arguments...)
    converted = [gensym() for _ in arguments]
    raw = [gensym() for _ in arguments]
    before = [:($c = Base.cconvert($t, $(esc(a)))) for (c, t, a) in zip(converted, types.args, arguments)]
    pointers = [:($r = Base.unsafe_convert($t, $c)) for (r, t, c) in zip(raw, types.args, converted)]
    quote
        address = ADDRESSES[$index]
        $(before...)
        GC.@preserve $(converted...) begin
            $(pointers...)
            state = ccall(:jl_gc_safe_enter, Int8, ())
            value = ccall(address, $result, $types, $(raw...))
            ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
        end
        value
    end
end

'''
TAIL = '''
# Throws where a struct here is not laid out as the C compiler lays it out.
function check_layout()
    for (struct_type, size, offsets) in LAYOUT
        found = Tuple(Int(fieldoffset(struct_type, i)) for i in 1:fieldcount(struct_type))
        if sizeof(struct_type) != size || found != offsets
            error("$struct_type is laid out as $(sizeof(struct_type)) $found, not as $size $offsets")
        end
    end
end

end # module CAPI
'''


def named(name):
    return f'var"{name}"' if name in KEYWORDS else name


def julia(kind):
    if kind.signature:
        return "Ptr{Cvoid}"
    if kind.base.endswith("_fn"):
        return "Ptr{Cvoid}"
    text = NUMBERS.get(kind.base, kind.base)
    for _ in kind.levels:
        text = f"Ptr{{{text}}}"
    return text


def field_type(api, field):
    length = api.length(field)
    return f"NTuple{{{length},{julia(field.type)}}}" if length else julia(field.type)


def field_value(api, struct, field):
    value = api.initial(struct, field)
    if field.is_struct:
        return f"ntuple(_ -> {field.type.base}(), {api.length(field)})" if field.length else f"{field.type.base}()"
    if field.length:
        return f"ntuple(_ -> {julia(field.type)}(0), {api.length(field)})"
    if value == "NULL":
        return "C_NULL"
    return repr(float(value)) if field.type.base == "double" else value


def text(api):
    out = [HEAD]
    out += [f"struct {name} end\n" for name in api.handles]
    out.append("\n")
    for name, kind in api.constants:
        value = api.layout.values[name]
        number = "UInt32" if kind == "unsigned" else "Int32"
        out.append(f"const {name} = {value if kind == 'string' else f'{number}({value})'}\n")
    for struct in sorted(api.structs, key=lambda s: not s.is_part):
        fields = [f for f in struct.fields if f.name != "struct_size"]
        out.append(f'\n"See {struct.header}."\nstruct {struct.name}\n')
        out += [f"    {named(f.name)}::{field_type(api, f)}\n" for f in struct.fields]
        keywords = ",\n        ".join(f"{named(f.name)} = {field_value(api, struct, f)}" for f in fields)
        size = [] if struct.is_part else [f"sizeof({struct.name})"]
        values = ", ".join([*size, *(named(f.name) for f in fields)])
        out.append(f"    {struct.name}(;\n        {keywords}) =\n        new({values})\nend\n")
    out.append("\nconst LAYOUT = (\n")
    for struct in sorted(api.structs, key=lambda s: not s.is_part):
        offsets = ", ".join(str(api.layout.offsets[struct.name, f.name]) for f in struct.fields)
        out.append(f"    ({struct.name}, {api.layout.sizes[struct.name]}, ({offsets},)),\n")
    out.append(")\n\nconst NAMES = (\n")
    out += [f"    :{function.name},\n" for function in api.functions]
    out.append(")\n")
    for index, function in enumerate(api.functions, 1):
        types = ", ".join(julia(kind) for kind, _ in function.parameters) + ("," if function.parameters else "")
        names = [named(name) for _, name in function.parameters]
        description = "\n".join(function.summary()).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
        out.append(f'\n"""\n{description}\n"""\n')
        arguments = ", ".join(names)
        result = julia(function.result)
        may_wait = function.waits() or any(kind.base in api.handles for kind, _ in function.parameters)
        call = f"@waiting({index}" if may_wait else f"ccall(ADDRESSES[{index}]"
        out.append(f"{function.name}({arguments}) =\n    {call}, {result}, ({types}){', ' * bool(names)}{arguments})\n")
    out.append(TAIL)
    return "".join(out)
