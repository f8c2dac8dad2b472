# SPDX-License-Identifier: Apache-2.0
# A recipe for BinaryBuilder, which makes the package mixedprec_jll for Julia. Not built where this project is checked. The
# tarball is what `scripts/package.sh source` makes; put its address and sha256 in.
using BinaryBuilder

name = "mixedprec"
version = v"0.2.0"
sources = [ArchiveSource("mixedprec-0.2.0.tar.gz", "0"^64)]

script = raw"""
cd ${WORKSPACE}/srcdir/mixedprec-*
cmake -B build -G Ninja -DCMAKE_INSTALL_PREFIX=${prefix} -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TARGET_TOOLCHAIN} \
    -DCMAKE_BUILD_TYPE=Release -DMIXEDPREC_KOKKOS=external -DMIXEDPREC_ENABLE_ONEDNN=OFF -DMIXEDPREC_ENABLE_HWLOC=ON \
    -DMIXEDPREC_ENABLE_MPI=OFF -DMIXEDPREC_ENABLE_TOOLS=OFF -DMIXEDPREC_ENABLE_TESTS=OFF -DMIXEDPREC_ENABLE_EXAMPLES=OFF
cmake --build build --parallel ${nproc}
cmake --install build --component runtime
cmake --install build --component dev
install_license LICENSE NOTICE
"""

platforms = [Platform("x86_64", "linux"; libc = "glibc"), Platform("aarch64", "linux"; libc = "glibc")]
products = [LibraryProduct("libmixedprec", :libmixedprec)]
dependencies = [
    Dependency("Hwloc_jll"),
    BuildDependency("nlohmann_json_jll"),
    BuildDependency("Kokkos_jll"),
]
build_tarballs(ARGS, name, version, sources, script, platforms, products, dependencies; julia_compat = "1.6",
    preferred_gcc_version = v"12")
