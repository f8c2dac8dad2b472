// SPDX-License-Identifier: Apache-2.0
#include "model/header.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "status/status.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

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
    index(by_name_, parts_.tensors.size(), "tensor",
          [this](std::size_t i) { return parts_.tensors[i].name; });
}

void Header::index_keys() {
    index(by_key_, parts_.values.size(), "key",
          [this](std::size_t i) { return parts_.values[i].key; });
}

// Throws where one is there twice.
template <class NameOf>
void Header::index(NameIndex& names, std::size_t count, const char* of,
                   const NameOf& name_of) const {
    names.build(count, name_of);
    const uint32_t twice = names.duplicate(name_of);
    if (twice != NameIndex::kNone) {
        const std::string_view name = name_of(twice);
        fail(Code::corrupt_data, "%s header: %s '%.*s' appears twice", parts_.what, of,
             system::shown(name, 64), name.data());
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

std::optional<std::size_t> Header::find_value(std::string_view key) const noexcept {
    const uint32_t found =
        by_key_.find(key, [this](std::size_t i) { return parts_.values[i].key; });
    return found == NameIndex::kNone ? std::nullopt : std::optional<std::size_t>(found);
}

const FileValue* Header::value(std::string_view key) const noexcept {
    const auto found = find_value(key);
    return found.has_value() ? &parts_.values[*found] : nullptr;
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
