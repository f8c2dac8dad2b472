// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "checkpoint/manifest.hpp"
#include "status/status.hpp"
#include "system/crc32c.hpp"
#include "system/json_writer.hpp"

namespace mp::checkpoint {
namespace {

using system::JsonWriter;

void write_text(JsonWriter& json, std::string_view key, std::string_view value) {
    if (!system::is_utf8(value)) {
        fail(Code::invalid_argument, "checkpoint: a name or a text of the manifest is not UTF-8");
    }
    json.text(key, value);
}

void write_file(JsonWriter& json, const StoredFile& file) {
    json.begin('{');
    write_text(json, "name", file.name);
    json.number("bytes", file.bytes);
    std::string chunks;
    chunks.reserve(file.chunks.size() * 8);
    for (const uint32_t crc : file.chunks) {
        chunks += hex(crc, 8);
    }
    json.text("crc32c", chunks);
    json.end();
}

void write_tensor(JsonWriter& json, const StoredTensor& tensor) {
    json.begin('{');
    write_text(json, "name", tensor.name);
    write_text(json, "state", tensor.state);
    json.text("format", format_name(tensor.format));
    json.key("shape");
    json.numbers(tensor.shape);
    json.key("pieces");
    json.begin('[');
    for (const StoredSlice& slice : tensor.slices) {
        const int64_t numbers[] = {slice.file, slice.start, slice.length};
        json.numbers(numbers);
    }
    json.end();
    json.end();
}

void write_scalar(JsonWriter& json, const Scalar& scalar) {
    json.begin('[');
    json.text(scalar.name);
    json.text(hex(scalar.bits, 16));
    json.end();
}

template <typename Items, typename Write>
void write_list(JsonWriter& json, std::string_view key, const Items& items, const Write& write) {
    json.key(key);
    json.begin('[');
    for (const auto& item : items) {
        write(json, item);
    }
    json.end();
}

void sort_contents(Manifest& manifest) {
    std::sort(manifest.tensors.begin(), manifest.tensors.end(), [](const auto& a, const auto& b) {
        return std::tie(a.name, a.state) < std::tie(b.name, b.state);
    });
    for (StoredTensor& tensor : manifest.tensors) {
        std::sort(tensor.slices.begin(), tensor.slices.end(),
                  [](const StoredSlice& a, const StoredSlice& b) {
                      return std::pair(a.start, a.length) < std::pair(b.start, b.length);
                  });
    }
    std::sort(manifest.scalars.begin(), manifest.scalars.end(),
              [](const Scalar& a, const Scalar& b) { return a.name < b.name; });
}

} // namespace

int64_t StoredTensor::count() const noexcept {
    int64_t product = 1;
    for (const int64_t size : shape) {
        product *= size;
    }
    return product;
}

std::string StoredTensor::key(const StoredSlice& slice) const {
    const bool is_whole = slice.start == 0 && slice.length == count();
    return name + "." + state + (is_whole ? std::string() : '@' + std::to_string(slice.start));
}

std::string hex(uint64_t value, int digits) {
    std::string text(static_cast<std::size_t>(digits), '0');
    for (int i = digits - 1; i >= 0; --i, value >>= 4) {
        text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
    }
    return text;
}

const StoredTensor* Manifest::find(const std::string& name, const std::string& state) const {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), std::tie(name, state),
                                        [](const StoredTensor& tensor, const auto& wanted) {
                                            return std::tie(tensor.name, tensor.state) < wanted;
                                        });
    return found != tensors.end() && found->name == name && found->state == state ? &*found
                                                                                  : nullptr;
}

const Scalar* Manifest::find_scalar(const std::string& name) const {
    const auto found =
        std::lower_bound(scalars.begin(), scalars.end(), name,
                         [](const Scalar& a, const std::string& b) { return a.name < b; });
    return found != scalars.end() && found->name == name ? &*found : nullptr;
}

std::string manifest_text(Manifest& manifest) {
    sort_contents(manifest);
    JsonWriter json;
    json.begin('{');
    json.text("format", "mixedprec-checkpoint");
    json.number("version", manifest.version);
    json.number("minor", manifest.minor);
    write_text(json, "library", manifest.library);
    write_text(json, "id", manifest.id);
    json.number("step", manifest.step);
    json.number("sequence", manifest.sequence);
    json.number("world", manifest.world);
    write_text(json, "recipe", manifest.recipe);
    if (manifest.minor >= 2) {
        write_text(json, "preset", manifest.preset);
        write_text(json, "device", manifest.device);
    }
    json.text("plan", hex(manifest.plan, 16));
    json.number("chunk_bytes", manifest.chunk_bytes);
    json.key("rng");
    json.begin('{');
    json.text("algorithm", kRngAlgorithm);
    json.text("seed", hex(manifest.seed, 16));
    json.number("step", manifest.rng_step);
    json.end();
    write_list(json, "files", manifest.files, write_file);
    write_list(json, "tensors", manifest.tensors, write_tensor);
    write_list(json, "scalars", manifest.scalars, write_scalar);
    json.text("crc32c", hex(system::crc32c(0, json.so_far().data(), json.so_far().size()), 8));
    json.end();
    return json.take() + "\n";
}

std::string write_manifest(Manifest& manifest) {
    std::string text = manifest_text(manifest);
    if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
        fail(Code::invalid_argument,
             "checkpoint: the manifest has %zu bytes; at most %lld are read", text.size(),
             static_cast<long long>(kMaxManifestBytes));
    }
    (void)read_manifest(text); // whatever this refuses must not be committed
    return text;
}

} // namespace mp::checkpoint
