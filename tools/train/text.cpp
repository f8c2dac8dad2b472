// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>

#include "support.hpp"

namespace train {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD"; // U+FFFD

// Bytes of the UTF-8 character at `at`; 0: there is none. (Table 3-7 of the Unicode standard)
size_t character(const std::string& text, size_t at) {
    const auto byte = [&](size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
    };
    const unsigned first = byte(0), second = byte(1);
    const size_t length = first < 0x80                     ? 1
                          : first >= 0xC2 && first < 0xE0  ? 2
                          : first >= 0xE0 && first < 0xF0  ? 3
                          : first >= 0xF0 && first <= 0xF4 ? 4
                                                           : 0;
    const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    bool good = length < 2 || (second >= low && second <= high);
    for (size_t i = 2; i < length; i++) {
        good = good && byte(i) >= 0x80 && byte(i) <= 0xBF;
    }
    return good ? length : 0;
}

// C0, DEL and C1. A character's first byte and its second tell.
bool steers(const std::string& text, size_t at, size_t length) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    return length == 1 ? byte(0) < 0x20 || byte(0) == 0x7F
                       : length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0;
}

// U+FFFE and U+FFFF, which XML does not allow.
bool is_no_character(const std::string& text, size_t at, size_t length) {
    return length == 3 && text.compare(at, 2, "\xEF\xBF") == 0 &&
           static_cast<unsigned char>(text[at + 2]) >= 0xBE;
}

std::string cleaned(const std::string& text, bool lines) {
    std::string made;
    made.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const size_t length = character(text, i);
        const char c = text[i];
        if (length == 0) {
            made += kReplacement;
        } else if (!steers(text, i, length) || (lines && (c == '\n' || c == '\t'))) {
            made.append(text, i, length);
        } else {
            made += c == '\n' ? ' ' : '?';
        }
        i += std::max<size_t>(length, 1);
    }
    return made;
}

} // namespace

std::string clean(const std::string& text) { return cleaned(text, false); }
std::string clean_lines(const std::string& text) { return cleaned(text, true); }

void print(FILE* to, const std::string& text) {
    const std::string made = clean_lines(text);
    std::fwrite(made.data(), 1, made.size(), to);
    std::fflush(to);
}

std::string clean_json(const std::string& json) {
    std::string made;
    made.reserve(json.size());
    for (size_t i = 0; i < json.size(); i++) {
        const auto byte = static_cast<unsigned char>(json[i]);
        const unsigned next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0U;
        const bool is_c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;
        if (is_c1 || byte == 0x7F) {
            made += format("\\u%04x", is_c1 ? next : 0x7FU);
            i += is_c1 ? 1 : 0;
        } else {
            made += json[i];
        }
    }
    return made;
}

std::string escaped(const std::string& text) {
    const std::string good = clean(text);
    std::string made;
    for (size_t i = 0; i < good.size();) {
        const size_t length = character(good, i);
        const char c = good[i];
        made += c == '<'                           ? "&lt;"
                : c == '>'                         ? "&gt;"
                : c == '&'                         ? "&amp;"
                : c == '"'                         ? "&quot;"
                : is_no_character(good, i, length) ? kReplacement
                                                   : good.substr(i, length);
        i += length;
    }
    return made;
}

std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
        return text;
    }
    std::string made = "\"";
    for (const char c : text) {
        made += c == '"' ? "\"\"" : std::string(1, c);
    }
    return made + '"';
}

bool read_csv_row(std::istream& file, std::vector<std::string>& fields) {
    constexpr size_t kLongest = 65536;
    fields.assign(1, "");
    bool quoted = false;
    size_t bytes = 0;
    for (int c = file.get(); c != std::istream::traits_type::eof(); c = file.get(), bytes++) {
        must<Failure>(bytes < kLongest, "a row has more than ", kLongest, " bytes");
        if (quoted && c == '"' && file.peek() == '"') {
            fields.back() += static_cast<char>(file.get());
        } else if (c == '"' && (quoted || fields.back().empty())) {
            quoted = !quoted;
        } else if (!quoted && c == ',') {
            fields.emplace_back();
        } else if (!quoted && c == '\n') {
            if (!fields.back().empty() && fields.back().back() == '\r') {
                fields.back().pop_back();
            }
            return true;
        } else {
            fields.back() += static_cast<char>(c);
        }
    }
    return bytes > 0;
}

} // namespace train
