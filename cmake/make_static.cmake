# SPDX-License-Identifier: Apache-2.0
# Run by the build: PARTS and LIBRARIES become one object with no other global symbols than those of MAP, in the archive OUTPUT.
function(must)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "failed (${result}): ${ARGN}\n${output}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

file(READ "${MAP}" text)
string(REGEX MATCHALL "mp_[a-z0-9_]+" symbols "${text}")
list(JOIN symbols "\n" text)
file(WRITE "${OUTPUT}.symbols" "${text}\n")
# Groups of sections that several files have are one here, so that making their symbols local leaves no second one behind.
must("${LINKER}" -r --force-group-allocation -o "${OUTPUT}.o" --whole-archive "${PARTS}" --no-whole-archive ${LIBRARIES})
must("${OBJCOPY}" "--keep-global-symbols=${OUTPUT}.symbols" --strip-debug "${OUTPUT}.o")
file(REMOVE "${OUTPUT}")
must("${AR}" qcs "${OUTPUT}" "${OUTPUT}.o")
file(REMOVE "${OUTPUT}.o" "${OUTPUT}.symbols")
