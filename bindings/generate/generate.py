#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the raw layer of each language from the public headers: every function, struct, callback and constant, with
assertions of the layout that the C compiler found (tests/abi/layout.golden). Zig needs none: it reads the headers.
Writes Fortran's safe layer, too, from templates. They are not kept in git: a build makes them, and a source release and the
language packages carry them.

usage: generate.py           write them into the folders of the languages
       generate.py --list    only name the files
       generate.py --check   write nothing: compare the functions of each raw layer with capi/mixedprec.map
"""
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import fortran_template
import headers
import to_fortran
import to_julia
import to_python
import to_rust

BINDINGS = headers.ROOT / "bindings"
# file, what writes it, and how it declares a function where it is a raw layer
TARGETS = (
    ("rust/mixedprec-sys/src/bindings.rs", to_rust.text, r"^    pub fn (mp_\w+)\("),
    ("julia/src/capi.jl", to_julia.text, r"^(?:function )?(mp_\w+)\("),
    ("python/mixedprec/capi.py", to_python.text, r'^    "(mp_\w+)": \((?:c_|None)'),
    ("fortran/mixedprec_c.f90", to_fortran.text, r"^        (?:function|subroutine) (mp_\w+)\("),
    ("fortran/mixedprec.f90", fortran_template.text, None),
)


class Api:
    """All that the emitters read."""

    def __init__(self):
        self.layout = headers.Layout.read()
        self.functions = headers.functions()
        self.structs = headers.structs()
        self.handles = headers.handles() + ["DLManagedTensorVersioned"]
        self.callbacks = headers.callbacks()
        self.constants = headers.constants()
        known = set(self.layout.offsets) | set(self.layout.values)
        missing = [f"{s.name}.{f.name}" for s in self.structs for f in s.fields if (s.name, f.name) not in known]
        missing += [name for name, _ in self.constants if name not in known]
        if missing:
            sys.exit(f"layout.golden lacks {', '.join(missing)}: run tests/abi/layout.py update first")

    def initial(self, struct, field):
        """What the struct's initializer sets a field to: text of a number, "NULL", or "" for an array of zeros."""
        return self.layout.initial.get((struct.name, field.name), "")

    def length(self, field):
        return int(self.layout.values.get(field.length, field.length)) if field.length else 0


def write(path, text):
    """At once, as two builds may write the same file. What is right already may lie where nothing can be written."""
    if path.exists() and path.read_text() == text:
        if os.access(path, os.W_OK):
            path.touch()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}~")
    half.write_text(text)
    half.replace(path)


def check(api, name, text, declaration):
    symbols, declared = set(headers.map_symbols()), re.findall(declaration, text, re.M)
    unbound, unknown = symbols - set(declared), set(declared) - symbols
    print(f"{name}: {len(declared)} functions, {len(unbound)} unbound {sorted(unbound)}, "
          f"{len(unknown)} not in the map {sorted(unknown)}, {len(api.structs)} structs, {len(api.constants)} constants")
    return not unbound and not unknown and len(declared) == len(set(declared))


def main():
    mode = sys.argv[1:]
    if mode not in ([], ["--list"], ["--check"]):
        sys.exit(__doc__)
    if mode == ["--list"]:
        print("\n".join(f"bindings/{name}" for name, _, _ in TARGETS))
        return 0
    api, right = Api(), True
    for name, emit, declaration in TARGETS:
        text = emit(api)
        if not mode:
            write(BINDINGS / name, text)
        elif declaration:
            right &= check(api, name, text, declaration)
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
