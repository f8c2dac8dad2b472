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
    int64_t data_begin = 0; // where in the file the tensors' offsets count from
};

// Opens a regular file for reading, and nothing else; a link where `follow` says so. Never waits. Throws a Failure.
class ReadFile {
  public:
    explicit ReadFile(std::string path, bool follow = true);
    ReadFile(const ReadFile&) = delete;
    ReadFile& operator=(const ReadFile&) = delete;
    ~ReadFile();
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    // All of them, or a Failure.
    void read(int64_t offset, void* data, size_t bytes) const;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
    int file_ = -1;
    int64_t bytes_ = 0;
};

// Reads no more than the header. Throws a Failure that says what is wrong, and what a file is that is none.
SafetensorsHeader read_safetensors_header(const ReadFile& file);
// Numbers that training moves. Integers and booleans are counters, positions or packed codes.
bool is_trained(const TensorEntry& tensor);
// Scales among the tensors (F32, named ..._scale_inv) must be finite and not negative, as a load wants them. "" or what is wrong.
std::string bad_scale(const ReadFile& file, const SafetensorsHeader& header);

} // namespace command
