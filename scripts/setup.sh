#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing to build libmixedprec on Debian 12 (bookworm); with --tests, also what the tests use; with
# --checks, also what the checks on other machines use: emulators, compilers for another processor and for AMD GPUs, debootstrap,
# lintian, a browser, shells.
# Installs nothing that is there already, asks no question, and needs root or sudo only when something is missing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

with_tests=no
with_checks=no
for argument in "$@"; do
    case "$argument" in
        --tests) with_tests=yes ;;
        --checks) with_checks=yes ;;
        *) die "usage: scripts/setup.sh [--tests] [--checks]" ;;
    esac
done

packages=(g++ cmake ninja-build pkg-config git patch python3 python3-pip python3-numpy
    libhwloc-dev libdnnl-dev nlohmann-json3-dev libcli11-dev libgtest-dev librandom123-dev
    bible-kjv bible-kjv-text)
if [ "$with_tests" = yes ]; then
    packages+=(ccache binutils dpkg-dev clang clang-format clang-tidy libomp-dev abigail-tools gfortran
        libopenmpi-dev openmpi-bin libmpich-dev mpich)
    have_command cargo || packages+=(cargo rustc)
fi
if [ "$with_checks" = yes ]; then
    packages+=(qemu-user debootstrap g++-aarch64-linux-gnu googletest hipcc libamdhip64-dev rocm-device-libs
        libtorch-dev python3-torch librust-half-dev doxygen lintian chromium bash-completion zsh fish)
fi

command -v apt-get > /dev/null || die "this script knows Debian only. Install by hand: ${packages[*]}"
[ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ] ||
    note "this is not Debian 12 (bookworm): package names and versions may differ"

export DEBIAN_FRONTEND=noninteractive
root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have_command sudo; then
        sudo --preserve-env=DEBIAN_FRONTEND "$@"
    else
        die "needs root to install packages: run as root, or install sudo"
    fi
}
updated=no
apt_update() {
    [ "$updated" = yes ] || root apt-get update -qq
    updated=yes
}
installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null | grep -qx installed; }

missing=()
for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
    say "installing: ${missing[*]}"
    apt_update
    root apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

# The readers that nobody here wrote, for what checkpoints and model files leave. Failing to get them is no error: their tests
# then say that they were skipped.
readers="$root_dir/.cache/python"
for reader in safetensors numpy gguf; do
    if [ "$with_tests" = yes ] && ! PYTHONPATH="$readers" python3 -c "import $reader" 2> /dev/null; then
        say "installing: the Python package $reader, into .cache"
        install_pinned "$reader" --target "$readers" ||
            note "no Python package $reader: tests that ask other readers will be skipped"
    fi
done

# They read the machine code of CUDA's kernels; NVIDIA's packages for Debian of the toolkit may lack them. A folder for each:
# pip replaces what two packages share.
for tool in cuobjdump nvdisasm; do
    folder="$root_dir/.cache/cuda/$tool"
    program="$folder/nvidia/cu13/bin/$tool"
    if [ "$with_checks" = yes ] && ! have_command "$tool" && [ ! -x "$program" ]; then
        say "installing: the Python package nvidia-cuda-$tool, into .cache"
        if install_pinned "nvidia-cuda-$tool" --target "$folder"; then
            chmod +x "$program"
        else
            note "no $tool: the machine code of CUDA's kernels will not be looked at"
        fi
    fi
done

# Zig, for its binding: 80 MB. Newer ones read C headers in another way.
if [ "$with_checks" = yes ] && [ ! -d "$root_dir/.cache/zig/ziglang" ]; then
    say "installing: the Python package ziglang, into .cache"
    install_pinned ziglang --target "$root_dir/.cache/zig" || note "no Zig: its binding will not be tested"
fi

# ggml, which an example works with: a minute once. Its source is a folder of a Python source package.
install_ggml() {
    local cache="$root_dir/.cache/ggml" source
    source=$(mktemp -d)
    printf '%s\n' 'ggml-python==0.0.45 --hash=sha256:10aac52075cf3c7ef2b00d6c35b1c23f7b018dbeff8ae8df67339b4be1166f05' \
        > "$source/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary ggml-python --require-hashes \
        -r "$source/requirements.txt" -d "$source" &&
        tar -xf "$source"/ggml_python-*.tar.gz -C "$source" &&
        cmake -S "$source"/ggml_python-*/vendor/ggml -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
            -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
            -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF > "$source/log" &&
        cmake --build "$source/build" --target ggml >> "$source/log" &&
        mkdir -p "$cache/lib" && cp -r "$source"/ggml_python-*/vendor/ggml/include "$cache" &&
        cp "$source"/build/src/*.a "$cache/lib"
    local failed=$?
    rm -rf "$source"
    return $failed
}
if [ "$with_checks" = yes ] && [ ! -e "$root_dir/.cache/ggml/lib/libggml.a" ]; then
    say "installing: ggml, into .cache"
    install_ggml || note "no ggml: the example with it will be skipped"
fi

# Julia is not in bookworm. The one of the release before runs here, but only with that release's libunwind8: with
# bookworm's it crashes at the first exception. That library is put beside, for Julia alone: others need bookworm's.
# Failing to get it is no error: the tests then say that they skip it.
julia_libraries="$root_dir/.cache/julia/usr/lib/$(uname -m)-linux-gnu"
julia_works() {
    LD_LIBRARY_PATH="$julia_libraries" julia -e 'try; sqrt(-1.0); catch; println("ok"); end' 2> /dev/null | grep -qx ok
}

install_julia() {
    local mirror download source=/etc/apt/sources.list.d/mixedprec-bullseye.list
    apt_update
    # The mirror this machine uses already, with the older release's name.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "main" && $4 == "Debian" { print $1; exit }')
    [ -n "$mirror" ] || return 1
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye main" |
        root tee "$source" > /dev/null
    printf 'Package: *\nPin: release n=bullseye\nPin-Priority: 100\n' |
        root tee /etc/apt/preferences.d/mixedprec-bullseye > /dev/null
    if root apt-get update -qq &&
        root apt-get install -y -qq --no-install-recommends julia > /dev/null &&
        download=$(mktemp -d) && (cd "$download" && apt-get download -qq libunwind8=1.3.2-2 > /dev/null) &&
        mkdir -p "$root_dir/.cache/julia" && dpkg-deb -x "$download"/*.deb "$root_dir/.cache/julia"; then
        rm -rf "$download"
        return 0
    fi
    root rm -f "$source" /etc/apt/preferences.d/mixedprec-bullseye
    root apt-get update -qq || true
    return 1
}

if [ "$with_tests" = yes ] && ! julia_works; then
    say "installing: julia and libunwind8 from Debian 11 (bullseye)"
    if ! { install_julia && julia_works; }; then
        note "no Julia: it could not be installed or does not run here; its test will say that it was skipped"
    fi
fi
