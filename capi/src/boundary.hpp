// SPDX-License-Identifier: Apache-2.0
// The border of the library: nothing is thrown across it, every call computes under the default floating-point environment and
// gives back the caller's, and leaves its words for this thread.
#pragma once

#include <exception>
#include <new>
#include <span>
#include <string>

#include "handles.hpp"
#include "mixedprec/status.h"
#include "process/float_environment.hpp"
#include "status/status.hpp"

namespace mp::capi {

// This thread's last message. Plain memory: it lives as long as the thread and needs no destructor.
void clear_message() noexcept;
void set_message(const char* text) noexcept;
const char* message() noexcept;

mp_status report(const Status& status) noexcept;

// Runs the body of a public function, which returns nothing or an mp_status.
template <typename Body> mp_status boundary(Body&& body) noexcept {
    const process::DefaultFloats floats;
    clear_message();
    try {
        const HeldObjects
            held; // goes before a message is written: a deleter of the caller's may call in again
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return MP_STATUS_OK;
        } else {
            return body();
        }
    } catch (const Error& error) {
        return report(error.status());
    } catch (const std::bad_alloc&) {
        set_message("out of memory");
        return MP_STATUS_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        return report(
            Status::error(Code::internal, "internal error: %s; please report it", error.what()));
    } catch (...) {
        set_message("internal error: an unknown exception; please report it");
        return MP_STATUS_INTERNAL;
    }
}

// A success with advice.
inline mp_status warn(const char* text) noexcept {
    set_message(text);
    return MP_STATUS_WARNING;
}
inline mp_status warn(const std::string& text) noexcept { return warn(text.c_str()); }

// A pointer that must not be NULL.
template <typename T> T* required(T* pointer, const char* name) {
    if (pointer == nullptr) {
        fail(Code::null_argument, "%s is NULL", name);
    }
    return pointer;
}

// A list of the caller's.
template <typename T>
std::span<const T> list_of(const T* list, int64_t count, const char* name, const char* count_name) {
    if (count < 0) {
        fail(Code::invalid_argument, "%s is %lld; it must be >= 0", count_name,
             static_cast<long long>(count));
    }
    return {count == 0 ? nullptr : required(list, name), static_cast<std::size_t>(count)};
}

// Where a new handle goes: NULL until the call has succeeded.
template <typename H> H** output(H** out) {
    *required(out, "out") = nullptr;
    return out;
}

// Text into the caller's buffer, cut to fit, with the size it needs.
void copy_text(const std::string& text, char* buffer, std::size_t capacity, std::size_t* needed);

} // namespace mp::capi
