#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over our own C and C++ sources, as build/dev compiles them.
#     scripts/tidy.sh              every file
#     scripts/tidy.sh FILE...      those
#     scripts/tidy.sh --changed    what differs from the merge base with origin/main or, on that branch itself, from what it
#                                  was 20 commits ago; of a header, up to three sources beside it that include it; at most
#                                  16 files, those that were changed last
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

have_command clang-tidy || die "clang-tidy is missing (Debian: clang-tidy libomp-dev)"
[ -f build/dev/compile_commands.json ] || die "configure first: cmake --preset dev"

changed_files() {
    local base
    base=$(git merge-base HEAD origin/main 2> /dev/null || true)
    if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
        base=$(git rev-parse --verify --quiet HEAD~20 || git rev-list --max-parents=0 HEAD | tail -n 1)
    fi
    {
        git diff --name-only --diff-filter=d HEAD -- '*.c' '*.cpp' '*.h' '*.hpp'
        git log --format= --name-only --diff-filter=d "$base..HEAD" -- '*.c' '*.cpp' '*.h' '*.hpp'
    } | while read -r file; do
        [ -e "$file" ] || continue
        case "$file" in
            *.c | *.cpp) echo "$file" ;;
            *) git grep -lE "#include \"(.*/)?$(basename "$file")\"" -- "$(dirname "$file")/*.c" "$(dirname "$file")/*.cpp" |
                head -n 3 || true ;;
        esac
    done | awk '!seen[$0]++' | head -n 16
}

if [ "${1:-}" = --changed ]; then
    mapfile -t files < <(changed_files)
    [ "${#files[@]}" -gt 0 ] || { echo "no C or C++ file differs"; exit 0; }
    set -- "${files[@]}"
fi
mkdir -p build/dev/tidy
# The same commands without the flags that only gcc knows; prints the files that are ours.
python3 - "$@" > build/dev/tidy/files << 'END'
import json, os, re, sys

# Not what nvcc compiles: clang 14 knows neither its options nor this CUDA's headers. Nor precompiled headers of gcc's.
commands = [e for e in json.load(open("build/dev/compile_commands.json")) if "/nvcc " not in e["command"]]
for entry in commands:
    entry["command"] = entry["command"].replace(" -fno-gnu-unique", "").replace(" -Werror", "")
    entry["command"] = re.sub(r" -fpch-preprocess| -Winvalid-pch| -include \S*cmake_pch\.hxx", "", entry["command"])
    entry["command"] = re.sub(r" -fno-(tree-\S+|ipa-\S+|thread-jumps|crossjumping|extern-tls-init)", "", entry["command"])
json.dump(commands, open("build/dev/tidy/compile_commands.json", "w"))
wanted = {os.path.abspath(name) for name in sys.argv[1:]}
ours = sorted({e["file"] for e in commands if not e["file"].startswith(os.path.abspath("build") + "/")})
print("\n".join(f for f in ours if not wanted or f in wanted))
END
[ -s build/dev/tidy/files ] || { echo "none of these files is compiled by build/dev"; exit 0; }
echo "$(wc -l < build/dev/tidy/files) files"
xargs -P "$cores" -n 1 clang-tidy -p build/dev/tidy --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option < build/dev/tidy/files \
    2> >(grep -vE '^[0-9]+ warnings? (generated|treated)' >&2 || true)
