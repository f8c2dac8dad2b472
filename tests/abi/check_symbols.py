#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three lists must be one: the functions declared in the headers, the symbol map, and what the library exports.
Also: no symbol that merges with other libraries, and no library needed that a plain machine lacks.

usage: check_symbols.py LIBRARY [--sanitized]
"""
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import headers

FORBIDDEN = re.compile(r"cuda|cublas|nccl|nvidia|mpi\b|mpi[-_.]|kokkos|stdc\+\+|libgcc_s|OpenCL", re.I)
FORBIDDEN_SANITIZED = re.compile(r"cuda|cublas|nccl|nvidia|mpi\b|mpi[-_.]|kokkos", re.I)


def exported(library):
    """({symbol: version node}, [anything else that is exported])."""
    output = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols, wrong = {}, []
    for line in output.splitlines():
        _, kind, name = line.split()
        symbol, _, node = name.partition("@@")
        if kind == "A" and symbol.startswith("MIXEDPREC_"):
            continue  # the version node itself
        if kind != "T" or not symbol.startswith("mp_") or not node:
            wrong.append(f"{kind} {name}")
        symbols[symbol] = node
    return symbols, wrong


def needed(library):
    output = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output), re.findall(r"\(SONAME\).*\[(.*)\]", output)


def compare(declared, mapped, exports):
    errors = []
    for name in sorted(declared | mapped.keys() | exports.keys()):
        places = [(name in declared, "declared in the headers"), (name in mapped, "listed in mixedprec.map"),
                  (name in exports, "exported by the library")]
        if not all(there for there, _ in places):
            errors.append(f"{name}: " + ", ".join(("" if there else "NOT ") + text for there, text in places))
        elif mapped[name] != exports[name]:
            errors.append(f"{name}: version {mapped[name]} in the map, {exports[name]} in the library")
    return errors


def main():
    library, sanitized = sys.argv[1], "--sanitized" in sys.argv[2:]
    exports, wrong = exported(library)
    errors = [f"exported, but neither a versioned function nor mp_*: {text}" for text in wrong]
    declared = [function.name for function in headers.functions()]
    errors += [f"{name}: declared twice" for name in set(declared) if declared.count(name) > 1]
    errors += compare(set(declared), headers.map_symbols(), exports)
    libraries, soname = needed(library)
    forbidden = FORBIDDEN_SANITIZED if sanitized else FORBIDDEN
    errors += [f"needs {name} to load" for name in libraries if forbidden.search(name)]
    if soname != ["libmixedprec.so.0"]:
        errors.append(f"SONAME is {soname}; it must be libmixedprec.so.0")
    print("\n".join(errors))
    print(f"{len(declared)} functions; needs {', '.join(libraries)}; {len(errors)} errors")
    return 1 if errors or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
