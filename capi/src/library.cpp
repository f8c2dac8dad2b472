// SPDX-License-Identifier: Apache-2.0
// status.h, types.h, version.h
#include "boundary.hpp"
#include "context_registry.hpp"
#include "dtype/dtype.hpp"
#include "mixedprec.h"

using namespace mp;
using namespace mp::capi;

// Core's numbers are the public ones.
static_assert(MP_STATUS_OK == static_cast<int32_t>(Code::ok));
static_assert(MP_STATUS_WARNING == static_cast<int32_t>(Code::warning));
static_assert(MP_STATUS_NOT_READY == static_cast<int32_t>(Code::not_ready));
static_assert(MP_STATUS_NULL_ARGUMENT == static_cast<int32_t>(Code::null_argument));
static_assert(MP_STATUS_INVALID_ARGUMENT == static_cast<int32_t>(Code::invalid_argument));
static_assert(MP_STATUS_INVALID_SHAPE == static_cast<int32_t>(Code::invalid_shape));
static_assert(MP_STATUS_INVALID_DTYPE == static_cast<int32_t>(Code::invalid_dtype));
static_assert(MP_STATUS_UNKNOWN_NAME == static_cast<int32_t>(Code::unknown_name));
static_assert(MP_STATUS_STRUCT_TOO_NEW == static_cast<int32_t>(Code::struct_too_new));
static_assert(MP_STATUS_BAD_STATE == static_cast<int32_t>(Code::bad_state));
static_assert(MP_STATUS_INVALID_HANDLE == static_cast<int32_t>(Code::invalid_handle));
static_assert(MP_STATUS_PARSE_ERROR == static_cast<int32_t>(Code::parse_error));
static_assert(MP_STATUS_UNSUPPORTED == static_cast<int32_t>(Code::unsupported));
static_assert(MP_STATUS_DEVICE_UNAVAILABLE == static_cast<int32_t>(Code::device_unavailable));
static_assert(MP_STATUS_MODULE_NOT_FOUND == static_cast<int32_t>(Code::module_not_found));
static_assert(MP_STATUS_VERSION_MISMATCH == static_cast<int32_t>(Code::version_mismatch));
static_assert(MP_STATUS_OUT_OF_MEMORY == static_cast<int32_t>(Code::out_of_memory));
static_assert(MP_STATUS_IO_ERROR == static_cast<int32_t>(Code::io_error));
static_assert(MP_STATUS_CALLBACK_FAILED == static_cast<int32_t>(Code::callback_failed));
static_assert(MP_STATUS_TIMEOUT == static_cast<int32_t>(Code::timeout));
static_assert(MP_STATUS_PEER_LOST == static_cast<int32_t>(Code::peer_lost));
static_assert(MP_STATUS_PEER_ERROR == static_cast<int32_t>(Code::peer_error));
static_assert(MP_STATUS_RANK_MISMATCH == static_cast<int32_t>(Code::rank_mismatch));
static_assert(MP_STATUS_ABORTED == static_cast<int32_t>(Code::aborted));
static_assert(MP_STATUS_CORRUPT_DATA == static_cast<int32_t>(Code::corrupt_data));
static_assert(MP_STATUS_ONEDNN_ERROR == static_cast<int32_t>(Code::onednn_error));
static_assert(MP_STATUS_CUDA_ERROR == static_cast<int32_t>(Code::cuda_error));
static_assert(MP_STATUS_CUBLAS_ERROR == static_cast<int32_t>(Code::cublas_error));
static_assert(MP_STATUS_NCCL_ERROR == static_cast<int32_t>(Code::nccl_error));
static_assert(MP_STATUS_MPI_ERROR == static_cast<int32_t>(Code::mpi_error));
static_assert(MP_STATUS_KOKKOS_ERROR == static_cast<int32_t>(Code::kokkos_error));
static_assert(MP_STATUS_DEVICE_ERROR == static_cast<int32_t>(Code::device_error));
static_assert(MP_STATUS_INTERNAL == static_cast<int32_t>(Code::internal));

#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    static_assert(MP_DTYPE_##NAME == (value));
#include "dtype/dtype_list.def"
#undef X

const char* mp_dtype_name(int32_t dtype) {
    return is_valid(dtype) ? dtype_name(static_cast<DType>(dtype)) : "unknown";
}

size_t mp_dtype_size(int32_t dtype) {
    return is_valid(dtype) ? static_cast<size_t>(dtype_size(static_cast<DType>(dtype))) : 0;
}

const char* mp_status_string(mp_status status) {
    switch (status) {
#define MP_NAME(code)                                                                              \
    case code:                                                                                     \
        return #code
        MP_NAME(MP_STATUS_OK);
        MP_NAME(MP_STATUS_WARNING);
        MP_NAME(MP_STATUS_NOT_READY);
        MP_NAME(MP_STATUS_NULL_ARGUMENT);
        MP_NAME(MP_STATUS_INVALID_ARGUMENT);
        MP_NAME(MP_STATUS_INVALID_SHAPE);
        MP_NAME(MP_STATUS_INVALID_DTYPE);
        MP_NAME(MP_STATUS_UNKNOWN_NAME);
        MP_NAME(MP_STATUS_STRUCT_TOO_NEW);
        MP_NAME(MP_STATUS_BAD_STATE);
        MP_NAME(MP_STATUS_INVALID_HANDLE);
        MP_NAME(MP_STATUS_PARSE_ERROR);
        MP_NAME(MP_STATUS_UNSUPPORTED);
        MP_NAME(MP_STATUS_DEVICE_UNAVAILABLE);
        MP_NAME(MP_STATUS_MODULE_NOT_FOUND);
        MP_NAME(MP_STATUS_VERSION_MISMATCH);
        MP_NAME(MP_STATUS_OUT_OF_MEMORY);
        MP_NAME(MP_STATUS_IO_ERROR);
        MP_NAME(MP_STATUS_CALLBACK_FAILED);
        MP_NAME(MP_STATUS_TIMEOUT);
        MP_NAME(MP_STATUS_PEER_LOST);
        MP_NAME(MP_STATUS_PEER_ERROR);
        MP_NAME(MP_STATUS_RANK_MISMATCH);
        MP_NAME(MP_STATUS_ABORTED);
        MP_NAME(MP_STATUS_CORRUPT_DATA);
        MP_NAME(MP_STATUS_ONEDNN_ERROR);
        MP_NAME(MP_STATUS_CUDA_ERROR);
        MP_NAME(MP_STATUS_CUBLAS_ERROR);
        MP_NAME(MP_STATUS_NCCL_ERROR);
        MP_NAME(MP_STATUS_MPI_ERROR);
        MP_NAME(MP_STATUS_KOKKOS_ERROR);
        MP_NAME(MP_STATUS_DEVICE_ERROR);
        MP_NAME(MP_STATUS_INTERNAL);
#undef MP_NAME
    default:
        return "MP_STATUS_UNKNOWN";
    }
}

const char* mp_last_error_message(void) { return message(); }

mp_status mp_last_error_copy(char* buffer, size_t capacity, size_t* needed) {
    if (buffer == nullptr && capacity > 0) {
        return MP_STATUS_NULL_ARGUMENT; // without touching the message that was asked for
    }
    try {
        copy_text(message(), buffer, capacity, needed);
    } catch (...) {
        return MP_STATUS_OUT_OF_MEMORY;
    }
    return MP_STATUS_OK;
}

uint32_t mp_library_version(void) { return MP_VERSION; }

#define MP_TEXT_OF(x) #x
#define MP_TEXT(x) MP_TEXT_OF(x)

const char* mp_library_build_info(void) {
    return "libmixedprec " MP_TEXT(MP_VERSION_MAJOR) "." MP_TEXT(MP_VERSION_MINOR) "." MP_TEXT(
        MP_VERSION_PATCH) ", " MIXEDPREC_BUILD_INFO;
}

mp_status mp_library_shutdown(void) {
    return boundary([] { shutdown_backends(); });
}
