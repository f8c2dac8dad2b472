// SPDX-License-Identifier: Apache-2.0
#include "hip/library.hpp"

#include <hip/hip_runtime_api.h>

#include "vendor/forwarded.hpp"

namespace mp::backends::hip {

namespace {

#define MP_TEXT_OF(x) #x
#define MP_TEXT(x) MP_TEXT_OF(x)
#define MP_MAJOR MP_TEXT(HIP_VERSION_MAJOR)

constexpr vendor::LibraryName kRuntime = {"libamdhip64.so." MP_MAJOR, "MIXEDPREC_HIP_LIBRARY",
                                          "ROCm's HIP runtime " MP_MAJOR
                                          ".x (Debian: libamdhip64-" MP_MAJOR ")"};

struct Functions {
// One more step than elsewhere: a later HIP renames some of these by macros, and the name that is looked up must follow.
#define X(result, name, parameters, arguments)                                                     \
    MP_FORWARD_MEMBER(result, name, parameters, arguments)
#include "hip/functions.def"
#undef X
} functions;

const char* find(void* library) noexcept {
    const char* missing = nullptr;
#define X(result, name, parameters, arguments) MP_FORWARD_FIND(result, name, parameters, arguments)
#include "hip/functions.def"
#undef X
    return missing != nullptr ? missing : register_kernels(library);
}

// Structs of another major version have other members.
void check_version(TextLine<512>& reason) noexcept {
    int version = 0;
    (void)functions.hipRuntimeGetVersion(&version);
    if (version / 10000000 != HIP_VERSION_MAJOR) {
        reason.set("the HIP runtime that was found is version %d.%d; install %s",
                   version / 10000000, version / 100000 % 100, kRuntime.install);
    }
}

} // namespace

const vendor::OptionalLibrary& hip_library() noexcept {
    static const vendor::OptionalLibrary library =
        vendor::open_optional(kRuntime, find, check_version);
    return library;
}

} // namespace mp::backends::hip

// Not MP_FORWARD_DEFINE: HIP's header says that these are visible. module.map hides them.
#define X(result, name, parameters, arguments)                                                     \
    extern "C" result name parameters { return mp::backends::hip::functions.name arguments; }
#include "hip/functions.def"
#undef X
