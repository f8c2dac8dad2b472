// SPDX-License-Identifier: Apache-2.0
// C functions of a library that is opened at run time, under their own names, so that code written against its headers
// stays as it is. A list of rows
//     X(result, name, (parameters), (arguments))
// becomes the members of a struct of pointers, the search for them, and hidden functions that call through them: another
// library of the process that needs the same one must not find these.
#pragma once

#include <dlfcn.h>

#include "status/status.hpp"

#define MP_FORWARD_MEMBER(result, name, parameters, arguments) result(*name) parameters = nullptr;

// With `library`, `functions` and `missing`, which gets the name of what is not there.
#define MP_FORWARD_FIND(result, name, parameters, arguments)                                       \
    functions.name = reinterpret_cast<result(*) parameters>(dlsym(library, #name));                \
    missing = functions.name == nullptr ? #name : missing;

// MP_FORWARD_FUNCTIONS is the struct. Nothing is called before all its members were found.
#define MP_FORWARD_DEFINE(result, name, parameters, arguments)                                     \
    extern "C" __attribute__((visibility("hidden"))) result name parameters {                      \
        return MP_FORWARD_FUNCTIONS.name arguments;                                                \
    }
