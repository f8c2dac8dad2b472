// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files (https://github.com/huggingface/safetensors, format of 0.4 to 0.8): a little-endian
// length, a JSON object, the tensors' bytes without holes. Read strictly, in time linear but for sorts of numbers.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/name_index.hpp"
#include "dtype/format_id.hpp"
#include "system/json_reader.hpp"

namespace mp::checkpoint {

// Element types of the format, by its names.
enum class FileType : int32_t {
#define X(name, bits, dtype) name,
#include "checkpoint/safetensors_types.def"
#undef X
};
const char* file_type_name(FileType type) noexcept;
int64_t file_type_bits(FileType type) noexcept;
// The type under which ours is written; packed types as bytes.
FileType file_type(DType dtype) noexcept;
// Of what a checkpoint keeps: codes of half a byte lie two to a byte, flat.
bool is_in_pairs(FormatId format) noexcept;
FileType file_type(FormatId format) noexcept;
// What of ours it is read as; `none` where we have no such type.
DType dtype_of(FileType type) noexcept;

inline constexpr int32_t kMaxFileDims = 8;
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct FileTensor {
    std::string_view name; // in the header's text
    FileType type = FileType::U8;
    int32_t ndim = 0;
    std::size_t first_size = 0; // of Header::sizes
    int64_t begin = 0;          // relative to Header::data_begin
    int64_t end = 0;
};

// What a header says, checked: offsets cover the data exactly, and fit shape and type.
class Header {
  public:
    // `text` is the JSON without its length; file_bytes the whole file's size. Throws corrupt_data.
    Header(std::string_view text, int64_t file_bytes);
    Header(Header&&) noexcept = default;
    Header& operator=(Header&&) noexcept = default;
    Header(const Header&) = delete;
    Header& operator=(const Header&) = delete;
    ~Header() = default;

    // Ordered by their place in the file.
    [[nodiscard]] const std::deque<FileTensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::vector<int64_t> shape(const FileTensor& tensor) const;
    // Null where there is no such tensor.
    [[nodiscard]] const FileTensor* find(std::string_view name) const noexcept;
    [[nodiscard]] std::optional<std::string_view> metadata(std::string_view key) const noexcept;
    [[nodiscard]] int64_t data_begin() const noexcept { return data_begin_; }

  private:
    void read(system::JsonReader& reader);
    void read_metadata(system::JsonReader& reader);
    void read_tensor(system::JsonReader& reader, std::string_view name);
    void read_shape(system::JsonReader& reader, FileTensor& tensor);
    void check_size(const system::JsonReader& reader, const FileTensor& tensor) const;
    void check_names();
    bool sort_by_place(); // false where they were
    void check_places(int64_t data_bytes) const;

    int64_t data_begin_;
    std::string
        tokens_; // names point into it; with any, it is too long not to keep its place when moved
    std::deque<FileTensor> tensors_;
    std::deque<int64_t> sizes_;
    NameIndex by_name_; // of tensors_; a header's bytes, and so its tensors, fit 32 bits
    std::deque<std::pair<std::string_view, std::string_view>> metadata_;
};

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
// True where `a` goes before `b`: by the width of its elements, then by name.
bool writing_order(const NewTensor& a, const NewTensor& b) noexcept;

} // namespace mp::checkpoint
