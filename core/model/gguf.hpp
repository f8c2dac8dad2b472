// SPDX-License-Identifier: Apache-2.0
// Headers of GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian: counts,
// keys with typed values, tensors with shapes from the fastest dimension on, and behind padding their bytes. Read strictly, in
// time linear but for sorts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/header.hpp"

namespace mp::model {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr int32_t kMaxGgufDims = 4;    // GGML_MAX_DIMS
inline constexpr int64_t kGgufAlignment = 32; // where no key says another

// Types of values, by their numbers in the file.
struct GgufValue {
    ValueType type;
    uint8_t width; // bytes of a number; 0: a text has its own
};
inline constexpr GgufValue kGgufValues[] = {{ValueType::unsigned_integer, 1},
                                            {ValueType::integer, 1},
                                            {ValueType::unsigned_integer, 2},
                                            {ValueType::integer, 2},
                                            {ValueType::unsigned_integer, 4},
                                            {ValueType::integer, 4},
                                            {ValueType::floating, 4},
                                            {ValueType::boolean, 1},
                                            {ValueType::text, 0},
                                            {ValueType::text, 0}, // 9: a list
                                            {ValueType::unsigned_integer, 8},
                                            {ValueType::integer, 8},
                                            {ValueType::floating, 8}};
inline constexpr uint32_t kGgufList = 9;

// Of a file that begins with `text`, of file_bytes in all. Nothing where the header goes on behind the text, but not behind
// the file. Throws corrupt_data.
std::optional<Header> read_gguf(std::string text, int64_t file_bytes);

} // namespace mp::model
