// SPDX-License-Identifier: Apache-2.0
#include "system/json_reader.hpp"

#include <cstdarg>
#include <cstring>
#include <nlohmann/json.hpp>

namespace mp::system {
namespace {

using Json = nlohmann::json;

// A token is its kind and, for some, a number in groups of 7 bits: '{' '}' '[' ']'; 'k' key and 's' string with their
// length, then their bytes; 'u' an integer without a sign and '-' one below zero, with their magnitude; '.' another number,
// with the bytes of its double; 'b' true or false, 'n' null.
class Tokens final : public nlohmann::json_sax<Json> {
  public:
    Tokens(std::string& out, const JsonText& what) : out_(out), what_(what) {}

    bool null() override { return add('n'); }
    bool boolean(bool /*value*/) override { return add('b'); }
    bool number_integer(number_integer_t value) override {
        return add('-', uint64_t{0} - static_cast<uint64_t>(value));
    }
    bool number_unsigned(number_unsigned_t value) override { return add('u', value); }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        add('.');
        out_.append(reinterpret_cast<const char*>(&value), sizeof value);
        return true;
    }
    bool string(string_t& value) override { return add_text('s', value); }
    bool binary(binary_t& /*value*/) override { return false; } // there is none in text
    bool start_object(std::size_t /*elements*/) override { return open('{'); }
    bool key(string_t& name) override { return add_text('k', name); }
    bool end_object() override { return close('}'); }
    bool start_array(std::size_t /*elements*/) override { return open('['); }
    bool end_array() override { return close(']'); }
    bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        fail(what_.refused, "%s: %.300s", what_.name, error.what());
    }

  private:
    bool add(char kind) {
        out_ += kind;
        return true;
    }
    bool add(char kind, uint64_t number) {
        out_ += kind;
        for (; number >= 0x80; number >>= 7) {
            out_ += static_cast<char>(number | 0x80U);
        }
        out_ += static_cast<char>(number);
        return true;
    }
    bool add_text(char kind, const std::string& text) {
        add(kind, text.size());
        out_ += text;
        return true;
    }
    bool open(char kind) {
        if (++depth_ > what_.depth) {
            fail(what_.refused, "%s: %s", what_.name, what_.too_deep);
        }
        return add(kind);
    }
    bool close(char kind) {
        --depth_;
        return add(kind);
    }

    std::string& out_;
    const JsonText& what_;
    int32_t depth_ = 0;
};

} // namespace

JsonReader::JsonReader(std::string_view text, const JsonText& what) : what_(what) {
    if (text.find('\0') != std::string_view::npos) { // which the parser takes for the end
        refuse("parse error: a zero byte (NUL) stands in the text");
    }
    tokens_.reserve(
        text.size()); // but for fractions a token is no longer than what it stands for and its comma
    Tokens tokens(tokens_, what);
    (void)Json::sax_parse(text.begin(), text.end(), &tokens);
}

void JsonReader::refuse(const char* format, ...) const {
    va_list arguments;
    va_start(arguments, format);
    const Status status = Status::verror(what_.refused, format, arguments);
    va_end(arguments);
    fail(what_.refused, "%s: %s", what_.name, status.text());
}

void JsonReader::expect(char wanted) {
    if (!take(wanted)) {
        refuse("something else stands where '%c' must", wanted);
    }
}

bool JsonReader::take(char wanted) noexcept {
    if (kind() != wanted) {
        return false;
    }
    ++at_;
    return true;
}

uint64_t JsonReader::varint() noexcept {
    uint64_t value = 0;
    for (uint32_t shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(tokens_[at_++]);
        value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

std::string_view JsonReader::text_of(char wanted, const char* name) {
    if (!take(wanted)) {
        refuse("a %s must stand here", name);
    }
    const auto length = static_cast<std::size_t>(varint());
    at_ += length;
    return {tokens_.data() + at_ - length, length};
}

std::string_view JsonReader::key() { return text_of('k', "key"); }
std::string_view JsonReader::string() { return text_of('s', "string"); }

int64_t JsonReader::integer() {
    if (kind() == '.') {
        refuse("a number has a fraction or an exponent, or exceeds 2^63 - 1");
    }
    if (!take('u')) {
        refuse("a whole number >= 0 must stand here");
    }
    const uint64_t value = varint();
    if (value > INT64_MAX) {
        refuse("a number exceeds 2^63 - 1");
    }
    return static_cast<int64_t>(value);
}

double JsonReader::number() {
    if (take('.')) {
        double value = 0.0;
        std::memcpy(&value, tokens_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    const bool is_negative = kind() == '-';
    if (!take('-') && !take('u')) {
        refuse("a number must stand here");
    }
    const auto magnitude = static_cast<double>(varint());
    return is_negative && magnitude != 0.0 ? -magnitude : magnitude; // -0 is 0, as integers have it
}

const char* JsonReader::type() const noexcept {
    switch (kind()) {
    case '{':
        return "object";
    case '[':
        return "array";
    case 's':
        return "string";
    case 'b':
        return "boolean";
    case 'n':
        return "null";
    default:
        return "number";
    }
}

void JsonReader::skip_value() {
    int32_t depth = 0;
    do {
        const char here = kind();
        ++at_;
        depth += here == '{' || here == '[' ? 1 : here == '}' || here == ']' ? -1 : 0;
        if (here == 'u' || here == '-') {
            (void)varint();
        } else if (here == '.') {
            at_ += sizeof(double);
        } else if (here == 's' || here == 'k') {
            at_ += static_cast<std::size_t>(varint());
        }
    } while (depth > 0);
}

} // namespace mp::system
