# SPDX-License-Identifier: Apache-2.0
# Everything the build needs besides Kokkos, and what it can do without. Says what is missing, which Debian package has
# it, and which option does without it.
#
# An optional part is ON (must be there), OFF, or AUTO (taken where it is found). What came of it is MP_HAS_<PART>, and a
# line of the summary that the configuration ends with. Targets made here: mp_dep_onednn_headers, mp_dep_onednn,
# mp_dep_hwloc_headers, mp_dep_json (the others keep their packages' names).
include_guard(GLOBAL)

# One sentence for everything that must be there and is not.
function(_mp_missing what debian)
    message(FATAL_ERROR "${what} was not found. Install it (Debian: ${debian}; scripts/setup.sh installs all that is needed), "
        "or add its prefix to CMAKE_PREFIX_PATH.${ARGN}")
endfunction()

set(MP_SUMMARY "" CACHE INTERNAL "Lines of the summary")
function(mp_summary part text)
    set(MP_SUMMARY "${MP_SUMMARY};  ${part}: ${text}" CACHE INTERNAL "")
endfunction()

# mp_wanted(<PART> <default> <what it is>): declares MIXEDPREC_ENABLE_<PART>, and sets `wanted` unless it is OFF.
macro(mp_wanted part default what)
    set(MIXEDPREC_ENABLE_${part} ${default} CACHE STRING "${what}: ON, OFF, or AUTO (where it is found)")
    set_property(CACHE MIXEDPREC_ENABLE_${part} PROPERTY STRINGS AUTO ON OFF)
    string(TOUPPER "${MIXEDPREC_ENABLE_${part}}" wanted)
    if(wanted MATCHES "^(1|YES|TRUE)$")
        set(wanted ON)
    elseif(wanted MATCHES "^(0|NO|FALSE)$")
        set(wanted OFF)
    elseif(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "MIXEDPREC_ENABLE_${part} is '${MIXEDPREC_ENABLE_${part}}'; it must be ON, OFF or AUTO.")
    endif()
endmacro()

# mp_decide(<PART> <found> <what was found> <what is missing> <Debian's package> <what its absence means>), after
# mp_wanted and the search.
macro(mp_decide part found detail what debian without)
    string(TOLOWER "${part}" _mp_name)
    set(MP_HAS_${part} OFF)
    if(wanted STREQUAL "OFF")
        mp_summary(${_mp_name} "no (MIXEDPREC_ENABLE_${part} is OFF): ${without}")
    elseif(${found})
        set(MP_HAS_${part} ON)
        mp_summary(${_mp_name} "yes, ${detail}")
    elseif(wanted STREQUAL "ON")
        _mp_missing("${what}" "${debian}" " Or configure with -DMIXEDPREC_ENABLE_${part}=OFF: ${without}.")
    else()
        mp_summary(${_mp_name} "no, ${what} was not found (Debian: ${debian}): ${without}")
    endif()
endmacro()

find_package(Threads REQUIRED)

find_package(OpenMP QUIET COMPONENTS C CXX)
if(NOT OpenMP_CXX_FOUND OR NOT OpenMP_C_FOUND)
    _mp_missing("OpenMP for ${CMAKE_CXX_COMPILER}" "g++ brings it; for clang, libomp-dev")
endif()

find_package(nlohmann_json 3.10 QUIET CONFIG)
if(NOT nlohmann_json_FOUND)
    _mp_missing("nlohmann_json 3.10 or newer" "nlohmann-json3-dev")
endif()
add_library(mp_dep_json INTERFACE)
target_link_libraries(mp_dep_json INTERFACE nlohmann_json::nlohmann_json)

# oneDNN: fast matrix products of the host. Its headers are needed here; the library is opened at run time.
mp_wanted(ONEDNN AUTO "Matrix products on the host by oneDNN, opened at run time")
set(_mp_onednn_detail "")
if(wanted)
    # Not by its CMake package: Debian's stops the configure unless OpenCL's development files are there, which
    # nothing on the host's side uses.
    find_path(MP_ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
    find_library(MP_ONEDNN_LIBRARY dnnl)
    mark_as_advanced(MP_ONEDNN_INCLUDE_DIR MP_ONEDNN_LIBRARY)
    if(EXISTS "${MP_ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
        file(STRINGS "${MP_ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _mp_lines
            REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
        string(REGEX REPLACE "[^0-9;]+" "" _mp_lines "${_mp_lines}")
        string(REPLACE ";" "." _mp_onednn_detail "${_mp_lines}")
        # Version 3 has dropped functions of version 2.
        if(_mp_onednn_detail VERSION_GREATER_EQUAL 2.6 AND _mp_onednn_detail VERSION_LESS 3)
            add_library(mp_dep_onednn_headers INTERFACE)
            target_include_directories(mp_dep_onednn_headers SYSTEM INTERFACE "${MP_ONEDNN_INCLUDE_DIR}")
            if(MP_ONEDNN_LIBRARY)
                add_library(mp_dep_onednn INTERFACE) # for benchmarks, which call it directly
                target_link_libraries(mp_dep_onednn INTERFACE mp_dep_onednn_headers "${MP_ONEDNN_LIBRARY}")
            endif()
        endif()
    endif()
endif()
mp_decide(ONEDNN "TARGET;mp_dep_onednn_headers" "headers ${_mp_onednn_detail}, opened at run time"
    "oneDNN 2.6 to 2.x" "libdnnl-dev" "matrix products run on the library's own kernels")

# hwloc: how many cores there really are, and which belong together. Its headers are needed here; the library is opened
# at run time.
mp_wanted(HWLOC AUTO "Ask hwloc, opened at run time, for the cores and their places")
if(wanted)
    find_path(MP_HWLOC_INCLUDE_DIR hwloc.h)
    mark_as_advanced(MP_HWLOC_INCLUDE_DIR)
    if(MP_HWLOC_INCLUDE_DIR)
        file(STRINGS "${MP_HWLOC_INCLUDE_DIR}/hwloc.h" _mp_lines REGEX "define HWLOC_API_VERSION 0x0002")
        if(_mp_lines)
            add_library(mp_dep_hwloc_headers INTERFACE)
            target_include_directories(mp_dep_hwloc_headers SYSTEM INTERFACE "${MP_HWLOC_INCLUDE_DIR}")
        endif()
    endif()
endif()
mp_decide(HWLOC "TARGET;mp_dep_hwloc_headers" "headers in ${MP_HWLOC_INCLUDE_DIR}, opened at run time"
    "hwloc 2" "libhwloc-dev" "the cores come from the operating system's affinity mask")

mp_wanted(MPI AUTO "Build the module libmixedprec-mpi.so")
if(wanted)
    find_package(MPI QUIET COMPONENTS C)
endif()
mp_decide(MPI "MPI_C_FOUND" "${MPI_C_LIBRARIES}" "MPI" "libopenmpi-dev openmpi-bin" "there is no module libmixedprec-mpi.so")

mp_wanted(CUDA OFF "Build the module libmixedprec-cuda.so")
if(wanted)
    find_package(CUDAToolkit 12.0 QUIET)
endif()
mp_decide(CUDA "CUDAToolkit_FOUND" "toolkit ${CUDAToolkit_VERSION}" "the CUDA toolkit 12 or newer"
    "not in main; take NVIDIA's, and put its bin folder on PATH" "there is no module libmixedprec-cuda.so")

mp_wanted(HIP OFF "Build the module libmixedprec-hip.so")
set(MIXEDPREC_HIP_ARCHITECTURE gfx90a CACHE STRING "The AMD GPUs that the module is for, as hipcc names them")
if(wanted)
    find_program(MP_HIPCC hipcc HINTS "$ENV{ROCM_PATH}/bin" /opt/rocm/bin)
    get_filename_component(_mp_rocm "${MP_HIPCC}" DIRECTORY)
    find_path(MP_HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS "${_mp_rocm}/../include")
    mark_as_advanced(MP_HIPCC MP_HIP_INCLUDE_DIR)
    if(NOT MIXEDPREC_HIP_ARCHITECTURE MATCHES "^gfx[0-9a-f]+$")
        message(FATAL_ERROR "MIXEDPREC_HIP_ARCHITECTURE is '${MIXEDPREC_HIP_ARCHITECTURE}'; it must be one name such as gfx90a.")
    endif()
endif()
mp_decide(HIP "MP_HIPCC;AND;MP_HIP_INCLUDE_DIR" "${MP_HIPCC}, for ${MIXEDPREC_HIP_ARCHITECTURE}" "hipcc with HIP's headers"
    "hipcc libamdhip64-dev rocm-device-libs" "there is no module libmixedprec-hip.so")

# The programs of tools/, whose command lines CLI11 reads.
set(_mp_tools OFF)
if(PROJECT_IS_TOP_LEVEL)
    set(_mp_tools AUTO)
endif()
mp_wanted(TOOLS ${_mp_tools} "Build the tools: the trainer mixedprec_train")
if(wanted)
    find_package(CLI11 2.1 QUIET CONFIG)
endif()
mp_decide(TOOLS "CLI11_FOUND" "CLI11 ${CLI11_VERSION}" "CLI11 2.1 or newer" "libcli11-dev" "there is no mixedprec_train")

if(MIXEDPREC_ENABLE_TESTS)
    set(MIXEDPREC_GTEST_SOURCE_DIR "" CACHE PATH
        "GoogleTest's sources, to build instead of taking the installed one: for another processor")
    if(MIXEDPREC_GTEST_SOURCE_DIR)
        set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
        set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
        add_subdirectory("${MIXEDPREC_GTEST_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
        set(GTest_FOUND TRUE)
    else()
        find_package(GTest QUIET CONFIG)
        if(NOT GTest_FOUND)
            find_package(GTest QUIET)
        endif()
    endif()
    if(NOT GTest_FOUND)
        _mp_missing("GoogleTest" "libgtest-dev" " Or configure with -DMIXEDPREC_ENABLE_TESTS=OFF.")
    endif()
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(NOT Python3_Interpreter_FOUND)
        _mp_missing("python3, which runs the layering and ABI checks," "python3"
            " Or configure with -DMIXEDPREC_ENABLE_TESTS=OFF.")
    endif()
    # Their tests say by themselves that they are skipped.
    foreach(_mp_row "rust;cargo;cargo rustc" "julia;julia;julia of Debian 11" "fortran;gfortran;gfortran")
        list(POP_FRONT _mp_row _mp_language _mp_program _mp_package)
        find_program(_mp_found ${_mp_program} NO_CACHE)
        if(_mp_found)
            mp_summary("${_mp_language} tests" "yes, ${_mp_found}")
        else()
            mp_summary("${_mp_language} tests" "skipped, there is no ${_mp_program} (Debian: ${_mp_package})")
        endif()
        unset(_mp_found)
    endforeach()
endif()
