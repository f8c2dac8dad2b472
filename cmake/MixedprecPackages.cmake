# SPDX-License-Identifier: Apache-2.0
# Packages by CPack: .deb files and a .tar.gz. `cmake --workflow --preset package` configures, builds and writes them into
# build/package/packages; scripts/package.sh does that and looks at what came of it.
include_guard(GLOBAL)

set(CPACK_PACKAGE_NAME mixedprec)
set(CPACK_PACKAGE_VENDOR "libmixedprec authors")
set(CPACK_PACKAGE_CONTACT "libmixedprec authors <packages@libmixedprec.example.org>" CACHE STRING
    "Maintainer of the packages: a name and an address")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has a summary of its own
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_VERBATIM_VARIABLES ON)

# What is one package. Languages are sources and go together; the C++ header goes with the C ones.
set(mp_groups runtime dev bindings)
set(CPACK_COMPONENTS_ALL runtime dev cpp bindings c fortran julia python rust zig)
foreach(component cpp dev)
    string(TOUPPER CPACK_COMPONENT_${component}_GROUP variable)
    set(${variable} dev)
endforeach()
foreach(component bindings c fortran julia python rust zig)
    string(TOUPPER CPACK_COMPONENT_${component}_GROUP variable)
    set(${variable} bindings)
endforeach()
set(CPACK_COMPONENT_RUNTIME_GROUP runtime)
foreach(row "cuda;MP_HAS_CUDA" "mpi;MP_HAS_MPI" "hip;MP_HAS_HIP" "tools;MP_HAS_TOOLS")
    list(POP_FRONT row group condition)
    if(${condition})
        list(APPEND mp_groups ${group})
        list(APPEND CPACK_COMPONENTS_ALL ${group})
        string(TOUPPER CPACK_COMPONENT_${group}_GROUP variable)
        set(${variable} ${group})
    endif()
endforeach()
if(MIXEDPREC_ENABLE_STATIC)
    list(APPEND CPACK_COMPONENTS_ALL static)
    set(CPACK_COMPONENT_STATIC_GROUP dev)
endif()
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(same "libmixedprec0 (= ${PROJECT_VERSION})")
# Files that only a Debian package wants.
function(mp_debian_files folder component)
    if(CMAKE_INSTALL_PREFIX STREQUAL CPACK_PACKAGING_INSTALL_PREFIX)
        install(FILES ${ARGN} DESTINATION "${CMAKE_INSTALL_DATADIR}/${folder}" COMPONENT ${component})
    endif()
endfunction()

# package, section, depends, recommends, description: the first line is the summary.
function(mp_deb group package section depends recommends text)
    string(TOUPPER "${group}" upper)
    string(REPLACE ";" " " text "${text}")
    foreach(pair "PACKAGE_NAME=${package}" "PACKAGE_SECTION=${section}"
            "PACKAGE_DEPENDS=${depends}" "PACKAGE_RECOMMENDS=${recommends}")
        string(REGEX MATCH "^([A-Z_]+)=(.*)$" pair "${pair}")
        set(CPACK_DEBIAN_${upper}_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" PARENT_SCOPE)
    endforeach()
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
    set(CPACK_COMPONENT_GROUP_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
    # A library that others link: what they then depend on, and the loader's cache. Modules are opened by their path.
    if(group STREQUAL "runtime")
        set(control "${PROJECT_BINARY_DIR}/debian/control")
        file(WRITE "${control}/triggers" "activate-noawait ldconfig\n")
        file(WRITE "${control}/shlibs" "libmixedprec 0 ${package} (>= ${PROJECT_VERSION})\n")
        set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${control}/triggers;${control}/shlibs" PARENT_SCOPE)
    endif()
    if(group MATCHES "^(runtime|cuda|hip|mpi)$")
        file(WRITE "${PROJECT_BINARY_DIR}/debian/overrides/${package}"
            "# CPack writes these scripts for whatever lies in a folder of libraries.\n"
            "${package}: maintscript-calls-ldconfig *\n")
        if(NOT group STREQUAL "runtime")
            file(APPEND "${PROJECT_BINARY_DIR}/debian/overrides/${package}"
                "# A module that the library opens by its path, beside itself. Nothing is linked with it.\n"
                "${package}: sharedobject-in-library-directory-missing-soname *\n")
        endif()
        mp_debian_files(lintian/overrides ${group} "${PROJECT_BINARY_DIR}/debian/overrides/${package}")
    endif()
    # What Debian wants of every package: its licence, and what has changed.
    set(folder "${PROJECT_BINARY_DIR}/debian/${package}")
    file(MAKE_DIRECTORY "${folder}")
    configure_file("${PROJECT_SOURCE_DIR}/packaging/debian/copyright" "${folder}/copyright" COPYONLY)
    configure_file("${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in" "${folder}/changelog" @ONLY)
    find_program(MP_GZIP gzip)
    if(MP_GZIP)
        execute_process(COMMAND "${MP_GZIP}" -9nf "${folder}/changelog")
        mp_debian_files(doc/${package} ${group} "${folder}/copyright" "${folder}/changelog.gz")
    endif()
endfunction()
mp_deb(runtime libmixedprec0 libs "" "libdnnl2, libhwloc15" "library for low-precision training
Recipes, quantized linear layers, optimizers in any state dtype, sharding and
checkpoints behind one C interface. On the CPU, and on GPUs by modules.
oneDNN and hwloc are used where they are installed.")
mp_deb(dev libmixedprec-dev libdevel "${same}" "" "development files of libmixedprec
C headers, mixedprec.hpp for C++17, the CMake package and the pkg-config file.")
mp_deb(bindings libmixedprec-bindings libdevel "${same}" "" "libmixedprec for Rust, Julia, Python, Fortran and Zig
Sources of the bindings, with their tests and examples, and those in C and C++.
They are in /usr/share/mixedprec.")
mp_deb(tools mixedprec utils "${same}" "" "programs for low-precision training
mixedprec looks at machines, recipes and checkpoints, and plans memory.
mixedprec_train trains a small GPT under any recipe.")
string(REGEX REPLACE "^([0-9]+)([0-9]).*" "\\1.\\2" oldest_gpu "${CMAKE_CUDA_ARCHITECTURES}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" cuda_release "${CMAKE_CUDA_COMPILER_VERSION}")
mp_deb(cuda libmixedprec0-cuda libs "${same}" "" "libmixedprec on NVIDIA GPUs
The module that libmixedprec opens for CUDA devices, with NCCL. It serves GPUs
of compute capability ${oldest_gpu} and newer, by a driver for CUDA ${cuda_release} or newer.
cuBLASLt and NCCL are opened where they are installed.")
mp_deb(hip libmixedprec0-hip libs "${same}" "" "libmixedprec on AMD GPUs
The module that libmixedprec opens for HIP devices. Compiled, never run on one.")
mp_deb(mpi libmixedprec0-mpi libs "${same}" "" "libmixedprec over MPI
The module that libmixedprec opens for ranks that are MPI processes.")
set(CPACK_DEBIAN_BINDINGS_PACKAGE_ARCHITECTURE all)
# Said here: dpkg-shlibdeps takes the libc of this system for what the old names of libpthread and libdl need. tests/abi sees
# that these need nothing but libc, and of no later version; tests/install/hardening.py, what the packages say.
foreach(group RUNTIME CUDA HIP)
    set(CPACK_DEBIAN_${group}_PACKAGE_SHLIBDEPS OFF)
endforeach()
foreach(group CUDA HIP)
    set(CPACK_DEBIAN_${group}_PACKAGE_DEPENDS "${same}, libc6 (>= 2.31)")
endforeach()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.31)")
include(CPack)
foreach(group IN LISTS mp_groups)
    cpack_add_component_group(${group})
endforeach()
