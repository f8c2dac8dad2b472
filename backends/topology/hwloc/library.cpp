// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc/library.hpp"

#include "vendor/forwarded.hpp"
#include "vendor/library.hpp"

namespace mp::topology {

namespace {

constexpr vendor::LibraryName kHwloc = {"libhwloc.so.15", "MIXEDPREC_HWLOC_LIBRARY",
                                        "hwloc 2 (Debian: libhwloc15)"};
constexpr unsigned kMajor = HWLOC_API_VERSION >> 16;

struct Functions {
#define X MP_FORWARD_MEMBER
#include "topology/hwloc/functions.def"
#undef X
} functions;

HwlocLibrary open() noexcept {
    HwlocLibrary result;
    void* library = vendor::open_library(kHwloc, result.reason);
    if (library == nullptr) {
        return result;
    }
    const char* missing = nullptr;
#define X MP_FORWARD_FIND
#include "topology/hwloc/functions.def"
#undef X
    if (missing != nullptr) {
        result.reason.set("%s has no function %s; install %s", kHwloc.soname, missing,
                          kHwloc.install);
        return result;
    }
    const unsigned version = functions.hwloc_get_api_version();
    if (version >> 16 != kMajor) {
        result.reason.set("%s is hwloc %u; install %s", kHwloc.soname, version >> 16,
                          kHwloc.install);
        return result;
    }
    result.is_usable = true;
    return result;
}

} // namespace

const HwlocLibrary& hwloc_library() noexcept {
    static const HwlocLibrary library = open();
    return library;
}

} // namespace mp::topology

#define MP_FORWARD_FUNCTIONS mp::topology::functions
#define X MP_FORWARD_DEFINE
#include "topology/hwloc/functions.def"
#undef X
