// SPDX-License-Identifier: Apache-2.0
// Reading a manifest: the checksum first, then one strict pass, then what must hold between its parts.
#include <algorithm>
#include <array>
#include <tuple>

#include "checkpoint/crc32c.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/manifest.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {
namespace {

constexpr std::size_t kMaxNameBytes = 512; // of a scalar: a parameter's 255, a prefix, a suffix
constexpr int64_t kMaxSequence = int64_t{1} << 53;
constexpr std::size_t kMaxDimensions = 8;

[[noreturn]] void refuse(const char* why) { fail(Code::corrupt_data, "manifest: %s", why); }

// ',"crc32c":"01234567"}\n' at the end covers all bytes before it.
void check_crc(const std::string& text) {
    constexpr std::string_view kBefore = ",\"crc32c\":\"";
    constexpr std::string_view kAfter = "\"}\n";
    constexpr std::size_t kTail = kBefore.size() + 8 + kAfter.size();
    const std::string_view all = text;
    if (all.size() < kTail || !all.ends_with(kAfter) ||
        all.substr(all.size() - kTail, kBefore.size()) != kBefore) {
        refuse("it does not end with its checksum; the file is cut or is no manifest");
    }
    const std::size_t covered = all.size() - kTail;
    const uint64_t said = parse_hex(all.substr(covered + kBefore.size(), 8), 8);
    if (crc32c(0, text.data(), covered) != said) {
        refuse("its checksum does not fit its contents; the file is damaged");
    }
}

class Reader {
  public:
    Reader(std::string text, bool is_part)
        : text_(std::move(text)), json_(text_.data(), text_.size(), "manifest"), is_part_(is_part) {
    }

    Manifest read() {
        json_.expect('{');
        do {
            const std::string_view key = json_.string();
            json_.expect(':');
            read_key(key);
        } while (json_.another('}'));
        json_.end();
        for (std::size_t i = 0; i < kKeys.size(); ++i) {
            if (!seen_[i]) {
                json_.refuse("key '%s' is missing", kKeys[i].data());
            }
        }
        check_tensors();
        return std::move(manifest_);
    }

  private:
    static constexpr std::array<std::string_view, 16> kKeys = {
        "format", "version", "minor", "library", "id",      "step",    "sequence", "world",
        "recipe", "plan",    "rng",   "files",   "tensors", "scalars", "crc32c",   "chunk_bytes"};

    void read_key(std::string_view key) {
        const auto found = std::find(kKeys.begin(), kKeys.end(), key);
        if (found == kKeys.end()) {
            if (!seen_[2] || manifest_.minor <= kFormatMinor) {
                json_.refuse("key '%.*s' is unknown",
                             static_cast<int>(std::min<std::size_t>(key.size(), 32)), key.data());
            }
            json_.skip_value(16); // of a later minor version, which may be passed over
            return;
        }
        const auto index = static_cast<std::size_t>(found - kKeys.begin());
        if (seen_[index]) {
            json_.refuse("key '%s' appears twice", kKeys[index].data());
        }
        // The first three say how to read the rest, so they come first.
        if (index > 2 && !(seen_[0] && seen_[1] && seen_[2])) {
            json_.refuse("format, version and minor must come first");
        }
        seen_[index] = true;
        read_head(index);
    }

    void read_head(std::size_t index) {
        switch (index) {
        case 0:
            if (json_.string() != "mixedprec-checkpoint") {
                json_.refuse("this is no checkpoint of this library");
            }
            break;
        case 1:
            manifest_.version = json_.integer();
            if (manifest_.version < 1) {
                json_.refuse("there is no format version 0");
            }
            if (manifest_.version > kFormatVersion) {
                fail(Code::version_mismatch,
                     "manifest: format version %lld is not known; this library reads 1 to %lld; "
                     "install a newer library",
                     static_cast<long long>(manifest_.version),
                     static_cast<long long>(kFormatVersion));
            }
            break;
        case 2:
            manifest_.minor = json_.integer();
            break;
        case 3:
            manifest_.library = text(64, 0);
            break;
        case 4:
            manifest_.id = text(32, 32);
            (void)parse_hex(std::string_view(manifest_.id).substr(0, 16), 16);
            (void)parse_hex(std::string_view(manifest_.id).substr(16), 16);
            break;
        case 5:
            manifest_.step = bounded(0, kMaxSequence, "step");
            break;
        case 6:
            manifest_.sequence = bounded(0, kMaxSequence, "sequence");
            break;
        case 7:
            manifest_.world = bounded(1, kMaxWorld, "world");
            break;
        default:
            read_body(index);
            break;
        }
    }

    void read_body(std::size_t index) {
        switch (index) {
        case 8:
            manifest_.recipe = text(std::size_t{1} << 20, 0);
            break;
        case 9:
            manifest_.plan = parse_hex(json_.string(), 16);
            break;
        case 10:
            read_rng();
            break;
        case 11:
            list([this] { read_file(); });
            break;
        case 12:
            list([this] { read_tensor(); });
            break;
        case 13:
            list([this] { read_scalar(); });
            break;
        case 14:
            (void)parse_hex(json_.string(), 8);
            break;
        default:
            manifest_.chunk_bytes = bounded(64, int64_t{1} << 30, "chunk_bytes");
            break;
        }
    }

    template <typename Element> void list(Element&& element) {
        json_.expect('[');
        if (json_.take(']')) {
            return;
        }
        do {
            element();
        } while (json_.another(']'));
    }

    void key(std::string_view wanted) {
        if (json_.string() != wanted) {
            json_.refuse("key '%s' must stand here", wanted.data());
        }
        json_.expect(':');
    }
    void next_key(std::string_view wanted) {
        json_.expect(',');
        key(wanted);
    }

    std::string text(std::size_t most, std::size_t least) {
        const std::string_view value = json_.string();
        if (value.size() > most || value.size() < least) {
            json_.refuse("a text has %zu bytes; it must have %zu to %zu", value.size(), least,
                         most);
        }
        return std::string(value);
    }

    int64_t bounded(int64_t least, int64_t most, const char* what) {
        const int64_t value = json_.integer();
        if (value < least || value > most) {
            json_.refuse("%s is %lld; it must be %lld to %lld", what, static_cast<long long>(value),
                         static_cast<long long>(least), static_cast<long long>(most));
        }
        return value;
    }

    void read_rng() {
        json_.expect('{');
        key("algorithm");
        if (json_.string() != kRngAlgorithm) {
            json_.refuse("the random numbers are of an unknown algorithm");
        }
        next_key("seed");
        manifest_.seed = parse_hex(json_.string(), 16);
        next_key("step");
        manifest_.rng_step = bounded(0, kMaxSequence, "rng.step");
        json_.expect('}');
    }

    void read_file() {
        StoredFile file;
        json_.expect('{');
        key("name");
        file.name = text(255, 1);
        if (file.name.find('/') != std::string::npos || file.name.find('\0') != std::string::npos ||
            file.name.front() == '.' || file.name == kManifestName) {
            json_.refuse("a file's name is not that of a file beside the manifest");
        }
        next_key("bytes");
        file.bytes = bounded(0, INT64_MAX / 2, "bytes");
        next_key("crc32c");
        const std::string_view chunks = json_.string();
        if (chunks.size() % 8 != 0) {
            json_.refuse("a file's checksums are not 8 digits each");
        }
        file.chunks.reserve(chunks.size() / 8);
        for (std::size_t i = 0; i < chunks.size(); i += 8) {
            file.chunks.push_back(static_cast<uint32_t>(parse_hex(chunks.substr(i, 8), 8)));
        }
        json_.expect('}');
        manifest_.files.push_back(std::move(file));
    }

    void read_tensor() {
        StoredTensor tensor;
        json_.expect('{');
        key("name");
        tensor.name = text(255, 1);
        next_key("state");
        tensor.state = text(64, 1);
        if (tensor.state.find_first_of(".@") != std::string::npos) {
            json_.refuse("a state's name has a dot or an @");
        }
        next_key("format");
        tensor.format = parse_format(json_.string());
        if (!tensor.format.exists()) {
            json_.refuse("a tensor is in an unknown format");
        }
        next_key("shape");
        read_shape(tensor);
        next_key("pieces");
        list([&] { tensor.pieces.push_back(read_piece(tensor)); });
        json_.expect('}');
        manifest_.tensors.push_back(std::move(tensor));
    }

    // The product may not overflow whatever the order, so zeros are left out of it.
    void read_shape(StoredTensor& tensor) {
        int64_t product = 1;
        list([&] {
            const int64_t size = json_.integer();
            if (tensor.shape.size() == kMaxDimensions) {
                json_.refuse("a shape has more than %zu dimensions", kMaxDimensions);
            }
            if (size != 0 &&
                (__builtin_mul_overflow(product, size, &product) || product > (int64_t{1} << 59))) {
                json_.refuse("a shape has too many elements");
            }
            tensor.shape.push_back(size);
        });
    }

    Piece read_piece(const StoredTensor& tensor) {
        Piece piece;
        json_.expect('[');
        piece.file = json_.integer();
        json_.expect(',');
        piece.start = json_.integer();
        json_.expect(',');
        piece.length = json_.integer();
        json_.expect(']');
        const int64_t count = tensor.count();
        if (tensor.pieces.size() == kMaxPieces) {
            json_.refuse("a tensor has more than %zu pieces", kMaxPieces);
        }
        if (piece.length == 0) {
            json_.refuse("a piece is empty");
        }
        if (piece.length > count || piece.start > count - piece.length) {
            json_.refuse("a piece goes beyond its tensor");
        }
        const bool blocks = has_blocks(tensor.format.coding);
        const int64_t block = blocks ? block_size(tensor.format.coding) : 1;
        if (piece.start % block != 0 ||
            (piece.length % block != 0 && piece.start + piece.length != count)) {
            json_.refuse("a piece does not begin or end where a block of scaled codes does");
        }
        return piece;
    }

    void read_scalar() {
        json_.expect('[');
        Scalar scalar;
        scalar.name = text(kMaxNameBytes, 1);
        json_.expect(',');
        scalar.bits = parse_hex(json_.string(), 16);
        json_.expect(']');
        if (!manifest_.scalars.empty() && !(manifest_.scalars.back().name < scalar.name)) {
            json_.refuse("scalars are not ordered by name, or one appears twice");
        }
        manifest_.scalars.push_back(std::move(scalar));
    }

    void check_tensors() {
        check_files();
        const auto files = static_cast<int64_t>(manifest_.files.size());
        const StoredTensor* before = nullptr;
        for (const StoredTensor& tensor : manifest_.tensors) {
            if (before != nullptr &&
                !(std::tie(before->name, before->state) < std::tie(tensor.name, tensor.state))) {
                refuse("tensors are not ordered by name, or one appears twice");
            }
            before = &tensor;
            for (const Piece& piece : tensor.pieces) {
                if (piece.file >= files) {
                    refuse("a piece is in a file that is not listed");
                }
            }
            if (!is_part_) {
                check_tiles(tensor);
            }
        }
    }

    static void check_tiles(const StoredTensor& tensor) {
        int64_t end = 0;
        for (const Piece& piece : tensor.pieces) {
            if (piece.start != end) {
                fail(Code::corrupt_data,
                     "manifest: the pieces of '%s' (%s) have a hole or an overlap at element %lld",
                     tensor.name.c_str(), tensor.state.c_str(), static_cast<long long>(end));
            }
            end += piece.length;
        }
        if (end != tensor.count()) {
            fail(Code::corrupt_data,
                 "manifest: the pieces of '%s' (%s) end at element %lld of %lld",
                 tensor.name.c_str(), tensor.state.c_str(), static_cast<long long>(end),
                 static_cast<long long>(tensor.count()));
        }
    }

    void check_files() const {
        std::deque<std::string_view> names;
        for (const StoredFile& file : manifest_.files) {
            names.emplace_back(file.name);
            const auto chunks = static_cast<int64_t>(file.chunks.size());
            // Without a sum that could wrap.
            const int64_t wanted = file.bytes / manifest_.chunk_bytes +
                                   (file.bytes % manifest_.chunk_bytes != 0 ? 1 : 0);
            if (chunks != wanted) {
                refuse("a file's size and its number of checksums disagree");
            }
        }
        std::sort(names.begin(), names.end());
        if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
            refuse("a file is listed twice");
        }
        if (!is_part_ && static_cast<int64_t>(names.size()) != manifest_.world) {
            refuse("the number of files is not that of the ranks");
        }
    }

    std::string text_;
    JsonReader json_;
    bool is_part_;
    Manifest manifest_;
    std::array<bool, kKeys.size()> seen_{};
};

} // namespace

uint64_t parse_hex(std::string_view text, int digits) {
    uint64_t value = 0;
    if (text.size() != static_cast<std::size_t>(digits)) {
        refuse("a hexadecimal number has not as many digits as it must");
    }
    for (const char c : text) {
        const bool is_letter = c >= 'a' && c <= 'f';
        if (!is_letter && !(c >= '0' && c <= '9')) {
            refuse("a hexadecimal number has another character");
        }
        value = (value << 4) | static_cast<uint64_t>(is_letter ? c - 'a' + 10 : c - '0');
    }
    return value;
}

Manifest read_manifest(std::string text) {
    check_crc(text);
    return Reader(std::move(text), false).read();
}

Manifest read_part(std::string text) {
    check_crc(text);
    return Reader(std::move(text), true).read();
}

} // namespace mp::checkpoint
