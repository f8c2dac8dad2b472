// SPDX-License-Identifier: Apache-2.0
// NewModel: what model files that are to be written say: tensors, and values by keys, each checked when it is added, so that
// what is written later can be read by anybody. Knows nothing of files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/header.hpp"
#include "model/safetensors.hpp"

namespace mp::model {

enum class FileFormat : int32_t { safetensors = 1, gguf = 2 };

// A text or a number, or a list of them, as the file has it.
struct NewValue {
    std::string key;
    ValueType type = ValueType::text;
    uint8_t width = 0; // bytes of a number
    bool is_list = false;
    std::string data;               // little-endian numbers, one after another
    std::vector<std::string> texts; // where they are no numbers
};

class NewModel {
  public:
    explicit NewModel(FileFormat format) : format_(format) {}

    [[nodiscard]] FileFormat format() const noexcept { return format_; }
    // Its number. Throws invalid_argument, invalid_shape and invalid_dtype.
    std::size_t add(std::string_view name, DType dtype, std::span<const int64_t> shape);
    // Throws invalid_argument for a key that is there, reserved, or none; and for what the format does not have.
    void set(NewValue value);
    // Whether a key is not the caller's: what places tensors, or says that a file is one of several.
    [[nodiscard]] static bool is_reserved(std::string_view key) noexcept;
    [[nodiscard]] bool has_key(std::string_view key) const {
        return keys_.contains(std::string(key));
    }

    // tensors().size() where there is none.
    [[nodiscard]] std::size_t find(std::string_view name) const;
    [[nodiscard]] const std::vector<NewTensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] const std::vector<NewValue>& values() const noexcept { return values_; }

  private:
    void check_name(std::string_view name) const;
    [[nodiscard]] FileType type_of(std::string_view name, DType dtype) const;

    FileFormat format_;
    std::vector<NewTensor> tensors_;
    std::vector<NewValue> values_;
    int64_t bytes_ = 0;                                  // of all tensors, padded
    std::unordered_map<std::string, std::size_t> names_; // places of tensors, and of values
    std::unordered_map<std::string, std::size_t> keys_;
};

} // namespace mp::model
