// SPDX-License-Identifier: Apache-2.0
// JSON as text, value after value. No tree is built: destroying nlohmann's takes memory, and where there is none ends
// the program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mp::system {

enum class JsonForm {
    compact,  // one line, no spaces
    indented, // a line for each key, lists on one line
};

class JsonWriter {
  public:
    explicit JsonWriter(JsonForm form = JsonForm::compact) : form_(form) {}

    // '{' or '['. Every begin() needs its end().
    void begin(char bracket);
    void end();
    // In an object, before each value.
    void key(std::string_view name);

    // Text is UTF-8: see is_utf8().
    void text(std::string_view value);
    void number(int64_t value) { literal(std::to_string(value)); }
    void numbers(std::span<const int64_t> values);
    // What is JSON as it is: true, false, null, a number as text.
    void literal(std::string_view value);

    void text(std::string_view name, std::string_view value) {
        key(name);
        text(value);
    }
    void number(std::string_view name, int64_t value) {
        key(name);
        number(value);
    }

    [[nodiscard]] std::string_view so_far() const noexcept { return out_; }
    [[nodiscard]] std::string take() noexcept { return std::move(out_); }

  private:
    void separate();
    void new_line();
    void quote(std::string_view value);

    JsonForm form_;
    std::string out_;
    std::string open_; // the brackets that close what is open
    bool is_after_key_ = false;
};

bool is_utf8(std::string_view text);

} // namespace mp::system
