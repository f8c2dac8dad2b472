#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the raw layer of each language from the public headers: every function, struct, callback and constant, with
assertions of the layout that the C compiler found (tests/abi/layout.golden). Zig needs none: it reads the headers.

usage: generate.py           write them
       generate.py --check   compare what is there with what would be written, and each with capi/mixedprec.map
"""
import difflib
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import headers
import to_fortran
import to_julia
import to_python
import to_rust

BINDINGS = headers.ROOT / "bindings"
# file, what writes it, and how it declares a function
TARGETS = (
    ("rust/mixedprec-sys/src/bindings.rs", to_rust.text, r"^    pub fn (mp_\w+)\("),
    ("julia/src/capi.jl", to_julia.text, r"^(?:function )?(mp_\w+)\("),
    ("python/mixedprec/capi.py", to_python.text, r'^    "(mp_\w+)": \((?:c_|None)'),
    ("fortran/mixedprec_c.f90", to_fortran.text, r"^        (?:function|subroutine) (mp_\w+)\("),
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


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    api, wrong = Api(), False
    symbols = set(headers.map_symbols())
    for name, emit, declaration in TARGETS:
        path, text = BINDINGS / name, emit(api)
        if not sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        there = path.read_text() if path.exists() else ""
        wrong |= there != text
        sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), name, "generated", n=1))
        declared = re.findall(declaration, there, re.M)
        unbound, unknown = symbols - set(declared), set(declared) - symbols
        wrong |= bool(unbound or unknown or len(declared) != len(set(declared)))
        print(f"{name}: {len(declared)} functions, {len(unbound)} unbound {sorted(unbound)}, "
              f"{len(unknown)} not in the map {sorted(unknown)}, {len(api.structs)} structs, {len(api.constants)} constants")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
