// SPDX-License-Identifier: Apache-2.0
// How a call of the library is made and becomes a result: each of its forms once, for all of the classes.
#pragma once

#include <mixedprec.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"
#include "options.hpp"
#include "values.hpp"

/* Names of their own, so that files with and without MIXEDPREC_EXPECTED go into one program. */
#ifdef MIXEDPREC_EXPECTED
#define MIXEDPREC_RESULTS with_expected
#else
#define MIXEDPREC_RESULTS with_exceptions
#endif

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

#ifdef MIXEDPREC_EXPECTED
template <class T> using result = expected<T>;
#else
template <class T> using result = T;
#endif

namespace detail {

inline std::string& note_of_thread() {
    static thread_local std::string text;
    return text;
}

template <class T = void> result<T> fail(mp_status status, const std::string& message) {
#ifdef MIXEDPREC_EXPECTED
    return Error(status, message);
#else
    throw Error(status, message);
#endif
}

/* Remembers a note; true for success. */
inline bool succeeded(mp_status status) {
    if (status == MP_STATUS_WARNING)
        note_of_thread() = mp_last_error_message();
    else
        note_of_thread().clear();
    return status >= 0;
}

inline result<void> done(mp_status status) {
    if (!succeeded(status))
        return fail(status, mp_last_error_message());
    return result<void>();
}

/* The value that a call has written, which is read after the call. */
template <class T> result<T> give(mp_status status, T& value) {
    if (!succeeded(status))
        return fail<T>(status, mp_last_error_message());
    return std::move(value);
}

/* An object over the handle that a call has written. */
template <class Object, class Raw>
result<Object> made(mp_status status, Raw*& handle, std::shared_ptr<void> keep = nullptr) {
    if (!succeeded(status))
        return fail<Object>(status, mp_last_error_message());
    return Object(handle, std::move(keep));
}

template <class T, class = void> constexpr bool has_handle = false;
template <class T> constexpr bool has_handle<T, std::void_t<typename T::raw_type>> = true;
template <class T, class = void> constexpr bool keeps = false;
template <class T>
constexpr bool keeps<T, std::void_t<decltype(std::declval<const T&>().keep())>> = true;

/* What a C function takes for an argument: the handle of an object, the characters of a string, else the argument. */
template <class T> auto argument(const T& value) {
    if constexpr (has_handle<T>)
        return value.get();
    else if constexpr (std::is_same_v<T, std::string>)
        return value.c_str();
    else
        return value;
}

/* The calls that follow hand their arguments to the C function, and behind them what it writes to. */
template <class Function, class... Arguments>
result<void> call(Function function, const Arguments&... arguments) {
    return done(function(detail::argument(arguments)...));
}

/* One value; a bool is an int32_t in C. */
template <class T, class Function, class... Arguments>
result<T> value(Function function, const Arguments&... arguments) {
    std::conditional_t<std::is_same_v<T, bool>, std::int32_t, T> written{};
    const mp_status status = function(detail::argument(arguments)..., &written);
    if constexpr (std::is_same_v<T, bool>) {
        bool is = written != 0;
        return give(status, is);
    } else {
        return give(status, written);
    }
}

/* Whether it has come so far: the status says it. */
template <class Function, class... Arguments>
result<bool> tested(Function function, const Arguments&... arguments) {
    const mp_status status = function(detail::argument(arguments)...);
    bool is = status == MP_STATUS_OK;
    return give(status, is);
}

/* A buffer: the first call says how long it is, for a string with its end. */
template <class Buffer = std::string, class Function, class... Arguments>
result<Buffer> text(Function function, const Arguments&... arguments) {
    std::size_t needed = 0;
    mp_status status = function(detail::argument(arguments)..., nullptr, 0, &needed);
    Buffer buffer;
    buffer.resize(needed);
    if (status >= 0)
        status = function(detail::argument(arguments)..., buffer.data(), needed, &needed);
    if constexpr (std::is_same_v<Buffer, std::string>) {
        if (!buffer.empty())
            buffer.pop_back();
    }
    return give(status, buffer);
}

/* An object. It keeps what the callbacks of an object that is the first argument need; a bare handle there keeps nothing. */
template <class Object, class Function, class First, class... Arguments>
result<Object> make(Function function, const First& first, const Arguments&... arguments) {
    typename Object::raw_type* raw = nullptr;
    const mp_status status =
        function(detail::argument(first), detail::argument(arguments)..., &raw);
    if constexpr (keeps<First>)
        return made<Object>(status, raw, first.keep());
    else
        return made<Object>(status, raw);
}

/* What a callback does. No exception leaves it. */
template <class Callback> mp_status guarded(const Callback& callback) {
#if defined(__cpp_exceptions)
    try {
        return callback();
    } catch (...) {
        return MP_STATUS_CALLBACK_FAILED;
    }
#else
    return callback();
#endif
}

inline mp_tensor_desc tensor_desc(std::int32_t dtype, const Shape& shape) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = shape.ndim();
    for (std::size_t i = 0; i < MP_MAX_DIMS; ++i)
        desc.shape[i] = shape[i];
    return desc;
}

template <class Count = std::int64_t, class Values> Count count_of(const Values& values) {
    return static_cast<Count>(std::size(values));
}
template <class Values> std::size_t bytes_of(const Values& values) {
    return std::size(values) * sizeof(element_of<Values>);
}
template <class Object> auto handles(const std::vector<Object*>& objects) {
    std::vector<typename Object::raw_type*> raw;
    for (Object* object : objects)
        raw.push_back(object->get());
    return raw;
}

/* Of an argument that is kept by its address: what it is made of does not end with the call. That is an lvalue, or a span, whose
 * const one leads to the same elements. */
template <class Values, class Own = std::remove_cv_t<std::remove_reference_t<Values>>>
constexpr bool outlives_call = std::is_lvalue_reference_v<Values> ||
                               std::is_same_v<decltype(std::data(std::declval<Own&>())),
                                              decltype(std::data(std::declval<const Own&>()))>;
template <class... Values> using KeptByAddress = std::enable_if_t<(... && outlives_call<Values>)>;

} // namespace detail

/** The note of this thread's last call through this header; empty without one. */
inline const std::string& note() { return detail::note_of_thread(); }

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
