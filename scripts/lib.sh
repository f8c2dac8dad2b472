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

# Configures and builds one preset; further words are targets.
build_preset() {
    local preset=$1
    shift
    (cd "$root_dir" && cmake --preset "$preset" &&
        cmake --build --preset "$preset" --parallel "$cores" ${*:+--target "$@"})
}
