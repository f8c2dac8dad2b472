// SPDX-License-Identifier: Apache-2.0
#include "model/new_model.hpp"

#include <algorithm>
#include <utility>

#include "dtype/divide.hpp"
#include "model/gguf.hpp"
#include "status/status.hpp"
#include "system/json_writer.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

constexpr std::size_t kMostKeyBytes = 65535;     // of GGUF
constexpr std::size_t kMostGgufName = 63;        // ggml keeps 64 bytes, with an end
constexpr int64_t kMostBytes = int64_t{1} << 62; // of a tensor
constexpr std::string_view kMetadata = "__metadata__";

const char* word(FileFormat format) { return format == FileFormat::gguf ? "GGUF" : "safetensors"; }

int64_t checked_bytes(const char* name, FileType type, std::span<const int64_t> shape) {
    HeaderParts parts;
    FileTensor tensor;
    tensor.type = type;
    for (const int64_t size : shape) {
        if (size < 0) {
            fail(Code::invalid_shape,
                 "model writer: tensor '%.200s' has the size %lld; none is below 0", name,
                 static_cast<long long>(size));
        }
        parts.add_size(tensor, size);
    }
    const auto count = parts.count(tensor);
    const int64_t block = block_elements(type);
    const int64_t last = shape.empty() ? 1 : shape.back();
    if (last % block != 0) {
        fail(
            Code::invalid_shape,
            "model writer: tensor '%.200s' is %s, of blocks of %lld elements, but its last size is "
            "%lld; that must be a multiple",
            name, file_type_name(type), static_cast<long long>(block),
            static_cast<long long>(last));
    }
    const auto bytes = count.has_value() ? bytes_of(type, *count) : std::nullopt;
    if (!bytes.has_value() || *bytes > kMostBytes) {
        fail(Code::invalid_shape,
             "model writer: tensor '%.200s' would have more than 2^62 bytes; its sizes overflow",
             name);
    }
    return *bytes;
}

// Both or, where there is no memory, neither.
template <class Item>
void append(std::unordered_map<std::string, std::size_t>& names, std::vector<Item>& items,
            const std::string& name, Item&& item) {
    const auto added = names.emplace(name, items.size()).first;
    try {
        items.push_back(std::forward<Item>(item));
    } catch (...) {
        names.erase(added);
        throw;
    }
}

} // namespace

void NewModel::check_name(std::string_view name) const {
    const bool is_gguf = format_ == FileFormat::gguf;
    if (name.empty() || (is_gguf && name.size() > kMostGgufName)) {
        fail(Code::invalid_argument,
             "model writer: the tensor's name '%.*s' has %zu bytes; a name in %s has 1 or more%s",
             system::shown(name, 100), name.data(), name.size(), word(format_),
             is_gguf ? ", and at most 63, which is what ggml keeps" : "");
    }
    if (!system::is_utf8(name)) {
        fail(Code::invalid_argument,
             "model writer: a tensor's name, of %zu bytes, is not UTF-8, as files have names",
             name.size());
    }
    if (!is_gguf && name == kMetadata) {
        fail(Code::invalid_argument, "model writer: '__metadata__' is a key that safetensors files "
                                     "keep for themselves; give "
                                     "the tensor another name");
    }
    if (names_.contains(std::string(name))) {
        fail(Code::invalid_argument,
             "model writer: there is a tensor '%.*s' already; each has a name of its own",
             system::shown(name, 200), name.data());
    }
}

FileType NewModel::type_of(std::string_view name, DType dtype) const {
    const FileType type = file_type(dtype);
    const bool is_ours = dtype_of(type) == dtype;
    const bool is_there =
        format_ == FileFormat::gguf ? gguf_number(type) >= 0 : is_in_safetensors(type);
    if (!is_ours || !is_there) {
        fail(
            Code::invalid_dtype,
            "model writer: tensor '%.*s' is to be %s, which a %s file does not have; %s",
            system::shown(name, 200), name.data(), dtype_name(dtype), word(format_),
            format_ == FileFormat::gguf
                ? "it has fp32, fp16, bf16, int8 to int64 and the types of blocks"
                : "it has fp32, fp16, bf16, fp8, e8m0, int8 to int64 and uint8; blocks are GGUF's");
    }
    return type;
}

std::size_t NewModel::add(std::string_view name, DType dtype, std::span<const int64_t> shape) {
    check_name(name);
    const int32_t most = format_ == FileFormat::gguf ? kMaxGgufDims : kMaxFileDims;
    if (shape.size() > static_cast<std::size_t>(most)) {
        fail(Code::invalid_shape,
             "model writer: tensor '%.*s' has %zu dimensions; %s has at most %d",
             system::shown(name, 200), name.data(), shape.size(), word(format_), most);
    }
    NewTensor tensor;
    tensor.name = name;
    tensor.type = type_of(name, dtype);
    tensor.shape.assign(shape.begin(), shape.end());
    tensor.bytes = checked_bytes(tensor.name.c_str(), tensor.type, shape);
    const int64_t padded = round_up(tensor.bytes, kGgufAlignment);
    if (padded > kMostBytes - bytes_) {
        fail(Code::invalid_shape,
             "model writer: with tensor '%.200s' the tensors would have more than 2^62 bytes",
             tensor.name.c_str());
    }
    append(names_, tensors_, tensor.name, std::move(tensor));
    bytes_ += padded;
    return tensors_.size() - 1;
}

std::size_t NewModel::find(std::string_view name) const {
    const auto found = names_.find(std::string(name));
    return found == names_.end() ? tensors_.size() : found->second;
}

bool NewModel::is_reserved(std::string_view key) noexcept {
    return key == "general.alignment" || key.starts_with("split.");
}

void NewModel::set(NewValue value) {
    const char* const key = value.key.c_str();
    if (value.key.empty() || value.key.size() > kMostKeyBytes || !system::is_utf8(value.key)) {
        fail(Code::invalid_argument,
             "model writer: a key has %zu bytes; it must have 1 to %zu, of UTF-8", value.key.size(),
             kMostKeyBytes);
    }
    if (format_ == FileFormat::gguf && is_reserved(value.key)) {
        fail(Code::invalid_argument,
             "model writer: '%.100s' is the writer's own: it aligns tensors to 32 bytes, in one "
             "file; "
             "leave the key out",
             key);
    }
    if (format_ == FileFormat::safetensors && (value.type != ValueType::text || value.is_list)) {
        fail(Code::invalid_argument,
             "model writer: '%.200s' is %s, but safetensors has single texts alone; set it as a "
             "text",
             key, value.is_list ? "a list" : "a number");
    }
    if (has_key(value.key)) {
        fail(Code::invalid_argument, "model writer: '%.200s' is set already; set each key once",
             key);
    }
    append(keys_, values_, value.key, std::move(value));
}

} // namespace mp::model
