// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest_fields.hpp"

namespace mp::checkpoint {
namespace {

constexpr std::size_t kMaxScalarName = 512; // a parameter's 255, a prefix, a suffix
constexpr std::size_t kMaxDimensions = 8;
constexpr int64_t kMaxElements = int64_t{1} << 59;

// Of a file beside the manifest: nothing that leaves the directory or is hidden in it.
bool is_file_name(const std::string& name) {
    return name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
           name.front() != '.' && name != kManifestName;
}

} // namespace

void ManifestReader::expect_key(std::string_view wanted) {
    if (take('}') || key() != wanted) {
        refuse("key '%s' must stand here", wanted.data());
    }
}

std::string ManifestReader::text(std::size_t most, std::size_t least) {
    const std::string_view value = string();
    if (value.size() > most || value.size() < least) {
        refuse("a text has %zu bytes; it must have %zu to %zu", value.size(), least, most);
    }
    return std::string(value);
}

int64_t ManifestReader::bounded(int64_t least, int64_t most, const char* what) {
    const int64_t value = integer();
    if (value < least || value > most) {
        refuse("%s is %lld; it must be %lld to %lld", what, static_cast<long long>(value),
               static_cast<long long>(least), static_cast<long long>(most));
    }
    return value;
}

StoredFile ManifestReader::file() {
    StoredFile file;
    expect('{');
    expect_key("name");
    file.name = text(255, 1);
    if (!is_file_name(file.name)) {
        refuse("a file's name is not that of a file beside the manifest");
    }
    expect_key("bytes");
    file.bytes = bounded(0, INT64_MAX / 2, "bytes");
    expect_key("crc32c");
    const std::string_view chunks = string();
    if (chunks.size() % 8 != 0) {
        refuse("a file's checksums are not 8 digits each");
    }
    file.chunks.reserve(chunks.size() / 8);
    for (std::size_t i = 0; i < chunks.size(); i += 8) {
        file.chunks.push_back(static_cast<uint32_t>(parse_hex(chunks.substr(i, 8), 8)));
    }
    expect('}');
    return file;
}

StoredTensor ManifestReader::tensor() {
    StoredTensor tensor;
    expect('{');
    expect_key("name");
    tensor.name = text(255, 1);
    expect_key("state");
    tensor.state = text(64, 1);
    if (tensor.state.find_first_of(".@") != std::string::npos) {
        refuse("a state's name has a dot or an @");
    }
    expect_key("format");
    tensor.format = parse_format(string());
    if (tensor.format == FormatId::none || is_in_blocks(dtype_of(tensor.format))) {
        refuse("a tensor is in an unknown format");
    }
    expect_key("shape");
    shape(tensor);
    expect_key("pieces");
    list([&] { tensor.slices.push_back(slice(tensor)); });
    expect('}');
    return tensor;
}

// The product may not overflow whatever the order, so zeros are left out of it.
void ManifestReader::shape(StoredTensor& tensor) {
    int64_t product = 1;
    list([&] {
        const int64_t size = integer();
        if (tensor.shape.size() == kMaxDimensions) {
            refuse("a shape has more than %zu dimensions", kMaxDimensions);
        }
        if (size != 0 &&
            (__builtin_mul_overflow(product, size, &product) || product > kMaxElements)) {
            refuse("a shape has too many elements");
        }
        tensor.shape.push_back(size);
    });
}

StoredSlice ManifestReader::slice(const StoredTensor& tensor) {
    StoredSlice slice;
    expect('[');
    slice.file = integer();
    slice.start = integer();
    slice.length = integer();
    expect(']');
    const int64_t count = tensor.count();
    if (tensor.slices.size() == kMaxSlices) {
        refuse("a tensor has more than %zu slices", kMaxSlices);
    }
    if (slice.length == 0) {
        refuse("a slice is empty");
    }
    if (slice.length > count || slice.start > count - slice.length) {
        refuse("a slice goes beyond its tensor");
    }
    const int64_t block = block_size(tensor.format);
    if (slice.start % block != 0 ||
        (slice.length % block != 0 && slice.start + slice.length != count)) {
        refuse("a slice does not begin or end where a block of scaled codes does");
    }
    return slice;
}

Scalar ManifestReader::scalar() {
    Scalar scalar;
    expect('[');
    scalar.name = text(kMaxScalarName, 1);
    scalar.bits = hexadecimal(16);
    expect(']');
    return scalar;
}

} // namespace mp::checkpoint
