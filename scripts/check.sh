#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/test.sh leaves out: other processors, machines and MPIs, each optional part missing, CUDA on the simulated
# device, HIP compiled, sanitizers, linters. Run test.sh before it. What each part is and how long it takes: docs/testing.md.
#     scripts/check.sh [PART...]    those named, or all of them
#     scripts/check.sh --all        these parts in full, and every long run: two and a half hours. Once before an issue is closed
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

all=no
if [ "${1:-}" = --all ]; then
    all=yes
    shift
fi
parts=("$@")
if [ "${#parts[@]}" = 0 ]; then
    parts=(format tidy cuda frameworks programs docs isas bits emulated aarch64 fresh without mpi asan)
    [ "$all" = no ] || parts+=(hip llama tsan long)
fi

format() { step "clang-format" scripts/format.sh --check; }

tidy() {
    if [ "$all" = yes ]; then
        step "clang-tidy, every file" scripts/tidy.sh
    else
        step "clang-tidy, files that differ" scripts/tidy.sh --changed
    fi
}

# The module compiles and links; its kernels and host code run on a simulated device. Then what else is slow.
cuda() {
    local cuda=ON
    if ! have_command nvcc; then
        cuda=OFF
        echo "== the CUDA module: LEFT OUT, there is no nvcc on this machine"
        [ "${CI:-}" != true ] || failed_steps+=("the CUDA module: CI must compile it")
    fi
    step "build with CUDA $cuda and benchmarks" build_preset dev \
        -DMIXEDPREC_ENABLE_CUDA=$cuda -DMIXEDPREC_ENABLE_BENCH=ON || return
    [ "$all" = no ] || export MP_ALL_RECIPES=1
    step "test CUDA on the simulated device, and slow tests" run_tests dev -L 'cuda|slow|needs_cuda_module'
    summary_of "$last_log"
}

# The examples over other people's frameworks. test.sh runs them where the frameworks are; set-up for these checks brings them.
frameworks() {
    step "libtorch, ggml, torch in Python, and Zig" run_tests dev -R '^bindings_(cpp_libtorch|cpp_ggml|python_torch|zig)$'
    summary_of "$last_log"
}

# What the programs leave for other programs: completions in each shell, the trainer's report in a browser.
programs() {
    step "completions in bash, zsh, fish; the report in chromium" \
        run_tests dev -R '^(mixedprec_completions|train_report_browser)$'
    summary_of "$last_log"
}

# The reference and the guide as pages; what doxygen warns of fails.
docs() { step "reference and guide" scripts/docs.sh; }

# hipcc compiles the module for AMD GPUs; its host code runs on a runtime of the tests. No kernel of it has ever run.
hip() {
    step "build the HIP module" build_preset hip mixedprec_hip hip_load hip_device hip_library || return
    step "test its symbols, its refusals and its host code" run_tests hip -L hip
    summary_of "$last_log"
}

# The adapters and models that are written, by the program that they are for.
llama() { step "llama.cpp reads an adapter and a model" scripts/llama.sh; }

# The tests that the instruction set in use makes a difference to, with less than this processor has.
isas() {
    local isa tests='^(host_|capi_(gemm|linear|quant|tensor|optimizer|step_pointers)|core_(optimizer|automatic)'
    tests+='|train_torch|example_torch)'
    for isa in avx2 baseline; do
        step "test with MIXEDPREC_ISA=$isa" \
            env MIXEDPREC_ISA=$isa DNNL_MAX_CPU_ISA=$([ $isa = avx2 ] && echo AVX2 || echo SSE41) \
            ctest --preset dev -j "$cores" -R "$tests"
    done
}

bits() {
    step "the same bits in 200 processes on busy cores" python3 tests/system/training_bits.py \
        build/dev/tests/system/system_training_bits 200
}

emulated() {
    step "other processors, under qemu" scripts/emulated.sh $([ "$all" = no ] || echo --all)
    sed -n 's/^not run here/   &/p' "$last_log"
}
aarch64() {
    step "aarch64, under qemu" scripts/aarch64.sh $([ "$all" = no ] || echo --all)
    sed -n '/^== /p' "$last_log" | sed 's/^/   /'
}
fresh() {
    local name
    for name in $([ "$all" = no ] && echo old || echo root user packages old); do
        step "fresh minimal system: $name" scripts/fresh_root.sh "$name"
        grep '^ *== ' "$last_log" | sed 's/^/   /' || true
    done
}
without() { step "optional parts missing" scripts/without.sh $([ "$all" = yes ] || echo mpi onednn cli11 kokkos); }

mpi() {
    step "test MPICH" scripts/mpi.sh mpich
    [ "$all" = no ] || step "test Open MPI 5" scripts/mpi.sh openmpi5
}

# What has tests labelled threads, and no more: a test that is not built here fails. Those of CUDA need the headers that the
# simulated device needs.
with_threads() {
    echo comm_tests comm_nccl_control_flow_only checkpoint_tests host_tests capi_tests mixedprec_train
    ! have_command nvcc || echo mp_simulated_cuda cuda_graphs_tests cuda_library cuda_one_rank
}

# Address and undefined behaviour. What takes minutes to compile so only in full: Kokkos, kernels, numerics, core, programs.
asan() {
    local labels='capi|model|checkpoint|threads|fuzz' options=(-DMIXEDPREC_ENABLE_KOKKOS=OFF -DMIXEDPREC_ENABLE_TOOLS=OFF
        -DMIXEDPREC_HOST_ISAS=avx2) targets=(comm_tests comm_nccl_control_flow_only checkpoint_tests capi_tests capi_basic
        capi_allocation_failure checkpoint_allocation_tests model_tests model_allocation_tests checkpoint_kill
        bindings_cpp_classes bindings_cpp_expected
        $(cd tests/fuzz && ls -- *.cpp | grep -vx main.cpp | sed 's/^/fuzz_/; s/\.cpp$//'))
    # Not what runs the same code many times over: whole layers, all pairs, sizes and numbers of ranks, every damaged header.
    local many='host_.*|cuda_.*|capi_(linear_fp8.*|equal_bits.*|many|plan_tensors)|checkpoint_reshard|model_hostile_headers'
    many+='|comm_(zero_(hybrid|nodes)|progress_(bits|simulation))'
    local except=(-E "^($many)\$")
    if [ "$all" = yes ]; then
        targets=(all)
        labels='.*'
        options=(-DMIXEDPREC_ENABLE_KOKKOS=ON -DMIXEDPREC_ENABLE_TOOLS=AUTO "-DMIXEDPREC_HOST_ISAS=avx2;avx512")
        except=()
    fi
    step "build asan (address and undefined behaviour)" build_preset asan "${options[@]}" "${targets[@]}" || return
    step "test asan" run_tests asan -L "$labels" -LE slow "${except[@]}"
}

tsan() {
    step "build tsan" build_preset tsan -DMIXEDPREC_ENABLE_MPI=OFF $(with_threads) || return
    step "test tsan" run_tests tsan -L threads -LE slow
}

# Two or three minutes of each; scripts/stress.sh NAME and scripts/fuzz.sh NAME SECONDS go on for as long as is wanted. Those
# whose processes are killed or wait for deadlines run alone, the others beside each other.
long() {
    local name
    local -A counts=([kill]=5000 [training]=40 [lost]=8 [headers]=20000000 [manifests]=5000000 [folders]=40000 [calls]=20000
        [bits]=1500 [bits-matrix]=4000 [graphs]=100000)
    for name in kill training lost resume; do
        step "stress $name ${counts[$name]:-}" scripts/stress.sh "$name" ${counts[$name]:-}
        tail -n 1 "$last_log" | sed 's/^/   /'
    done
    together < <(
        for name in $(scripts/stress.sh | sed -n 's/^  \([a-z-]*\) .*/\1/p'); do
            case "$name" in kill | training | lost | resume) continue ;; esac
            [ "$name" != graphs ] || have_command nvcc || continue
            echo "stress $name ${counts[$name]:-}|scripts/stress.sh $name ${counts[$name]:-}"
        done
        for name in tests/fuzz/*.cpp; do
            name=$(basename "$name" .cpp)
            [ "$name" = main ] || echo "fuzz $name|scripts/fuzz.sh $name 60"
        done
    )
    have_command nvcc || echo "== stress graphs: LEFT OUT, there is no nvcc on this machine"
}

step "install what is missing (minutes, the first time)" scripts/setup.sh --tests --checks || exit 1
for part in "${parts[@]}"; do
    declare -F "$part" > /dev/null || die "there is no part '$part'"
    "$part"
done
finish
