#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over our own C and C++ sources, as build/dev compiles them. Arguments, if any, name the files.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

have_command clang-tidy || die "clang-tidy is missing (Debian: clang-tidy libomp-dev)"
[ -f build/dev/compile_commands.json ] || die "configure first: cmake --preset dev"
mkdir -p build/dev/tidy
# The same commands without the flags that only gcc knows; prints the files that are ours.
python3 - "$@" > build/dev/tidy/files << 'END'
import json, os, sys

# Not what nvcc compiles: clang 14 knows neither its options nor this CUDA's headers.
commands = [e for e in json.load(open("build/dev/compile_commands.json")) if "/nvcc " not in e["command"]]
for entry in commands:
    entry["command"] = entry["command"].replace(" -fno-gnu-unique", "").replace(" -Werror", "")
json.dump(commands, open("build/dev/tidy/compile_commands.json", "w"))
wanted = {os.path.abspath(name) for name in sys.argv[1:]}
ours = sorted({e["file"] for e in commands if not e["file"].startswith(os.path.abspath("build") + "/")})
print("\n".join(f for f in ours if not wanted or f in wanted))
END
[ -s build/dev/tidy/files ] || die "none of these files is compiled by build/dev"
xargs -P "$cores" -n 1 clang-tidy -p build/dev/tidy --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option < build/dev/tidy/files 2> >(grep -vE '^[0-9]+ warnings? (generated|treated)' >&2 || true)
