#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats our C, C++ and CUDA files by .clang-format; with --check only says which differ, and what is over the limits of
# scripts/limits.py.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

have_command clang-format || die "clang-format is missing (Debian: clang-format)"
# Frozen copies of old headers stay as they were released.
files() {
    git ls-files -z --cached --others --exclude-standard -- \
        '*.c' '*.h' '*.cpp' '*.hpp' '*.cu' '*.cuh' ':!tests/abi/clients/*/include'
}
if [ "${1:-}" = --check ]; then
    verdict=0
    python3 scripts/limits.py || verdict=1
    files | xargs -0 -r -P "$cores" -n 1 sh -c \
        'clang-format --dry-run --Werror "$0" 2> /dev/null || { echo "not formatted: $0"; exit 1; }' || verdict=1
    exit $verdict
else
    files | xargs -0 -r -P "$cores" -n 8 clang-format -i
fi
