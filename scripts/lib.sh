# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share. Sourced, not run.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)
logs="$root_dir/build/logs"
failed_steps=()
last_log=""

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
# Shown by `step` also when all is well.
note() { say "NOTE: $*"; }
die() {
    say "$*"
    exit 1
}
have_command() { command -v "$1" > /dev/null; }

# install_pinned <package> <option of pip...>: the version in pinned.txt, if its file has one of the hashes there.
install_pinned() {
    local package=$1 wanted code=0
    wanted=$(mktemp)
    grep "^$package==" "$root_dir/scripts/pinned.txt" > "$wanted" || die "scripts/pinned.txt has no $package"
    python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore --only-binary :all: \
        --require-hashes -r "$wanted" "${@:2}" || code=$?
    rm -f "$wanted"
    return "$code"
}

# step <heading> <command...>: runs it with its output in build/logs, prints the heading, the verdict and the seconds;
# on failure also what the failed tests said and the end of the log. Returns the command's verdict and remembers it in
# failed_steps. Exit code 77 is no failure: the command said in its last line why it was skipped.
step() {
    local heading=$1 start=$SECONDS log code=0
    shift
    mkdir -p "$logs"
    log="$logs/$(printf '%s' "$heading" | tr -cs '[:alnum:]' '-').log"
    last_log=$log
    printf '== %-58s ' "$heading"
    "$@" > "$log" 2>&1 < /dev/null || code=$?
    if [ "$code" = 77 ]; then
        printf 'SKIPPED, %s\n' "$(tail -n 1 "$log" | sed 's/^.*skipped: //')"
        return 0
    fi
    if [ "$code" = 0 ]; then
        printf 'ok     %4d s\n' $((SECONDS - start))
        sed -n 's/^.*: NOTE: /   note: /p' "$log"
        return 0
    fi
    printf 'FAILED %4d s\n' $((SECONDS - start))
    failed_steps+=("$heading")
    { sed -n '/\*\*\*\(Failed\|Timeout\|Exception\)/,/^ *Start /p' "$log" | head -n 200 && tail -n 40 "$log"; } | sed 's/^/   | /'
    printf '   the whole log: %s\n' "${log#"$root_dir"/}"
    return 1
}

run_tests() { ctest --preset "$1" -j "$cores" --no-label-summary "${@:2}"; }
# The lines of a ctest log that say how it went, the verdict last.
summary_of() {
    sed -n '/^The following tests did not run/,/^$/p' "$1"
    grep -E '^[0-9]+% tests passed' "$1"
}
# The end of a script of steps: names those that failed.
finish() {
    [ "${#failed_steps[@]}" = 0 ] && exit 0
    printf 'FAILED: %s\n' "${failed_steps[@]}"
    exit 1
}

# A compiler cache, where there is one: the build folders of one clone share it (MPICH, "without", the release). Clones do not:
# a precompiled header of one does not serve another.
if have_command ccache; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR="$root_dir" CCACHE_NOHASHDIR=1 CCACHE_NAMESPACE="$root_dir"
    export CCACHE_SLOPPINESS=pch_defines,time_macros # else it caches nothing that has a precompiled header
fi
# NVIDIA's packages leave this to the user.
have_command nvcc || PATH="$PATH:/usr/local/cuda/bin"

# together: steps that use one core each, as many at once as there are cores. Each line of the input is a heading, a bar, and a
# command. Prints them in that order once all are over, with the last line of each log.
together() {
    local line folder name number=0
    folder=$(mktemp -d)
    while read -r line; do
        while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n || true; done
        number=$((number + 1))
        # shellcheck disable=SC2086 # a command of words without spaces
        (step "${line%%|*}" ${line#*|} && tail -n 1 "$last_log" | sed 's/^/   /') > "$folder/$number" &
    done
    wait
    for ((name = 1; name <= number; name++)); do
        cat "$folder/$name"
        ! grep -q '^== .* FAILED ' "$folder/$name" ||
            failed_steps+=("$(sed -n '1s/^== \(.*\) FAILED .*/\1/p' "$folder/$name" | xargs)")
    done
    rm -rf "$folder"
}

# Configures and builds one preset; further words are targets, or options of the configuration (-D...). Who builds in the same
# folder waits.
build_preset() {
    local preset=$1 targets=() options=() word
    shift
    for word in "$@"; do
        case "$word" in
            -D*) options+=("$word") ;;
            *) targets+=("$word") ;;
        esac
    done
    mkdir -p "$root_dir/build"
    (cd "$root_dir" && exec 9> "build/$preset.lock" && flock 9 && cmake --preset "$preset" "${options[@]}" &&
        cmake --build --preset "$preset" --parallel "$cores" ${targets[*]:+--target "${targets[@]}"})
}
