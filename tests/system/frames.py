#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No function of the library takes more than 20 KiB of stack, whichever instruction set it is for: read off the instructions
that make its frame. Exit code 77: there is no objdump, or another processor's instructions.

usage: frames.py LIBRARY
"""
import re
import shutil
import subprocess
import sys

MOST = 20 * 1024
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
FRAME = re.compile(r"\bsub +\$0x([0-9a-f]{1,8}),%rsp")


def frames(library):
    """{function: bytes}. A large frame is made page by page, and each page counts."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", library]
    found = {}
    function = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.stdout:
            if name := FUNCTION.match(line):
                function = name[1]
            elif size := FRAME.search(line):
                bytes_ = int(size[1], 16)
                # Beyond 2^31 it is an addition.
                found[function] = found.get(function, 0) + (bytes_ if bytes_ < 1 << 31 else 0)
    return found


def main():
    if not shutil.which("objdump"):
        print("skipped: there is no objdump (Debian: apt-get install binutils)")
        return 77
    found = frames(sys.argv[1])
    ours = {name: size for name, size in found.items() if "N2mp" in name}
    if not ours:
        print("skipped: no frames of x86-64 in", sys.argv[1])
        return 77
    large = {name: size for name, size in ours.items() if size > MOST}
    for name, size in sorted(large.items(), key=lambda item: -item[1]):
        print(f"{size} bytes: {name}")
    print(f"{len(ours)} functions, the largest frame has {max(ours.values())} bytes, {len(large)} more than {MOST}")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
