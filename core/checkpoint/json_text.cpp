// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_text.hpp"

#include <cstring>

namespace mp::checkpoint {
namespace {

// Bytes of the UTF-8 sequence at `text`, 0 where it is none (RFC 3629: no overlong forms, no surrogates, at most
// U+10FFFF).
std::size_t sequence_length(const char* text, std::size_t left) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
        return i < left && byte(i) >= low && byte(i) <= high;
    };
    const unsigned first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return continues(1) ? 2 : 0;
    }
    if (first >= 0xE0 && first <= 0xEF) {
        const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
        const unsigned high = first == 0xED ? 0x9F : 0xBF;
        return continues(1, low, high) && continues(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const unsigned low = first == 0xF0 ? 0x90 : 0x80;
        const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
        return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

std::size_t put_utf8(char* to, uint32_t code) noexcept {
    const auto put = [to](std::size_t i, uint32_t value) { to[i] = static_cast<char>(value); };
    if (code < 0x80) {
        put(0, code);
        return 1;
    }
    if (code < 0x800) {
        put(0, 0xC0 | (code >> 6));
        put(1, 0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        put(0, 0xE0 | (code >> 12));
        put(1, 0x80 | ((code >> 6) & 0x3F));
        put(2, 0x80 | (code & 0x3F));
        return 3;
    }
    put(0, 0xF0 | (code >> 18));
    put(1, 0x80 | ((code >> 12) & 0x3F));
    put(2, 0x80 | ((code >> 6) & 0x3F));
    put(3, 0x80 | (code & 0x3F));
    return 4;
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Whether a byte of a string is a character by itself that stands for itself.
bool is_plain(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

} // namespace

void JsonReader::skip_space() noexcept {
    while (at_ < size_ &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
        ++at_;
    }
}

void JsonReader::expect(char wanted) {
    if (!take(wanted)) {
        if (at_ >= size_) {
            refuse("the text ends where '%c' must stand", wanted);
        }
        refuse("byte 0x%02x stands where '%c' must", static_cast<unsigned char>(text_[at_]),
               wanted);
    }
}

bool JsonReader::take(char wanted) noexcept {
    skip_space();
    if (at_ < size_ && text_[at_] == wanted) {
        ++at_;
        return true;
    }
    return false;
}

bool JsonReader::another(char closing) {
    if (take(',')) {
        return true;
    }
    expect(closing);
    return false;
}

std::string_view JsonReader::string() {
    expect('"');
    const std::size_t begin = at_;
    while (at_ < size_ && is_plain(text_[at_])) {
        ++at_;
    }
    std::size_t to = at_; // never ahead of at_: what is unescaped is no longer than it was
    while (at_ < size_ && text_[at_] != '"') {
        if (text_[at_] == '\\') {
            ++at_;
            to = escape(to);
        } else {
            to = utf8(to);
        }
    }
    if (at_ >= size_) {
        refuse("a string does not end");
    }
    ++at_;
    return {text_ + begin, to - begin};
}

std::size_t JsonReader::utf8(std::size_t to) {
    if (static_cast<unsigned char>(text_[at_]) < 0x20) {
        refuse("a control character stands in a string unescaped");
    }
    const std::size_t length = sequence_length(text_ + at_, size_ - at_);
    if (length == 0) {
        refuse("a string is not UTF-8");
    }
    std::memmove(text_ + to, text_ + at_, length);
    at_ += length;
    return to + length;
}

uint32_t JsonReader::hex4() {
    if (size_ - at_ < 4) {
        refuse("a \\u escape does not end");
    }
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
        const char c = text_[at_];
        uint32_t digit = 0;
        if (is_digit(c)) {
            digit = static_cast<uint32_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = static_cast<uint32_t>(c - 'a') + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = static_cast<uint32_t>(c - 'A') + 10;
        } else {
            refuse("a \\u escape has a character that is no hexadecimal digit");
        }
        value = value * 16 + digit;
    }
    return value;
}

std::size_t JsonReader::escape(std::size_t to) {
    if (at_ >= size_) {
        refuse("a string does not end");
    }
    const char kind = text_[at_++];
    if (kind == 'u') {
        uint32_t code = hex4();
        if (code >= 0xDC00 && code <= 0xDFFF) {
            refuse("a \\u escape is half of a surrogate pair");
        }
        if (code >= 0xD800 && code <= 0xDBFF) {
            if (size_ - at_ < 2 || text_[at_] != '\\' || text_[at_ + 1] != 'u') {
                refuse("a \\u escape is half of a surrogate pair");
            }
            at_ += 2;
            const uint32_t low = hex4();
            if (low < 0xDC00 || low > 0xDFFF) {
                refuse("a \\u escape is half of a surrogate pair");
            }
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        return to + put_utf8(text_ + to, code);
    }
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t index = kNames.find(kind);
    if (index == std::string_view::npos) {
        refuse("a string has an escape that JSON does not know");
    }
    text_[to] = kMeanings[index];
    return to + 1;
}

int64_t JsonReader::integer() {
    skip_space();
    if (at_ >= size_ || !is_digit(text_[at_])) {
        refuse("a whole number >= 0 must stand here");
    }
    const std::size_t begin = at_;
    uint64_t value = 0;
    constexpr uint64_t kMax = INT64_MAX;
    for (; at_ < size_ && is_digit(text_[at_]); ++at_) {
        const auto digit = static_cast<uint64_t>(text_[at_] - '0');
        if (value > (kMax - digit) / 10) {
            refuse("a number exceeds 2^63 - 1");
        }
        value = value * 10 + digit;
    }
    if (text_[begin] == '0' && at_ - begin > 1) {
        refuse("a number has a leading zero");
    }
    if (at_ < size_ && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
        refuse("a number is written with a fraction or an exponent");
    }
    return static_cast<int64_t>(value);
}

void JsonReader::skip_scalar() {
    constexpr std::string_view kWords[] = {"true", "false", "null"};
    const std::string_view rest(text_ + at_, size_ - at_);
    for (const std::string_view word : kWords) {
        if (rest.substr(0, word.size()) == word) {
            at_ += word.size();
            return;
        }
    }
    (void)integer();
}

void JsonReader::skip_value(int32_t depth) {
    skip_space();
    if (at_ < size_ && text_[at_] == '"') {
        (void)string();
        return;
    }
    const bool is_object = take('{');
    if (!is_object && !take('[')) {
        skip_scalar();
        return;
    }
    if (depth == 0) {
        refuse("values are nested too deeply");
    }
    const char closing = is_object ? '}' : ']';
    if (take(closing)) {
        return;
    }
    do {
        if (is_object) {
            (void)string();
            expect(':');
        }
        skip_value(depth - 1);
    } while (another(closing));
}

void JsonReader::end() {
    skip_space();
    if (at_ != size_) {
        refuse("byte 0x%02x follows the end", static_cast<unsigned char>(text_[at_]));
    }
}

bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t length = sequence_length(text.data(), text.size());
        if (length == 0) {
            return false;
        }
        text.remove_prefix(length);
    }
    return true;
}

void append_json(std::string& out, std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        } else {
            out += c;
        }
    }
    out += '"';
}

void append_json(std::string& out, std::span<const int64_t> numbers) {
    out += '[';
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        out += (i == 0 ? "" : ",");
        out += std::to_string(numbers[i]);
    }
    out += ']';
}

} // namespace mp::checkpoint
