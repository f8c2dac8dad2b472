// SPDX-License-Identifier: Apache-2.0
// JSON, read value after value. nlohmann's parser reports its events, which are kept as tokens, in about the memory of the
// text; a JsonReader goes over them. No tree is built: duplicate keys must be seen, and destroying a tree takes memory, which
// where there is none ends the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "status/status.hpp"

namespace mp::system {

// What a text is, for messages and refusals.
struct JsonText {
    const char* name;
    Code refused = Code::corrupt_data; // what is thrown
    int32_t depth = 24;                // of objects and lists in one another, at most
    const char* too_deep = "values are nested too deeply";
};

class JsonReader {
  public:
    // Throws for what is no JSON, no UTF-8, or nested too deeply.
    JsonReader(std::string_view text, const JsonText& what);

    // Every member throws where something else stands.
    // '{', '}', '[' or ']'.
    void expect(char wanted);
    // The same where it stands there, else nothing.
    bool take(char wanted) noexcept;
    // Of an object; it lives as long as the tokens.
    std::string_view key();
    std::string_view string();
    // Digits alone: no sign, no fraction, no exponent; at most 2^63 - 1.
    int64_t integer();
    double number();
    // The next value's, in JSON's words: "object", "array", "string", "number", "boolean" or "null".
    [[nodiscard]] const char* type() const noexcept;
    // A number without a fraction and an exponent.
    [[nodiscard]] bool is_integer() const noexcept { return kind() == 'u' || kind() == '-'; }
    // After an element of a list or an object: true where a further one follows, false at its end.
    bool another(char closing) noexcept { return !take(closing); }
    void skip_value();

    // What keys and strings point into; the reader is over then.
    [[nodiscard]] std::string take_tokens() noexcept { return std::move(tokens_); }

    [[noreturn, gnu::format(printf, 2, 3)]] void refuse(const char* format, ...) const;

  private:
    [[nodiscard]] char kind() const noexcept { return at_ < tokens_.size() ? tokens_[at_] : '\0'; }
    uint64_t varint() noexcept;
    std::string_view text_of(char wanted, const char* name);

    JsonText what_;
    std::string tokens_;
    std::size_t at_ = 0;
};

} // namespace mp::system
