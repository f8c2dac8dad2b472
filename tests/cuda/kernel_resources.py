#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every kernel of the CUDA module takes by its machine code: registers, stack, shared and local memory of a thread or
block. A kernel that spills registers, or keeps an array in local memory, is several times slower than it looks: those that
do are named below with the reason, and no other may.

usage: kernel_resources.py MODULE    with cuobjdump as in sass.py
"""
import sys

import sass

SKIPPED = 77

# Bytes of stack that a kernel may have: a part of its demangled name, and why.
MAY_HAVE_STACK = [
    ("SumByMerges", 192, "the parts of one element, added in an order that is only known at run time"),
    ("UpdateTeams", 16, "the values of one element by array, written by a loop over arrays"),
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tool = sass.find_tool("cuobjdump")
    if tool is None:
        print("skipped: no cuobjdump (scripts/setup.sh --checks installs it)")
        return SKIPPED
    rows = sass.resources(tool, sys.argv[1])
    if not rows:
        print("no kernel was found")
        return 1
    wrong = []
    print("arch     registers  stack  shared  local  kernel")
    for row in sorted(rows, key=lambda row: (row.arch, row.short)):
        print(f"{row.arch:8} {row.registers:9} {row.stack:6} {row.shared:7} {row.local:6}  {row.short}")
        allowed = max((bytes_ for part, bytes_, _ in MAY_HAVE_STACK if part in row.name), default=0)
        if row.local > 0 or row.stack > allowed:
            wrong.append(f"{row.short} ({row.arch}): {row.stack} bytes of stack, {row.local} of local memory, "
                         f"{allowed} allowed: {row.name}")
        if "launch_constant_memory" in row.name or "launch_global_memory" in row.name:
            wrong.append(f"{row.short} ({row.arch}) is handed over in constant or global memory, which the host waits "
                         f"for and no graph can hold: {row.name}")
    for line in wrong:
        print("FAILED:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
