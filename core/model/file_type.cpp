// SPDX-License-Identifier: Apache-2.0
#include "model/file_type.hpp"

#include <iterator>

namespace mp::model {
namespace {

struct TypeRow {
    const char* name;
    int64_t elements;
    int64_t bytes;
    DType dtype;
    int32_t ggml;
    bool in_safetensors;
};
constexpr TypeRow kTypes[] = {
#define X(name, elements, bytes, dtype, ggml, in_safetensors)                                      \
    {#name, elements, bytes, DType::dtype, ggml, in_safetensors},
#include "model/file_types.def"
#undef X
};

const TypeRow& row(FileType type) noexcept { return kTypes[static_cast<std::size_t>(type)]; }

} // namespace

const char* file_type_name(FileType type) noexcept { return row(type).name; }
int64_t block_elements(FileType type) noexcept { return row(type).elements; }
int64_t block_bytes(FileType type) noexcept { return row(type).bytes; }
std::optional<int64_t> bytes_of(FileType type, int64_t count) noexcept {
    const TypeRow& of = row(type);
    return count % of.elements != 0 ? std::nullopt : std::optional(count / of.elements * of.bytes);
}
DType dtype_of(FileType type) noexcept { return row(type).dtype; }
bool is_in_safetensors(FileType type) noexcept { return row(type).in_safetensors; }

std::optional<FileType> safetensors_type(std::string_view name) noexcept {
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
        if (kTypes[i].in_safetensors && name == kTypes[i].name) {
            return static_cast<FileType>(i);
        }
    }
    return std::nullopt;
}

int32_t gguf_number(FileType type) noexcept { return row(type).ggml; }

std::optional<FileType> gguf_type(uint32_t number) noexcept {
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
        if (kTypes[i].ggml >= 0 && static_cast<uint32_t>(kTypes[i].ggml) == number) {
            return static_cast<FileType>(i);
        }
    }
    return std::nullopt;
}

FileType file_type(DType dtype) noexcept {
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
        if (dtype != DType::none && kTypes[i].dtype == dtype) {
            return static_cast<FileType>(i);
        }
    }
    return FileType::U8;
}

bool is_in_pairs(FormatId format) noexcept {
    return block_layout(coding_of(format)).bits == 4 || is_packed(dtype_of(format));
}

FileType file_type(FormatId format) noexcept {
    return file_type(is_in_pairs(format) ? DType::uint8 : dtype_of(format));
}

} // namespace mp::model
