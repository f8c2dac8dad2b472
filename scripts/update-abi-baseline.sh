#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes what the ABI checks compare with, from the dev build: tests/abi/layout.golden and the abidw baseline.
# For a release, or for a change that only adds. The commit says why.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

have_command abidw || die "abidw is missing (Debian: abigail-tools)"
build_preset dev mixedprec abi_layout
python3 tests/abi/layout.py update build/dev/tests/abi/abi_layout
python3 tests/abi/check_baseline.py build/dev/lib/libmixedprec.so --update
git --no-pager diff --stat -- tests/abi
