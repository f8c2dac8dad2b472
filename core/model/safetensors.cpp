// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.hpp"

#include <algorithm>
#include <array>

#include "status/status.hpp"
#include "system/json_reader.hpp"
#include "system/json_writer.hpp"
#include "system/name.hpp"

namespace mp::model {
using system::JsonReader;

namespace {

FileType parse_type(const JsonReader& reader, std::string_view text) {
    const auto type = safetensors_type(text);
    if (!type.has_value()) {
        reader.refuse("the element type '%.*s' is not supported", system::shown(text, 32),
                      text.data());
    }
    return *type;
}

void read_metadata(JsonReader& reader, HeaderParts& parts) {
    reader.expect('{');
    if (reader.take('}')) {
        return;
    }
    do {
        const std::string_view key = reader.key();
        parts.add_text(key, reader.string());
    } while (reader.another('}'));
}

void read_shape(JsonReader& reader, HeaderParts& parts, FileTensor& tensor) {
    reader.expect('[');
    if (reader.take(']')) {
        return;
    }
    do {
        if (tensor.ndim == kMaxFileDims) {
            reader.refuse("a tensor has more than %d dimensions", kMaxFileDims);
        }
        parts.add_size(tensor, reader.integer());
    } while (reader.another(']'));
}

void check_size(const JsonReader& reader, const HeaderParts& parts, const FileTensor& tensor) {
    if (tensor.begin > tensor.end) {
        reader.refuse("a tensor ends before it begins");
    }
    const auto count = parts.count(tensor);
    if (!count.has_value()) {
        reader.refuse("the sizes of a shape overflow");
    }
    const auto bytes = bytes_of(tensor.type, *count);
    if (!bytes.has_value()) {
        reader.refuse("a tensor of packed elements does not fill whole bytes");
    }
    if (*bytes != tensor.end - tensor.begin) {
        reader.refuse("a tensor's offsets span %lld bytes, but its shape and type need %lld",
                      static_cast<long long>(tensor.end - tensor.begin),
                      static_cast<long long>(*bytes));
    }
}

void read_tensor(JsonReader& reader, HeaderParts& parts, std::string_view name) {
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
            read_shape(reader, parts, tensor);
        } else if (key == "data_offsets") {
            first_time(2, key);
            reader.expect('[');
            tensor.begin = reader.integer();
            tensor.end = reader.integer();
            reader.expect(']');
        } else {
            reader.refuse("a tensor has the unknown field '%.*s'", system::shown(key, 32),
                          key.data());
        }
    } while (reader.another('}'));
    if (!(seen[0] && seen[1] && seen[2])) {
        reader.refuse("a tensor lacks dtype, shape or data_offsets");
    }
    check_size(reader, parts, tensor);
    parts.tensors.push_back(tensor);
}

void read_members(JsonReader& reader, HeaderParts& parts) {
    reader.expect('{');
    bool has_metadata = false;
    if (reader.take('}')) {
        return;
    }
    do {
        const std::string_view key = reader.key();
        if (key != "__metadata__") {
            read_tensor(reader, parts, key);
        } else if (has_metadata) {
            reader.refuse("__metadata__ appears twice");
        } else {
            has_metadata = true;
            read_metadata(reader, parts);
        }
    } while (reader.another('}'));
}

void check_places(const Header& header, int64_t data_bytes) {
    int64_t end = 0;
    for (const FileTensor& tensor : header.tensors()) {
        if (tensor.begin != end) {
            fail(Code::corrupt_data,
                 "safetensors header: a tensor begins at %lld where the one before ends at %lld; "
                 "there must be no hole and no overlap",
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

} // namespace

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

Header read_safetensors(std::string_view text, int64_t file_bytes) {
    HeaderParts parts;
    parts.what = "safetensors";
    parts.data_begin = 8 + static_cast<int64_t>(text.size());
    const int64_t data_bytes = file_bytes - parts.data_begin;
    if (data_bytes < 0) {
        fail(Code::corrupt_data, "safetensors: the header is longer than the file");
    }
    if (text.empty() || text.front() != '{') {
        fail(Code::corrupt_data, "safetensors header: the first byte must be '{'");
    }
    JsonReader reader(text, {"safetensors header"});
    read_members(reader, parts);
    parts.text = reader.take_tokens();
    Header header(std::move(parts));
    check_places(header, data_bytes);
    return header;
}

bool writing_order(const NewTensor& a, const NewTensor& b) noexcept {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
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
            fail(Code::invalid_argument, "safetensors: the name '%.64s' is not UTF-8",
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
        fail(Code::invalid_argument,
             "safetensors: the tensors of one file need a header of %llu bytes; readers take at "
             "most "
             "%lld",
             static_cast<unsigned long long>(length), static_cast<long long>(kMaxHeaderBytes));
    }
    for (int i = 0; i < 8; ++i) {
        text[static_cast<std::size_t>(i)] = static_cast<char>((length >> (8 * i)) & 0xFF);
    }
    return text;
}

} // namespace mp::model
