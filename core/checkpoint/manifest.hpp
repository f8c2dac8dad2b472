// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: which files it consists of with their checksums, and which slices of which tensors lie
// where. One canonical form of bytes, whose last key is the checksum of all before it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "dtype/format_id.hpp"
#include "model/manifest_name.hpp"

namespace mp::checkpoint {

inline constexpr int64_t kFormatVersion = 1;
// Raised when keys are added that an older reader may pass over.
// 1: groups have a rule. 2: preset, device. 3: parameters have a group, and those that came to it later a step.
inline constexpr int64_t kFormatMinor = 3;
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 28;
inline constexpr int64_t kMaxWorld = int64_t{1} << 20;
inline constexpr int64_t kDefaultChunk = int64_t{4} << 20;
using model::kManifestName;

inline constexpr std::size_t kMaxSlices = 1 << 15; // of a tensor

// Elements [start, start + length) of a tensor's logical order, as one tensor of a file.
struct StoredSlice {
    int64_t file = 0; // of Manifest::files
    int64_t start = 0;
    int64_t length = 0; // > 0
};

struct StoredTensor {
    std::string name;  // the parameter, the layer, the caller's blob
    std::string state; // "param", "exp_avg", "exp_avg_scale_inv", "blob", ...
    FormatId format = FormatId::none;
    std::vector<int64_t> shape;
    std::vector<StoredSlice>
        slices; // ordered by start; they tile the tensor; none where it is empty

    [[nodiscard]] int64_t count() const noexcept;
    // What the slice is called in its file: "<name>.<state>", and "@<start>" where it is not the whole.
    [[nodiscard]] std::string key(const StoredSlice& slice) const;
    void exchange(auto& bytes) { bytes(name, state, format, shape, slices); }
};

struct StoredFile {
    std::string name;
    int64_t bytes = 0;
    std::vector<uint32_t> chunks; // CRC-32C of each chunk of Manifest::chunk_bytes
    void exchange(auto& file_bytes) { file_bytes(name, bytes, chunks); }
};

struct Scalar {
    std::string name;
    uint64_t bits = 0; // of an integer, or of a double
    void exchange(auto& bytes) { bytes(name, bits); }
};

struct Manifest {
    int64_t version = kFormatVersion;
    int64_t minor = kFormatMinor;
    std::string library;
    std::string id; // 32 hexadecimal digits, also in each file's metadata
    int64_t step = 0;
    int64_t sequence = 0; // counts the checkpoints of a directory: the highest is the newest
    int64_t world = 1;    // ranks that saved
    std::string recipe;   // canonical JSON
    std::string preset;   // the same for people; empty: no optimizer, or saved before minor 2
    std::string device;   // what rank 0's products depended on: products_text(); or empty
    uint64_t plan = 0;    // hash of how tensors were cut
    int64_t chunk_bytes = kDefaultChunk;
    uint64_t seed = 0; // of the random numbers, which follow from {seed, parameter, element, step}
    int64_t rng_step = 0;             // t: applied steps
    std::deque<StoredFile> files;     // deques: no allocation grows beyond what was read
    std::deque<StoredTensor> tensors; // ordered by name, then state
    std::deque<Scalar> scalars;       // ordered by name

    // Null where there is none.
    [[nodiscard]] const StoredTensor* find(const std::string& name, const std::string& state) const;
    [[nodiscard]] const Scalar* find_scalar(const std::string& name) const;
    // Between ranks: see system/bytes.hpp.
    void exchange(auto& bytes) {
        bytes(version, minor, library, id, step, sequence, world, recipe, preset, device, plan,
              chunk_bytes, seed, rng_step, files, tensors, scalars);
    }
};

inline constexpr const char* kRngAlgorithm = "philox4x32-10";

// Orders tensors and slices; throws invalid_argument for what no reader would take.
std::string write_manifest(Manifest& manifest);
// Throws version_mismatch for a later format, and corrupt_data unless everything in it agrees: its checksum, its
// numbers, slices that tile, files that are named once and lie beside it.
Manifest read_manifest(const std::string& text);

// Its text alone, which read_manifest() may refuse.
std::string manifest_text(Manifest& manifest);
// What must hold between its fields: the last that read_manifest() asks. Throws corrupt_data.
void check_manifest(const Manifest& manifest);

std::string hex(uint64_t value, int digits);
// Throws corrupt_data for anything but `digits` lower-case hexadecimal digits.
uint64_t parse_hex(std::string_view text, int digits);

} // namespace mp::checkpoint
