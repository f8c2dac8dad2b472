# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share. Sourced, not run.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)
logs="$root_dir/build/logs"
failed_steps=()

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
# Shown by `step` also when all is well.
note() { say "NOTE: $*"; }
die() {
    say "$*"
    exit 1
}
have_command() { command -v "$1" > /dev/null; }

# step <heading> <command...>: runs it with its output in build/logs, prints the heading, the verdict and the seconds;
# on failure also the end of the log. Returns the command's verdict and remembers it in failed_steps.
step() {
    local heading=$1 start=$SECONDS log
    shift
    mkdir -p "$logs"
    log="$logs/$(printf '%s' "$heading" | tr -cs '[:alnum:]' '-').log"
    printf '== %-58s ' "$heading"
    if "$@" > "$log" 2>&1 < /dev/null; then
        printf 'ok     %4d s\n' $((SECONDS - start))
        sed -n 's/^.*: NOTE: /   note: /p' "$log"
        return 0
    fi
    printf 'FAILED %4d s\n' $((SECONDS - start))
    failed_steps+=("$heading")
    tail -n 80 "$log" | sed 's/^/   | /'
    printf '   the whole log: %s\n' "${log#"$root_dir"/}"
    return 1
}

# A compiler cache, where there is one, also serves a clone in another folder.
if have_command ccache; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR="$root_dir" CCACHE_NOHASHDIR=1
fi
# NVIDIA's packages leave this to the user.
have_command nvcc || PATH="$PATH:/usr/local/cuda/bin"

# Configures and builds one preset; further words are targets, or options of the configuration (-D...).
build_preset() {
    local preset=$1 targets=() options=() word
    shift
    for word in "$@"; do
        case "$word" in
            -D*) options+=("$word") ;;
            *) targets+=("$word") ;;
        esac
    done
    (cd "$root_dir" && cmake --preset "$preset" "${options[@]}" &&
        cmake --build --preset "$preset" --parallel "$cores" ${targets[*]:+--target "${targets[@]}"})
}
