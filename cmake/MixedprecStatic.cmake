# SPDX-License-Identifier: Apache-2.0
# mp_static_library(<target> <file> <mapfile> <object library>...): all objects and the static libraries they need, as one
# relocatable object whose only global symbols are those of the map.
function(mp_static_library target file mapfile)
    # A program that nobody runs: what links it is what the archive is made of.
    set(collector "${CMAKE_CURRENT_BINARY_DIR}/${target}_collector.cpp")
    file(WRITE "${collector}" "")
    add_library(${target}_parts STATIC "${collector}")
    target_link_libraries(${target}_parts PRIVATE ${ARGN})
    set(archives "")
    set(kokkos "")
    if(TARGET mp_kokkos_host)
        get_target_property(kokkos mp_kokkos_host INTERFACE_LINK_LIBRARIES)
    endif()
    foreach(library IN LISTS kokkos)
        if(library MATCHES "\\.a$")
            list(APPEND archives "${library}")
        elseif(library STREQUAL "Kokkos::kokkos")
            list(APPEND archives "$<TARGET_FILE:Kokkos::kokkoscontainers>" "$<TARGET_FILE:Kokkos::kokkoscore>")
        endif()
    endforeach()
    get_filename_component(mapfile "${mapfile}" ABSOLUTE)
    set(output "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${file}")
    add_custom_command(OUTPUT "${output}"
        COMMAND ${CMAKE_COMMAND} "-DPARTS=$<TARGET_FILE:${target}_parts>" "-DLIBRARIES=${archives}"
            "-DMAP=${mapfile}" "-DOUTPUT=${output}"
            "-DLINKER=${CMAKE_LINKER}" "-DOBJCOPY=${CMAKE_OBJCOPY}" "-DAR=${CMAKE_AR}" "-DNM=${CMAKE_NM}"
            -P "${PROJECT_SOURCE_DIR}/cmake/make_static.cmake"
        DEPENDS ${target}_parts "${mapfile}" "${PROJECT_SOURCE_DIR}/cmake/make_static.cmake" VERBATIM)
    add_custom_target(${target} ALL DEPENDS "${output}")
endfunction()
