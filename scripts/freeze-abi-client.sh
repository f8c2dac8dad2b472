#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Freezes the public headers of a release for its old client: tests/abi/clients/<version>/include. From then on that
# client is compiled against this copy and run against every later library.
# usage: scripts/freeze-abi-client.sh v0_2
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

[[ "${1:-}" =~ ^v[0-9]+_[0-9]+$ ]] || die "usage: scripts/freeze-abi-client.sh v<major>_<minor>"
client="tests/abi/clients/$1"
[ -f "$client/client.c" ] || die "$client/client.c is missing: write the program first"
[ ! -e "$client/include" ] || die "$client/include exists: a released header is never changed"
cp -r capi/include "$client/include"
