#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library on other processors, which qemu plays: the same bits as here, products within their bound, and a status where
# MIXEDPREC_ISA names what a processor lacks. Prints a table, and which instruction sets neither this processor nor qemu ran.
#     scripts/emulated.sh             tests/machines on a processor without AVX
#     scripts/emulated.sh --all       also on one with AVX2 and one with all that qemu has, and test programs: minutes
# Exit code 77: there is no qemu.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

# Those that look at the instruction set, and not at what a program prints: qemu prints, too.
tests='^numerics_|^kernels_(adamw|block_codes|cast|isa|quantize|reductions)$'
limit=600
build=build/dev
with_tests=no
everything=()
case "${1:-}" in
    --all) with_tests=yes ;;
    "") ;;
    *) die "usage: scripts/emulated.sh [--all]" ;;
esac
if ! have_command qemu-x86_64; then
    say "skipped: there is no qemu-x86_64 (scripts/setup.sh --checks installs it)"
    exit 77
fi

step "build for the emulated processors (dev)" build_preset dev mixedprec machines_bits || exit 1
program=$root_dir/$build/tests/machines/machines_bits
[ "$with_tests" = no ] || everything=(
    --machine Haswell avx2 avx512,avx512_vbmi "qemu-x86_64 -cpu Haswell $program"
    --machine max avx2 avx512 "qemu-x86_64 -cpu max $program")
failed=no
python3 tests/machines/compare.py "$program" \
    --machine Nehalem baseline avx2,avx512,avx512_vbmi "qemu-x86_64 -cpu Nehalem $program" "${everything[@]}" || failed=yes
if [ "$with_tests" = yes ]; then
    mapfile -t programs < <(python3 tests/machines/emulated_tests.py --programs "$build" "$tests")
    step "build the tests for the emulated processors (dev)" build_preset dev "${programs[@]}" || exit 1
    python3 tests/machines/emulated_tests.py "$build" "$tests" "$limit" Nehalem Haswell || failed=yes
fi
[ "$failed" = no ] || die "FAILED"
