// SPDX-License-Identifier: Apache-2.0
// A strict reader and writer of the little JSON that checkpoints consist of. A library's parser is not used here
// because duplicate keys must be seen, integers must be exact to 64 bits, and memory must stay within the text's size:
// strings are unescaped in place, nothing is built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "status/status.hpp"

namespace mp::checkpoint {

// Reads forward through a text that it may overwrite behind itself. Every member throws corrupt_data.
class JsonReader {
  public:
    JsonReader(char* text, std::size_t size, const char* what) noexcept
        : text_(text), size_(size), what_(what) {}

    // Goes over white space to this character.
    void expect(char wanted);
    // The same where it stands there, else nothing.
    bool take(char wanted) noexcept;
    // Valid UTF-8, unescaped in place; it lives as long as the text.
    std::string_view string();
    // Digits alone: no sign, no leading zero, no fraction, no exponent; at most 2^63 - 1.
    int64_t integer();
    // After an element of a list or an object: true where a further one follows, false at its end.
    bool another(char closing);
    // Any value, objects and arrays at most `depth` deep.
    void skip_value(int32_t depth);
    // Nothing but white space may follow.
    void end();
    [[nodiscard]] std::size_t position() const noexcept { return at_; }

    template <typename... Arguments>
    [[noreturn]] void refuse(const char* format, Arguments... arguments) const {
        Status status;
        if constexpr (sizeof...(arguments) == 0) {
            status = Status::error(Code::corrupt_data, "%s", format);
        } else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            status = Status::error(Code::corrupt_data, format, arguments...);
#pragma GCC diagnostic pop
        }
        fail(Code::corrupt_data, "%s: at byte %zu: %s", what_, at_, status.text());
    }

  private:
    void skip_space() noexcept;
    std::size_t escape(std::size_t to);
    uint32_t hex4();
    std::size_t utf8(std::size_t to);
    void skip_scalar();

    char* text_;
    std::size_t size_;
    const char* what_;
    std::size_t at_ = 0;
};

// True for text that can stand in a file: valid UTF-8.
bool is_utf8(std::string_view text) noexcept;
// Appends "text" with its quotes; characters below 0x20, quotes and backslashes are escaped.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, std::span<const int64_t> numbers);

} // namespace mp::checkpoint
