// SPDX-License-Identifier: Apache-2.0
#include "cuda/cublaslt.hpp"

#include "vendor/library.hpp"

namespace mp::backends::cuda {

namespace {

#define MP_TEXT_OF(x) #x
#define MP_TEXT(x) MP_TEXT_OF(x)
// The ABI this build was compiled against.
constexpr vendor::LibraryName kLibrary = {"libcublasLt.so." MP_TEXT(CUBLAS_VER_MAJOR),
                                          "MIXEDPREC_CUBLASLT_LIBRARY",
                                          "cuBLAS of CUDA " MP_TEXT(CUBLAS_VER_MAJOR)};

template <typename Function>
void look_up(void* library, const char* name, Function& out, TextLine<512>& reason) noexcept {
    out = reinterpret_cast<Function>(dlsym(library, name));
    if (out == nullptr && reason.empty()) {
        reason.set("%s has no function %s", kLibrary.soname, name);
    }
}

CublasLt load() noexcept {
    CublasLt table;
    void* library = vendor::open_library(kLibrary, table.reason);
    if (library == nullptr) {
        return table;
    }
#define X(name) look_up(library, "cublasLt" #name, table.name, table.reason);
    MP_CUBLASLT_FUNCTIONS(X)
#undef X
    if (!table.is_there()) {
        return table;
    }
    // Structures and enumerations may differ between major versions.
    const std::size_t version = table.GetVersion();
    const auto major = static_cast<int>(version / 10000);
    if (major != CUBLAS_VER_MAJOR) {
        table.reason.set("the library is cuBLASLt %d, this module needs %d", major,
                         CUBLAS_VER_MAJOR);
    }
    return table;
}

} // namespace

const CublasLt& cublaslt() noexcept {
    static const CublasLt table = load(); // the library is never closed
    return table;
}

Status cublas_status(cublasStatus_t status, const char* what) noexcept {
    if (status == CUBLAS_STATUS_SUCCESS) {
        return {};
    }
    return Status::error(Code::cublas_error, "cuda: %s: %s (%s)", what,
                         cublaslt().GetStatusString(status), cublaslt().GetStatusName(status));
}

} // namespace mp::backends::cuda
