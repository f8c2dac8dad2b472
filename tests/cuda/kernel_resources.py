#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every kernel of the CUDA module takes by its machine code: registers, stack, shared and local memory of a thread or
block. A kernel that spills registers, or keeps an array in local memory, is several times slower than it looks: those that
do are named below with the reason, and no other may.

usage: kernel_resources.py MODULE    with cuobjdump from PATH, $CUOBJDUMP or scripts/setup.sh --checks
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77

# Bytes of stack that a kernel may have: a part of its demangled name, and why.
MAY_HAVE_STACK = [
    ("SumByMerges", 192, "the parts of one element, added in an order that is only known at run time"),
    ("UpdateTeams", 16, "the values of one element by array, written by a loop over arrays"),
]


def find_tool():
    bundled = ROOT / ".cache/python/nvidia/cu13/bin/cuobjdump"
    for name in (os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), str(bundled)):
        if name and Path(name).is_file():
            return name
    return None


def short(name):
    """mp::kernels::Functor<...> or the kernel's own name, without Kokkos around it."""
    name = name.replace("(anonymous namespace)::", "").replace("(mp::DType)", "")
    inner = re.search(r"mp::kernels::(\w+)", name)
    if inner:
        work = re.search(r"mp::(\w+Desc)\b", name)
        kind = "teams" if "TeamPolicy" in name else "range"
        return f"Kokkos {kind}: {inner.group(1)}" + (f" ({work.group(1)})" if work else "")
    return re.sub(r"^void |\(.*\)$|mp::backends::cuda::|mp::DType", "", name)


def kernels(tool, module):
    text = subprocess.run([tool, "-res-usage", module], check=True, capture_output=True, text=True).stdout
    rows, arch, name = [], "", ""
    for line in text.splitlines():
        if found := re.match(r"arch = (\w+)", line):
            arch = found.group(1)
        elif found := re.match(r"\s*Function (\S+):", line):
            name = found.group(1)
        elif found := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            rows.append((arch, name, *map(int, found.groups())))
    names = subprocess.run(["c++filt"], check=True, capture_output=True, text=True,
                           input="\n".join(row[1] for row in rows)).stdout.splitlines()
    return [(row[0], name, *row[2:]) for row, name in zip(rows, names) if "mp::" in name]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tool = find_tool()
    if tool is None:
        print("skipped: no cuobjdump (scripts/setup.sh --checks installs it)")
        return SKIPPED
    rows = kernels(tool, sys.argv[1])
    if not rows:
        print("no kernel was found")
        return 1
    wrong = []
    print("arch     registers  stack  shared  local  kernel")
    for arch, name, registers, stack, shared, local in sorted(rows, key=lambda row: (row[0], short(row[1]))):
        print(f"{arch:8} {registers:9} {stack:6} {shared:7} {local:6}  {short(name)}")
        allowed = max((bytes_ for part, bytes_, _ in MAY_HAVE_STACK if part in name), default=0)
        if local > 0 or stack > allowed:
            wrong.append(f"{short(name)} ({arch}): {stack} bytes of stack, {local} of local memory, "
                         f"{allowed} allowed: {name}")
        if "launch_constant_memory" in name or "launch_global_memory" in name:
            wrong.append(f"{short(name)} ({arch}) is handed over in constant or global memory, which the host waits "
                         f"for and no graph can hold: {name}")
    for line in wrong:
        print("FAILED:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
