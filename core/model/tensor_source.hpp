// SPDX-License-Identifier: Apache-2.0
// TensorSource: tensors by names, and values by keys, of which bytes are read when they are asked for: a model's files, or what
// is made of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/file_type.hpp"
#include "model/header.hpp"

namespace mp::model {

// Of one tensor; the texts live as long as the source.
struct TensorFacts {
    std::string_view name;
    FileType type = FileType::U8;
    std::vector<int64_t> shape; // row-major, the slowest first
    int64_t bytes = 0;
    std::size_t file = 0; // the first that it is read from
};

class TensorSource {
  public:
    struct Value {
        const FileValue* entry;
        std::size_t file;
    };

    TensorSource() = default;
    TensorSource(const TensorSource&) = delete;
    TensorSource& operator=(const TensorSource&) = delete;
    virtual ~TensorSource() = default;

    [[nodiscard]] virtual std::size_t count() const noexcept = 0;
    [[nodiscard]] virtual TensorFacts facts(std::size_t index) const = 0;
    // `count()` where there is none.
    [[nodiscard]] virtual std::size_t find(std::string_view name) const noexcept = 0;
    // Bytes of one tensor, from `offset` on, which it has. Throws io_error.
    void read(std::size_t index, int64_t offset, void* data, std::size_t bytes) const;
    // Its elements from `first` on as numbers, exactly; of fp32, fp16, bf16 and types of blocks. Throws invalid_dtype for others.
    void read_floats(std::size_t index, int64_t first, std::span<float> values) const;
    void check_floats(std::size_t index) const; // throws so

    // What the files say of themselves, by files and in their order there; a key may be in several files.
    [[nodiscard]] virtual const std::vector<Value>& values() const noexcept = 0;
    // The first with this key; `values().size()` where there is none.
    [[nodiscard]] virtual std::size_t find_value(std::string_view key) const noexcept = 0;
    [[nodiscard]] virtual const std::string& path(std::size_t file) const = 0;
    [[nodiscard]] virtual const Header& header(std::size_t file) const = 0;

  private:
    // Of bytes that the tensor has.
    virtual void read_bytes(std::size_t index, int64_t offset, void* data,
                            std::size_t bytes) const = 0;
};

} // namespace mp::model
