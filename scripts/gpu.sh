#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the CUDA module on another machine, which has a GPU and need have nothing else of ours: no network, no oneDNN,
# no MPI, no build.
#     scripts/gpu.sh pack           builds here and packs programs, library and fixtures into .gpu/bundle.tar.xz
#     scripts/gpu.sh run [FOLDER]   there, in the same checkout with .gpu beside it: unpacks it and runs everything, at most 9
#                                   minutes; writes summary.txt, facts.txt and logs.tar.gz to FOLDER (default: $OUT)
# It never stops at a failure. Without a GPU every step says "skipped: no CUDA device", so that the script can be tried anywhere.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

programs=(backends_tests cuda_device cuda_library cuda_codecs)

pack() {
    local build=build/gpu bundle=build/gpu-bundle program
    build_preset gpu mixedprec mixedprec_cuda "${programs[@]}" || exit 1
    rm -rf "$bundle" .gpu
    mkdir -p "$bundle/bin" "$bundle/lib" .gpu
    for program in "${programs[@]}"; do
        strip -o "$bundle/bin/$program" "$(find $build/tests -name "$program" -type f -perm -u+x)" || exit 1
    done
    for library in libmixedprec.so.0 libmixedprec-cuda.so; do
        strip --strip-unneeded -o "$bundle/lib/$library" "$build/lib/$library" || exit 1
    done
    cp -r tests/fixtures "$bundle/fixtures"
    cp tests/cuda/kernel_resources.py "$bundle/bin/"
    git describe --always --dirty > "$bundle/commit"
    tar -C "$bundle" -c . | xz -T0 -6 > .gpu/bundle.tar.xz || exit 1
    ls -l .gpu/bundle.tar.xz
}

# Of a library that may lie in a Python package only.
find_library() {
    ldconfig -p | grep -q "$1" && return
    find / -name "$1" -not -path '/proc/*' 2> /dev/null | head -n 1
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
    timeout "$limit" "$@" > "$out/$name.txt" 2>&1 < /dev/null || code=$?
    verdict=$(grep -aE '^skipped|SKIPPED|PASSED|FAILED TEST|differ$|bits:' "$out/$name.txt" | tail -n 1)
    [ "$code" = 0 ] && grep -aq 'skipped: no CUDA device' "$out/$name.txt" && verdict="skipped: no CUDA device"
    case $code in
        0) code=ok ;;
        77) code=ok ;;
        124) code="STOPPED after $limit s" ;;
        *) code="FAILED ($code)" ;;
    esac
    printf '%-28s %-22s %4d s  %s\n' "$name" "$code" $((SECONDS - start)) "$verdict" | tee -a "$out/summary.txt"
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
    rm -f "$out"/junit-[1-9].xml # so few files come back; the text of each shard has its tests
    return $failed
}

run() {
    out=${1:-${OUT:-}}
    [ -n "$out" ] || die "usage: scripts/gpu.sh run FOLDER, or with OUT set"
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    bundle=$(mktemp -d)
    tar -C "$bundle" -xJf .gpu/bundle.tar.xz || die "there is no .gpu/bundle.tar.xz: scripts/gpu.sh pack makes it"
    export MP_FIXTURE_DIR="$bundle/fixtures" MIXEDPREC_MODULE_PATH="$bundle/lib" LD_LIBRARY_PATH="$bundle/lib"
    local library
    library=$(find_library libcublasLt.so.13)
    [ -z "$library" ] || export MIXEDPREC_CUBLASLT_LIBRARY=$library
    library=$(find_library libnccl.so.2)
    [ -z "$library" ] || export MIXEDPREC_NCCL_LIBRARY=$library
    : > "$out/summary.txt"
    facts > "$out/facts.txt" 2>&1
    run_step codecs 100 "$bundle/bin/cuda_codecs"
    run_step device 60 "$bundle/bin/cuda_device"
    run_step library 60 "$bundle/bin/cuda_library"
    run_step backends 240 "$0" shards "$bundle" "$out"
    if have_command compute-sanitizer; then
        run_step memcheck 80 compute-sanitizer --tool memcheck --error-exitcode 9 "$bundle/bin/backends_tests" \
            '--gtest_filter=*Cast.*/cuda:*Amax.*/cuda:*ColumnSum.*/cuda:*Dequantize.*/cuda:*SumParts.*/cuda'
    else
        echo "memcheck                     skipped: there is no compute-sanitizer" | tee -a "$out/summary.txt"
    fi
    # Few files come back from some machines.
    (cd "$out" && tar -czf logs.tar.gz --remove-files $(ls | grep -vxE 'summary.txt|facts.txt|logs.tar.gz'))
    rm -rf "$bundle"
}

case "${1:-}" in
    pack) pack ;;
    run) run "${2:-}" ;;
    shards) # itself, since timeout runs programs only
        bundle=$2 out=$3
        shards_of_backends
        ;;
    *) sed -n '3,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
