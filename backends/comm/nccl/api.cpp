// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/api.hpp"

#include <cstdlib>
#include <dlfcn.h>

namespace mp::comm {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kOverride = "MIXEDPREC_NCCL_LIBRARY";

void* open_library(TextLine<512>& reason) noexcept {
    const char* path = std::getenv(kOverride);
    if (path != nullptr && path[0] != '\0') {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            reason.set("%s names %s, which cannot be opened: %s", kOverride, path, dlerror());
        }
        return library;
    }
    // A process with two copies of NCCL has two of its bootstrap networks.
    void* library = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) {
        library = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
        reason.set("%s cannot be opened: %s; install NCCL 2.18 or newer, or name the library in %s",
                   kSoname, dlerror(), kOverride);
    }
    return library;
}

NcclApi load() noexcept {
    NcclApi api;
    void* library = open_library(api.reason);
    if (library != nullptr) {
        fill_nccl(
            api, [](void* from, const char* name) { return dlsym(from, name); }, library);
    }
    return api;
}

} // namespace

void fill_nccl(NcclApi& api, void* (*find)(void* library, const char* name),
               void* library) noexcept {
    TextLine<256> missing;
    const auto look_up = [&](const char* name, auto& out) {
        out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(find(library, name));
        if (out == nullptr) {
            const TextLine<256> before = missing;
            missing.set("%s%s%s", before.c_str(), before.empty() ? "" : ", ", name);
        }
    };
#define X(name, arguments) look_up("nccl" #name, api.name);
    MP_NCCL_FUNCTIONS(X)
#undef X
    look_up("ncclGetErrorString", api.GetErrorString);
    look_up("ncclGetLastError", api.GetLastError);
    if (api.GetVersion != nullptr) {
        (void)api.GetVersion(&api.version);
    }
    if (!missing.empty() || api.version < kNcclMinimumVersion) {
        api.reason.set("the NCCL that was found is version %d; it must be at least %d (2.18)%s%s",
                       api.version, kNcclMinimumVersion, missing.empty() ? "" : "; it lacks ",
                       missing.c_str());
    }
}

const NcclApi& nccl() noexcept {
    static const NcclApi api = load(); // the library is never closed
    return api;
}

Status nccl_status(const NcclApi& api, NcclResult result, const char* what,
                   NcclComm comm) noexcept {
    if (result == kNcclSuccess || result == kNcclInProgress) {
        return {};
    }
    return Status::error(result == kNcclRemoteError ? Code::peer_lost : Code::nccl_error,
                         "%s: %s (ncclResult %d): %.300s", what, api.GetErrorString(result), result,
                         api.GetLastError(comm));
}

} // namespace mp::comm
