// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened at first use and never linked: the module must load where it is not installed.
#pragma once

#include <cublasLt.h>

#include "status/status.hpp"

namespace mp::backends::cuda {

// The functions that are used, under their names without the prefix cublasLt.
#define MP_CUBLASLT_FUNCTIONS(X)                                                                   \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(GetStatusName)                                                                               \
    X(GetStatusString)                                                                             \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatrixLayoutSetAttribute)                                                                    \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(Matmul)

struct CublasLt {
#define X(name) decltype(&cublasLt##name) name = nullptr;
    MP_CUBLASLT_FUNCTIONS(X)
#undef X
    // Empty when the library is there; otherwise why it is not, and what to do.
    TextLine<512> reason;
    [[nodiscard]] bool is_there() const noexcept { return reason.empty(); }
};

// The library named by MIXEDPREC_CUBLASLT_LIBRARY; or else the one this process has loaded already
// (two copies would each keep their own kernels in device memory); or else the system's.
const CublasLt& cublaslt() noexcept;

// As a cublas_error that says what failed; ok for CUBLAS_STATUS_SUCCESS.
Status cublas_status(cublasStatus_t status, const char* what) noexcept;

} // namespace mp::backends::cuda
