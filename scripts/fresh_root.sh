#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a newcomer has: minimal Debian systems with nothing in them but what the project's scripts install.
#     scripts/fresh_root.sh           root, user, packages and old, one after another
#     scripts/fresh_root.sh root      Debian 12: the README's first command as root, with few steps, and a part of the second
#     scripts/fresh_root.sh user      Debian 12: the first command as a user with sudo; then the build and a short training
#                                     once more, without a network
#     scripts/fresh_root.sh packages  Debian 12: the packages that scripts/package.sh makes, first with nothing but a C compiler;
#                                     with a folder behind it, the packages that are there
#     scripts/fresh_root.sh old       Debian 11: the library that is built here, and a C program built there
# The commit at HEAD is what is tried. The first run makes the two systems with debootstrap, minutes; later ones unpack them
# from build/roots. Mounts are made in a name space of their own, so that none outlives its command. Needs root; exit
# code 77: skipped, with the reason.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

roots=$root_dir/build/roots
work=""
steps=5

# What is run in the fresh system as the part of the README's second command; the folder is the clone.
second_command_part='
    set -e
    . scripts/lib.sh
    build_preset dev mixedprec numerics_tests capi_basic machines_bits
    ctest --preset dev -R "^(numerics_formats|capi_basic|machines_here)$"'

# Runs a command in a system, as one of its users, in that user home folder. Called by in_root in a name space of its own.
inside() {
    local root=$1 user=$2 home words=() name
    shift 2
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --bind /sys "$root/sys" && mount -o remount,bind,ro "$root/sys"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    home=$(awk -F: -v user="$user" '$1 == user { print $6 }' "$root/etc/passwd")
    # Nothing of this machine's environment but the way to its package registries, and how threads wait.
    while IFS= read -r name; do
        words+=("$name=${!name}")
    done < <(compgen -e | grep -iE '^(PIP_.*|(https?|no|all)_proxy|OMP_WAIT_POLICY)$' || true)
    exec chroot "$root" su -s /bin/bash "$user" -c \
        "$(printf 'exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=%q' "$home")$(
            [ ${#words[@]} = 0 ] || printf ' %q' "${words[@]}"
        ) bash -c $(printf '%q' "cd && { $*"$'\n}')"
}
if [ "${1:-}" = --inside ]; then
    inside "${@:2}"
fi

[ "$(id -u)" = 0 ] || {
    say "skipped: needs root (mount, chroot); run it with sudo"
    exit 77
}
have_command debootstrap || scripts/setup.sh --checks
unshare --mount true 2> /dev/null || {
    say "skipped: this machine lets nobody make a name space of mounts"
    exit 77
}

# in_root [--no-network] <root> <user> <command>
in_root() {
    local network=()
    if [ "$1" = --no-network ]; then
        network=(--net)
        shift
    fi
    # Ends with all its processes where this script ends.
    unshare --mount --pid --fork --kill-child "${network[@]}" "$0" --inside "$@"
}

# Only a folder of ours, and nothing through a mount.
remove_root() {
    case "$1" in
        "$roots"/?*) ;;
        *) die "not a folder of build/roots: $1" ;;
    esac
    if grep -qF " $1/" /proc/self/mountinfo; then
        die "something is mounted below $1; it is left as it is"
    fi
    rm -rf --one-file-system "$1"
}
clean_up() {
    [ -z "$work" ] || remove_root "$work"
    work=""
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The mirror that this machine's own packages come from.
mirror_of() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk -v name="$1" '$2 == name && $3 == "main" && $4 == "Debian" { print $1; exit }'
}

# What apt, pip and name resolution need on this machine to reach their registries.
carry_settings() {
    local root=$1 file suite mirror
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
    done
    for file in /usr/local/share/ca-certificates /etc/apt/auth.conf.d; do
        [ ! -d "$file" ] || { mkdir -p "$root$file" && cp -a "$file/." "$root$file/"; }
    done
    apt-config dump Acquire | grep -v '^Acquire::\(IndexTargets\|Languages\|Changelogs\)' \
        > "$root/etc/apt/apt.conf.d/00machine"
    : > "$root/etc/apt/sources.list"
    for suite in "$2" "$2-updates" "$2-security"; do
        mirror=$(mirror_of "$suite")
        [ -z "$mirror" ] || echo "deb $mirror $suite main" >> "$root/etc/apt/sources.list"
    done
}

# make_pristine <suite> <further packages>: build/roots/<suite>.tar
make_pristine() {
    local suite=$1 mirror folder=$roots/$1.new
    mirror=$(mirror_of "$suite")
    [ -n "$mirror" ] || mirror=$(mirror_of bookworm)
    [ -n "$mirror" ] || die "no mirror of Debian in this machine's apt sources"
    mkdir -p "$roots"
    work=$folder
    clean_up
    work=$folder
    # Its mounts, too, in a name space.
    unshare --mount debootstrap --variant=minbase ${2:+--include="$2"} "$suite" "$folder" "$mirror"
    carry_settings "$folder" "$suite"
    rm -rf "$folder"/var/cache/apt/archives/*.deb
    tar -C "$folder" --numeric-owner -cf "$roots/$suite.tar.new" .
    mv "$roots/$suite.tar.new" "$roots/$suite.tar"
    clean_up
}
pristine() { [ -e "$roots/$1.tar" ] || step "make a minimal Debian system ($1)" make_pristine "$@" || exit 1; }

unpack() {
    work=$roots/work.$$
    mkdir -p "$work"
    tar -C "$work" --numeric-owner -xf "$roots/$1.tar"
}

# clone_into <home in the root> <user>
clone_into() {
    git clone --quiet --no-hardlinks --branch "$(git rev-parse --abbrev-ref HEAD)" "$root_dir" "$work$1/libmixedprec"
    chroot "$work" chown -R "$2:" "$1/libmixedprec"
}

# Runs a command in the clone and shows the times of its own steps.
in_clone() {
    local heading=$1 code=0
    shift
    step "$heading" in_root "$@" || code=1
    grep -h '^== ' "$logs/$(printf '%s' "$heading" | tr -cs '[:alnum:]' '-').log" | sed 's/^/   /' || true
    return $code
}

try_root() {
    pristine bookworm
    unpack bookworm
    clone_into /root root
    in_clone "Debian 12, root: the first command" "$work" root "cd libmixedprec && scripts/quickstart.sh --steps $steps" &&
        in_clone "Debian 12, root: a part of the second command" "$work" root "cd libmixedprec && $second_command_part"
    clean_up
}

# A system with a user who may use sudo, and the clone at home.
make_user() {
    pristine bookworm
    unpack bookworm
    step "Debian 12: a user with sudo" in_root "$work" root "
        apt-get update -qq && apt-get install -y -qq --no-install-recommends sudo &&
        useradd -m -s /bin/bash newcomer && echo 'newcomer ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/newcomer" || return 1
    clone_into /home/newcomer newcomer
}

# What a stranger does with the packages in this folder (tests/install/packages.sh). First nothing optional is there, and after
# the installation no network; then all of it is.
use_packages() {
    local script=libmixedprec/tests/install/packages.sh
    pristine bookworm
    unpack bookworm
    clone_into /root root
    cp "$1"/*.deb "$work/root"
    step "Debian 12: apt install of the packages" in_root "$work" root "$script install" &&
        step "Debian 12: plain cc, old programs, the commands" in_root --no-network "$work" root "$script use" &&
        step "Debian 12: the packages removed" in_root --no-network "$work" root "$script remove" &&
        step "Debian 12: all packages, and tools around them" in_root "$work" root "$script more" &&
        step "Debian 12: CMake, pkg-config, static, wheel, man, shells" in_root --no-network "$work" root "$script develop"
    clean_up
}
try_packages() {
    local folder=${1:-build/package/packages}
    [ $# = 1 ] || step "make the packages, lintian" scripts/package.sh || return 1
    use_packages "$folder"
}

try_user() {
    make_user || return 1
    in_clone "Debian 12, a user: the first command" "$work" newcomer \
        "cd libmixedprec && scripts/quickstart.sh --steps $steps &&
            cmake --install build/release --prefix ~/installed > install.log &&
            ~/installed/bin/mixedprec_train --list-recipes" &&
        in_clone "Debian 12, a user: the first command again, without a network" --no-network "$work" newcomer \
            "cd libmixedprec && rm -rf build && scripts/quickstart.sh --steps $steps"
    clean_up
}

# What keeps the library from loading in the old system, in its loader's words and by the names of symbols.
explain_old() {
    in_root "$work" root "LD_LIBRARY_PATH=/opt/mixedprec ldd /opt/mixedprec/libmixedprec.so.0 2>&1 | grep 'not found'" |
        sort -u || true
    objdump -T build/dev/lib/libmixedprec.so.0 | sed -nE 's/.*\(?GLIBC_2\.([0-9]+)[0-9.]*\)? +(.*)/\1 \2/p' |
        sort -n -u | awk '$1 > 31 { print "needs glibc 2." $1 ": " $2 }'
}

compile_there='cd /opt/mixedprec && gcc -std=c99 -O2 -ffp-contract=off -Wall -Werror -Iinclude machines/*.c \
    -L. -l:libmixedprec.so.0 -Wl,--allow-shlib-undefined -lm -Wl,-rpath,/opt/mixedprec -o machines_bits'

# The program is compiled there: one that is built here asks for this glibc's start code whatever it calls. It also shows
# that an older compiler takes the headers.
try_old() {
    local here=$roots/machines_bits there inside
    pristine bullseye gcc,libc6-dev
    step "build the library here (dev)" build_preset dev mixedprec || return 1
    unpack bullseye
    there=$work/opt/mixedprec
    mkdir -p "$there"
    cp -L build/dev/lib/libmixedprec.so.0 "$there/"
    cp -a capi/include tests/machines "$there/"
    gcc -std=c11 -O2 -ffp-contract=off -Icapi/include tests/machines/*.c -Lbuild/dev/lib -lmixedprec -lm \
        -Wl,-rpath,"$root_dir/build/dev/lib" -o "$here"
    step "Debian 11: compile tests/machines there" in_root "$work" root "$compile_there" || return 1
    inside="unshare --mount --pid --fork $root_dir/scripts/fresh_root.sh --inside $work root /opt/mixedprec/machines_bits"
    if ! step "Debian 11: load, cast, quantize, step, multiply" python3 tests/machines/compare.py "$here" --brief \
        --machine "Debian 11" "" "" "$inside"; then
        explain_old | sed 's/^/   Debian 11: /'
        clean_up
        return 1
    fi
    clean_up
}

[ -z "$(git status --porcelain --untracked-files=no)" ] || note "there are changes that are not committed; HEAD is tried"
case "${1:-all}" in
    root | user | packages | old) "try_$1" "${@:2}" || true ;;
    all)
        for name in root user packages old; do
            "try_$name" || true
            clean_up
        done
        ;;
    *) die "usage: scripts/fresh_root.sh [root | user | packages [FOLDER] | old]" ;;
esac
if [ "${#failed_steps[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed_steps[@]}"
    exit 1
fi
