#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the checks of the ABI compare with.
#     scripts/abi.sh layout         tests/abi/layout.golden, after a change of the headers that only adds. The commit says why
#     scripts/abi.sh freeze v0_2    once, at a release: its headers for its old client, tests/abi/clients/v0_2/include, which
#                                   that client is compiled against from then on, and the baseline that abidiff compares with
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

case "${1:-} ${2:-}" in
"layout ")
    build_preset dev abi_layout
    python3 tests/abi/layout.py update build/dev/tests/abi/abi_layout
    ;;
"freeze v"[0-9]*_[0-9]*)
    have_command abidw || die "abidw is missing (Debian: abigail-tools)"
    client="tests/abi/clients/$2"
    [ -f "$client/client.c" ] || die "$client/client.c is missing: write the program first"
    [ ! -e "$client/include" ] || die "$client/include exists: a released header is never changed"
    build_preset dev mixedprec
    python3 tests/abi/check_baseline.py build/dev/lib/libmixedprec.so --write
    cp -r capi/include "$client/include"
    ;;
*) die "usage: scripts/abi.sh layout | freeze v<major>_<minor>" ;;
esac
git --no-pager diff --stat -- tests/abi
