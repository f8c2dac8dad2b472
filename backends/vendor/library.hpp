// SPDX-License-Identifier: Apache-2.0
// A vendor's library, opened at first use and never linked nor closed, so that a module loads where it is not installed.
#pragma once

#include <dlfcn.h>

#include "process/environment.hpp"
#include "status/status.hpp"

namespace mp::vendor {

struct LibraryName {
    const char* soname;
    const char* variable; // of the environment, which may name another file
    const char* install;  // what to install where there is none
};

// None in a program with more rights than its caller. The library that the variable names; or else the one this process has
// loaded already, since two copies would each keep state of their own; or else the system's. Null: `reason` says why, and
// what to do.
inline void* open_library(const LibraryName& name, TextLine<512>& reason) noexcept {
    if (process::has_more_rights_than_caller()) {
        reason.set("%s is not opened: this program runs with more rights than its caller (setuid), "
                   "whose environment that library would read",
                   name.soname);
        return nullptr;
    }
    const char* path = process::environment(name.variable);
    if (path != nullptr && path[0] != '\0') {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            reason.set("%s names %s, which cannot be opened: %s", name.variable, path, dlerror());
        }
        return library;
    }
    void* library = dlopen(name.soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) {
        library = dlopen(name.soname, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
        reason.set("%s cannot be opened: %s; install %s, or name the library in %s", name.soname,
                   dlerror(), name.install, name.variable);
    }
    return library;
}

// A library that is opened at run time, or why it is not used.
struct OptionalLibrary {
    bool is_usable = false;
    TextLine<512> reason; // why it is not
};

// find(library): the name of a function that is not there, or null. check(reason): says why the version does not serve.
template <class Find, class Check>
OptionalLibrary open_optional(const LibraryName& name, const Find& find,
                              const Check& check) noexcept {
    OptionalLibrary result;
    void* library = open_library(name, result.reason);
    if (library == nullptr) {
        return result;
    }
    if (const char* missing = find(library); missing != nullptr) {
        result.reason.set("%s has no function %s; install %s", name.soname, missing, name.install);
        return result;
    }
    check(result.reason);
    result.is_usable = result.reason.empty();
    return result;
}

} // namespace mp::vendor
