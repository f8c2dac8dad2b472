# SPDX-License-Identifier: Apache-2.0
# Shared libraries that load on glibc 2.31, wherever they are built.
#
# Since 2.34 the functions of libpthread, libdl and librt are in libc.so.6, with a version that no older system has. The
# old versions are still there. So we link against stubs that offer the old names in the old libraries, before libc; and
# what is newer altogether comes from glibc/substitutes.c. tests/abi/check_symbols.py reads what came of it.
include_guard(GLOBAL)

set(_mp_glibc_here "${CMAKE_CURRENT_LIST_DIR}/glibc")

set(_mp_glibc_libpthread
    __pthread_key_create pthread_condattr_setpshared pthread_create pthread_detach pthread_getspecific pthread_join
    pthread_key_create pthread_key_delete pthread_kill pthread_mutex_trylock pthread_mutexattr_destroy
    pthread_mutexattr_init pthread_mutexattr_setpshared pthread_mutexattr_settype pthread_once pthread_rwlock_destroy
    pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
    pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock
    pthread_rwlockattr_destroy pthread_rwlockattr_init pthread_rwlockattr_setpshared
    pthread_setspecific pthread_sigmask pthread_spin_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock
    pthread_spin_unlock sem_destroy sem_init sem_post sem_timedwait sem_trywait sem_wait)
set(_mp_glibc_libpthread_2_3_4 pthread_setaffinity_np)
set(_mp_glibc_libpthread_2_12 pthread_setname_np)
set(_mp_glibc_libpthread_2_30 pthread_cond_clockwait)
set(_mp_glibc_libdl dlclose dlerror dlopen dlsym dlvsym dladdr)
set(_mp_glibc_libdl_2_3_3 dlinfo)
set(_mp_glibc_libdl_2_3_4 dlmopen)
set(_mp_glibc_librt shm_open shm_unlink)

# The version that a port of glibc began with.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(_mp_glibc_base 2.2.5)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(_mp_glibc_base 2.17)
endif()

# _mp_glibc_stub(<libpthread> <0> [later versions...]): a shared library with that name that has nothing but symbols.
function(_mp_glibc_stub name soversion)
    set(folder "${PROJECT_BINARY_DIR}/glibc")
    set(code "/* Generated: names for the linker. */\n")
    set(map "")
    set(parent "")
    foreach(version "" ${ARGN})
        set(list "_mp_glibc_${name}")
        set(node "GLIBC_${_mp_glibc_base}")
        if(version AND version VERSION_GREATER _mp_glibc_base)
            set(node "GLIBC_${version}")
        endif()
        if(version)
            string(REPLACE "." "_" suffix "${version}")
            string(APPEND list "_${suffix}")
        endif()
        list(JOIN ${list} "; " names)
        foreach(symbol IN LISTS ${list})
            string(APPEND code "void ${symbol}(void);\nvoid ${symbol}(void) {}\n")
        endforeach()
        list(APPEND nodes "${node}")
        set("names_${node}" "${names_${node}}${names}; ")
    endforeach()
    list(REMOVE_DUPLICATES nodes)
    set(others "local: *; ")
    foreach(node IN LISTS nodes)
        string(APPEND map "${node} { global: ${names_${node}}${others}}${parent};\n")
        set(parent " ${node}")
        set(others "")
    endforeach()
    file(CONFIGURE OUTPUT "${folder}/${name}.c" CONTENT "${code}" @ONLY)
    file(CONFIGURE OUTPUT "${folder}/${name}.map" CONTENT "${map}" @ONLY)
    add_library(mp_glibc_${name} SHARED "${folder}/${name}.c")
    # NO_SONAME: CMake's own would say libmp_...; the folder is in no search path, so nothing ever loads these.
    set_target_properties(mp_glibc_${name} PROPERTIES
        OUTPUT_NAME "${name}" PREFIX "" SUFFIX ".so.${soversion}" NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY "${folder}")
    target_compile_options(mp_glibc_${name} PRIVATE -fno-builtin -w)
    target_link_options(mp_glibc_${name} PRIVATE -nostdlib
        "LINKER:-soname,${name}.so.${soversion}" "LINKER:--version-script=${folder}/${name}.map")
endfunction()

# mp_old_glibc(<target> [librt]): the shared library `target` needs nothing newer than glibc 2.31.
function(mp_old_glibc target)
    if(NOT DEFINED _mp_glibc_base OR MIXEDPREC_SANITIZE OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
        return() # sanitized ones run where they are built
    endif()
    if(NOT TARGET mp_glibc_substitutes)
        _mp_glibc_stub(libpthread 0 2.3.4 2.12 2.30)
        _mp_glibc_stub(libdl 2 2.3.3 2.3.4)
        _mp_glibc_stub(librt 1)
        add_library(mp_glibc_substitutes OBJECT "${_mp_glibc_here}/substitutes.c")
        target_compile_definitions(mp_glibc_substitutes PRIVATE _GNU_SOURCE)
        mp_warnings(mp_glibc_substitutes)
    endif()
    target_link_libraries(${target} PRIVATE mp_glibc_substitutes)
    foreach(name libpthread libdl ${ARGN})
        add_dependencies(${target} mp_glibc_${name})
        # As options, before all objects, and not as libraries, which would put their folder into the RUNPATH.
        target_link_options(${target} PRIVATE "LINKER:--no-as-needed,$<TARGET_FILE:mp_glibc_${name}>")
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "$<TARGET_FILE:mp_glibc_${name}>")
    endforeach()
    target_link_options(${target} PRIVATE "LINKER:--as-needed")
endfunction()
