# SPDX-License-Identifier: Apache-2.0
"""The raw layer in Fortran: the module mixedprec_c, on iso_c_binding."""

NUMBERS = {"int32_t": "integer(c_int32_t)", "int64_t": "integer(c_int64_t)", "uint32_t": "integer(c_int32_t)",
           "uint64_t": "integer(c_int64_t)", "size_t": "integer(c_size_t)", "float": "real(c_float)",
           "double": "real(c_double)", "mp_status": "integer(c_int32_t)"}
# Handles behind a pointer are one that comes back, but for this function's.
MANY = {("mp_comm_create_threads", "out")}
# Numbers behind a pointer are one number that comes back, but for these, which are arrays.
ARRAYS = {"shape", "counts", "indices", "dtypes", "elements", "values", "send_bytes", "send_offsets"}
HEAD = '''! SPDX-License-Identifier: Apache-2.0
! Made by bindings/generate/generate.py from the public headers. Do not edit.
!
!> Constants and structs of the C ABI. Structs begin with the defaults of their initializers. A constant with the name
!! of a function ends with _C. Unsigned numbers are signed here, of the same bits.
module mixedprec_types
    use, intrinsic :: iso_c_binding
    implicit none
    public

'''
FUNCTIONS = '''end module mixedprec_types

!> The functions of the C ABI as they are. Handles, memory and text are type(c_ptr); text ends with c_null_char. An
!! argument that C lets be NULL is optional where it is not a c_ptr; an absent one is NULL.
module mixedprec_c
    use mixedprec_types
    use, intrinsic :: iso_c_binding
    implicit none
    public

    interface
'''


def parameter(kind, name, structs, function):
    """The declaration of a dummy argument."""
    base, levels = kind.base, kind.levels
    if kind.signature or base.endswith("_fn"):
        return f"type(c_funptr), value :: {name}"
    if not levels:
        return f"{NUMBERS[base]}, value :: {name}"
    constant = levels[-1]
    if len(levels) == 1 and base in structs:
        # Several where the name says so; anything else is one struct.
        several = "(*)" if name in ("slots", "tensors", "inits", "descs") else ""
        return f"type({base}), intent({'in' if constant else 'inout'}), optional :: {name}{several}"
    if len(levels) == 1 and base in NUMBERS:
        if constant or name in ARRAYS:
            return f"{NUMBERS[base]}, intent({'in' if constant else 'inout'}), optional :: {name}(*)"
        return f"{NUMBERS[base]}, intent({'out'}), optional :: {name}"
    if len(levels) == 2:
        if constant:
            return f"type(c_ptr), intent(in), optional :: {name}(*)"
        if (function, name) in MANY:
            return f"type(c_ptr), intent(inout) :: {name}(*)"
        return f"type(c_ptr), intent(inout), optional :: {name}"
    return f"type(c_ptr), value :: {name}"


def component(api, struct, field):
    if field.is_struct:
        return f"type({field.type.base}) :: {field.name}" + f"({api.length(field)})" * bool(field.length)
    if field.length and field.type.levels:
        return f"type(c_ptr) :: {field.name}({api.length(field)}) = c_null_ptr"
    if field.length:
        return f"{NUMBERS[field.type.base]} :: {field.name}({api.length(field)}) = 0"
    if field.kind == "pointer":
        if field.type.base.endswith("_fn"):
            return f"type(c_funptr) :: {field.name} = c_null_funptr"
        return f"type(c_ptr) :: {field.name} = c_null_ptr"
    value = api.initial(struct, field)
    if field.type.base == "double":
        value = f"{float(value)!r}_c_double"
    return f"{NUMBERS[field.type.base]} :: {field.name} = {value}"


def wrapped(line, indent):
    """A statement in lines of at most 120 characters."""
    lines = []
    while len(indent + line) > 120:
        cut = line.rfind(", ", 0, 116 - len(indent)) + 1
        lines.append(indent + line[:cut] + " &\n")
        line, indent = line[cut + 1:], indent + "    " if not lines[1:] else indent
    return "".join(lines) + indent + line + "\n"


def text(api):
    structs = {struct.name for struct in api.structs}
    taken = {function.name for function in api.functions} | structs
    out = [HEAD]
    for name, kind in api.constants:
        own = name + "_C" * (name.lower() in taken)
        value = api.layout.values[name]
        if kind == "string":
            out.append(f"    character(len=*), parameter :: {own} = {value}\n")
        else:
            out.append(f"    integer(c_int32_t), parameter :: {own} = {value}\n")
    for struct in api.structs:
        out.append(f"\n    !> See {struct.header}.\n    type, bind(c) :: {struct.name}\n")
        out += [f"        {component(api, struct, field)}\n" for field in struct.fields]
        out.append(f"    end type {struct.name}\n")
    out.append(FUNCTIONS)
    for function in api.functions:
        out += [f"        !> {line}".rstrip() + "\n" for line in function.summary()]
        void = str(function.result) == "void"
        verb = "subroutine" if void else "function"
        names = ", ".join(name for _, name in function.parameters)
        end = "" if void else " result(answer)"
        out.append(wrapped(f'{verb} {function.name}({names}) bind(c, name="{function.name}"){end}', "        "))
        out.append("            import\n")
        out += [f"            {parameter(kind, name, structs, function.name)}\n" for kind, name in function.parameters]
        if not void:
            result = "type(c_ptr)" if function.result.levels else NUMBERS[function.result.base]
            out.append(f"            {result} :: answer\n")
        out.append(f"        end {verb} {function.name}\n\n")
    out.append("    end interface\n\ncontains\n\n")
    out.append("    !> How many sizes and offsets here are not those of the C compiler.\n"
               "    integer function mp_layout_mismatches() result(wrong)\n")
    out += [f"        type({struct.name}), target :: at_{struct.name}\n" for struct in api.structs]
    out.append("        wrong = 0\n")
    for struct in api.structs:
        name = struct.name
        out.append(f"        call compare(int(c_sizeof(at_{name})), {api.layout.sizes[name]})\n")
        out += [f"        call compare(offset(c_loc(at_{name}), c_loc(at_{name}%{f.name})), {api.layout.offsets[name, f.name]})\n"
                for f in struct.fields]
    out.append('''    contains
        subroutine compare(found, expected)
            integer, intent(in) :: found, expected
            if (found /= expected) wrong = wrong + 1
        end subroutine compare

        integer function offset(first, second)
            type(c_ptr), intent(in) :: first, second
            offset = int(transfer(second, 0_c_intptr_t) - transfer(first, 0_c_intptr_t))
        end function offset
    end function mp_layout_mismatches
end module mixedprec_c
''')
    return "".join(out)
