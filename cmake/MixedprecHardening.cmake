# SPDX-License-Identifier: Apache-2.0
# What distributions build with: position independent programs, symbols bound at start and read-only from then on, a guard
# behind arrays on the stack, calls of the C library that know the size they write to. tests/install/hardening.py reads
# what came of it. Include it before the first add_subdirectory.
include_guard(GLOBAL)

option(MIXEDPREC_HARDEN "Build as distributions do: PIE, RELRO, BIND_NOW, stack protector, _FORTIFY_SOURCE" OFF)
if(MIXEDPREC_HARDEN)
    include(CheckPIESupported)
    check_pie_supported()
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    add_link_options("LINKER:-z,relro" "LINKER:-z,now")
endif()

# Loops whose arrays on the stack have sizes and indices that are known when they are compiled: a guard costs time there,
# and finds nothing.
function(mp_without_stack_guard target)
    if(MIXEDPREC_HARDEN)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-stack-protector>")
    endif()
endfunction()
