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

// Of a file that begins with `text`, of file_bytes in all. Nothing where the header goes on behind the text, but not behind
// the file. Throws corrupt_data.
std::optional<Header> read_gguf(std::string text, int64_t file_bytes);

} // namespace mp::model
