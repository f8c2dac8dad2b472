# SPDX-License-Identifier: Apache-2.0
"""The safe layer in Fortran: mixedprec.f90, made of the templates in bindings/fortran/src. A template is Fortran, and lines
that begin with @. Such a line goes on after an & at its end. The first paragraph of a template is not copied.

@include NAME            NAME.f90.in stands here
@objects                 the types of all objects stand here
@object mp_NAME          begins an object. The comment above is its type's, procedures NAME_... below are its methods
@generic NAME = A, B     these methods of the object are called by one name
@for A  B                what follows the rows stands here once for each row, with the row's words in place of $A and $B
@row 1  2                two blanks are between words
@end

Most methods are one line, and what is done before its call, indented below it.

@call NAME(ARGUMENTS) = f(...)              calls f, a function of the library, and checks its status
@make NAME(ARGUMENTS) = f(..., handle)      the object becomes what f made, of the argument `context`. At the end of the line
                                            `in CONTEXT` names another context
@tensor NAME(ARGUMENTS) = f(..., handle)    a last argument `tensor` becomes what f made
@text NAME() = f(this)                      an argument `text` becomes what f writes
@get NAME(ARGUMENTS): KIND = f(..., found)  a function: the number that f found
@test NAME() = f(this)                      a function: whether the status of f is MP_STATUS_OK
@method NAME(ARGUMENTS)                     any other: all it does is below

ARGUMENTS are as in `a, b: mp_tensor, c: int?`. A ? says that it may be absent; `out`, `inout` and `target` (an array in one
piece) come before the kind. `this` and `error` are added, `this` not where NAME begins with mp_. In f(...) an argument stands
for what f takes: the handle of an object, text that ends with a zero, an int or a logical of 32 bits.
"""
import re
from string import Template

from headers import ROOT
from to_fortran import wrapped

KINDS = {"int": "integer", "int8": "integer(c_int8_t)", "int16": "integer(c_int16_t)", "int32": "integer(c_int32_t)",
         "int64": "integer(c_int64_t)", "size": "integer(c_size_t)", "real32": "real(c_float)", "real64": "real(c_double)",
         "logical": "logical", "text": "character(*)", "string": "character(:), allocatable"}
# How a procedure begins, its variables, and what it does.
MADE = "type(c_ptr) :: handle\ninteger(c_int32_t) :: status", "handle = c_null_ptr\nstatus = $call\ncall adopt"
PROCEDURES = {
    "call": ("subroutine", "", "call check($call, error)"),
    "make": ("subroutine", MADE[0], MADE[1] + "(this, handle, OF_$OBJECT, status, error$context)"),
    "tensor": ("subroutine", MADE[0], MADE[1] + "(tensor, handle, OF_TENSOR, status, error, this%context)"),
    "text": ("subroutine", "", "call ask($function, this%raw(), text, error)"),
    "get": ("$kind function", "$found :: found", "found = 0\ncall check($call, error)\nvalue = found$as_logical"),
    "test": ("logical function", "integer(c_int32_t) :: status",
             "status = $call\ncall check(status, error)\nvalue = status == MP_STATUS_OK"),
    "method": ("subroutine", "", ""),
}
LAST = {"tensor": ", tensor: inout mp_tensor", "text": ", text: out string"}  # arguments that such a procedure has too
FOR = re.compile(r" *@for (.*)\n((?: *@row .*\n)+)((?:(?! *@for ).*\n)*?) *@end\n")  # without another in it
METHOD = re.compile(rf"    @({'|'.join(PROCEDURES)}) (.*)\n((?:        .*\n)*)")
OBJECT = re.compile(r"((?:    !.*\n)+)    @object (\w+)\n((?:    @generic .*\n)*)")


def read(name):
    """A template, with those that it includes."""
    text = (ROOT / f"bindings/fortran/src/{name}.f90.in").read_text().partition("\n\n")[2]
    return re.sub(r"^@include (\w+)\n", lambda found: read(found[1]), text, flags=re.M)


def for_each(found):
    """The lines of an @for, once for each row."""
    names, rows, body = found[1].split(), found[2].splitlines(), Template(found[3])
    rows = [re.split(r" {2,}", row.strip().removeprefix("@row ")) for row in rows]
    if any(len(words) != len(names) for words in rows):
        raise ValueError(f"rows of @for {found[1]}")
    return "".join(body.safe_substitute(dict(zip(names, words))) for words in rows)


def argument(name, kind, objects):
    """How an argument is declared, and what a function of the library gets for it."""
    *words, kind = kind.split()
    base, bracket, rank = kind.rstrip("?").partition("(")
    optional = kind.endswith("?")
    if base.endswith("_procedure"):
        of = f"procedure({base})"
    else:
        intent = next((word for word in words if word != "target"), "in")
        of = (f"type({base})" if base.startswith("mp_") else KINDS[base]) + f", intent({intent})"
    handed = {"text": f"c_loc({name}_c)", "int": f"int({name}, c_int32_t)", "logical": f"merge(1_c_int32_t, 0_c_int32_t, {name})"}
    handed |= dict.fromkeys(objects, f"optional_raw({name})" if optional else f"{name}%raw()")
    of += ", target, contiguous" * ("target" in words) + ", optional" * optional
    return f"{of} :: {name}{bracket}{rank}", name if bracket else handed.get(base, name)


def procedure(verb, line, body, owner, objects):
    """What a line with @ and its body make."""
    head, _, call = line.partition(" = ")
    call, _, context = call.partition(" in ")
    name, taken, kind = re.fullmatch(r"(\w+)\((.*)\)(?:: (\w+))?", head).groups("int")
    taken = (taken + LAST.get(verb, "")).removeprefix(", ")
    groups = re.findall(r"([\w, ]+?): ([\w ]+(?:\([:.,]+\))?\??)(?:, |$)", taken)
    if ", ".join(": ".join(group) for group in groups) != taken:
        raise ValueError(f"arguments of {name}: {taken}")
    taken = {name: argument(name, kind, objects) for names, kind in groups for name in names.split(", ")}
    names, declared = [*taken, "error"], [declaration for declaration, _ in taken.values()]
    if not name.startswith("mp_"):
        names, name = ["this", *names], f"{owner[3:]}_{name}"
        declared.insert(0, f"class({owner}), intent({'inout' if verb == 'make' else 'in'}) :: this")
    handed = {word: value for word, (_, value) in taken.items()} | {"this": "this%raw()"}
    texts = [word for word in taken if handed[word] == f"c_loc({word}_c)" and re.search(rf"\b{word}\b", call)]
    call = re.sub(r"\b\w+\b(?![%=(])", lambda word: handed.get(word[0], word[0]), call)
    context = context or "context%handle" * ("context" in taken)
    words = {"call": call, "function": call.partition("(")[0], "OBJECT": owner[3:].upper(), "context": context and f", {context}",
             "kind": KINDS["int64" if kind == "size" else kind], "found": KINDS["int32" if kind in ("int", "logical") else kind],
             "as_logical": " /= 0" * (kind == "logical")}
    begin, variables, does = (Template(part).substitute(words) for part in PROCEDURES[verb])
    before = [*declared, "type(mp_error), intent(out), optional :: error", *variables.splitlines()]
    before += [f"character(kind=c_char), allocatable, target :: {word}_c(:)" for word in texts]
    after = [f"call to_c({word}, {word}_c)" for word in texts] + does.splitlines()
    first = f"{begin} {name}({', '.join(names)})" + " result(value)" * begin.endswith("function")
    before, after = ("".join(wrapped(line, " " * 8) for line in lines) for lines in (before, after))
    return wrapped(first, "    ") + before + body + after + f"    end {begin.split()[-1]} {name}\n"


def type_of(name, comment, generics, procedures):
    """The type of an object, with its methods."""
    generics = re.findall(r"@generic (\w+) = (.*)", generics)
    hidden = [method for _, several in generics for method in several.split(", ")]
    lines = [f"    type, extends(mp_object), public :: {name}", "    contains"]
    for method in re.findall(rf"^    .*?\b(?:subroutine|function) {name[3:]}_(\w+)\(this", procedures, re.M):
        lines.append(f"        procedure{', private' * (method in hidden)} :: {method} => {name[3:]}_{method}")
    lines += [f"        generic :: {generic} => {several}" for generic, several in generics]
    return comment + "\n".join(lines) + f"\n    end type {name}\n"


def text(_):
    joined = lambda found: re.sub(r"\s*&\n\s*", " ", found[0])
    source = re.sub(r"^ *@[^&\n]*(?:&\n[^&\n]*)+$", joined, read("mixedprec"), flags=re.M)
    while FOR.search(source):
        source = FOR.sub(for_each, source)
    out, *parts = OBJECT.split(source)
    types, objects = [], parts[1::4]
    for comment, name, generics, section in zip(*(parts[i::4] for i in range(4))):
        section = METHOD.sub(lambda found: procedure(*found.groups(), name, objects), section)
        types.append(type_of(name, comment, generics, section))
        out += section
    out = re.sub(r"\n{3,}", "\n\n", out.replace("    @objects\n", "\n".join(types)))
    unknown = re.search(r"^ *@.*", out, re.M)
    if unknown:
        raise ValueError(f"not understood: {unknown[0].strip()}")
    return out
