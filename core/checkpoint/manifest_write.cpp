// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "checkpoint/json_text.hpp"
#include "checkpoint/manifest.hpp"
#include "status/status.hpp"
#include "system/crc32c.hpp"

namespace mp::checkpoint {
namespace {

void append_key(std::string& out, std::string_view key) {
    append_json(out, key);
    out += ':';
}
void append_text(std::string& out, std::string_view key, std::string_view value) {
    if (!is_utf8(value)) {
        fail(Code::invalid_argument, "checkpoint: a name or a text of the manifest is not UTF-8");
    }
    append_key(out, key);
    append_json(out, value);
    out += ',';
}
void append_number(std::string& out, std::string_view key, int64_t value) {
    append_key(out, key);
    out += std::to_string(value) + ",";
}
// The comma after the last element becomes the closing bracket.
void close(std::string& out, char bracket) {
    if (out.back() == ',') {
        out.back() = bracket;
    } else {
        out += bracket;
    }
}

void append_file(std::string& out, const StoredFile& file) {
    out += '{';
    append_text(out, "name", file.name);
    append_number(out, "bytes", file.bytes);
    std::string chunks;
    chunks.reserve(file.chunks.size() * 8);
    for (const uint32_t crc : file.chunks) {
        chunks += hex(crc, 8);
    }
    append_text(out, "crc32c", chunks);
    close(out, '}');
    out += ',';
}

void append_tensor(std::string& out, const StoredTensor& tensor) {
    out += '{';
    append_text(out, "name", tensor.name);
    append_text(out, "state", tensor.state);
    append_text(out, "format", format_name(tensor.format));
    append_key(out, "shape");
    append_json(out, tensor.shape);
    out += ",\"pieces\":[";
    for (const Piece& piece : tensor.pieces) {
        const int64_t numbers[] = {piece.file, piece.start, piece.length};
        append_json(out, numbers);
        out += ',';
    }
    close(out, ']');
    out += "},";
}

void sort_contents(Manifest& manifest) {
    std::sort(manifest.tensors.begin(), manifest.tensors.end(), [](const auto& a, const auto& b) {
        return std::tie(a.name, a.state) < std::tie(b.name, b.state);
    });
    for (StoredTensor& tensor : manifest.tensors) {
        std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const Piece& a, const Piece& b) {
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

std::string StoredTensor::key(const Piece& piece) const {
    const bool is_whole = piece.start == 0 && piece.length == count();
    return name + "." + state + (is_whole ? std::string() : '@' + std::to_string(piece.start));
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

std::string write_part(Manifest& manifest) {
    sort_contents(manifest);
    std::string out = "{\"format\":\"mixedprec-checkpoint\",";
    append_number(out, "version", manifest.version);
    append_number(out, "minor", manifest.minor);
    append_text(out, "library", manifest.library);
    append_text(out, "id", manifest.id);
    append_number(out, "step", manifest.step);
    append_number(out, "sequence", manifest.sequence);
    append_number(out, "world", manifest.world);
    append_text(out, "recipe", manifest.recipe);
    append_text(out, "plan", hex(manifest.plan, 16));
    append_number(out, "chunk_bytes", manifest.chunk_bytes);
    out += "\"rng\":{";
    append_text(out, "algorithm", kRngAlgorithm);
    append_text(out, "seed", hex(manifest.seed, 16));
    append_number(out, "step", manifest.rng_step);
    close(out, '}');
    out += ",\"files\":[";
    for (const StoredFile& file : manifest.files) {
        append_file(out, file);
    }
    close(out, ']');
    out += ",\"tensors\":[";
    for (const StoredTensor& tensor : manifest.tensors) {
        append_tensor(out, tensor);
    }
    close(out, ']');
    out += ",\"scalars\":[";
    for (const Scalar& scalar : manifest.scalars) {
        out += '[';
        append_json(out, scalar.name);
        out += ",\"" + hex(scalar.bits, 16) + "\"],";
    }
    close(out, ']');
    out += ",\"crc32c\":\"" + hex(system::crc32c(0, out.data(), out.size()), 8) + "\"}\n";
    return out;
}

std::string write_manifest(Manifest& manifest) {
    std::string text = write_part(manifest);
    if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
        fail(Code::invalid_argument,
             "checkpoint: the manifest has %zu bytes; at most %lld are read", text.size(),
             static_cast<long long>(kMaxManifestBytes));
    }
    (void)read_manifest(text); // whatever this refuses must not be committed
    return text;
}

} // namespace mp::checkpoint
