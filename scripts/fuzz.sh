#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes one target of tests/fuzz with libFuzzer, under the address and undefined-behaviour sanitizers:
#     scripts/fuzz.sh recipe_json [SECONDS]
# Library and target are built by clang with coverage in build/fuzz; new inputs and a crash stay in build/fuzz/<target>.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

target=${1:-} seconds=${2:-60}
targets=$(cd tests/fuzz && ls -- *.cpp | grep -vx main.cpp | sed 's/\.cpp$//' | tr '\n' ' ')
case " $targets" in
    *" $target "*) ;;
    *) die "usage: scripts/fuzz.sh TARGET [SECONDS], TARGET one of: $targets" ;;
esac
have_command clang++ || die "clang++ is missing (Debian: clang)"
coverage=-fsanitize=fuzzer-no-link
mkdir -p build
exec 9> build/fuzz.lock
flock 9 # others may build there
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMIXEDPREC_SANITIZE=address,undefined \
    -DMIXEDPREC_ENABLE_EXAMPLES=OFF -DMIXEDPREC_ENABLE_TOOLS=OFF -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DCMAKE_C_FLAGS="$coverage" -DCMAKE_CXX_FLAGS="$coverage"
cmake --build build/fuzz --parallel "$cores" --target "libfuzzer_$target"
exec 9>&-
folder=build/fuzz/$target
mkdir -p "$folder/corpus"
export ASAN_OPTIONS=intercept_tls_get_addr=0 # cmake/MixedprecTargets.cmake says why
# Long inputs from the start: a short one ends before a sequence of calls, or a mutation, begins.
exec "build/fuzz/tests/fuzz/libfuzzer_$target" -max_total_time="$seconds" -len_control=0 \
    -artifact_prefix="$folder/" "$folder/corpus"
