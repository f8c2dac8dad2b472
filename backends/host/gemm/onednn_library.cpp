// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/onednn_library.hpp"

#include <dlfcn.h>

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

OnednnOpenMp openmp;

const char* find(void* library) noexcept {
    // In what oneDNN was linked with.
    openmp.get_max_threads = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
    openmp.set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
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

const OnednnOpenMp& onednn_openmp() noexcept { return openmp; }

} // namespace mp::backends::host

#define MP_FORWARD_FUNCTIONS mp::backends::host::functions
#define X MP_FORWARD_DEFINE
#include "host/gemm/onednn_functions.def"
#undef X
