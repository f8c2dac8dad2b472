// SPDX-License-Identifier: Apache-2.0
// The little JSON that checkpoints consist of. nlohmann's parser reports its events, which are kept as tokens, in no more
// memory than the text; a JsonReader goes over them. No tree is built: duplicate keys must be seen, and destroying a tree
// takes memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "status/status.hpp"

namespace mp::checkpoint {

class JsonReader {
  public:
    // Throws corrupt_data for what is no JSON, no UTF-8, or nested too deeply; `what` names it in messages.
    JsonReader(std::string_view text, const char* what);

    // Every member throws corrupt_data where something else stands.
    // '{', '}', '[' or ']'.
    void expect(char wanted);
    // The same where it stands there, else nothing.
    bool take(char wanted) noexcept;
    // Of an object; it lives as long as the tokens.
    std::string_view key();
    std::string_view string();
    // Digits alone: no sign, no fraction, no exponent; at most 2^63 - 1.
    int64_t integer();
    // After an element of a list or an object: true where a further one follows, false at its end.
    bool another(char closing) noexcept { return !take(closing); }
    void skip_value();

    // What keys and strings point into; the reader is over then.
    [[nodiscard]] std::string take_tokens() noexcept { return std::move(tokens_); }

    [[noreturn, gnu::format(printf, 2, 3)]] void refuse(const char* format, ...) const;

  private:
    [[nodiscard]] char kind() const noexcept { return at_ < tokens_.size() ? tokens_[at_] : '\0'; }
    uint64_t number();
    std::string_view text_of(char wanted, const char* name);

    const char* what_;
    std::string tokens_;
    std::size_t at_ = 0;
};

} // namespace mp::checkpoint
