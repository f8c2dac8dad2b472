// SPDX-License-Identifier: Apache-2.0
// The element types that model files and checkpoints have, by the names that they have there.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dtype/format_id.hpp"

namespace mp::model {

enum class FileType : int32_t {
#define X(name, elements, bytes, dtype, ggml, in_safetensors) name,
#include "model/file_types.def"
#undef X
};

const char* file_type_name(FileType type) noexcept;
// So many of its elements, behind each other, are so many bytes. 1: each is by itself.
int64_t block_elements(FileType type) noexcept;
int64_t block_bytes(FileType type) noexcept;
// Of so many elements; nothing where they do not fill whole blocks.
std::optional<int64_t> bytes_of(FileType type, int64_t count) noexcept;
// What of ours it is read as; `none` where we have no such type.
DType dtype_of(FileType type) noexcept;

bool is_in_safetensors(FileType type) noexcept;
// Of safetensors, by its name.
std::optional<FileType> safetensors_type(std::string_view name) noexcept;
// In GGUF; -1 where it has none.
int32_t gguf_number(FileType type) noexcept;
// Of GGUF, by its number.
std::optional<FileType> gguf_type(uint32_t number) noexcept;

// The type under which ours is written; packed types as bytes.
FileType file_type(DType dtype) noexcept;
// Of what a checkpoint keeps: codes of half a byte lie two to a byte, flat.
bool is_in_pairs(FormatId format) noexcept;
FileType file_type(FormatId format) noexcept;

} // namespace mp::model
