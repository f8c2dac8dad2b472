// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc/library.hpp"

#include "vendor/forwarded.hpp"

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

const char* find(void* library) noexcept {
    const char* missing = nullptr;
#define X MP_FORWARD_FIND
#include "topology/hwloc/functions.def"
#undef X
    return missing;
}

void check_version(TextLine<512>& reason) noexcept {
    const unsigned version = functions.hwloc_get_api_version();
    if (version >> 16 != kMajor) {
        reason.set("%s is hwloc %u; install %s", kHwloc.soname, version >> 16, kHwloc.install);
    }
}

} // namespace

const vendor::OptionalLibrary& hwloc_library() noexcept {
    static const vendor::OptionalLibrary library =
        vendor::open_optional(kHwloc, find, check_version);
    return library;
}

} // namespace mp::topology

#define MP_FORWARD_FUNCTIONS mp::topology::functions
#define X MP_FORWARD_DEFINE
#include "topology/hwloc/functions.def"
#undef X
