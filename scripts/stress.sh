#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long runs of tests, of which the tests have short ones. Each prints its counts.
#     scripts/stress.sh                 lists them
#     scripts/stress.sh NAME [COUNT]    builds and runs one
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

usage() {
    cat << 'TEXT'
usage: scripts/stress.sh NAME [COUNT]
  kill        kill -9 while saving on a real disk (10000)
  training    ranks of processes killed or stopped at random moments, so many for each stage (250)
  lost        a rank lost at every message of its scenario, in every stage: by threads, and under mpirun at each so many (1)
  crash       crash states of a save, so many interleavings of the ranks (50)
  headers     mutated safetensors headers (100000000)
  manifests   mutated manifests with right checksums (100000000)
  folders     checkpoints with any file mutated, loaded on 1 to 3 ranks, so many mutations (1000000)
  calls       sequences of calls of the C API, so many, about 55 calls each (200000)
  bits        every single bit of a checkpoint of so many elements, about 7 bytes each (9300: 64 KiB)
  bits-matrix trainings in so many configurations against the plain ones, and a tenth as many with larger products (20000)
  graphs      steps of random walks on the simulated CUDA device, with captures and replays against an eager twin (1000000)
  reshard     saved on N ranks, gone on with on M: all pairs of 1 to 8, every family of recipes and stage
  resume      mixedprec_train killed at random times 200 times and resumed
TEXT
}

options=() # of the configuration
build() {
    build_preset dev "${options[@]}" "$@" > "$logs/stress-build-$1.log" 2>&1 ||
        die "the build failed: $logs/stress-build-$1.log"
}

run() {
    build "$1"
    local program
    program=$(find build/dev/tests -name "$1" -type f -perm -u+x)
    shift
    exec "$program" "$@"
}

# The same on the simulated device, which is there where the CUDA module is built.
run_simulated() {
    have_command nvcc || die "the simulated CUDA device needs nvcc"
    options=(-DMIXEDPREC_ENABLE_CUDA=ON)
    build mp_simulated_cuda
    export MIXEDPREC_MODULE_PATH="$root_dir/build/dev/tests/cuda/simulated"
    export MIXEDPREC_CUBLASLT_LIBRARY="$MIXEDPREC_MODULE_PATH/libmixedprec-cuda.so"
    run "$@"
}

# Each message of each phase in each stage, or each so many, and each way to be lost, in a run of four ranks of its own.
lost_under_mpirun() {
    local every=$1
    local ranks=build/dev/tests/comm/mpi/mpi_ranks runs=0 failures=0 stage phase count message fate
    [ -x "$ranks" ] || die "this build has no MPI module (Debian: apt-get install libopenmpi-dev openmpi-bin)"
    export MIXEDPREC_MODULE_PATH="$root_dir/build/dev/lib"
    for stage in 0 1 2 3; do
        while read -r phase count; do
            for ((message = 0; message < count; message += every)); do
                for fate in kill exit stop; do
                    runs=$((runs + 1))
                    python3 tests/comm/mpi/run.py --faults --lost 3 mpirun 4 "$ranks" lost {} 2000 \
                        "$fate" "$stage" "$phase" "$message" 0 > "$logs/stress-lost.log" 2>&1 < /dev/null || {
                        failures=$((failures + 1))
                        say "failed: $fate, stage $stage, message $message of $phase"
                        cat "$logs/stress-lost.log"
                    }
                done
            done
        done < <("$ranks" messages "$logs" 2000 "$stage")
    done
    echo "$runs ranks lost under mpirun, $failures failures"
    [ "$failures" = 0 ]
}

mkdir -p "$logs"
case "${1:-}" in
    kill) run checkpoint_kill "${2:-10000}" "$root_dir/build" ;;
    training) MP_TRIALS=${2:-250} run comm_process_tests --file=process_training ;;
    lost)
        build mpi_ranks mixedprec_mpi
        (MP_LOST_FULL=1 run comm_tests --file=lost_ranks)
        lost_under_mpirun "${2:-1}"
        ;;
    crash) MP_CRASH_SEEDS=${2:-50} run checkpoint_tests --file=crash_states ;;
    headers) run fuzz_safetensors_header "${2:-100000000}" ;;
    manifests) run fuzz_checkpoint_manifest "${2:-100000000}" ;;
    folders) run fuzz_checkpoint_folder "${2:-1000000}" ;;
    calls) run fuzz_capi_sequence "${2:-200000}" ;;
    bits) MP_DAMAGE_ELEMENTS=${2:-9300} run checkpoint_tests --file=damage --gtest_filter=Damage.EveryBit ;;
    bits-matrix)
        pairs=${2:-20000}
        (MP_BITS_PAIRS=$pairs run capi_tests --file=equal_bits)
        MP_BITS_FACTOR=4 MP_BITS_PAIRS=$((pairs / 10)) run capi_tests --file=equal_bits
        ;;
    graphs) MP_WALK_STEPS=${2:-1000000} run_simulated cuda_graphs_tests --file=simulation_walks ;;
    reshard) MP_RESHARD_FULL=1 run checkpoint_tests --file=reshard ;;
    resume)
        build mixedprec_train
        exec python3 tests/tools/resume.py build/dev/tools/train/mixedprec_train tests/fixtures --full
        ;;
    "") usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
