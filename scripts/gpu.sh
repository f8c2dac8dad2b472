#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA module's tests and benchmarks on another machine, which has a GPU and need have nothing else of ours: no network,
# no oneDNN, no MPI, no build.
#     scripts/gpu.sh pack               builds here and packs programs, libraries, fixtures into .gpu/bundle.tar.gz, and what
#                                       a build needs beside this checkout and a toolkit into .gpu/sources.tar.gz
#     scripts/gpu.sh run PHASE [FOLDER] there, in the same checkout with .gpu beside it, at most 9 minutes each:
#                  1  facts, all numbers through every codec, all tests, one-rank NCCL, graphs, random walks, memcheck
#                  2  benchmarks beside copies of memory, raw cuBLASLt and, where it is there, torch
#                  3  machine counters of a step and a layer by ncu; racecheck, initcheck, synccheck
#     scripts/gpu.sh rebuild            there: builds this checkout, and packs it in place of what came
# A run writes summary.txt, facts.txt, bench.json and logs.tar.gz (with JUnit's files) to FOLDER (default: $OUT).
# It never stops at a failure. Without a GPU every step says "skipped: no CUDA device", so that the script can be tried
# anywhere.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

programs=(backends_tests cuda_device cuda_library cuda_codecs cuda_one_rank cuda_graphs_tests mixedprec_bench)

# make_bundle <build folder>
make_bundle() {
    local build=$1 bundle program library
    bundle=$(mktemp -d)
    mkdir -p "$bundle/bin" "$bundle/lib" .gpu
    for program in "${programs[@]}"; do
        strip -o "$bundle/bin/$program" "$(find "$build" -name "$program" -type f -perm -u+x)" || return 1
    done
    for library in libmixedprec.so.0 libmixedprec-cuda.so; do
        strip --strip-unneeded -o "$bundle/lib/$library" "$build/lib/$library" || return 1
    done
    cp "$(ldd "$bundle/bin/mixedprec_bench" | awk '$1 == "libgomp.so.1" { print $3 }')" "$bundle/lib/" || return 1
    cp -r tests/fixtures "$bundle/fixtures"
    git describe --always --dirty > "$bundle/commit"
    tar -C "$bundle" -c . | gzip -9 > .gpu/bundle.tar.gz || return 1
    rm -rf "$bundle"
    ls -l .gpu/bundle.tar.gz
}

# Kokkos, GoogleTest and nlohmann-json, as they lie here.
make_sources() {
    local sources
    sources=$(mktemp -d)
    mkdir -p "$sources/include" "$sources/share/cmake"
    cp -r "$(find "${MIXEDPREC_CACHE_DIR:-.cache}" -maxdepth 2 -type d -path '*kokkos-*/source')" "$sources/kokkos" || return 1
    cp -r /usr/src/googletest "$sources/googletest" || return 1
    cp -r /usr/include/nlohmann "$sources/include/" && cp -r /usr/share/cmake/nlohmann_json "$sources/share/cmake/" || return 1
    tar -C "$sources" -c . | gzip -9 > .gpu/sources.tar.gz || return 1
    rm -rf "$sources"
    ls -l .gpu/sources.tar.gz
}

pack() {
    build_preset gpu mixedprec mixedprec_cuda "${programs[@]}" || exit 1
    rm -rf .gpu
    make_bundle build/gpu || exit 1
    make_sources || exit 1
}

rebuild() {
    local sources
    sources=$(mktemp -d)
    tar -C "$sources" -xzf .gpu/sources.tar.gz || die "there is no .gpu/sources.tar.gz: scripts/gpu.sh pack makes it"
    cmake --preset gpu -B build/gpu-rebuilt -DMIXEDPREC_KOKKOS=bundled -DMIXEDPREC_KOKKOS_SOURCE_DIR="$sources/kokkos" \
        -DMIXEDPREC_CACHE_DIR="$sources/cache" -DMIXEDPREC_GTEST_SOURCE_DIR="$sources/googletest" \
        -DCMAKE_PREFIX_PATH="$sources" -DMIXEDPREC_WERROR=OFF || exit 1
    cmake --build build/gpu-rebuilt --parallel "$cores" --target mixedprec mixedprec_cuda "${programs[@]}" || exit 1
    make_bundle build/gpu-rebuilt || exit 1
    rm -rf "$sources"
}

# Of a library that may lie in a Python package only.
find_library() {
    ldconfig -p | grep -q "$1" && return
    find / -name "$1" -not -path '/proc/*' -print -quit 2> /dev/null
}

facts() {
    cat "$bundle/commit"
    nvidia-smi -q 2>&1 | head -n 120
    nvcc --version 2>&1 | tail -n 2
    lscpu | head -n 25
    echo "cuBLASLt: ${MIXEDPREC_CUBLASLT_LIBRARY:-by its name}, NCCL: ${MIXEDPREC_NCCL_LIBRARY:-by its name}"
    ldd "$bundle/lib/libmixedprec-cuda.so"
}

# run_step <name> <seconds> <command...>: one line in summary.txt, with what the program said of its tests.
run_step() {
    local name=$1 limit=$2 start=$SECONDS code=0 verdict
    shift 2
    GTEST_OUTPUT="xml:$out/junit-$name.xml" timeout -k 5 "$limit" "$@" > "$out/$name.txt" 2>&1 < /dev/null || code=$?
    verdict=$(grep -aE '^skipped|SKIPPED|PASSED|FAILED TEST|differ$|bits:|ERROR SUMMARY' "$out/$name.txt" | tail -n 1)
    grep -aq 'skipped: no CUDA device' "$out/$name.txt" && { [ "$code" = 0 ] || [ "$code" = 77 ]; } &&
        verdict="skipped: no CUDA device"
    case $code in
        0 | 77) code=ok ;;
        124) code="STOPPED after $limit s" ;;
        *) code="FAILED ($code)" ;;
    esac
    printf '%-28s %-22s %4d s  %s\n' "$name" "$code" $((SECONDS - start)) "$verdict" | tee -a "$results/summary.txt"
}

# run_with <tool> <name> <seconds> <command...>: a step by a program of the toolkit, or a line that says why not.
run_with() {
    local tool=$1 name=$2 why=
    shift 2
    have_command "$tool" || why="there is no $tool"
    [ "$has_device" = yes ] || why="no CUDA device"
    if [ -z "$why" ]; then
        run_step "$name" "$@"
    else
        printf '%-28s %-22s %4d s  skipped: %s\n' "$name" ok 0 "$why" | tee -a "$results/summary.txt"
    fi
}

shards_of_backends() {
    local shards=8 i pids=() failed=0
    for ((i = 0; i < shards; ++i)); do
        GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i GTEST_OUTPUT="xml:$out/junit-$i.xml" \
            "$bundle/bin/backends_tests" '--gtest_filter=*/cuda' > "$out/backends-$i.txt" 2>&1 < /dev/null &
        pids+=($!)
    done
    for i in "${pids[@]}"; do
        wait "$i" || failed=1
    done
    grep -ahE 'skipped: no CUDA device' "$out"/backends-?.txt | sort | uniq -c
    grep -ahE '^\[  (PASSED|FAILED)' "$out"/backends-?.txt | sort | uniq -c
    return $failed
}

# Small tests of each hand-written kind of kernel.
some_tests='--gtest_filter=*Cast.*/cuda:*Amax.*/cuda:*ColumnSum.*/cuda:*Dequantize.*/cuda:*SumParts.*/cuda'

# Of the tests that the simulated device has: the same calls, graphs by CUDA's own run time.
graphs() {
    [ "$has_device" = yes ] || { echo "skipped: no CUDA device" && return; }
    "$bundle/bin/cuda_graphs_tests" "$@"
}

phase_1() {
    export MP_CUDA_RUNTIME
    MP_CUDA_RUNTIME=$(find_library libcudart.so.13)
    MP_CUDA_RUNTIME=${MP_CUDA_RUNTIME:-libcudart.so.13}
    export has_device bundle
    run_step device 60 "$bundle/bin/cuda_device" & # each has processors of its own, and little for the GPU to do
    run_step library 60 "$bundle/bin/cuda_library" &
    run_step one-rank-nccl 60 "$bundle/bin/cuda_one_rank" '--gtest_filter=*/nccl' &
    run_step graphs 60 "$0" graphs '--gtest_filter=Recipes/Graphs.*' &
    MP_WALK_STEPS=2000 run_step walks 90 "$0" graphs '--gtest_filter=Walks.*' &
    run_step codecs 100 "$bundle/bin/cuda_codecs" &
    wait
    run_step backends 180 "$0" shards "$bundle" "$out"
    run_with compute-sanitizer memcheck 80 compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$bundle/bin/backends_tests" "$some_tests"
}

# bench <cases whose names begin so> <seconds>: their rows, of whatever was measured in that time, to bench-<cases>.json.
bench() {
    local cases=$1 limit=$2
    run_step "bench-$cases" $((limit + 30)) sh -c '"$0" --device cuda --elements 134217728 --only "$1 " --seconds "$2" > "$3"' \
        "$bundle/bin/mixedprec_bench" "$cases" "$limit" "$out/bench-$cases.json"
}

phase_2() {
    bench gemm 90
    bench layer 90
    bench adamw 120
    bench quantize 60
    bench cast 40
    bench amax 20
    run_step torch 60 python3 bench/compare_torch_gpu.py
    cp "$out/torch.txt" "$out/bench-torch.json"
    cat "$out"/bench-*.json > "$out/bench.json"
}

phase_3() {
    local metrics=gpu__time_duration.sum,dram__bytes.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
    local tool name only
    # What is launched first makes the numbers; the last words end the program once all are counted.
    while IFS='|' read -r name only; do
        run_with ncu "ncu-$name" 40 ncu --csv --clock-control none --metrics "$metrics" \
            --launch-skip 16 --launch-count 18 --kill yes \
            "$bundle/bin/mixedprec_bench" --device cuda --elements $((1 << 26)) --only "$only"
    done << 'TEXT'
adamw|adamw bf16 everywhere, Kahan
adamw-scaled|adamw MS-AMP O2
layer-current|layer fp8_current 4096
layer-block|layer fp8_block 4096
quantize-mx|quantize mx 1x32 bf16
quantize-block|quantize block 128x128 bf16
TEXT
    for tool in racecheck initcheck synccheck; do
        run_with compute-sanitizer "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$bundle/bin/backends_tests" "$some_tests"
    done
}

run() {
    local phase=$1 library
    out=${2:-${OUT:-}}
    [ -n "$out" ] && declare -F "phase_$phase" > /dev/null || die "usage: scripts/gpu.sh run 1|2|3 FOLDER, or with OUT set"
    mkdir -p "$out"
    results=$(cd "$out" && pwd)
    out=$(mktemp -d) # few files come back from some machines
    bundle=$(mktemp -d)
    tar -C "$bundle" -xzf .gpu/bundle.tar.gz || die "there is no .gpu/bundle.tar.gz: scripts/gpu.sh pack makes it"
    export MP_FIXTURE_DIR="$bundle/fixtures" MIXEDPREC_MODULE_PATH="$bundle/lib"
    export LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    library=$(find_library libcublasLt.so.13)
    [ -z "$library" ] || export MIXEDPREC_CUBLASLT_LIBRARY=$library
    library=$(find_library libnccl.so.2)
    [ -z "$library" ] || export MIXEDPREC_NCCL_LIBRARY=$library
    : > "$results/summary.txt"
    facts > "$results/facts.txt" 2>&1
    has_device=yes
    "$bundle/bin/mixedprec_bench" --device cuda --brief --only nothing > /dev/null 2>&1
    [ $? != 77 ] || has_device=no
    "phase_$phase"
    tar -C "$out" -czf "$results/logs.tar.gz" .
    [ ! -f "$out/bench.json" ] || cp "$out/bench.json" "$results/"
    rm -rf "$out" "$bundle"
}

case "${1:-}" in
    pack) pack ;;
    rebuild) rebuild ;;
    run) run "${2:-}" "${3:-}" ;;
    shards) # itself, since timeout runs programs only
        bundle=$2 out=$3
        shards_of_backends
        ;;
    graphs) graphs "${@:2}" ;; # likewise
    *) sed -n '3,16s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
