// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "status/status.hpp"
#include "system/json_writer.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

static_assert(std::endian::native == std::endian::little);

// Bytes of the shortest ones: an empty name, and what must follow.
constexpr std::size_t kLeastValue = 8 + 4 + 1;
constexpr std::size_t kLeastTensor = 8 + 4 + 4 + 8;

struct TextEnds {}; // the header goes on behind the text

[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...) {
    std::array<char, 400> text{};
    va_list words;
    va_start(words, format);
    (void)std::vsnprintf(text.data(), text.size(), format, words);
    va_end(words);
    fail(Code::corrupt_data, "GGUF header: %s", text.data());
}

int printed(std::string_view name) { return system::shown(name, 64); }

class Reader {
  public:
    Reader(std::string text, int64_t file_bytes) : file_bytes_(file_bytes) {
        parts_.what = "GGUF";
        parts_.text = std::move(text);
    }

    HeaderParts read() {
        read_version();
        const uint64_t tensors = number<uint64_t>();
        const uint64_t values = number<uint64_t>();
        check_count(values, kLeastValue, "keys");
        check_count(tensors, kLeastTensor, "tensors");
        for (uint64_t i = 0; i < values; ++i) {
            read_value();
        }
        read_alignment();
        for (uint64_t i = 0; i < tensors; ++i) {
            read_tensor();
        }
        const auto end = static_cast<int64_t>(at_);
        parts_.data_begin = (end + alignment_ - 1) / alignment_ * alignment_;
        return std::move(parts_);
    }

  private:
    [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(file_bytes_) - at_; }

    // The next bytes. What the file does not have is refused; what the text does not have yet ends the reading.
    const char* take(uint64_t bytes) {
        if (bytes > left()) {
            refuse(
                "it ends behind the file's %lld bytes; the file is cut, or a length in it is wrong",
                static_cast<long long>(file_bytes_));
        }
        if (at_ + bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
            refuse("it has more than %lld bytes", static_cast<long long>(kMaxHeaderBytes));
        }
        if (bytes > parts_.text.size() - at_) {
            throw TextEnds{};
        }
        const char* begin = parts_.text.data() + at_;
        at_ += bytes;
        return begin;
    }
    template <class Number> Number number() {
        Number value{};
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }
    std::string_view text() {
        const auto bytes = number<uint64_t>();
        return {take(bytes), static_cast<std::size_t>(bytes)};
    }
    // Texts of values may be of any bytes, as tokens are.
    std::string_view name() {
        const std::string_view name = text();
        const bool is_ascii =
            std::all_of(name.begin(), name.end(), [](char c) { return (c & 0x80) == 0; });
        if (!is_ascii && !system::is_utf8(name)) {
            refuse("the name of a key or a tensor is not UTF-8");
        }
        return name;
    }
    // So that nothing is looped over that cannot be there.
    void check_count(uint64_t count, std::size_t least, const char* what) const {
        if (count > left() / least) {
            refuse("it would have %llu %s, in a file of %lld bytes",
                   static_cast<unsigned long long>(count), what,
                   static_cast<long long>(file_bytes_));
        }
    }

    void read_version() {
        (void)take(kGgufMagic.size());
        const auto version = number<uint32_t>();
        if (version == 0x02000000 || version == 0x03000000) {
            refuse("the file is big-endian; only little-endian ones are read");
        }
        if (version != 2 && version != 3) {
            refuse("the file is of version %u; versions 2 and 3 are read", version);
        }
    }

    const GgufValue& value_row(uint32_t type, std::string_view key) const {
        if (type >= std::size(kGgufValues)) {
            refuse("key '%.*s' has the unknown type %u", printed(key), key.data(), type);
        }
        return kGgufValues[type];
    }

    void read_value() {
        FileValue value;
        value.key = name();
        auto type = number<uint32_t>();
        if (type == kGgufList) {
            value.is_list = true;
            type = number<uint32_t>();
            const auto count = number<uint64_t>();
            if (type == kGgufList) {
                refuse("key '%.*s' has lists in a list", printed(value.key), value.key.data());
            }
            const std::size_t width = value_row(type, value.key).width;
            check_count(count, width == 0 ? 8 : width, "items of a list");
            value.count = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
        }
        const GgufValue& row = value_row(type, value.key);
        value.type = row.type;
        value.width = row.width;
        read_items(value);
        parts_.values.push_back(value);
    }
    void read_items(FileValue& value) {
        if (value.type != ValueType::text) {
            const std::size_t bytes = std::size_t{value.count} * value.width;
            value.data = {take(bytes), bytes};
        } else if (!value.is_list) {
            value.data = text();
        } else {
            value.first_text = parts_.texts.size();
            for (uint32_t i = 0; i < value.count; ++i) {
                parts_.texts.push_back(text());
            }
        }
    }

    void read_alignment() {
        for (const FileValue& value : parts_.values) {
            if (value.key != "general.alignment") {
                continue;
            }
            uint32_t alignment = 0;
            if (value.type == ValueType::unsigned_integer && !value.is_list && value.width == 4) {
                std::memcpy(&alignment, value.data.data(), sizeof alignment);
            }
            if (!std::has_single_bit(alignment)) {
                refuse("general.alignment must be a power of two, as a 32-bit number");
            }
            alignment_ = alignment;
        }
    }

    void read_tensor() {
        FileTensor tensor;
        tensor.name = name();
        const auto ndim = number<uint32_t>();
        if (ndim > kMaxGgufDims) {
            refuse("tensor '%.*s' has %u dimensions; there are at most %d", printed(tensor.name),
                   tensor.name.data(), ndim, kMaxGgufDims);
        }
        std::array<int64_t, kMaxGgufDims> sizes{};
        for (uint32_t i = 0; i < ndim; ++i) {
            sizes[i] = number<int64_t>();
            if (sizes[i] < 0) {
                refuse_sizes(tensor);
            }
        }
        for (uint32_t i = ndim; i-- > 0;) { // the slowest first
            parts_.add_size(tensor, sizes[i]);
        }
        const auto type = number<uint32_t>();
        const auto known = gguf_type(type);
        if (!known.has_value()) {
            refuse("tensor '%.*s' has the unknown type %u", printed(tensor.name),
                   tensor.name.data(), type);
        }
        tensor.type = *known;
        if (sizes[0] % block_elements(tensor.type) != 0) {
            refuse("tensor '%.*s' is %s, of blocks of %lld elements, but its rows have %lld",
                   printed(tensor.name), tensor.name.data(), file_type_name(tensor.type),
                   static_cast<long long>(block_elements(tensor.type)),
                   static_cast<long long>(sizes[0]));
        }
        set_place(tensor, number<uint64_t>());
        parts_.tensors.push_back(tensor);
    }
    void set_place(FileTensor& tensor, uint64_t begin) {
        const auto count = parts_.count(tensor);
        const auto bytes = count.has_value() ? bytes_of(tensor.type, *count) : std::nullopt;
        if (!bytes.has_value()) {
            refuse_sizes(tensor);
        }
        if (begin % static_cast<uint64_t>(alignment_) != 0) {
            refuse("tensor '%.*s' begins at %llu, which is no multiple of %lld",
                   printed(tensor.name), tensor.name.data(), static_cast<unsigned long long>(begin),
                   static_cast<long long>(alignment_));
        }
        if (begin > static_cast<uint64_t>(file_bytes_) || *bytes > file_bytes_) {
            refuse_place(tensor);
        }
        tensor.begin = static_cast<int64_t>(begin);
        tensor.end = tensor.begin + *bytes;
    }
    [[noreturn]] static void refuse_sizes(const FileTensor& tensor) {
        refuse("the sizes of tensor '%.*s' overflow", printed(tensor.name), tensor.name.data());
    }
    [[noreturn]] static void refuse_place(const FileTensor& tensor) {
        refuse("tensor '%.*s' lies behind the end of the file; the file is cut",
               printed(tensor.name), tensor.name.data());
    }

    HeaderParts parts_;
    int64_t file_bytes_;
    std::size_t at_ = 0;
    int64_t alignment_ = kGgufAlignment;
};

void check_places(const Header& header, int64_t file_bytes) {
    int64_t end = 0;
    for (const FileTensor& tensor : header.tensors()) {
        if (tensor.begin < end) {
            refuse("tensor '%.*s' begins at %lld, before the one before it ends, at %lld",
                   printed(tensor.name), tensor.name.data(), static_cast<long long>(tensor.begin),
                   static_cast<long long>(end));
        }
        end = tensor.end;
    }
    if (end > file_bytes - header.data_begin() && !header.tensors().empty()) {
        refuse("the tensors end at byte %lld of %lld bytes of data; the file is cut",
               static_cast<long long>(end),
               static_cast<long long>(file_bytes - header.data_begin()));
    }
}

} // namespace

std::optional<Header> read_gguf(std::string text, int64_t file_bytes) {
    if (text.size() > static_cast<uint64_t>(file_bytes)) {
        text.resize(static_cast<std::size_t>(file_bytes));
    }
    HeaderParts parts;
    try {
        parts = Reader(std::move(text), file_bytes).read();
    } catch (const TextEnds&) {
        return std::nullopt;
    }
    Header header(std::move(parts));
    check_places(header, file_bytes);
    return header;
}

} // namespace mp::model
