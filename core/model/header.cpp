// SPDX-License-Identifier: Apache-2.0
#include "model/header.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "status/status.hpp"

namespace mp::model {
namespace {

int printed(std::string_view name) {
    return static_cast<int>(std::min<std::size_t>(name.size(), 64));
}

template <class Number> std::string number_text(const char* bytes) {
    Number number{};
    std::memcpy(&number, bytes, sizeof number);
    std::array<char, 32> text{}; // the shortest that reads back the same
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
    return {text.data(), end};
}

std::string number_text(const FileValue& value, const char* bytes) {
    const bool is_signed = value.type == ValueType::integer;
    if (value.type == ValueType::boolean) {
        return *bytes != 0 ? "true" : "false";
    }
    if (value.type == ValueType::floating) {
        return value.width == 4 ? number_text<float>(bytes) : number_text<double>(bytes);
    }
    switch (value.width) {
    case 1:
        return is_signed ? number_text<int8_t>(bytes) : number_text<uint8_t>(bytes);
    case 2:
        return is_signed ? number_text<int16_t>(bytes) : number_text<uint16_t>(bytes);
    case 4:
        return is_signed ? number_text<int32_t>(bytes) : number_text<uint32_t>(bytes);
    default:
        return is_signed ? number_text<int64_t>(bytes) : number_text<uint64_t>(bytes);
    }
}

} // namespace

void HeaderParts::add_size(FileTensor& tensor, int64_t size) {
    tensor.first_size = tensor.ndim == 0 ? sizes.size() : tensor.first_size;
    sizes.push_back(size);
    ++tensor.ndim;
}

std::optional<int64_t> HeaderParts::count(const FileTensor& tensor) const {
    int64_t count = 1;
    int64_t bits = 0;
    bool is_empty = false;
    for (int32_t i = 0; i < tensor.ndim; ++i) {
        const int64_t size = sizes[tensor.first_size + static_cast<std::size_t>(i)];
        is_empty = is_empty || size == 0;
        if (size != 0 && __builtin_mul_overflow(count, size, &count)) {
            return std::nullopt;
        }
    }
    if (__builtin_mul_overflow(count, 8 * block_bytes(tensor.type), &bits)) {
        return std::nullopt;
    }
    return is_empty ? 0 : count;
}

void HeaderParts::add_text(std::string_view key, std::string_view value) {
    FileValue added;
    added.key = key;
    added.data = value;
    values.push_back(added);
}

Header::Header(HeaderParts parts) : parts_(std::move(parts)) {
    index_names();
    if (sort_by_place()) {
        index_names(); // finds them where they are now
    }
    index_keys();
}

void Header::index_names() {
    const auto name_of = [this](std::size_t i) { return parts_.tensors[i].name; };
    by_name_.build(parts_.tensors.size(), name_of);
    const uint32_t twice = by_name_.duplicate(name_of);
    if (twice != NameIndex::kNone) {
        const std::string_view name = parts_.tensors[twice].name;
        fail(Code::corrupt_data, "%s header: tensor '%.*s' appears twice", parts_.what,
             printed(name), name.data());
    }
}

void Header::index_keys() {
    const auto key_of = [this](std::size_t i) { return parts_.values[i].key; };
    by_key_.build(parts_.values.size(), key_of);
    const uint32_t twice = by_key_.duplicate(key_of);
    if (twice != NameIndex::kNone) {
        const std::string_view key = parts_.values[twice].key;
        fail(Code::corrupt_data, "%s header: key '%.*s' of its metadata appears twice", parts_.what,
             printed(key), key.data());
    }
}

bool Header::sort_by_place() {
    const auto is_before = [](const FileTensor& a, const FileTensor& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    };
    std::deque<FileTensor>& tensors = parts_.tensors;
    if (std::is_sorted(tensors.begin(), tensors.end(), is_before)) { // as most writers leave them
        return false;
    }
    std::sort(tensors.begin(), tensors.end(), is_before);
    return true;
}

std::vector<int64_t> Header::shape(const FileTensor& tensor) const {
    const auto first = parts_.sizes.begin() + static_cast<std::ptrdiff_t>(tensor.first_size);
    return {first, first + tensor.ndim};
}

const FileTensor* Header::find(std::string_view name) const noexcept {
    const uint32_t found =
        by_name_.find(name, [this](std::size_t i) { return parts_.tensors[i].name; });
    return found == NameIndex::kNone ? nullptr : &parts_.tensors[found];
}

const FileValue* Header::value(std::string_view key) const noexcept {
    const uint32_t found =
        by_key_.find(key, [this](std::size_t i) { return parts_.values[i].key; });
    return found == NameIndex::kNone ? nullptr : &parts_.values[found];
}

std::optional<std::string_view> Header::metadata(std::string_view key) const noexcept {
    const FileValue* found = value(key);
    const bool is_text = found != nullptr && found->type == ValueType::text && !found->is_list;
    return is_text ? std::optional(found->data) : std::nullopt;
}

std::string Header::text(const FileValue& value, std::size_t item) const {
    if (value.type == ValueType::text) {
        return std::string(value.is_list ? parts_.texts[value.first_text + item] : value.data);
    }
    return number_text(value, value.data.data() + item * static_cast<std::size_t>(value.width));
}

} // namespace mp::model
