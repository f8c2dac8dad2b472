// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "status/status.hpp"
#include "system/json_writer.hpp"

namespace mp::checkpoint {
using system::JsonReader;

namespace {

struct TypeRow {
    const char* name;
    int64_t bits;
    DType dtype;
};
constexpr TypeRow kTypes[] = {
#define X(name, bits, dtype) {#name, bits, DType::dtype},
#include "checkpoint/safetensors_types.def"
#undef X
};

const TypeRow& row(FileType type) noexcept { return kTypes[static_cast<std::size_t>(type)]; }

FileType parse_type(const JsonReader& reader, std::string_view text) {
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
        if (text == kTypes[i].name) {
            return static_cast<FileType>(i);
        }
    }
    reader.refuse("the element type '%.*s' is not supported",
                  static_cast<int>(std::min<std::size_t>(text.size(), 32)), text.data());
}

} // namespace

const char* file_type_name(FileType type) noexcept { return row(type).name; }
int64_t file_type_bits(FileType type) noexcept { return row(type).bits; }
DType dtype_of(FileType type) noexcept { return row(type).dtype; }

FileType file_type(DType dtype) noexcept {
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
        if (dtype != DType::none && kTypes[i].dtype == dtype) {
            return static_cast<FileType>(i);
        }
    }
    return FileType::U8;
}

bool is_in_pairs(FormatId format) noexcept {
    return block_layout(coding_of(format)).bits == 4 || is_packed(dtype_of(format));
}

FileType file_type(FormatId format) noexcept {
    return file_type(is_in_pairs(format) ? DType::uint8 : dtype_of(format));
}

int64_t header_bytes(const unsigned char (&prefix)[8], int64_t file_bytes) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) {
        length = (length << 8) | prefix[i];
    }
    if (length < 2 || length > static_cast<uint64_t>(kMaxHeaderBytes)) {
        fail(Code::corrupt_data,
             "safetensors: the header would have %llu bytes; it must have 2 to %lld",
             static_cast<unsigned long long>(length), static_cast<long long>(kMaxHeaderBytes));
    }
    if (file_bytes < 8 || length > static_cast<uint64_t>(file_bytes - 8)) {
        fail(Code::corrupt_data,
             "safetensors: the header would have %llu bytes, in a file of %lld; it is cut or no "
             "safetensors file",
             static_cast<unsigned long long>(length), static_cast<long long>(file_bytes));
    }
    return static_cast<int64_t>(length);
}

Header::Header(std::string_view text, int64_t file_bytes)
    : data_begin_(8 + static_cast<int64_t>(text.size())) {
    const int64_t data_bytes = file_bytes - data_begin_;
    if (data_bytes < 0) {
        fail(Code::corrupt_data, "safetensors: the header is longer than the file");
    }
    if (text.empty() || text.front() != '{') {
        fail(Code::corrupt_data, "safetensors header: the first byte must be '{'");
    }
    JsonReader reader(text, {"safetensors header"});
    read(reader);
    tokens_ = reader.take_tokens();
    check_places(data_bytes);
}

void Header::read(JsonReader& reader) {
    reader.expect('{');
    bool has_metadata = false;
    if (!reader.take('}')) {
        do {
            const std::string_view key = reader.key();
            if (key != "__metadata__") {
                read_tensor(reader, key);
            } else if (has_metadata) {
                reader.refuse("__metadata__ appears twice");
            } else {
                has_metadata = true;
                read_metadata(reader);
            }
        } while (reader.another('}'));
    }
    check_names();
    if (sort_by_place()) {
        check_names(); // finds them where they are now
    }
}

void Header::read_metadata(JsonReader& reader) {
    reader.expect('{');
    if (reader.take('}')) {
        return;
    }
    do {
        const std::string_view key = reader.key();
        metadata_.emplace_back(key, reader.string());
    } while (reader.another('}'));
    NameIndex keys;
    const auto key_of = [this](std::size_t i) { return metadata_[i].first; };
    keys.build(metadata_.size(), key_of);
    if (keys.duplicate(key_of) != NameIndex::kNone) {
        reader.refuse("a key of __metadata__ appears twice");
    }
}

void Header::read_tensor(JsonReader& reader, std::string_view name) {
    FileTensor tensor;
    tensor.name = name;
    std::array<bool, 3> seen{};
    const auto first_time = [&](std::size_t field, std::string_view key) {
        if (seen[field]) {
            reader.refuse("field '%.*s' of a tensor appears twice", static_cast<int>(key.size()),
                          key.data());
        }
        seen[field] = true;
    };
    reader.expect('{');
    do {
        const std::string_view key = reader.key();
        if (key == "dtype") {
            first_time(0, key);
            tensor.type = parse_type(reader, reader.string());
        } else if (key == "shape") {
            first_time(1, key);
            read_shape(reader, tensor);
        } else if (key == "data_offsets") {
            first_time(2, key);
            reader.expect('[');
            tensor.begin = reader.integer();
            tensor.end = reader.integer();
            reader.expect(']');
        } else {
            reader.refuse("a tensor has the unknown field '%.*s'",
                          static_cast<int>(std::min<std::size_t>(key.size(), 32)), key.data());
        }
    } while (reader.another('}'));
    if (!(seen[0] && seen[1] && seen[2])) {
        reader.refuse("a tensor lacks dtype, shape or data_offsets");
    }
    check_size(reader, tensor);
    tensors_.push_back(tensor);
}

void Header::read_shape(JsonReader& reader, FileTensor& tensor) {
    tensor.first_size = sizes_.size();
    reader.expect('[');
    if (reader.take(']')) {
        return;
    }
    do {
        if (tensor.ndim == kMaxFileDims) {
            reader.refuse("a tensor has more than %d dimensions", kMaxFileDims);
        }
        sizes_.push_back(reader.integer());
        ++tensor.ndim;
    } while (reader.another(']'));
}

// Sizes multiply without overflow even where one of them is zero, so that no order of them passes.
void Header::check_size(const JsonReader& reader, const FileTensor& tensor) const {
    if (tensor.begin > tensor.end) {
        reader.refuse("a tensor ends before it begins");
    }
    int64_t count = 1;
    bool is_empty = false;
    for (int32_t i = 0; i < tensor.ndim; ++i) {
        const int64_t size = sizes_[tensor.first_size + static_cast<std::size_t>(i)];
        is_empty = is_empty || size == 0;
        if (size != 0 && __builtin_mul_overflow(count, size, &count)) {
            reader.refuse("the sizes of a shape overflow");
        }
    }
    int64_t bits = 0;
    if (__builtin_mul_overflow(count, file_type_bits(tensor.type), &bits)) {
        reader.refuse("the sizes of a shape overflow");
    }
    bits = is_empty ? 0 : bits;
    if (bits % 8 != 0) {
        reader.refuse("a tensor of packed elements does not fill whole bytes");
    }
    if (bits / 8 != tensor.end - tensor.begin) {
        reader.refuse("a tensor's offsets span %lld bytes, but its shape and type need %lld",
                      static_cast<long long>(tensor.end - tensor.begin),
                      static_cast<long long>(bits / 8));
    }
}

bool Header::sort_by_place() {
    const auto is_before = [](const FileTensor& a, const FileTensor& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    };
    if (std::is_sorted(tensors_.begin(), tensors_.end(), is_before)) { // as most writers leave them
        return false;
    }
    std::sort(tensors_.begin(), tensors_.end(), is_before);
    return true;
}

void Header::check_places(int64_t data_bytes) const {
    int64_t end = 0;
    for (const FileTensor& tensor : tensors_) {
        if (tensor.begin != end) {
            fail(Code::corrupt_data,
                 "safetensors header: a tensor begins at %lld where the one before ends at %lld; "
                 "there "
                 "must be no hole and no overlap",
                 static_cast<long long>(tensor.begin), static_cast<long long>(end));
        }
        end = tensor.end;
    }
    if (end != data_bytes) {
        fail(Code::corrupt_data,
             "safetensors header: the tensors end at byte %lld of %lld bytes of data; the file is "
             "cut, or has trailing bytes",
             static_cast<long long>(end), static_cast<long long>(data_bytes));
    }
}

void Header::check_names() {
    const auto name_of = [this](std::size_t i) { return tensors_[i].name; };
    by_name_.build(tensors_.size(), name_of);
    const uint32_t twice = by_name_.duplicate(name_of);
    if (twice != NameIndex::kNone) {
        const std::string_view name = tensors_[twice].name;
        fail(Code::corrupt_data, "safetensors header: tensor '%.*s' appears twice",
             static_cast<int>(std::min<std::size_t>(name.size(), 64)), name.data());
    }
}

std::vector<int64_t> Header::shape(const FileTensor& tensor) const {
    const auto first = sizes_.begin() + static_cast<std::ptrdiff_t>(tensor.first_size);
    return {first, first + tensor.ndim};
}

const FileTensor* Header::find(std::string_view name) const noexcept {
    const uint32_t found = by_name_.find(name, [this](std::size_t i) { return tensors_[i].name; });
    return found == NameIndex::kNone ? nullptr : &tensors_[found];
}

std::optional<std::string_view> Header::metadata(std::string_view key) const noexcept {
    for (const auto& [name, value] : metadata_) {
        if (name == key) {
            return value;
        }
    }
    return std::nullopt;
}

bool writing_order(const NewTensor& a, const NewTensor& b) noexcept {
    const int64_t wide_a = file_type_bits(a.type);
    const int64_t wide_b = file_type_bits(b.type);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
}

std::string write_header(std::span<const NewTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata) {
    system::JsonWriter json;
    json.begin('{');
    if (!metadata.empty()) {
        json.key("__metadata__");
        json.begin('{');
        for (const auto& [key, value] : metadata) {
            json.text(key, value);
        }
        json.end();
    }
    int64_t offset = 0;
    for (const NewTensor& tensor : tensors) {
        if (!system::is_utf8(tensor.name)) {
            fail(Code::invalid_argument, "checkpoint: name '%.64s' is not UTF-8",
                 tensor.name.c_str());
        }
        json.key(tensor.name);
        json.begin('{');
        json.text("dtype", file_type_name(tensor.type));
        json.key("shape");
        json.numbers(tensor.shape);
        json.key("data_offsets");
        const int64_t offsets[] = {offset, offset + tensor.bytes};
        json.numbers(offsets);
        json.end();
        offset += tensor.bytes;
    }
    json.end();
    std::string text = json.take();
    text.insert(0, 8, '\0');
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size() - 8;
    if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
        fail(
            Code::invalid_argument,
            "checkpoint: the tensors of one file need a header of %llu bytes; readers take at most "
            "%lld",
            static_cast<unsigned long long>(length), static_cast<long long>(kMaxHeaderBytes));
    }
    for (int i = 0; i < 8; ++i) {
        text[static_cast<std::size_t>(i)] = static_cast<char>((length >> (8 * i)) & 0xFF);
    }
    return text;
}

} // namespace mp::checkpoint
