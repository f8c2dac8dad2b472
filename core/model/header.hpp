// SPDX-License-Identifier: Apache-2.0
// Header: what a model's file says that it has, of whichever kind it is: tensors, and values by keys. Who reads one fills
// HeaderParts; nothing is believed that has not been checked.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/file_type.hpp"
#include "model/name_index.hpp"

namespace mp::model {

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

// What a key has: a text or a number, or a list of them.
enum class ValueType : uint8_t { text, boolean, integer, unsigned_integer, floating };
struct FileValue {
    std::string_view key;       // in the header's text, as all of it
    std::string_view data;      // the text, or little-endian numbers; of a list of texts: none
    std::size_t first_text = 0; // of a list of texts: in HeaderParts::texts
    uint32_t count = 1;
    ValueType type = ValueType::text;
    uint8_t width = 0; // bytes of a number
    bool is_list = false;
};

// A header while it is read.
struct HeaderParts {
    const char* what = ""; // the kind of file, for messages
    int64_t data_begin = 0;
    // Texts point into it, so it is too long not to keep its place when moved.
    std::string text;
    std::deque<FileTensor> tensors;
    std::deque<int64_t> sizes;
    std::deque<FileValue> values;
    std::deque<std::string_view> texts;

    // A dimension of the tensor that comes next, the slowest first.
    void add_size(FileTensor& tensor, int64_t size);
    // Elements of a tensor of this shape and type; nothing where they overflow, as bits too. Sizes multiply without overflow even
    // where one of them is zero, so that no order of them passes.
    [[nodiscard]] std::optional<int64_t> count(const FileTensor& tensor) const;
    void add_text(std::string_view key, std::string_view text);
};

class Header {
  public:
    // Throws corrupt_data for names and keys that are there twice.
    explicit Header(HeaderParts parts);
    // A deque's takes memory, so it may throw.
    Header(Header&&) = default;            // NOLINT(performance-noexcept-move-constructor)
    Header& operator=(Header&&) = default; // NOLINT(performance-noexcept-move-constructor)
    Header(const Header&) = delete;
    Header& operator=(const Header&) = delete;
    ~Header() = default;

    // Ordered by their place in the file.
    [[nodiscard]] const std::deque<FileTensor>& tensors() const noexcept { return parts_.tensors; }
    [[nodiscard]] std::vector<int64_t> shape(const FileTensor& tensor) const;
    // Null where there is no such tensor.
    [[nodiscard]] const FileTensor* find(std::string_view name) const noexcept;
    [[nodiscard]] const std::deque<FileValue>& values() const noexcept { return parts_.values; }
    // Which of them it is.
    [[nodiscard]] std::optional<std::size_t> find_value(std::string_view key) const noexcept;
    [[nodiscard]] const FileValue* value(std::string_view key) const noexcept;
    // Where the key has one text.
    [[nodiscard]] std::optional<std::string_view> metadata(std::string_view key) const noexcept;
    // The text of one of a value's, which has so many; of numbers the shortest that reads back the same.
    [[nodiscard]] std::string text(const FileValue& value, std::size_t item) const;
    [[nodiscard]] int64_t data_begin() const noexcept { return parts_.data_begin; }

  private:
    void index_names();
    void index_keys();
    template <class NameOf>
    void index(NameIndex& names, std::size_t count, const char* of, const NameOf& name_of) const;
    bool sort_by_place(); // false where they were

    HeaderParts parts_;
    NameIndex by_name_; // of tensors; a header's bytes, and so its tensors, fit 32 bits
    NameIndex by_key_;
};

} // namespace mp::model
