#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold: builds with warnings as errors, the CUDA module too, all tests, those over MPI with other MPIs
# too, format, clang-tidy, and the tests again under the address and undefined-behaviour sanitizers. Exit code 0 only when
# all of it passed.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

run_tests() { ctest --preset "$1" -j "$cores" "${@:2}"; }
# The lines of a ctest log that say how it went, the verdict last.
summary_of() {
    sed -n '/^The following tests did not run/,/^$/p' "$1"
    grep -E '^[0-9]+% tests passed' "$1"
}
main_log=""

step "install what is missing" scripts/setup.sh --tests || exit 1
cuda=OFF
if have_command nvcc; then
    cuda=ON
elif [ "${CI:-}" = true ]; then
    say "no nvcc: CI must compile the CUDA module"
    failed_steps+=("the CUDA module")
else
    echo "== the CUDA module: LEFT OUT, there is no nvcc on this machine"
fi
if step "build dev (CUDA $cuda), warnings are errors" build_preset dev -DMIXEDPREC_ENABLE_CUDA=$cuda; then
    heading="test dev"
    step "$heading" run_tests dev
    main_log="$logs/test-dev.log"
    step "test MPICH" scripts/mpi.sh mpich
    step "test Open MPI 5" scripts/mpi.sh openmpi5
    step "clang-tidy" scripts/tidy.sh
fi
step "clang-format" scripts/format.sh --check

if step "build asan (address and undefined behaviour)" build_preset asan; then
    # Not the 300-step trainings: they run the same code, many times slower.
    step "test asan" run_tests asan -LE slow
fi

echo
[ -z "$main_log" ] || summary_of "$main_log"
if [ "${#failed_steps[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed_steps[@]}"
    exit 1
fi
