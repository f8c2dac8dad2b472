// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files (https://github.com/huggingface/safetensors, format of 0.4 to 0.8): a little-endian
// length, a JSON object, the tensors' bytes without holes. Read strictly, in time linear but for sorts of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/header.hpp"

namespace mp::model {

// `text` is the JSON without its length; file_bytes the whole file's size. Offsets cover the data exactly, and fit shape and
// type. Throws corrupt_data.
Header read_safetensors(std::string_view text, int64_t file_bytes);

// The length that a file begins with, checked against the file's size. Throws corrupt_data.
int64_t header_bytes(const unsigned char (&prefix)[8], int64_t file_bytes);

struct NewTensor {
    std::string name;
    FileType type = FileType::U8;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
};

// The first bytes of a file with these tensors in this order, the length included, padded to 8 bytes. The format wants
// larger types first (see writing_order). Throws invalid_argument.
std::string write_header(std::span<const NewTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata);
// True where `a` goes before `b`: by type, the widest first, then by name, as the format's own writer has them.
bool writing_order(const NewTensor& a, const NewTensor& b) noexcept;

} // namespace mp::model
