# SPDX-License-Identifier: Apache-2.0
# CMAKE_CUDA_ARCHITECTURES, in ascending order: Kokkos is compiled for the first one alone, and ends the process on an older
# GPU than that; it has a list of its own. "all-known" are those of the list below that nvcc has, with PTX of the highest for
# what comes after it. Others run the code for the highest below them of the same generation: 8.7 that for 8.6, 10.3 that for
# 10.0, 12.1 that for 12.0. Nothing here uses what only those have.
set(_mp_known 80 86 89 90 100 110 120)

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real 90-virtual)
elseif(CMAKE_CUDA_ARCHITECTURES STREQUAL "all-known")
    find_program(_mp_nvcc NAMES nvcc HINTS "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin REQUIRED)
    mark_as_advanced(_mp_nvcc)
    execute_process(COMMAND "${_mp_nvcc}" --list-gpu-arch OUTPUT_VARIABLE _mp_has COMMAND_ERROR_IS_FATAL ANY)
    set(_mp_all "") # not the variable itself: unset, it is what the cache says
    foreach(arch IN LISTS _mp_known)
        if(_mp_has MATCHES "compute_${arch}\n")
            list(APPEND _mp_all ${arch}-real)
            set(_mp_highest ${arch})
        endif()
    endforeach()
    list(TRANSFORM _mp_all REPLACE "^90-real$" "90a-real")
    set(CMAKE_CUDA_ARCHITECTURES ${_mp_all} ${_mp_highest}-virtual)
endif()

foreach(arch IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(NOT arch MATCHES "^[0-9]+[af]?(-real|-virtual)?$")
        message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES has '${arch}'; it must be all-known, or numbers such as 90, each with "
            "nothing, -real or -virtual behind it.")
    endif()
endforeach()
list(SORT CMAKE_CUDA_ARCHITECTURES COMPARE NATURAL)
