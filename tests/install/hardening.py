#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is in packages for Debian: every program and library is built as distributions do, and the library asks for no newer
libc than it needs.

usage: hardening.py FILE.deb...
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NEEDED_LIBC = "libc6 (>= 2.31)"


def read(*options):
    return subprocess.run(["readelf", "-W", *map(str, options)], capture_output=True, text=True, check=True).stdout


def weaknesses(file):
    header, dynamic, symbols = read("-h", "-l", file), read("-d", file), read("--dyn-syms", file)
    if not re.search(r"Type: +DYN", header):
        yield "it is not position independent"
    if "GNU_RELRO" not in header:
        yield "no RELRO"
    if not re.search(r"BIND_NOW|Flags:.*\bNOW\b", dynamic):
        yield "no BIND_NOW"
    if re.search(r"GNU_STACK.* RWE", header):
        yield "its stack can be executed"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if not re.search(r"UND __\w+_chk\b", symbols):
        yield "no _FORTIFY_SOURCE"


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], capture_output=True, text=True, check=True).stdout.strip()


def main():
    errors, files = [], 0
    for package in sys.argv[1:]:
        name, depends = field(package, "Package"), field(package, "Depends")
        print(f"{name}: Depends: {depends}")
        if name == "libmixedprec0" and depends != NEEDED_LIBC:
            errors.append(f"{name} depends on '{depends}'; it needs {NEEDED_LIBC}")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            for file in sorted(p for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink()):
                if file.read_bytes()[:4] == b"\x7fELF":
                    files += 1
                    errors += [f"{name}: {file.relative_to(folder)}: {what}" for what in weaknesses(file)]
    print(*errors, f"{files} programs and libraries", sep="\n")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
