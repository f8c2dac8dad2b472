# SPDX-License-Identifier: Apache-2.0
# Run by ctest: installs the components, one by one as a packager does, into a folder that is made anew.
file(REMOVE_RECURSE "${PREFIX}")
foreach(component IN LISTS COMPONENTS)
    execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${PREFIX}" --component ${component}
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0 OR NOT output MATCHES "Installing")
        message(FATAL_ERROR "component ${component} (${result}): ${output}")
    endif()
endforeach()
