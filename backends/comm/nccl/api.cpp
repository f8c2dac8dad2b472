// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/api.hpp"

#include "vendor/library.hpp"

namespace mp::comm {
namespace {

constexpr vendor::LibraryName kLibrary = {"libnccl.so.2", "MIXEDPREC_NCCL_LIBRARY",
                                          "NCCL 2.18 or newer"};

NcclApi load() noexcept {
    NcclApi api;
    void* library = vendor::open_library(kLibrary, api.reason);
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
