#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header alone, twice over, is clean C99, C11 and C++17.

usage: check_headers.py C_COMPILER CXX_COMPILER
"""
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wundef", "-pedantic-errors", "-Werror", "-fsyntax-only"]


def main():
    c_compiler, cxx_compiler = sys.argv[1:]
    modes = [([c_compiler, "-std=c99", "-Wstrict-prototypes", *WARNINGS], ".c"),
             ([c_compiler, "-std=c11", "-Wstrict-prototypes", *WARNINGS], ".c"),
             ([cxx_compiler, "-std=c++17", *WARNINGS], ".cpp")]
    runs = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for header in headers.header_files():
            name = header.relative_to(headers.INCLUDE).as_posix()
            for command, suffix in modes:
                source = Path(folder, "alone" + suffix)
                source.write_text(f'#include "{name}"\n#include "{name}"\nint alone(void);\nint alone(void) {{ return 0; }}\n')
                result = subprocess.run([*command, "-I", str(headers.INCLUDE), str(source)], capture_output=True, text=True)
                runs += 1
                if result.returncode:
                    failures += 1
                    print(f"{name}: {' '.join(command[:2])}\n{result.stderr}")
    print(f"{runs} compilations, {failures} failed")
    return 1 if failures or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
