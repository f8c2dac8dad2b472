#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a table of calls of the C ABI from the public headers, which misuse.cpp includes: each function with a handle that it
is given, and nothing in its other arguments but a place for what it makes.

usage: every_call.py FILE"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers


def argument(kind, is_handle, makes):
    """The handle under test, a place for a new object, or nothing."""
    if is_handle:
        return f"static_cast<{kind}>(handle)"
    if makes and len(kind.levels) == 2 and not any(kind.levels) and kind.base.startswith("mp_"):
        return f"place<{kind.base}>()"
    return "nullptr" if kind.levels or kind.base.endswith("_fn") else "0"


def row(function, handles):
    kinds = [kind for kind, _ in function.parameters]
    takes = len(kinds[0].levels) == 1 and kinds[0].base in handles
    values = ", ".join(argument(kind, takes and i == 0, takes) for i, kind in enumerate(kinds))
    name = kinds[0].base if takes else ""
    call = f"{function.name}({values});"
    body = f"return {call}" if function.result.base == "mp_status" else f"{call} return MP_STATUS_OK;"
    argument_name = "void* handle" if takes else "void*"
    is_void = str(function.result.base == "void").lower()
    return f'    {{"{function.name}", "{name}", {is_void}, []({argument_name}) {{ {body} }}}},'


def main():
    handles = set(headers.handles())
    rows = [row(function, handles) for function in headers.functions()
            if str(function.result) in ("mp_status", "void") and any(kind.levels for kind, _ in function.parameters)]
    Path(sys.argv[1]).write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
