// SPDX-License-Identifier: Apache-2.0
// Reading a manifest: the checksum first, then one strict pass over its keys, then what must hold between its fields.
#include <algorithm>
#include <array>

#include "checkpoint/manifest_fields.hpp"
#include "status/status.hpp"
#include "system/crc32c.hpp"
#include "system/name.hpp"

namespace mp::checkpoint {
namespace {

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
    if (system::crc32c(0, text.data(), covered) != said) {
        refuse("its checksum does not fit its contents; the file is damaged");
    }
}

using Json = ManifestReader;

struct Key {
    std::string_view name;
    void (*read)(Json& json, Manifest& to);
    int64_t since = 0; // minor version
};
constexpr std::size_t kMaxLine = 4096; // of a text for people

void read_format(Json& json, Manifest& /*to*/) {
    if (json.string() != "mixedprec-checkpoint") {
        json.refuse("this is no checkpoint of this library");
    }
}

void read_version(Json& json, Manifest& to) {
    to.version = json.integer();
    if (to.version < 1) {
        json.refuse("there is no format version 0");
    }
    if (to.version > kFormatVersion) {
        fail(Code::version_mismatch,
             "manifest: format version %lld is not known; this library reads 1 to %lld; "
             "install a newer library",
             static_cast<long long>(to.version), static_cast<long long>(kFormatVersion));
    }
}

void read_id(Json& json, Manifest& to) {
    to.id = json.text(32, 32);
    const std::string_view digits = to.id;
    (void)parse_hex(digits.substr(0, 16), 16);
    (void)parse_hex(digits.substr(16), 16);
}

void read_rng(Json& json, Manifest& to) {
    json.expect('{');
    json.expect_key("algorithm");
    if (json.string() != kRngAlgorithm) {
        json.refuse("the random numbers are of an unknown algorithm");
    }
    json.expect_key("seed");
    to.seed = json.hexadecimal(16);
    json.expect_key("step");
    to.rng_step = json.bounded(0, kMaxSequence, "rng.step");
    json.expect('}');
}

void read_scalars(Json& json, Manifest& to) {
    json.list([&] {
        Scalar scalar = json.scalar();
        if (!to.scalars.empty() && !(to.scalars.back().name < scalar.name)) {
            json.refuse("scalars are not ordered by name, or one appears twice");
        }
        to.scalars.push_back(std::move(scalar));
    });
}

// The first kHeadKeys say how to read the rest, so they come first.
constexpr std::size_t kHeadKeys = 3;
constexpr std::array kKeys = {
    Key{"format", read_format},
    Key{"version", read_version},
    Key{"minor", [](Json& json, Manifest& to) { to.minor = json.integer(); }},
    Key{"library", [](Json& json, Manifest& to) { to.library = json.text(64, 0); }},
    Key{"id", read_id},
    Key{"step", [](Json& json, Manifest& to) { to.step = json.bounded(0, kMaxSequence, "step"); }},
    Key{"sequence",
        [](Json& json, Manifest& to) { to.sequence = json.bounded(0, kMaxSequence, "sequence"); }},
    Key{"world", [](Json& json, Manifest& to) { to.world = json.bounded(1, kMaxWorld, "world"); }},
    Key{"recipe", [](Json& json, Manifest& to) { to.recipe = json.text(std::size_t{1} << 20, 0); }},
    Key{"preset", [](Json& json, Manifest& to) { to.preset = json.text(kMaxLine, 0); }, 2},
    Key{"device", [](Json& json, Manifest& to) { to.device = json.text(kMaxLine, 0); }, 2},
    Key{"plan", [](Json& json, Manifest& to) { to.plan = json.hexadecimal(16); }},
    Key{"chunk_bytes",
        [](Json& json, Manifest& to) {
            to.chunk_bytes = json.bounded(64, int64_t{1} << 30, "chunk_bytes");
        }},
    Key{"rng", read_rng},
    Key{"files",
        [](Json& json, Manifest& to) { json.list([&] { to.files.push_back(json.file()); }); }},
    Key{"tensors",
        [](Json& json, Manifest& to) { json.list([&] { to.tensors.push_back(json.tensor()); }); }},
    Key{"scalars", read_scalars},
    Key{"crc32c", [](Json& json, Manifest& /*to*/) { (void)json.hexadecimal(8); }},
};

class Reader {
  public:
    explicit Reader(std::string_view text) : json_(text) {}

    Manifest read() {
        json_.expect('{');
        do {
            read_key(json_.key());
        } while (json_.another('}'));
        for (std::size_t i = 0; i < kKeys.size(); ++i) {
            if (!seen_[i] && kKeys[i].since <= manifest_.minor) {
                json_.refuse("key '%s' is missing", kKeys[i].name.data());
            }
        }
        return std::move(manifest_);
    }

  private:
    using Seen = std::array<bool, kKeys.size()>;
    [[nodiscard]] bool has_head() const {
        return std::all_of(seen_.begin(), seen_.begin() + kHeadKeys,
                           [](bool seen) { return seen; });
    }

    void read_key(std::string_view name) {
        const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                        [name](const Key& key) { return key.name == name; });
        if (found == kKeys.end()) {
            pass_over(name);
            return;
        }
        const auto index = static_cast<std::size_t>(found - kKeys.begin());
        if (seen_[index]) {
            json_.refuse("key '%s' appears twice", found->name.data());
        }
        if (index >= kHeadKeys && !has_head()) {
            json_.refuse("format, version and minor must come first");
        }
        if (found->since > manifest_.minor) {
            json_.refuse("key '%s' came with minor version %lld", found->name.data(),
                         static_cast<long long>(found->since));
        }
        seen_[index] = true;
        found->read(json_, manifest_);
    }

    // A later minor version may have keys that this one does not know.
    void pass_over(std::string_view name) {
        if (!has_head() || manifest_.minor <= kFormatMinor) {
            json_.refuse("key '%.*s' is unknown", system::shown(name, 32), name.data());
        }
        json_.skip_value();
    }

    ManifestReader json_;
    Manifest manifest_;
    Seen seen_{};
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

Manifest read_manifest(const std::string& text) {
    check_crc(text);
    Manifest manifest = Reader(text).read();
    check_manifest(manifest);
    return manifest;
}

} // namespace mp::checkpoint
