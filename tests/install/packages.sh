#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a stranger does with the packages for Debian. scripts/fresh_root.sh packages runs the parts in this order, as root in
# a clone in a minimal Debian 12. The packages lie in the folder above the clone. It changes the system: not for your machine.
#     packages.sh install    a C compiler, then the library, its headers and the programs; nothing optional
#     packages.sh use        no network: a C program, old programs, the commands, and what they say of parts that are missing
#     packages.sh remove     no network: nothing of it stays
#     packages.sh more       all packages, with what they recommend; CMake, Python, man, shells
#     packages.sh develop    no network: find_package, pkg-config, the static library, the wheel, man pages, completions
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=$(cd .. && pwd)
# One folder for all parts, which only root can have made: /root is nobody else's.
work=$HOME/mixedprec-packages
mkdir -m 700 -p "$work"

die() {
    printf 'packages.sh: %s\n' "$*" >&2
    exit 1
}
install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" > "$work/apt.log" ||
        die "apt-get failed: $(tail -n 20 "$work/apt.log")"
}
# The files of the system, without those that apt and dpkg keep for themselves.
list_files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path "$work" -o -path "$PWD" -o -path /var/cache \
        -o -path /var/log -o -path /var/lib/apt -o -path '/var/lib/dpkg/*-old' \) -prune -o -print | LC_ALL=C sort
}
# says <file> <pattern...>: each is in a line of the file.
says() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do
        grep -qE "$pattern" "$file" || die "no line of $file matches '$pattern':"$'\n'"$(cat "$file")"
    done
}
trains() {
    "$@" LICENSE fp8_delayed 20 | tee "$work/losses"
    says "$work/losses" '^step  20  loss 2\.54'
}

install_part() {
    apt-get update -qq
    install --no-install-recommends gcc libc6-dev
    list_files > "$work/before"
    install --no-install-recommends "$packages"/libmixedprec0_*.deb "$packages"/libmixedprec-dev_*.deb "$packages"/mixedprec_*.deb
    list_files > "$work/with"
    comm -13 "$work/before" "$work/with" | while read -r file; do
        [ -d "$file" ] || printf '%s\0' "$file"
    done | du -ch --apparent-size --files0-from=- | sed -n 's/total$/installed/p'
}

use_part() {
    local client include words
    cc -O2 -ffp-contract=off bindings/c/train.c -lmixedprec -lm -o "$work/train"
    trains "$work/train"
    # Programs of earlier releases, with the headers of theirs; 0.2 freezes its own when it is out.
    for client in tests/abi/clients/*/client.c; do
        include=$(dirname "$client")/include
        words=("$client")
        [ ! -d "$include" ] || words+=("-I$include")
        cc -O2 "${words[@]}" -lmixedprec -lm -o "$work/client"
        "$work/client"
    done
    # Everything optional is missing: no failure, and a reason for each.
    mixedprec info | tee "$work/info"
    says "$work/info" '^onednn .*cannot open' '^topology .*cannot open' '^cuda +no +module .* was not found' \
        '^hip +no +module .* was not found' '^MPI +no +module .* was not found' '^NCCL +no +as for cuda' \
        '^Self-test: [0-9]+ checks passed'
    mixedprec info --json > "$work/info.json"
    says "$work/info.json" '"onednn": ".*cannot open' '"text": "module libmixedprec-cuda.so was not found' \
        '"text": "module libmixedprec-mpi.so was not found'
    ! grep -q '"found": true' "$work/info.json" || die "something optional was found"
    mixedprec_train --data LICENSE --steps 3 --layers 1 --dim 32 --recipe bf16_mixed --out "$work/out"
    [ -s "$work/out/report.html" ] || die "no report"
    mixedprec plan --params 7B --recipe bf16_mixed
}

remove_part() {
    local own=(mixedprec libmixedprec-dev libmixedprec0)
    DEBIAN_FRONTEND=noninteractive apt-get remove -y -qq "${own[@]}"
    list_files | grep -v '^/var/lib/dpkg/info/' > "$work/after"
    diff <(grep -v '^/var/lib/dpkg/info/' "$work/before") "$work/after" || die "removal leaves these files, or takes others along"
    # dpkg itself keeps what it runs at a purge.
    dpkg --purge "${own[@]}"
    list_files > "$work/after"
    diff "$work/before" "$work/after" || die "a purge leaves these files, or takes others along"
    echo "removed without a trace: $(wc -l < "$work/after") files and folders, as before"
}

more_part() {
    install "$packages"/*.deb
    install --no-install-recommends cmake make g++ pkg-config man-db python3-numpy python3-pip python3-setuptools python3-wheel \
        bash-completion zsh fish
}

# asks_for <components...>: what find_package says of them.
asks_for() {
    rm -rf "$work/ask"
    mkdir "$work/ask"
    {
        printf 'cmake_minimum_required(VERSION 3.24)\nproject(ask C CXX)\n'
        printf 'find_package(mixedprec 0.2 CONFIG REQUIRED COMPONENTS %s)\n' "$*"
    } > "$work/ask/CMakeLists.txt"
    cmake -S "$work/ask" -B "$work/ask/build" > "$work/asked" 2>&1
}

develop_part() {
    local module page words
    mixedprec info | tee "$work/info"
    says "$work/info" '^onednn +oneDNN' '^topology .*hwloc'

    read -ra words <<< "$(pkg-config --cflags --libs mixedprec)"
    cc -std=c99 tests/capi/basic.c "${words[@]}" -lm -o "$work/basic"
    "$work/basic"
    cmake -S tests/install/consumer -B "$work/consumer" -DPROGRAM="$PWD/tests/capi/basic.c"
    cmake --build "$work/consumer"
    "$work/consumer/by_find_package"
    for module in cuda mpi; do
        if [ -e "/usr/lib/x86_64-linux-gnu/libmixedprec-$module.so" ]; then
            asks_for "$module" || die "find_package refuses $module, which is installed: $(cat "$work/asked")"
            DEBIAN_FRONTEND=noninteractive apt-get remove -y -qq "libmixedprec0-$module"
        fi
        ! asks_for "$module" || die "find_package takes $module, which is not installed"
        says "$work/asked" "the component '$module' is not installed in /usr"
    done
    asks_for cpp static || die "find_package refuses cpp or static: $(cat "$work/asked")"
    cc -O2 -ffp-contract=off bindings/c/train.c -l:libmixedprec.a -lstdc++ -lm -ldl -lpthread -o "$work/train_static"
    ! ldd "$work/train_static" | grep libmixedprec || die "the static program wants the shared library"
    trains "$work/train_static"

    python3 -m pip wheel --quiet --no-index --no-deps --no-build-isolation -w "$work/wheel" bindings/python
    python3 -m pip install --quiet --no-index --no-deps --break-system-packages --root-user-action=ignore \
        "$work"/wheel/mixedprec-*.whl
    (cp tests/install/numpy_training.py "$work" && cd "$work" && python3 numpy_training.py)
    trains python3 bindings/python/examples/train.py

    for page in mixedprec mixedprec_train; do
        MANWIDTH=80 man --warnings "$page" > "$work/page" 2> "$work/complaints" || die "man $page: $(cat "$work/complaints")"
        [ ! -s "$work/complaints" ] || die "man $page: $(cat "$work/complaints")"
        says "$work/page" '^NAME' '^SEE ALSO'
    done
    python3 tests/tools/completions.py /usr/share
}

case "${1:-}" in
    install | use | remove | more | develop) "$1_part" ;;
    *) die "usage: packages.sh install | use | remove | more | develop" ;;
esac
