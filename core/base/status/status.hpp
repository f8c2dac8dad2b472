// SPDX-License-Identifier: Apache-2.0
// Status: what crosses between binaries (a code and one line of text, no allocation, no exception).
// Error: the same as an exception, used inside one binary and turned into a status at its border.
#pragma once

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <locale.h>

namespace mp {

enum class Code : int32_t {
#define X(NAME, name, value) name = value,
#include "status/codes.def"
#undef X
};

// One line of text of bounded size; longer lines are cut. No byte behind its end is written or copied: a Status that says ok
// is returned some ten times for each array of a step.
template <std::size_t Capacity> class TextLine {
  public:
    TextLine() noexcept { text_[0] = '\0'; }
    TextLine(const TextLine& other) noexcept { copy(other); }
    TextLine& operator=(const TextLine& other) noexcept {
        if (this != &other) {
            copy(other);
        }
        return *this;
    }
    ~TextLine() = default;

    [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
    [[nodiscard]] bool empty() const noexcept { return text_[0] == '\0'; }

    [[gnu::format(printf, 2, 3)]] void set(const char* format, ...) noexcept {
        va_list arguments;
        va_start(arguments, format);
        vset(format, arguments);
        va_end(arguments);
    }

    [[gnu::format(printf, 2, 0)]] void vset(const char* format, va_list arguments) noexcept {
        // Whatever the program's locale is, a number has a decimal point.
        static const locale_t plain = ::newlocale(LC_NUMERIC_MASK, "C", nullptr);
        const locale_t before = ::uselocale(plain);
        (void)std::vsnprintf(text_.data(), Capacity, format, arguments);
        (void)::uselocale(before);
    }

  private:
    void copy(const TextLine& other) noexcept {
        if (other.empty()) { // as nearly always
            text_[0] = '\0';
        } else {
            std::memcpy(text_.data(), other.c_str(), std::strlen(other.c_str()) + 1);
        }
    }

    std::array<char, Capacity> text_;
};

// Why a candidate does not take an operation.
using Reason = TextLine<256>;

class [[nodiscard]] Status {
  public:
    static constexpr std::size_t kCapacity = 1024;

    Status() noexcept = default;

    [[gnu::format(printf, 2, 3)]] static Status error(Code code, const char* format, ...) noexcept {
        va_list arguments;
        va_start(arguments, format);
        Status status = verror(code, format, arguments);
        va_end(arguments);
        return status;
    }
    [[gnu::format(printf, 2, 0)]] static Status verror(Code code, const char* format,
                                                       va_list arguments) noexcept {
        Status status;
        status.code_ = code;
        status.text_.vset(format, arguments);
        return status;
    }

    [[nodiscard]] bool ok() const noexcept { return static_cast<int32_t>(code_) >= 0; }
    [[nodiscard]] Code code() const noexcept { return code_; }
    [[nodiscard]] const char* text() const noexcept { return text_.c_str(); }

  private:
    Code code_ = Code::ok;
    TextLine<kCapacity> text_;
};

class Error : public std::exception {
  public:
    explicit Error(const Status& status) noexcept : status_(status) {}

    [[nodiscard]] const char* what() const noexcept override { return status_.text(); }
    [[nodiscard]] const Status& status() const noexcept { return status_; }

  private:
    Status status_;
};

// Throws Error with a printf-style message.
[[noreturn, gnu::format(printf, 2, 3)]] inline void fail(Code code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const Status status = Status::verror(code, format, arguments);
    va_end(arguments);
    throw Error(status);
}

// Turns a failed status into an exception.
inline void check(const Status& status) {
    if (!status.ok()) {
        throw Error(status);
    }
}

} // namespace mp
