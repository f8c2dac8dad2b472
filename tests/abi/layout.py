#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of every public struct, the values of every constant, and what each initializer sets, against
layout.golden. The C program that prints them is made from the headers, so none can be forgotten.

usage: layout.py generate FILE.c    write the program
       layout.py check PROGRAM      run it and compare
       layout.py update PROGRAM     run it and write layout.golden: only for a release, or for additions
"""
import difflib
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

PRELUDE = """/* Made by tests/abi/layout.py from the public headers. */
#include <stdio.h>

#include "mixedprec.h"

int main(void) {
    size_t end = 0;
    int padded = 0;
"""


def generate():
    structs = headers.structs()
    initializers = dict((struct, macro) for macro, struct in headers.initializers())
    unknown = set(initializers) - {struct.name for struct in structs}
    if unknown:
        raise ValueError(f"an initializer for {unknown}, which is no public struct")
    lines = [PRELUDE]
    for struct in structs:
        name = struct.name
        if struct.is_part:
            initializers[name] = f"{name.upper()}_INIT"
            if name not in {field.type.base for other in structs for field in other.fields}:
                lines.append(f'    printf("FIRST field of {name} is not struct_size\\n");\n')
        lines.append(f'    printf("struct {name} size %zu\\n", sizeof({name}));\n    end = 0;\n    {{\n')
        if name in initializers:
            lines.append(f"        {name} value = {initializers[name]};\n")
        for field in struct.fields:
            at, size = f"offsetof({name}, {field.name})", f"sizeof((({name}*)0)->{field.name})"
            lines.append(f'        printf("field {name}.{field.name} offset %zu size %zu", {at}, {size});\n'
                         f'        padded += {at} != end;\n        end = {at} + {size};\n')
            if name in initializers and field.kind == "number":
                lines.append(f'        printf(" init %.17g", (double)value.{field.name});\n')
            elif name in initializers and field.kind == "pointer":
                lines.append(f'        printf(" init %s", value.{field.name} ? "set" : "NULL");\n')
            lines.append('        printf("\\n");\n')
        lines.append(f'    }}\n    if (padded || end != sizeof({name})) {{ printf("PADDING in {name}\\n"); }}\n    padded = 0;\n')
    formats = {"integer": ("%lld", "(long long)"), "unsigned": ("%lld", "(long long)"), "real": ("%.17g", "(double)"),
               "string": ('\\"%s\\"', "")}
    for name, kind in headers.constants():
        text, cast = formats[kind]
        lines.append(f'    printf("constant {name} {text}\\n", {cast}{name});\n')
    return "".join(lines) + "    return 0;\n}\n"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("generate", "check", "update"):
        sys.exit(__doc__)
    verb, path = sys.argv[1:]
    if verb == "generate":
        Path(path).write_text(generate())
        return 0
    printed = subprocess.run([path], capture_output=True, text=True, check=True).stdout
    bad = [line for line in printed.splitlines() if line.startswith(("PADDING", "FIRST"))]
    if bad:
        print("\n".join(bad))
        return 1
    if verb == "update":
        headers.GOLDEN.write_text(printed)
        return 0
    golden = headers.GOLDEN.read_text()
    print("".join(difflib.unified_diff(golden.splitlines(True), printed.splitlines(True), "layout.golden", "headers")))
    print(f"{len(headers.structs())} structs, {len(headers.constants())} constants")
    return 0 if printed == golden else 1


if __name__ == "__main__":
    sys.exit(main())
