// SPDX-License-Identifier: Apache-2.0
// A failed call as an exception or as a value: Error, and expected, which is the same however errors are reported.
#pragma once

#include <mixedprec.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace mixedprec {

/** A status below zero, with the library's sentence about it. */
class Error : public std::runtime_error {
  public:
    Error(mp_status status, const std::string& message)
        : std::runtime_error(std::string(mp_status_string(status)) + ": " + message),
          status_(status) {}
    mp_status status() const { return status_; } /* MP_STATUS_* */
    const char* name() const { return mp_status_string(status_); }

  private:
    mp_status status_;
};

/** A value, or the Error in its place. value() without one ends the program, or throws the Error where exceptions are on. */
template <class T> class [[nodiscard]] expected {
  public:
    expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }
    T& value() & { return check(), *std::get_if<0>(&state_); }
    const T& value() const& { return check(), *std::get_if<0>(&state_); }
    T&& value() && { return check(), std::move(*std::get_if<0>(&state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return *std::get_if<1>(&state_); }

  private:
    void check() const {
        if (has_value())
            return;
#if defined(__cpp_exceptions)
        throw error();
#else
        std::abort();
#endif
    }
    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] expected<void> : expected<std::monostate> {
    using Base = expected<std::monostate>;

  public:
    expected() : Base(std::monostate()) {}
    expected(Error error) : Base(std::move(error)) {}
    using Base::has_value;
    using Base::operator bool;
    using Base::error;
    void value() const { static_cast<void>(Base::value()); }
};

} // namespace mixedprec
