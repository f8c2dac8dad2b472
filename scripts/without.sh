#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures, builds and tries the library on this machine with one optional part hidden at a time, each in a mount
# namespace of its own: nothing on the disk changes. Needs root.
#     scripts/without.sh [PART...]      mpi onednn hwloc cli11 cargo julia nvcc (with hipcc) kokkos; all of them unless named
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

# What hides a part: files and folders, of which those that exist are covered.
hidden_paths() {
    local multiarch=/usr/lib/x86_64-linux-gnu
    case "$1" in
        mpi) printf '%s\n' /usr/bin/mpi* /usr/bin/ompi* /usr/bin/ortecc $multiarch/openmpi $multiarch/mpich \
            $multiarch/libmpi*.so $multiarch/libmpich*.so /usr/include/x86_64-linux-gnu/mpich /usr/lib/*/pkgconfig/*mpi*.pc ;;
        onednn) printf '%s\n' /usr/include/oneapi /usr/include/dnnl*.h* $multiarch/libdnnl.so* ;;
        hwloc) printf '%s\n' /usr/include/hwloc.h /usr/include/hwloc $multiarch/libhwloc.so* ;;
        cli11) printf '%s\n' /usr/include/CLI /usr/share/cmake/CLI11 /usr/lib/cmake/CLI11 $multiarch/cmake/CLI11 ;;
        nvcc) printf '%s\n' /usr/local/cuda "$(readlink -f /usr/local/cuda || true)" \
            "$(command -v nvcc || true)" "$(command -v hipcc || true)" ;;
        cargo | julia) printf '%s\n' "$(command -v "$1" || true)" ;;
        kokkos) printf '%s\n' "$root_dir/.cache"/kokkos-* ;; # fetched sources and what was built of them
        *) die "there is no part '$1'" ;;
    esac
}

# Runs inside the namespace.
hide() {
    local path target empty
    empty=$(mktemp -d)
    while read -r path; do
        target=$(readlink -f "$path" || true)
        if [ -d "$target" ]; then
            mount --bind "$empty" "$target"
        elif [ -f "$target" ]; then
            mount --bind /dev/null "$target"
        fi
    done < <(hidden_paths "$1")
}

# What must be said of a part that is not there, by the configuration or by the library.
try_without() {
    local part=$1 folder=build/without gpu=OFF tools=OFF kokkos=ON log tests='^(capi_basic|host_.*|system_training_bits)$'
    [ "$part" != nvcc ] || gpu=AUTO
    [ "$part" != cli11 ] || tools=AUTO
    [ "$part" != kokkos ] || kokkos=OFF
    log=$(mktemp)
    hide "$part"
    rm -f "$folder/CMakeCache.txt"
    cmake --preset dev -B "$folder" -DMIXEDPREC_ENABLE_BENCH=OFF -DMIXEDPREC_ENABLE_EXAMPLES=OFF -DMIXEDPREC_ENABLE_TOOLS=$tools \
        -DMIXEDPREC_ENABLE_CUDA=$gpu -DMIXEDPREC_ENABLE_HIP=$gpu -DMIXEDPREC_ENABLE_KOKKOS=$kokkos | tee "$log"
    case "$part" in
        mpi | onednn | hwloc) grep -qE "^--   $part: no, .* was not found" "$log" ;;
        nvcc) grep -qE '^--   cuda: no, ' "$log" && grep -qE '^--   hip: no, hipcc .* was not found' "$log" ;;
        cli11) grep -qE '^--   tools: no, CLI11 .* was not found' "$log" ;;
        cargo) grep -qE '^--   rust tests: skipped' "$log"; tests='^(bindings_rust)$' ;;
        kokkos) ! grep -q 'Kokkos (host)' "$log" ;;
        julia) grep -qE '^--   julia tests: skipped' "$log"; tests='^(bindings_julia)$' ;;
    esac || die "the configuration did not say that $part is missing"
    cmake --build "$folder" --parallel "$cores" --target mixedprec capi_basic host_tests system_training_bits
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -R "$tests"
}

if [ "${1:-}" = --inside ]; then
    try_without "$2"
    exit
fi
[ "$(id -u)" = 0 ] || { note "skipped: only root can hide parts of the system"; exit 77; }
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(mpi onednn hwloc cli11 cargo julia nvcc kokkos)
for part in "${parts[@]}"; do
    step "without $part" unshare --mount --propagation private "$0" --inside "$part" || true
done
[ "${#failed_steps[@]}" = 0 ]
