// SPDX-License-Identifier: Apache-2.0
// Public structs grow at their end. Reading: what an older caller does not know is zero, which means default;
// what a newer caller knows and we do not must be zero, or the call is refused. Writing: no more than the
// caller has room for.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "status/status.hpp"

namespace mp::capi {

// Of all there will ever be.
inline constexpr uint32_t kMostStructBytes = 4096;

// A field that has no meaning yet.
inline void check_reserved(int32_t reserved) {
    if (reserved != 0) {
        fail(Code::invalid_argument, "reserved is %d; it must be 0", static_cast<int>(reserved));
    }
}

// struct_size is the first field of every public struct; the smallest useful struct has eight bytes.
template <typename T> uint32_t size_of_struct(const T* source, const char* name) {
    static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
    if (source == nullptr) {
        fail(Code::null_argument, "%s is NULL", name);
    }
    uint32_t size = 0;
    std::memcpy(&size, source, sizeof size);
    if (size < 8) {
        fail(Code::invalid_argument, "%s.struct_size is %u; set it to sizeof the struct", name,
             size);
    }
    if (size > kMostStructBytes) { // so that no more is looked at
        fail(Code::invalid_argument,
             "%s.struct_size is %u, but no struct has more than %u bytes; set it to sizeof the "
             "struct",
             name, size, kMostStructBytes);
    }
    return size;
}

template <typename T> T read_struct(const T* source, const char* name) {
    const uint32_t size = size_of_struct(source, name);
    const auto* bytes = reinterpret_cast<const unsigned char*>(source);
    if (size > sizeof(T) &&
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; })) {
        fail(Code::struct_too_new,
             "%s.struct_size is %u and uses fields that this library (%zu bytes) does not know; "
             "install a newer library",
             name, size, sizeof(T));
    }
    T copy;
    if (size >= sizeof(T)) {
        std::memcpy(&copy, source, sizeof(T)); // a size that is known is copied without a call
    } else {
        copy = T{};
        std::memcpy(&copy, source, size);
    }
    copy.struct_size = sizeof(T);
    return copy;
}

// NULL stands for all defaults.
template <typename T> T read_optional_struct(const T* source, const char* name) {
    return source == nullptr ? T{} : read_struct(source, name);
}

// The structs of an array, of which the first one's size is every one's. `name` is the array's.
template <typename T> std::vector<T> read_structs(const T* list, int64_t count, const char* name) {
    std::vector<T> all;
    if (count == 0) {
        return all;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(list);
    const uint32_t stride = size_of_struct(list, name);
    for (int64_t i = 0; i < count; ++i) {
        const auto* place = reinterpret_cast<const T*>(bytes + i * stride);
        if (size_of_struct(place, name) != stride) { // before more of it is looked at
            fail(Code::invalid_argument,
                 "%s[%lld].struct_size is not that of %s[0]; all must be alike", name,
                 static_cast<long long>(i), name);
        }
        all.push_back(read_struct(place, name));
    }
    return all;
}

// Writes `value` into a struct whose struct_size the caller has set; the size stays as it was.
template <typename T> void write_struct(T* destination, T value, const char* name) {
    const uint32_t size = size_of_struct(destination, name);
    value.struct_size = size;
    std::memcpy(destination, &value, std::min<std::size_t>(size, sizeof(T)));
}

// Fills a struct of which the caller knows so many bytes.
template <typename T> void init_struct(T* desc, std::size_t size, T value) {
    if (desc == nullptr) {
        fail(Code::null_argument, "desc is NULL");
    }
    if (size > sizeof(T) || size < 8) {
        fail(Code::struct_too_new, "size is %zu; this library knows %zu bytes of the struct", size,
             sizeof(T));
    }
    value.struct_size = static_cast<uint32_t>(size);
    std::memcpy(desc, &value, size);
}

} // namespace mp::capi
