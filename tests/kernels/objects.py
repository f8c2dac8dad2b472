# SPDX-License-Identifier: Apache-2.0
"""Objects compiled for more than the baseline run nothing by themselves, and lend nothing to others.

Such an object is known by the flags in the build's compile_commands.json. In each:
  - No section of initializers: they run when the library is loaded, before anybody has asked what the processor can do.
    One that did so once ended every program on every processor without AVX-512.
  - No symbol that another object could use by mistake. An inline function that is the same for the linker in two files is
    kept once. If that copy were the one compiled for AVX-512, the baseline would crash on an older machine. So every
    symbol that such an object defines, weak ones above all, must be in the namespace of its instruction set.

usage: objects.py NM READELF BUILD_FOLDER
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

LOCAL = set("tdrbNan")
FLAG = re.compile(r"-m(avx|fma|f16c|bmi|sse[34]|ssse3|amx|arch=|tune=native|popcnt|lzcnt|sve|cpu=)")
INITIALIZERS = re.compile(r"\.(preinit_array|init_array|fini_array|ctors|dtors|text\.startup)\b")
# Tests and benchmarks run on the machine that they are built on.
OURS = re.compile(r"/(core|backends|capi)/")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def beyond_the_baseline(build):
    """(source, object) of everything compiled with a flag for an instruction set."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        source = pathlib.Path(entry["file"])
        if any(FLAG.match(word) for word in words) and OURS.search(str(source)):
            yield source, pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]


def stray_symbols(nm, path, isa):
    lines = output_of(nm, "-C", "--defined-only", path).splitlines()
    if not lines:
        sys.exit(f"{path}: nm lists no symbols, so nothing was checked")
    namespace = re.compile(rf"\bmp::(kernels|backends::host)::{isa}::")
    for line in lines:
        kind, name = line.split(maxsplit=2)[1:]
        # Data of the compiler's own, the same in every file; and constant tables, which hold no instructions.
        harmless = name.startswith(("DW.ref.", "__odr_asan")) or (kind == "V" and name.startswith("mp::numerics::k"))
        if kind not in LOCAL and not namespace.search(name) and not harmless:
            yield f"{kind} {name}"


def main():
    nm, readelf, build = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    errors = []
    checked = []
    for source, path in beyond_the_baseline(build):
        if not path.exists():
            continue # of a target that was not built
        checked.append(source.stem)
        errors += [f"{source}: defines {symbol}" for symbol in stray_symbols(nm, path, source.stem)]
        # The sanitizers register each file's variables by an initializer that they compile with the file's flags.
        if "--sanitized" not in sys.argv:
            sections = output_of(readelf, "-SW", path)
            errors += [f"{source}: has {match[0]}, which runs at load" for match in INITIALIZERS.finditer(sections)]
    print("\n".join(errors))
    print(f"{len(checked)} objects checked: {', '.join(sorted(checked))}; {len(errors)} errors")
    sys.exit(1 if errors or (not checked and "--none-is-fine" not in sys.argv) else 0)


if __name__ == "__main__":
    main()
