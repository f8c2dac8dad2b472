// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/onednn_library.hpp"

#include "vendor/forwarded.hpp"

namespace mp::backends::host {

namespace {

constexpr vendor::LibraryName kOnednn = {"libdnnl.so.2", "MIXEDPREC_ONEDNN_LIBRARY",
                                         "oneDNN 2.6 or a later 2.x (Debian: libdnnl2)"};
constexpr int kMajor = DNNL_VERSION_MAJOR;
constexpr int kMinor = 6;

struct Functions {
#define X MP_FORWARD_MEMBER
#include "host/gemm/onednn_functions.def"
#undef X
} functions;

const char* find(void* library) noexcept {
    const char* missing = nullptr;
#define X MP_FORWARD_FIND
#include "host/gemm/onednn_functions.def"
#undef X
    return missing;
}

void check_version(TextLine<512>& reason) noexcept {
    const dnnl_version_t& version = *functions.dnnl_version();
    if (version.major != kMajor || version.minor < kMinor) {
        reason.set("%s is oneDNN %d.%d.%d; install %s", kOnednn.soname, version.major,
                   version.minor, version.patch, kOnednn.install);
    }
}

} // namespace

const vendor::OptionalLibrary& onednn_library() noexcept {
    static const vendor::OptionalLibrary library =
        vendor::open_optional(kOnednn, find, check_version);
    return library;
}

} // namespace mp::backends::host

#define MP_FORWARD_FUNCTIONS mp::backends::host::functions
#define X MP_FORWARD_DEFINE
#include "host/gemm/onednn_functions.def"
#undef X
