#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library for another processor: cross-compiled for aarch64, its bits compared with those of the library here, and its
# tests of numerics, kernels and optimizer, all under qemu.
#     scripts/aarch64.sh           without Kokkos, and the comparison alone
#     scripts/aarch64.sh --all     with it, and the tests
# Exit code 77: there is no compiler for it, or no qemu.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

tests=''
kokkos=OFF
programs=()
case "${1:-}" in
    --all)
        kokkos=ON
        tests='^(numerics|kernels|machines)_|^backends_(adamw|optimizer)|^core_optimizer|^capi_(optimizer|step_pointers)'
        ;;
    "") ;;
    *) die "usage: scripts/aarch64.sh [--all]" ;;
esac
for command in aarch64-linux-gnu-g++ qemu-aarch64; do
    if ! have_command "$command"; then
        say "skipped: there is no $command (scripts/setup.sh --checks installs it)"
        exit 77
    fi
done

compare() {
    local programs=("$root_dir"/build/{dev,aarch64}/tests/machines/machines_bits)
    python3 tests/machines/compare.py --brief "${programs[0]}" \
        --machine aarch64 baseline avx2 "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu ${programs[1]}"
}

step "build what aarch64 is compared with (dev)" build_preset dev machines_bits || exit 1
step "configure for aarch64" cmake --preset aarch64 -DMIXEDPREC_ENABLE_KOKKOS=$kokkos || exit 1
[ -z "$tests" ] || mapfile -t programs < <(python3 tests/machines/emulated_tests.py --programs build/aarch64 "$tests")
step "build for aarch64" build_preset aarch64 machines_bits "${programs[@]}" || exit 1
step "compare the bits of aarch64 with those here" compare && sed 's/^/   /' "$last_log" || true
if [ -n "$tests" ]; then
    step "test aarch64" run_tests aarch64 -R "$tests" || true
    summary_of "$last_log"
fi
finish
