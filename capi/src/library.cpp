// SPDX-License-Identifier: Apache-2.0
// status.h, types.h, version.h
#include "boundary.hpp"
#include "context_registry.hpp"
#include "dtype/dtype.hpp"
#include "mixedprec.h"

using namespace mp;
using namespace mp::capi;

// Core's numbers are the public ones.
#define X(NAME, name, value) static_assert(MP_STATUS_##NAME == (value));
#include "status/codes.def"
#undef X
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    static_assert(MP_DTYPE_##NAME == (value));
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes) static_assert(MP_DTYPE_##NAME == (value));
#include "dtype/block_types.def"
#undef X

const char* mp_dtype_name(int32_t dtype) {
    return is_valid(dtype) ? dtype_name(static_cast<DType>(dtype)) : "unknown";
}

int32_t mp_dtype_from_name(const char* name) {
    return name == nullptr ? MP_DTYPE_NONE : static_cast<int32_t>(parse_dtype(name));
}

size_t mp_dtype_size(int32_t dtype) {
    return is_valid(dtype) ? static_cast<size_t>(dtype_size(static_cast<DType>(dtype))) : 0;
}

size_t mp_dtype_bytes(int32_t dtype, int64_t count) {
    constexpr int64_t kMostElements = int64_t{1} << 55;
    if (!is_valid(dtype) || count < 0 || count > kMostElements) {
        return 0;
    }
    const auto type = static_cast<DType>(dtype);
    const bool is_cut = is_in_blocks(type) && count % type_block(type).elements != 0;
    return is_cut ? 0 : static_cast<size_t>(bytes_of(type, count));
}

const char* mp_status_string(mp_status status) {
    switch (status) {
#define X(NAME, name, value)                                                                       \
    case value:                                                                                    \
        return "MP_STATUS_" #NAME;
#include "status/codes.def"
#undef X
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
