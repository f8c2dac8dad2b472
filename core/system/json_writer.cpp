// SPDX-License-Identifier: Apache-2.0
#include "system/json_writer.hpp"

#include <nlohmann/json.hpp>

namespace mp::system {

void JsonWriter::begin(char bracket) {
    separate();
    out_ += bracket;
    open_ += bracket == '{' ? '}' : ']';
}

void JsonWriter::end() {
    const char bracket = open_.back();
    open_.pop_back();
    if (bracket == '}') {
        new_line();
    }
    out_ += bracket;
}

void JsonWriter::key(std::string_view name) {
    separate();
    quote(name);
    out_ += form_ == JsonForm::compact ? ":" : ": ";
    is_after_key_ = true;
}

void JsonWriter::text(std::string_view value) {
    separate();
    quote(value);
}

void JsonWriter::numbers(std::span<const int64_t> values) {
    begin('[');
    for (const int64_t value : values) {
        number(value);
    }
    end();
}

void JsonWriter::literal(std::string_view value) {
    separate();
    out_ += value;
}

// Before a value or a key. Values end in no opening bracket.
void JsonWriter::separate() {
    if (is_after_key_ || open_.empty()) {
        is_after_key_ = false;
        return;
    }
    const bool is_list = open_.back() == ']';
    if (out_.back() != '{' && out_.back() != '[') {
        out_ += is_list && form_ == JsonForm::indented ? ", " : ",";
    }
    if (!is_list) {
        new_line();
    }
}

void JsonWriter::new_line() {
    if (form_ == JsonForm::indented) {
        out_ += '\n';
        out_.append(open_.size() * 2, ' ');
    }
}

void JsonWriter::quote(std::string_view value) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out_ += '"';
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
            out_ += "\\u00";
            out_ += kDigits[byte >> 4];
            out_ += kDigits[byte & 15];
        } else {
            if (c == '"' || c == '\\') {
                out_ += '\\';
            }
            out_ += c;
        }
    }
    out_ += '"';
}

bool is_utf8(std::string_view text) {
    try {
        (void)nlohmann::json(text).dump();
        return true;
    } catch (const nlohmann::json::type_error&) {
        return false;
    }
}

} // namespace mp::system
