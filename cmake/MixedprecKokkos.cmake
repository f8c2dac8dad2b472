# SPDX-License-Identifier: Apache-2.0
# Kokkos for the backends: target mp_kokkos_host (Serial), with MIXEDPREC_ENABLE_CUDA mp_kokkos_cuda (Cuda + Serial), with
# MIXEDPREC_ENABLE_HIP mp_kokkos_hip (HIP + Serial), and with MIXEDPREC_ENABLE_TESTS mp_kokkos_openmp (OpenMP + Serial, the
# pinned source), whose teams have several threads and whose views check every index. Each of our binaries links its own
# static copy, so no two share a prefix or a target name.
#
# Where the host one comes from, in this order:
#   1. find_package(Kokkos 4.5): static, position independent, with Serial     (MIXEDPREC_KOKKOS=auto or external)
#   2. the source folder MIXEDPREC_KOKKOS_SOURCE_DIR                           (auto or bundled; needs no network)
#   3. the pinned 4.7.0 source, fetched by pip and checked against the hash in kokkos-source.txt
# Sources and builds are kept in MIXEDPREC_CACHE_DIR and shared by all presets; a later configure only reads a stamp.
include_guard(GLOBAL)

set(MIXEDPREC_KOKKOS auto CACHE STRING
    "Where Kokkos comes from: auto, external (find_package only) or bundled (pinned source only)")
set_property(CACHE MIXEDPREC_KOKKOS PROPERTY STRINGS auto external bundled)
set(MIXEDPREC_KOKKOS_SOURCE_DIR "" CACHE PATH "A Kokkos source folder to build instead of fetching the pinned one")
set(MIXEDPREC_KOKKOS_CUDA_ROOT "" CACHE PATH
    "Prefix of an installed static Kokkos with Cuda, used by the CUDA module instead of building one; \
it should have cmake/kokkos-4.7.0-cuda.patch")
set(MIXEDPREC_KOKKOS_HIP_ROOT "" CACHE PATH
    "Prefix of an installed static Kokkos with HIP, used by the HIP module instead of building one")
set(MIXEDPREC_CACHE_DIR "${PROJECT_SOURCE_DIR}/.cache" CACHE PATH
    "Folder for fetched sources and their builds, shared by all build folders")

set(_mp_kokkos_min 4.5)
set(_mp_kokkos_pinned 4.7.0)
set(_mp_kokkos_here "${CMAKE_CURRENT_LIST_DIR}")

# An imported target from an installation prefix. Not by find_package: Kokkos's package defines Kokkos::kokkos, and a
# build with CUDA needs two of them.
function(_mp_kokkos_import target prefix)
    find_library(_mp_core kokkoscore PATHS "${prefix}/lib" "${prefix}/lib64"
        NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
    find_library(_mp_containers kokkoscontainers PATHS "${prefix}/lib" "${prefix}/lib64"
        NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
    if(NOT _mp_core OR NOT _mp_containers)
        message(FATAL_ERROR "Kokkos: ${prefix} holds no libkokkoscore and libkokkoscontainers. "
            "Delete that folder and configure again.")
    endif()
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
        INTERFACE_LINK_LIBRARIES "${_mp_containers};${_mp_core};${CMAKE_DL_LIBS};Threads::Threads")
endfunction()

# True in `out` when a shared library can be linked from the found Kokkos: the only reliable test of PIC.
function(_mp_kokkos_links_into_shared out)
    set(source "${CMAKE_BINARY_DIR}/CMakeFiles/mp_kokkos_probe.cpp")
    file(WRITE "${source}" "#include <Kokkos_Core.hpp>\nvoid probe() { Kokkos::initialize(); Kokkos::finalize(); }\n")
    try_compile(linked "${CMAKE_BINARY_DIR}/CMakeFiles/mp_kokkos_probe" SOURCES "${source}"
        CMAKE_FLAGS -DCMAKE_POSITION_INDEPENDENT_CODE=ON LINK_OPTIONS -shared LINK_LIBRARIES Kokkos::kokkos
        CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
    set(${out} ${linked} PARENT_SCOPE)
endfunction()

# Step 1. Sets `out` to true when an installed Kokkos was accepted; otherwise `why` says why not.
function(_mp_kokkos_find_external out why)
    set(${out} FALSE PARENT_SCOPE)
    # The component keeps a Kokkos that has Cuda from redirecting every compiler call of this project to its own.
    find_package(Kokkos ${_mp_kokkos_min} QUIET CONFIG OPTIONAL_COMPONENTS separable_compilation)
    if(NOT Kokkos_FOUND)
        set(${why} "no installed Kokkos ${_mp_kokkos_min} or newer (set Kokkos_ROOT if there is one)" PARENT_SCOPE)
        return()
    endif()
    if(NOT Kokkos_ENABLE_SERIAL)
        set(${why} "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} was built without Serial" PARENT_SCOPE)
        return()
    endif()
    if(Kokkos_ENABLE_OPENMP) # which would come into the library
        set(${why} "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} was built with OpenMP" PARENT_SCOPE)
        return()
    endif()
    get_target_property(type Kokkos::kokkoscore TYPE)
    if(NOT type STREQUAL "STATIC_LIBRARY" AND NOT MIXEDPREC_KOKKOS STREQUAL "external")
        set(${why} "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} is a shared library (MIXEDPREC_KOKKOS=external accepts it)"
            PARENT_SCOPE)
        return()
    endif()
    _mp_kokkos_links_into_shared(pic)
    if(NOT pic)
        set(${why} "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} cannot be linked into a shared library (build it with -fPIC)"
            PARENT_SCOPE)
        return()
    endif()
    set_target_properties(Kokkos::kokkos Kokkos::kokkoscore PROPERTIES IMPORTED_GLOBAL TRUE)
    add_library(mp_kokkos_host INTERFACE IMPORTED GLOBAL)
    set_target_properties(mp_kokkos_host PROPERTIES INTERFACE_LINK_LIBRARIES "Kokkos::kokkos")
    message(STATUS "Kokkos (host): ${Kokkos_VERSION}, installed, ${Kokkos_DIR}")
    set(${out} TRUE PARENT_SCOPE)
endfunction()

# Steps 2 and 3. Sets `out` to a Kokkos source folder. Called under the lock of the cache.
function(_mp_kokkos_source out cache)
    if(MIXEDPREC_KOKKOS_SOURCE_DIR)
        if(NOT EXISTS "${MIXEDPREC_KOKKOS_SOURCE_DIR}/core/src/Kokkos_Core.hpp")
            message(FATAL_ERROR "MIXEDPREC_KOKKOS_SOURCE_DIR is ${MIXEDPREC_KOKKOS_SOURCE_DIR}, but "
                "that folder has no core/src/Kokkos_Core.hpp.")
        endif()
        set(${out} "${MIXEDPREC_KOKKOS_SOURCE_DIR}" PARENT_SCOPE)
        return()
    endif()
    set(source "${cache}/source")
    set(${out} "${source}" PARENT_SCOPE)
    if(EXISTS "${source}.stamp")
        return()
    endif()

    string(CONCAT other_ways
        "Or install Kokkos ${_mp_kokkos_min} or newer (static, with Serial, without OpenMP, and with -fPIC), "
        "or set MIXEDPREC_KOKKOS_SOURCE_DIR to a Kokkos ${_mp_kokkos_pinned} source folder.")
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(NOT Python3_Interpreter_FOUND)
        message(FATAL_ERROR "Kokkos: its source is fetched by pip, but there is no python3. "
            "Install it (Debian: python3 python3-pip).\n${other_ways}")
    endif()
    execute_process(COMMAND "${Python3_EXECUTABLE}" -m pip --version RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
        message(FATAL_ERROR "Kokkos: its source is fetched by pip, but ${Python3_EXECUTABLE} has none. "
            "Install it (Debian: python3-pip).\n${other_ways}")
    endif()

    message(STATUS "Kokkos ${_mp_kokkos_pinned}: fetching the source once, under a minute ...")
    set(download "${cache}/download")
    file(REMOVE_RECURSE "${download}" "${source}")
    file(MAKE_DIRECTORY "${download}")
    execute_process(
        COMMAND "${Python3_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps
                --no-binary pygenten --require-hashes -r "${_mp_kokkos_here}/kokkos-source.txt" -d "${download}"
        RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
    file(GLOB archive "${download}/pygenten-*.tar.gz")
    if(failed OR NOT archive)
        message(FATAL_ERROR "Kokkos: pip could not fetch the pinned source:\n${log}\n${other_ways}")
    endif()
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${download}" PATTERNS "*/tpls/kokkos/*")
    file(GLOB unpacked "${download}/pygenten-*/tpls/kokkos")
    if(NOT EXISTS "${unpacked}/core/src/Kokkos_Core.hpp")
        message(FATAL_ERROR "Kokkos: ${archive} has no folder tpls/kokkos.\n${other_ways}")
    endif()
    file(RENAME "${unpacked}" "${source}")
    file(REMOVE_RECURSE "${download}")
    file(WRITE "${source}.stamp" "${_mp_kokkos_pinned}\n")
endfunction()

# Sets `out` to a patched copy of the source: what every build with CUDA needs, and two signatures that CUDA 13 changed, which
# later releases than 4.7.0 know. Each patch says why.
function(_mp_kokkos_patch_for_cuda out source cache)
    set(patches "${_mp_kokkos_here}/kokkos-${_mp_kokkos_pinned}-cuda.patch")
    file(STRINGS "${source}/core/src/Cuda/Kokkos_Cuda_Instance.hpp" old
        REGEX "cudaMemPrefetchAsync\\(devPtr, count, dstDevice, m_stream\\)")
    if(old AND NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
        list(APPEND patches "${_mp_kokkos_here}/kokkos-${_mp_kokkos_pinned}-cuda13.patch")
    endif()
    set(id "${source}")
    foreach(patch_file IN LISTS patches)
        file(SHA256 "${patch_file}" hash)
        string(APPEND id ";${hash}")
    endforeach()
    string(SHA256 id "${id}")
    string(SUBSTRING "${id}" 0 8 id)
    set(patched "${cache}/source-cuda-${id}")
    set(${out} "${patched}" PARENT_SCOPE)
    if(EXISTS "${patched}.stamp")
        return()
    endif()
    find_program(_mp_patch patch NO_CACHE)
    if(NOT _mp_patch)
        message(FATAL_ERROR "Kokkos: a build with CUDA needs a patched Kokkos ${_mp_kokkos_pinned}, and there is no `patch`. "
            "Install it (Debian: patch).")
    endif()
    file(REMOVE_RECURSE "${patched}")
    file(MAKE_DIRECTORY "${patched}")
    file(COPY "${source}/" DESTINATION "${patched}")
    foreach(patch_file IN LISTS patches)
        execute_process(COMMAND "${_mp_patch}" -p1 --forward --batch -i "${patch_file}" WORKING_DIRECTORY "${patched}"
            RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
        if(failed)
            message(FATAL_ERROR "Kokkos: ${patch_file} does not apply to ${source}:\n${log}")
        endif()
    endforeach()
    file(WRITE "${patched}.stamp" "${patches}\n")
endfunction()

# Runs one step of a Kokkos build; shows the end of its log when it fails.
function(_mp_kokkos_run what log)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_FILE "${log}" ERROR_FILE "${log}")
    if(failed)
        file(STRINGS "${log}" lines)
        list(LENGTH lines count)
        if(count GREATER 30)
            math(EXPR first "${count} - 30")
            list(SUBLIST lines ${first} -1 lines)
        endif()
        list(JOIN lines "\n" tail)
        message(FATAL_ERROR "Kokkos: ${what} failed. The end of ${log}:\n${tail}")
    endif()
endfunction()

# Builds `source` with the given options once per compiler and options; sets `out` to the prefix.
function(_mp_kokkos_build out name source cache)
    set(options
        -DCMAKE_BUILD_TYPE=Release
        -DBUILD_SHARED_LIBS=OFF
        -DCMAKE_POSITION_INDEPENDENT_CODE=ON
        -DCMAKE_CXX_STANDARD=20
        -DCMAKE_CXX_EXTENSIONS=OFF
        -DCMAKE_CXX_VISIBILITY_PRESET=hidden
        -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON
        -DCMAKE_INSTALL_LIBDIR=lib
        -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
        -DKokkos_ENABLE_SERIAL=ON
        -DKokkos_ENABLE_DEPRECATED_CODE_4=OFF
        -DKokkos_ENABLE_LIBQUADMATH=OFF
        ${ARGN})
    if(CMAKE_TOOLCHAIN_FILE)
        list(APPEND options -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
    endif()
    # No -march: the archive must run wherever the library does.
    set(id "${options};${CMAKE_CXX_COMPILER_VERSION};${CMAKE_SYSTEM_PROCESSOR};${source}")
    if(name STREQUAL "cuda")
        string(APPEND id ";${CMAKE_CUDA_COMPILER_VERSION}")
    elseif(name STREQUAL "hip")
        execute_process(COMMAND "${MP_HIPCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
        string(APPEND id ";${version}")
    endif()
    string(SHA256 id "${id}")
    string(SUBSTRING "${id}" 0 8 id)
    set(prefix "${cache}/install/${name}-${id}")
    set(${out} "${prefix}" PARENT_SCOPE)
    if(EXISTS "${prefix}.stamp")
        return()
    endif()

    message(STATUS "Kokkos (${name}): building once into ${prefix} ...")
    set(build "${cache}/build/${name}-${id}")
    file(REMOVE_RECURSE "${build}" "${prefix}")
    file(MAKE_DIRECTORY "${build}" "${prefix}")
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    _mp_kokkos_run("configuring" "${build}.configure.log"
        "${CMAKE_COMMAND}" -S "${source}" -B "${build}" -G "${CMAKE_GENERATOR}" ${options} "-DCMAKE_INSTALL_PREFIX=${prefix}")
    _mp_kokkos_run("building" "${build}.build.log" "${CMAKE_COMMAND}" --build "${build}" --config Release --parallel ${cores})
    _mp_kokkos_run("installing" "${build}.install.log" "${CMAKE_COMMAND}" --install "${build}" --config Release)
    file(REMOVE_RECURSE "${build}")
    list(JOIN options "\n" text)
    file(WRITE "${prefix}.stamp" "${text}\n")
endfunction()

# A host one of the pinned source: `target` with further options.
function(_mp_kokkos_bundled_host target name cache)
    set(flags "${CMAKE_CXX_FLAGS}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        string(APPEND flags " -fno-gnu-unique") # else GCC's unique symbols would merge with a host program's Kokkos
    endif()
    # Thread sanitizer must see every atomic, also those inside the archive. Address sanitizer need not: Kokkos takes
    # its memory from malloc, which is watched anyway, and its kernels are templates compiled in our own files.
    if(MIXEDPREC_SANITIZE MATCHES "thread")
        string(APPEND flags " -fsanitize=thread -g")
        string(APPEND name "-tsan")
    endif()
    string(STRIP "${flags}" flags)
    _mp_kokkos_source(source "${cache}")
    _mp_kokkos_build(prefix ${name} "${source}" "${cache}" ${ARGN} "-DCMAKE_CXX_FLAGS=${flags}")
    _mp_kokkos_import(${target} "${prefix}")
    message(STATUS "Kokkos (${name}): ${prefix}")
endfunction()

# Kokkos compiles for one GPU generation: the first of CMAKE_CUDA_ARCHITECTURES. Newer GPUs run its PTX.
function(_mp_kokkos_cuda_arch out)
    list(GET CMAKE_CUDA_ARCHITECTURES 0 arch)
    string(REGEX MATCH "^[0-9]+" arch "${arch}")
    set(names_80 AMPERE80)
    set(names_86 AMPERE86)
    set(names_89 ADA89)
    set(names_90 HOPPER90)
    set(names_100 BLACKWELL100)
    set(names_120 BLACKWELL120)
    if(NOT DEFINED names_${arch})
        message(FATAL_ERROR "Kokkos: the first of CMAKE_CUDA_ARCHITECTURES is '${CMAKE_CUDA_ARCHITECTURES}'; "
            "it must be one of 80, 86, 89, 90, 100, 120.")
    endif()
    set(${out} "${names_${arch}}" PARENT_SCOPE)
endfunction()

function(_mp_kokkos_bundled_cuda cache)
    find_package(CUDAToolkit REQUIRED)
    _mp_kokkos_source(source "${cache}")
    _mp_kokkos_patch_for_cuda(source "${source}" "${cache}")
    _mp_kokkos_cuda_arch(arch)
    # The standard as a flag: Kokkos asks for it as a C++ feature, which CMake does not turn into nvcc's.
    set(cuda_flags "${CMAKE_CUDA_FLAGS} -std=c++20 --expt-relaxed-constexpr --extended-lambda")
    if(CMAKE_CUDA_HOST_COMPILER)
        set(host_compiler -DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CUDA_HOST_COMPILER})
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        string(APPEND cuda_flags " -Xcompiler=-fno-gnu-unique")
    endif()
    string(STRIP "${cuda_flags}" cuda_flags)
    _mp_kokkos_build(prefix cuda "${source}" "${cache}"
        -DKokkos_ENABLE_CUDA=ON
        -DKokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=ON
        -DKokkos_ARCH_${arch}=ON
        -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER}
        -DCMAKE_CUDA_VISIBILITY_PRESET=hidden
        "-DCMAKE_CUDA_FLAGS=${cuda_flags}"
        "-DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}"
        ${host_compiler})
    _mp_kokkos_import_cuda("${prefix}")
endfunction()

function(_mp_kokkos_import_cuda prefix)
    add_library(mp_kokkos_cuda_driver STATIC "${_mp_kokkos_here}/kokkos_cuda_driver.cpp")
    set_target_properties(mp_kokkos_cuda_driver PROPERTIES
        POSITION_INDEPENDENT_CODE ON CXX_STANDARD 20 CXX_VISIBILITY_PRESET hidden)
    target_link_libraries(mp_kokkos_cuda_driver PUBLIC CUDA::cudart_static)
    _mp_kokkos_import(mp_kokkos_cuda "${prefix}")
    set_property(TARGET mp_kokkos_cuda APPEND PROPERTY INTERFACE_LINK_LIBRARIES mp_kokkos_cuda_driver)
    # The standard as a flag here too: CMake before 3.26 knows no CUDA_STANDARD 20 for nvcc, and says nothing.
    set_property(TARGET mp_kokkos_cuda PROPERTY INTERFACE_COMPILE_OPTIONS
        "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;--extended-lambda>")
    message(STATUS "Kokkos (cuda): ${prefix}")
endfunction()

# By hipcc as the C++ compiler, for one architecture. In C++17: Debian's clang 15 crashes on libstdc++ 12's <regex> in C++20
# when it compiles for a GPU. rocThrust is not in Debian, and no kernel of ours sorts.
function(_mp_kokkos_bundled_hip out cache)
    _mp_kokkos_source(source "${cache}")
    string(TOUPPER "${MIXEDPREC_HIP_ARCHITECTURE}" arch)
    set(ENV{TMPDIR} "${CMAKE_BINARY_DIR}/CMakeFiles") # hipcc leaves folders there
    _mp_kokkos_build(prefix hip "${source}" "${cache}"
        -DKokkos_ENABLE_HIP=ON
        -DKokkos_ARCH_AMD_${arch}=ON
        -DKokkos_ENABLE_ROCTHRUST=OFF
        -DCMAKE_CXX_COMPILER=${MP_HIPCC}
        -DCMAKE_CXX_COMPILER_LAUNCHER=
        -DCMAKE_CXX_STANDARD=17)
    set(${out} "${prefix}" PARENT_SCOPE)
endfunction()

function(_mp_kokkos_provide)
    if(NOT MIXEDPREC_KOKKOS MATCHES "^(auto|external|bundled)$")
        message(FATAL_ERROR "MIXEDPREC_KOKKOS is '${MIXEDPREC_KOKKOS}'; it must be auto, external or bundled.")
    endif()
    find_package(Threads REQUIRED)
    set(found FALSE)
    set(why "MIXEDPREC_KOKKOS=bundled")
    # A thread sanitizer build needs an instrumented Kokkos, which no installed one is.
    if(NOT MIXEDPREC_KOKKOS STREQUAL "bundled" AND NOT (MIXEDPREC_KOKKOS STREQUAL "auto" AND MIXEDPREC_SANITIZE MATCHES "thread"))
        _mp_kokkos_find_external(found why)
        if(NOT found AND MIXEDPREC_KOKKOS STREQUAL "external")
            message(FATAL_ERROR "MIXEDPREC_KOKKOS=external: ${why}.")
        endif()
    endif()

    set(cache "${MIXEDPREC_CACHE_DIR}/kokkos-${_mp_kokkos_pinned}")
    file(MAKE_DIRECTORY "${cache}/build" "${cache}/install")
    file(LOCK "${cache}/lock" GUARD FUNCTION TIMEOUT 1800 RESULT_VARIABLE locked)
    if(NOT locked EQUAL 0)
        message(FATAL_ERROR "Kokkos: another configure has held ${cache}/lock for half an hour (${locked}).")
    endif()
    if(NOT found)
        _mp_kokkos_bundled_host(mp_kokkos_host host "${cache}")
    endif()
    # Not where a thread sanitizer would see gcc's OpenMP, which it does not understand.
    if(MIXEDPREC_ENABLE_TESTS AND NOT MIXEDPREC_KOKKOS STREQUAL "external" AND NOT MIXEDPREC_SANITIZE MATCHES "thread")
        _mp_kokkos_bundled_host(mp_kokkos_openmp openmp "${cache}"
            -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_DEBUG_BOUNDS_CHECK=ON)
        set_property(TARGET mp_kokkos_openmp APPEND PROPERTY INTERFACE_LINK_LIBRARIES OpenMP::OpenMP_CXX)
    endif()
    if(MP_HAS_CUDA)
        if(MIXEDPREC_KOKKOS_CUDA_ROOT)
            find_package(CUDAToolkit REQUIRED)
            _mp_kokkos_import_cuda("${MIXEDPREC_KOKKOS_CUDA_ROOT}")
        elseif(MIXEDPREC_KOKKOS STREQUAL "external")
            message(FATAL_ERROR "MIXEDPREC_KOKKOS=external with CUDA: "
                "set MIXEDPREC_KOKKOS_CUDA_ROOT to the prefix of a static Kokkos built with Cuda.")
        else()
            _mp_kokkos_bundled_cuda("${cache}")
        endif()
    endif()
    if(MP_HAS_HIP)
        set(prefix "${MIXEDPREC_KOKKOS_HIP_ROOT}")
        if(NOT prefix AND MIXEDPREC_KOKKOS STREQUAL "external")
            message(FATAL_ERROR "MIXEDPREC_KOKKOS=external with HIP: "
                "set MIXEDPREC_KOKKOS_HIP_ROOT to the prefix of a static Kokkos built with HIP.")
        elseif(NOT prefix)
            _mp_kokkos_bundled_hip(prefix "${cache}")
        endif()
        _mp_kokkos_import(mp_kokkos_hip "${prefix}")
        set(MP_KOKKOS_HIP_PREFIX "${prefix}" CACHE INTERNAL "For hipcc, which no target compiles with")
        message(STATUS "Kokkos (hip): ${prefix}")
    endif()
endfunction()

_mp_kokkos_provide()
