// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_parts.hpp"

#include <algorithm>
#include <charconv>

namespace mp::model {
namespace {

constexpr std::size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kEnd = ".gguf";

// Five digits, and nothing else.
std::optional<int32_t> number_of(std::string_view text) {
    int32_t number = 0;
    const bool is_number =
        text.size() == kDigits &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    (void)std::from_chars(text.data(), text.data() + text.size(), number);
    return is_number ? std::optional(number) : std::nullopt;
}

std::string digits(int32_t number) {
    const std::string text = std::to_string(number);
    return std::string(kDigits - std::min(kDigits, text.size()), '0') + text;
}

} // namespace

std::optional<GgufPart> gguf_part(const std::string& path) {
    constexpr std::size_t kLength = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
    if (path.size() < kLength || !path.ends_with(kEnd)) {
        return std::nullopt;
    }
    const std::string_view end = std::string_view(path).substr(path.size() - kLength);
    const auto part = number_of(end.substr(1, kDigits));
    const auto parts = number_of(end.substr(1 + kDigits + kOf.size(), kDigits));
    if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf || !part.has_value() ||
        !parts.has_value() || *part < 1 || *part > *parts) {
        return std::nullopt;
    }
    return GgufPart{path.substr(0, path.size() - kLength), *part, *parts};
}

std::string gguf_path(const GgufPart& part) {
    return part.name + "-" + digits(part.part) + std::string(kOf) + digits(part.parts) +
           std::string(kEnd);
}

} // namespace mp::model
