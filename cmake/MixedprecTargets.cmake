# SPDX-License-Identifier: Apache-2.0
# What every target of ours gets: warnings, the flags the numerics rest on, hidden symbols, sanitizers, tests.
# Include it in the top CMakeLists.txt before the first add_subdirectory: sanitizer flags hold for all that follows.
include_guard(GLOBAL)
include(MixedprecGlibc)

# Of core a backend sees the base; those that launch kernels see core/kernels, too (tests/layering).
set(MP_BACKEND_INCLUDES "${PROJECT_SOURCE_DIR}/core/base" "${PROJECT_SOURCE_DIR}/backends")
set(MP_ALL_INCLUDES "${PROJECT_SOURCE_DIR}/core" ${MP_BACKEND_INCLUDES})

option(MIXEDPREC_WERROR "Warnings are errors" OFF)
set(MIXEDPREC_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")
set_property(CACHE MIXEDPREC_SANITIZE PROPERTY STRINGS "" "address,undefined" thread)

if(NOT MIXEDPREC_SANITIZE MATCHES "^(address|undefined|address,undefined|thread)?$")
    message(FATAL_ERROR "MIXEDPREC_SANITIZE is '${MIXEDPREC_SANITIZE}'; "
        "it must be empty, address, undefined, address,undefined or thread.")
endif()
if("${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_CUDA_FLAGS}" MATCHES "fast-math|-Ofast|-funsafe-math")
    message(FATAL_ERROR "The compiler flags ask for fast math (${CMAKE_CXX_FLAGS}). "
        "libmixedprec promises the same bits everywhere; take that flag out.")
endif()

if(MIXEDPREC_SANITIZE)
    set(_mp_sanitize -fsanitize=${MIXEDPREC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${_mp_sanitize}>")
    add_link_options(${_mp_sanitize})
    if(MIXEDPREC_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-tsan>") # Kokkos's fences, which gcc's sanitizer ignores
    endif()
endif()

# All warnings we hold ourselves to.
function(mp_warnings target)
    target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>"
        "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
        "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>"
        # Not -Wpedantic: the line directives that nvcc writes for the host compiler are not ISO.
        "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>")
    if(MIXEDPREC_WERROR)
        target_compile_options(${target} PRIVATE
            "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>"
            "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
    endif()
endfunction()

# The same bits on every machine: no contraction into fused multiply-adds behind our back, IEEE division and square
# root, subnormals kept. -fno-math-errno and -fno-trapping-math change no result; they let sqrt become one instruction
# and loops with comparisons be vectorized.
function(mp_numerics_flags target)
    target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off;-fno-math-errno;-fno-trapping-math>"
        "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-prec-div=true;-prec-sqrt=true;-ftz=false>"
        "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off,-fno-math-errno,-fno-trapping-math>"
        # As a flag: CMake before 3.26 knows no CUDA_STANDARD 20 for nvcc, and says nothing.
        "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
endfunction()

# A shared library or module exports what `mapfile` lists and nothing else, needs no symbol it does not name, brings its
# own C++ run time, loads on an older C library (further arguments: see mp_old_glibc), and stays when it is closed: threads,
# functions for the process's end and memory of the caller's may still lead into it.
function(mp_hide_symbols target mapfile)
    get_filename_component(mapfile "${mapfile}" ABSOLUTE)
    set_target_properties(${target} PROPERTIES
        C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${mapfile}")
    target_link_options(${target} PRIVATE "LINKER:--version-script=${mapfile}" "LINKER:--exclude-libs,ALL" "LINKER:-z,nodelete")
    # gcc links its sanitizer run times into shared libraries; clang leaves them to the program.
    if(NOT (MIXEDPREC_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
        target_link_options(${target} PRIVATE "LINKER:--no-undefined")
    endif()
    # Sanitizer run times come with a shared libstdc++ of their own.
    if(NOT MIXEDPREC_SANITIZE)
        target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
    mp_no_unique_symbols(${target})
    mp_old_glibc(${target} ${ARGN})
endfunction()

# GCC's "unique" symbols are one for the whole process, whatever a version script says. Also for object libraries that
# end in a shared one.
function(mp_no_unique_symbols target)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE
            "$<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique>")
    endif()
endfunction()

# What every test runs with, and what skips it: exit code 77.
function(_mp_test_properties name timeout labels)
    # A limit ends what hangs. A machine may have many times as much to do as cores, so it is many times what a test takes.
    math(EXPR timeout "${timeout} * 5")
    # Idle OpenMP threads sleep: tests share the cores with each other.
    set(environment "MP_FIXTURE_DIR=${PROJECT_SOURCE_DIR}/tests/fixtures" "OMP_WAIT_POLICY=passive")
    if(MIXEDPREC_SANITIZE)
        math(EXPR timeout "${timeout} * 5")
        list(APPEND environment
            # Absurd sizes must come back as a status; not strict_string_checks, which libgfortran fails. Of gcc 12's runtime:
            # a thread's storage in a library that was opened later, where it lies at the start of a page, is taken for
            # another glibc's header, and the search for leaks crashes. So it does not look there.
            "ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1:intercept_tls_get_addr=0"
            "UBSAN_OPTIONS=print_stacktrace=1"
            "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
    endif()
    set_tests_properties(${name} PROPERTIES
        TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endfunction()

# mp_test_flags(<program> [lib...]): what every program of tests in C++ is made with. GoogleTest, a main if it has none, and
# tests/pch.hpp, compiled in tests/CMakeLists.txt: once for programs that link objects of ours, which bring OpenMP's flags,
# and once for the others. A file may not have another -O: gcc crashes on the header then.
function(mp_test_flags program)
    set(main mp_test_main)
    if("${ARGN}" MATCHES "mp_|OpenMP")
        set(main mp_test_main_openmp)
    endif()
    target_link_libraries(${program} PRIVATE ${ARGN} ${main})
    target_include_directories(${program} PRIVATE
        "${PROJECT_SOURCE_DIR}/core" "${PROJECT_SOURCE_DIR}/core/base" "${PROJECT_SOURCE_DIR}/tests")
    target_precompile_headers(${program} REUSE_FROM ${main})
    mp_warnings(${program})
    mp_numerics_flags(${program})
endfunction()

# mp_add_test(<name> SOURCES file... [LIBS lib...] [ARGS arg...] [LABELS label...] [TIMEOUT seconds] [C])
# One program, one test. C++ sources get GoogleTest and the main of tests/main.cpp; with C the program brings its own main.
# The macro and the environment variable MP_FIXTURE_DIR name tests/fixtures.
function(mp_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "C" "TIMEOUT" "SOURCES;LIBS;ARGS;LABELS")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
        message(FATAL_ERROR "mp_add_test(${name}): wants SOURCES, and does not know '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    add_executable(${name} ${arg_SOURCES})
    if(arg_C)
        target_link_libraries(${name} PRIVATE ${arg_LIBS})
        mp_warnings(${name})
        mp_numerics_flags(${name})
    else()
        mp_test_flags(${name} ${arg_LIBS})
    endif()
    mp_add_script_test(${name} COMMAND ${name} ${arg_ARGS} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# mp_add_test_program(<program> [PREFIX prefix] [FILES name... | EXCEPT name...] [SOURCES file...] [LIBS lib...] [LABELS label...]
#                     [TIMEOUT seconds])
# One program of many files, and a test for each: <prefix>_<name> runs the tests of name.cpp in a process of its own. The
# prefix, which is a label too, is the program's name without _tests; the files are all of the folder, but for EXCEPT.
# Called again for the same program it adds files. Another link or operator new is another program.
# Names with external linkage are the program's, so two headers that are never included together may not share one.
function(mp_add_test_program program)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "PREFIX;TIMEOUT" "FILES;EXCEPT;SOURCES;LIBS;LABELS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mp_add_test_program(${program}): does not know '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(NOT arg_PREFIX)
        string(REGEX REPLACE "_tests$" "" arg_PREFIX ${program})
    endif()
    if(NOT arg_FILES)
        file(GLOB sources CONFIGURE_DEPENDS *.cpp)
        foreach(source IN LISTS sources)
            get_filename_component(name "${source}" NAME_WE)
            list(APPEND arg_FILES ${name})
        endforeach()
        list(REMOVE_ITEM arg_FILES ${arg_EXCEPT})
    endif()
    if(NOT TARGET ${program})
        add_executable(${program})
        mp_test_flags(${program} ${arg_LIBS})
    endif()
    target_sources(${program} PRIVATE ${arg_SOURCES})
    foreach(name IN LISTS arg_FILES)
        target_sources(${program} PRIVATE ${name}.cpp)
        mp_add_script_test(${arg_PREFIX}_${name} COMMAND ${program} --file=${name}
            LABELS ${arg_PREFIX} ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
    endforeach()
endfunction()

# mp_tests_without_disk(<test>...): their files lie in memory where the system has a folder for that. What they test is not
# the disk, whose syncs take most of their time.
function(mp_tests_without_disk)
    if(IS_DIRECTORY /dev/shm)
        set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT TMPDIR=/dev/shm TEST_TMPDIR=/dev/shm)
    endif()
endfunction()

# mp_add_script_test(<name> COMMAND command... [LABELS label...] [TIMEOUT seconds])
function(mp_add_script_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    add_test(NAME ${name} COMMAND ${arg_COMMAND})
    _mp_test_properties(${name} ${arg_TIMEOUT} "${arg_LABELS}")
endfunction()
