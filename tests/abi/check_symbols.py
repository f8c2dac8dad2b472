#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three lists must be one: the functions declared in the headers, the symbol map, and what the library exports.
Also: no symbol that merges with other libraries, no library needed that a plain machine lacks, and no version of a
symbol that glibc 2.31 lacks.

A module has no headers: there the map and the exports must be one.

usage: check_symbols.py LIBRARY [--module MAP] [--may-need REGEX] [--sanitized]
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

ALLOWED = re.compile(r"^(lib(c|m|pthread|dl)\.so\.\d+|ld-linux.*\.so\.\d+)$")
OLDEST_GLIBC = (2, 31)
FORBIDDEN_SANITIZED = re.compile(r"cuda|cublas|nccl|nvidia|amdhip|hsa|mpi\b|mpi[-_.]|kokkos", re.I)


def exported(library):
    """({symbol: version node}, [anything else that is exported])."""
    output = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols, wrong = {}, []
    for line in output.splitlines():
        _, kind, name = line.split()
        symbol, _, node = name.partition("@@")
        if kind == "A" and symbol.startswith("MIXEDPREC_"):
            continue  # the version node itself
        if kind != "T" or not symbol.startswith("mp_"):
            wrong.append(f"{kind} {name}")
            continue
        symbols[symbol] = node
    return symbols, wrong


def needed(library):
    output = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output), re.findall(r"\(SONAME\).*\[(.*)\]", output)


def too_new(library):
    output = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    for name, version in re.findall(r"(\S+)@GLIBC_([\d.]+)", output):
        if tuple(map(int, version.split("."))) > OLDEST_GLIBC:
            yield f"{name} needs glibc {version}; {'.'.join(map(str, OLDEST_GLIBC))} must do"


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


def check_library(exports, soname):
    declared = [function.name for function in headers.functions()]
    errors = [f"{name}: declared twice" for name in set(declared) if declared.count(name) > 1]
    errors += compare(set(declared), headers.map_symbols(), exports)
    if soname != ["libmixedprec.so.0"]:
        errors.append(f"SONAME is {soname}; it must be libmixedprec.so.0")
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--module", type=Path, metavar="MAP")
    parser.add_argument("--may-need", default="$^", metavar="REGEX", help="libraries a module is there for")
    parser.add_argument("--sanitized", action="store_true")
    arguments = parser.parse_args()

    exports, wrong = exported(arguments.library)
    libraries, soname = needed(arguments.library)
    errors = [f"exported, but no function mp_*: {text}" for text in wrong]
    if arguments.module:
        mapped = headers.map_symbols(arguments.module)
        errors += compare(set(mapped), mapped, exports)
    else:
        errors += check_library(exports, soname)
    def is_fine(name):
        allowed = not FORBIDDEN_SANITIZED.search(name) if arguments.sanitized else ALLOWED.search(name)
        return allowed or re.search(arguments.may_need, name)

    errors += [f"needs {name} to load" for name in libraries if not is_fine(name)]
    if not arguments.sanitized:
        errors += too_new(arguments.library)
    print("\n".join(errors))
    print(f"{len(exports)} functions; needs {', '.join(libraries)}; {len(errors)} errors")
    return 1 if errors or not exports else 0


if __name__ == "__main__":
    sys.exit(main())
