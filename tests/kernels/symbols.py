# SPDX-License-Identifier: Apache-2.0
"""The object files of the instruction sets define nothing that another file could use by mistake.

An inline function that is the same for the linker in two files is kept once. If that copy were the
one compiled for AVX-512, the baseline would crash on an older machine. So every symbol that such an
object defines, weak ones above all, must be in the namespace of its instruction set.

usage: symbols.py NM "OBJECT;OBJECT;..."
"""

import pathlib
import subprocess
import sys

LOCAL = set("tdrbNan")


def stray_symbols(nm, path, isa):
    lines = subprocess.run([nm, "-C", "--defined-only", path], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    stray = []
    for line in lines:
        kind, name = line.split(maxsplit=2)[1:]
        ours = f"mp::kernels::{isa}::" in name
        # Data of the compiler's own, the same in every file; and constant tables, which hold no instructions.
        harmless = name.startswith(("DW.ref.", "__odr_asan")) or (kind == "V" and name.startswith("mp::numerics::k"))
        if kind not in LOCAL and not ours and not harmless:
            stray.append(f"{kind} {name}")
    return stray, len(lines)


def main():
    nm, objects = sys.argv[1], sys.argv[2].split(";")
    checked = 0
    failed = False
    for path in objects:
        isa = pathlib.Path(path).name.split(".")[0]
        if isa not in ("baseline", "avx2", "avx512", "avx512_vbmi"):
            continue
        stray, count = stray_symbols(nm, path, isa)
        if count == 0:
            sys.exit(f"{path}: nm lists no symbols, so nothing was checked")
        checked += 1
        for symbol in stray:
            failed = True
            print(f"{path}: defines {symbol}")
    if checked == 0:
        sys.exit("no object file of an instruction set was given")
    print(f"{checked} object files checked")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
