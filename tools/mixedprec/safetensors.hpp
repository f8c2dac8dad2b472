// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, which may come from anybody: nothing is believed that the file does not bear out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace command {

struct TensorEntry {
    std::string name, dtype;
    std::vector<int64_t> shape;
    int64_t count = 1; // elements
    int64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
    std::vector<TensorEntry> tensors; // in the order of their bytes
    std::map<std::string, std::string> metadata;
    int64_t file_bytes = 0;
};

// Reads no more than the header. Throws a Failure that says what is wrong.
SafetensorsHeader read_safetensors_header(const std::string& path);

} // namespace command
