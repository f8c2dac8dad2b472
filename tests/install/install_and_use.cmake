# SPDX-License-Identifier: Apache-2.0
# Run by ctest: install, then use the installed tree only.
function(must)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "failed (${result}): ${ARGN}\n${output}")
    endif()
endfunction()

set(prefix "${WORK_DIR}/prefix")
file(REMOVE_RECURSE "${WORK_DIR}")
must(${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${prefix}")
set(flags "")
if(SANITIZE)
    set(flags "-fsanitize=${SANITIZE}")
endif()

# pkg-config, from another place than the one it was configured for: the .pc file is relocatable.
file(RENAME "${prefix}" "${prefix}-moved")
set(prefix "${prefix}-moved")
find_program(PKG_CONFIG pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs mixedprec OUTPUT_VARIABLE words OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(words)
must(${C_COMPILER} -std=c99 -pedantic -Werror ${flags} "${PROGRAM}" -o "${WORK_DIR}/by_pkg_config" ${words} -lm)
set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
must("${WORK_DIR}/by_pkg_config")
must(${C_COMPILER} -std=c11 -O2 ${flags} "${EXAMPLE}" -o "${WORK_DIR}/example" ${words} -lm)
must("${WORK_DIR}/example" --data "${TEXT}" --steps 2 --layers 1 --dim 32 --recipe bf16_pure_kahan)

must(${CMAKE_COMMAND} -S "${SOURCE_DIR}" -B "${WORK_DIR}/build" "-DCMAKE_PREFIX_PATH=${prefix}" "-DPROGRAM=${PROGRAM}"
    "-DCMAKE_C_FLAGS=${flags}")
must(${CMAKE_COMMAND} --build "${WORK_DIR}/build")
must("${WORK_DIR}/build/by_find_package")
